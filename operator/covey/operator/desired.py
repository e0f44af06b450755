"""The desired state: units and replicas, each with its revision, and the objects and pods that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from covey.api import constants as names
from covey.api.inference import DisaggregatedInference, Routing
from covey.api.roles import Serves
from covey.backends import Backend
from covey.backends.extender import can_reserve
from covey.compile import Layout, Scale, Tree
from covey.compile.groups import Levels
from covey.compile.revision import Revision
from covey.operator.model.observed import Observed
from covey.operator.objects import Deviation, find_deviations, with_former_budget
from covey.operator.quota.fit import find_shortage
from covey.operator.replicas.scale import Running, States, replica_states, running_revisions
from covey.operator.rolling.capability import find_lacking
from covey.operator.rolling.evacuate import Idle, find_idle
from covey.operator.rolling.exclusive import find_exclusive
from covey.operator.rolling.give_way import Victims
from covey.operator.rolling.layout import Rolling, roll
from covey.operator.rolling.leaving import Leaving, find_leaving
from covey.operator.rolling.pairing import Pairing, find_pairing, with_pairs
from covey.operator.rolling.remake import Remake, find_remake
from covey.operator.rolling.succession import Shortage, Successions
from covey.operator.scaling.exchange import Vector, find_committed
from covey.operator.scaling.scaler import Scalers, find_scalers


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
    scalers: Scalers
    #: Replicas of the roles that are scaled together, over all units.
    committed: Vector
    rolling: Rolling
    #: Which pods a router may pair.
    pairing: Pairing
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
    inference: DisaggregatedInference,
    in_force: Revision,
    backend: Backend,
    levels: Levels | None,
    observed: Observed,
    victims: Victims,
    before: Mapping[str, Any],
) -> Desired:
    """Decide the desired state of a resource.

    Args:
        inference: the resource, with the spec that is kept up.
        in_force: the revision that is rolled out.
        backend: makes the groups.
        levels: of the topology, where they are known.
        observed: the snapshot.
        victims: the replicas that give way to claims.
        before: the status so far, which alone remembers how a rollout went.
    """
    spec, scale = inference.spec, Scale.of(inference.spec)

    def compile_layout(layout: Layout) -> Tree:
        tree = backend.compile(inference, layout=layout, revision=in_force, levels=levels)
        return with_former_budget(tree, spec, observed)

    def shortage_in(layout: Layout) -> Shortage:
        tree = compile_layout(layout)
        return lambda coming, gone: "; ".join(map(str, find_shortage(tree, observed, coming, gone)))

    # 1. What runs, of which revision; which replicas have to leave their nodes; what autoscalers ask for.
    running = running_revisions(observed, in_force)
    states = replica_states(observed, in_force, running)
    leaving = replace(find_leaving(spec, observed), claimed=victims.places.keys())
    idle = find_idle(spec, leaving, states, observed)
    scalers = find_scalers(spec, inference.metadata.name, observed, states, before)
    committed = find_committed(spec, inference.metadata.name, observed, states, before) if spec.is_exchanged else {}
    totals = {**scalers.totals, **committed}
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
    # 4. Revisions that run side by side have pairings, and Services, of their own.
    pairing = find_pairing(spec, in_force, rolling.layout, observed, states)
    if spec.rollout is not None and spec.rollout.routing is Routing.EXCLUSIVE:
        pairing = find_exclusive(pairing, spec, in_force, rolling.layout, observed, states)
    if any(role.serves is Serves.BOTH for role in spec.roles):
        short = find_lacking(spec, rolling.layout, observed)
        pairing = replace(pairing, remarks=(*pairing.remarks, *short))
    tree = with_pairs(tree, spec, in_force, observed, states)
    return Desired(
        scale, running, states, leaving, idle, scalers, committed, rolling, pairing, remake, tree, deviations
    )


def _is_confirmed(inference: DisaggregatedInference) -> bool:
    """Tell whether the owner lets units be taken down for this generation of the spec before others serve."""
    metadata = inference.metadata
    return (metadata.annotations or {}).get(names.ANNOTATION_REMAKE) == str(metadata.generation)


def _deviations(tree: Tree, observed: Observed) -> tuple[tuple[Deviation, ...], ...]:
    return tuple(find_deviations(level.objects, observed) for level in tree.levels)
