"""The desired state: units and replicas, each with its revision, and the objects and pods that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.backends import Backend
from covey.backends.extender import can_reserve
from covey.compile import Layout, Scale, Tree
from covey.operator.feature import Feature, Intent, PlanInput, find_intent
from covey.operator.model.observed import Observed
from covey.operator.objects import Deviation, find_deviations, with_former_budget
from covey.operator.replicas.raised import with_met_minimums
from covey.operator.replicas.scale import Running, States, replica_states, running_revisions
from covey.operator.rolling.evacuate import Idle, find_idle
from covey.operator.rolling.layout import Rolling, roll
from covey.operator.rolling.leaving import Leaving, find_leaving
from covey.operator.rolling.remake import Remake, find_remake
from covey.operator.rolling.succession import Shortage, Successions


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state of a resource, and the findings that it was decided from."""

    scale: Scale
    #: Of which revision each replica is, and how far it has come.
    running: Running
    states: States
    #: Replicas that have to leave their nodes.
    leaving: Leaving
    #: Those of them that serve nobody, and may be evicted.
    idle: Idle
    intent: Intent
    rolling: Rolling
    #: What cannot be changed in place.
    remake: Remake
    #: Without a unit that is taken down to be made again.
    tree: Tree
    #: Of each level of the tree, the objects that are not as they are wanted.
    deviations: tuple[tuple[Deviation, ...], ...]

    @property
    def layout(self) -> Layout:
        """All units and replicas."""
        return self.rolling.layout


def desire(
    given: PlanInput,
    backend: Backend,
    features: Iterable[Feature],
) -> Desired:
    """Decide the desired state of a resource.

    Args:
        given: what the plan is made from.
        backend: makes the groups.
        features: asked in this order.
    """
    inference, in_force, observed, before = given.inference, given.in_force, given.observed, given.before
    spec, scale = inference.spec, Scale.of(inference.spec)

    def compile_layout(layout: Layout) -> Tree:
        tree = backend.compile(inference, layout=layout, revision=in_force, levels=given.levels)
        return with_met_minimums(with_former_budget(tree, spec, observed), backend, observed)

    def shortage_in(layout: Layout) -> Shortage:
        tree = compile_layout(layout)
        return partial(intent.lacks, tree)

    # 1. What runs, of which revision; which replicas have to leave their nodes; what autoscalers ask for.
    running = running_revisions(observed, in_force)
    states = replica_states(observed, in_force, running)
    intent = find_intent(features, Intent(running, states))
    leaving = replace(find_leaving(spec, observed), claimed=intent.preempted.keys())
    idle = find_idle(spec, leaving, states, observed)
    totals = intent.totals
    # 2. Surplus goes, missing numbers are filled, revisions are rolled.
    asked = Successions(inference.metadata.name, observed, shortage_in, asks=can_reserve(backend.name))
    rolling = roll(spec, in_force, observed, states, running, asked, before, totals, leaving)
    tree = compile_layout(rolling.layout)
    deviations = _deviations(tree, observed)
    # 3. What the API server would not change is made again, one unit at a time: next to it if it serves.
    remake = find_remake(backend, rolling.layout, deviations, scale, states, confirmed=_is_confirmed(inference))
    if remake.beside is not None:
        rolling = roll(spec, in_force, observed, states, running, asked, before, totals, leaving, remake.beside)
        tree = compile_layout(rolling.layout)
        deviations = _deviations(tree, observed)
        remake = remake.with_move(backend, deviations, rolling.move)
    if remake.unit is not None:
        tree = compile_layout(remake.rest(rolling.layout))
        deviations = _deviations(tree, observed)
    intent = replace(
        intent,
        layout=rolling.layout,
        arriving=rolling.arriving,
        rolls=rolling.progress is not None,
        units=rolling.states,
        avoided=leaving.avoided,
    )
    return Desired(scale, running, states, leaving, idle, intent, rolling, remake, tree, deviations)


def _is_confirmed(inference: DisaggregatedInference) -> bool:
    """Tell whether the owner lets units be taken down for this generation of the spec before others serve."""
    metadata = inference.metadata
    return (metadata.annotations or {}).get(names.ANNOTATION_REMAKE) == str(metadata.generation)


def _deviations(tree: Tree, observed: Observed) -> tuple[tuple[Deviation, ...], ...]:
    return tuple(find_deviations(level.objects, observed) for level in tree.levels)
