"""The desired state of a resource: what is wanted, and the objects and pods that follow from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from covey.compile import Layout, RoleRevision, Scale, Tree
from covey.model import podstate
from covey.operator.feature import Feature, PlanInput, at, find_intent
from covey.operator.intent import Intent
from covey.operator.objects.apply import Deviation, find_deviations
from covey.operator.replicas.progress import replica_states, running_revisions
from covey.operator.replicas.scale_down import choose_units, keep_numbers


@dataclass(frozen=True, slots=True)
class Desired:
    """What is wanted, compiled without a unit that is taken down to be made again.

    ``deviations``: of each level of the tree, the objects that are not as they are wanted.
    """

    intent: Intent
    tree: Tree
    deviations: tuple[tuple[Deviation, ...], ...]


def desire(given: PlanInput, features: Iterable[Feature]) -> Desired:
    """Decide the desired state of a resource, by features that are asked in this order."""
    # 1. What runs, of which revision, and what is wanted.
    running = running_revisions(given.observed, given.in_force)
    before = Intent(running, replica_states(given.observed, given.in_force, running))
    want = _compile(given, find_intent(features, before))
    # 2. What the API server would not change is made again: a unit that serves is wanted once more beside it.
    want = _recreate(want, features)
    if want.intent.remade is not None:
        before = replace(before, remade=want.intent.remade)
        want = _recreate(_compile(given, find_intent(features, before)), features)
    # 3. One that serves nobody is taken down, one unit at a time.
    return want if want.intent.taken_down is None else _compile(given, want.intent)


def _recreate(want: Desired, features: Iterable[Feature]) -> Desired:
    intent = want.intent
    for feature in at(features, "recreate"):
        intent = feature.recreate(intent, want.deviations)
    return replace(want, intent=intent)


def _compile(given: PlanInput, intent: Intent) -> Desired:
    if not intent.layout.units:
        intent = replace(intent, layout=_keep(given, intent))
    rest = {unit: roles for unit, roles in intent.layout.units.items() if unit != intent.taken_down}
    tree = given.compile(replace(intent.layout, units=rest))
    return Desired(intent, tree, tuple(tuple(find_deviations(level.objects, given.observed)) for level in tree.levels))


def _keep(given: PlanInput, intent: Intent) -> Layout:
    """Lay out what is wanted where no feature has: what runs keeps its number and its revision."""
    scale = Scale.of(given.spec, intent.totals)
    chosen = choose_units(scale, given.observed, intent.states)
    scale = scale.over(chosen)
    going = {slot[:3] for slot, pod in given.observed.current.items() if podstate.is_draining(pod)}
    units: dict[int, dict[str, dict[int, RoleRevision]]] = {}
    for unit in chosen:
        for role, count in scale.unit(unit).items():
            known = intent.states.get(unit, {}).get(role, {})
            stay = {
                number: state.standing
                for number, state in known.items()
                if (unit, role, number) not in going and (unit, role, number) not in intent.preempted
            }
            units.setdefault(unit, {})[role] = {
                number: intent.running.get((unit, role, number), given.in_force.roles[role])
                for number in keep_numbers(stay, count.replicas, taken=known.keys() - stay.keys())
            }
    return Layout(units, scale=scale if scale.totals else None)
