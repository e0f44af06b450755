"""Moves that would free domains or start a gang (``covey plan --defrag``). Nothing moves by itself."""

from __future__ import annotations

from collections.abc import Iterator

from covey.admission.defrag import Consolidation, Mobile, MovePlan
from covey.admission.gangs import Surroundings, UnplannableError, build_gang
from covey.admission.moves import ReplicaMove
from covey.admission.topologies import kept_preset
from covey.manifests.errors import InputError
from covey.placement.anti_affinity import pod_spread_of
from covey.placement.cluster.shape import unmodelled_constraints
from covey.placement.model import Gang, Refusal, Verdict, where
from covey.planning.preemptions import leaves
from covey.planning.report import ConsolidationReport, MoveReport
from covey.planning.run import Planned


def consolidate(planned: Planned, name: str | None, free: str | None) -> ConsolidationReport:
    """Find the moves after which a gang starts, or domains are free.

    Args:
        planned: what was planned; its inventory is as it was afterwards.
        name: of the resource or root that waits, as ``NS/NAME``.
        free: a number and a level, as ``1 rack``, or ``+1 rack`` for one more than are free; one of the narrowest level
            but hosts where neither is given.

    Raises:
        InputError: there is no such level, or nothing of that name waits.
    """
    pods = [*planned.facts.pods, *(pod for workload in planned.workloads for pod in workload.pods.values())]
    every = list(_mobiles(planned))
    asker = Consolidation(planned.inventory, every, frozenset(pod.metadata.uid for pod in pods if leaves(pod)))
    if name is not None:
        gang = _gang(planned, every, name)
        goal = f"{name} unit {gang.unit}"
        roots = {mobile.unit.root.metadata.uid: key for key, mobile in planned.world.candidates.items()}
        allowed = planned.world.allowed(roots[gang.uid]) if _lacks_minimum(gang) else gang
        if isinstance(allowed, Refusal):
            message = f"{goal}: no moves help: {allowed.reasons[0].message}"
            return ConsolidationReport(goal, allowed.verdict.value, (), (), (), least=False, message=message)
        if not _lacks_minimum(gang):
            return _report(goal, asker.widen(allowed), f"{goal} has capacity for all of its replicas")
        return _report(goal, asker.start(allowed), f"{goal} has its capacity")
    count, level, more = _target(planned, free)
    moves = asker.free(planned.topology.name, level, count, more=more)
    goal = f"{count}{' more' if more else ''} {level}"
    return _report(goal, moves, f"{goal} {'is' if count == 1 else 'are'} free")


def _mobiles(planned: Planned) -> Iterator[Mobile]:
    shape = planned.world.shape
    for candidate in planned.world.candidates.values():
        unit = candidate.unit
        constraints = unit.root.spec.scheduling_constraints
        topology = planned.inventory.topologies.get(
            (constraints and constraints.topology_name) or kept_preset(unit.root) or planned.topology.name
        )
        if topology is None or any(
            pod.spec.resource_claims or unmodelled_constraints(pod) or pod_spread_of(pod) for pod in unit.pods()
        ):
            continue
        try:
            yield Mobile(candidate, build_gang(unit, topology, shape, Surroundings(candidate.priority)))
        except UnplannableError:
            continue


def _gang(planned: Planned, every: list[Mobile], name: str) -> Gang:
    """The first unit of a name whose minimum has no places; else the first whose surplus has none where it is."""
    given = [gang for gangs in planned.gangs for gang in gangs]
    known = {gang.uid for gang in given}
    named = [
        gang
        for gang in (*given, *(planned_gang.gang for planned_gang in every if planned_gang.gang.uid not in known))
        if f"{gang.namespace}/{gang.name}" == name
    ]
    chosen = next(filter(_lacks_minimum, named), None) or next(filter(_is_stuck, named), None)
    if chosen is not None:
        return chosen
    raise InputError("--for", f"nothing named {name} waits for nodes", "name one that does, as NAMESPACE/NAME")


def _lacks_minimum(gang: Gang) -> bool:
    return any(sum(replica.placed for replica in role.replicas) < role.minimum for role in gang.roles)


def _is_stuck(gang: Gang) -> bool:
    return gang.required is not None and any(not replica.placed for role in gang.roles for replica in role.replicas)


def _target(planned: Planned, free: str | None) -> tuple[int, str, bool]:
    """A number, a level, and whether the number is beyond those that are free."""
    levels = [level.name for level in planned.topology.levels]
    if free is None and levels:
        return 1, levels[-2] if len(levels) > 1 else levels[-1], False
    given, _, level = (free or "").strip().partition(" ")
    number = given.removeprefix("+")
    if not number.isdecimal() or not int(number) or level not in levels:
        known = ", ".join(levels) or "none"
        raise InputError("--free", f"{free} is no number and level", f'write "1 LEVEL"; levels are {known}')
    return int(number), level, number != given


def _report(goal: str, consolidation: MovePlan, done: str) -> ConsolidationReport:
    count = len(consolidation.moves)
    moves = f"{count} move{'s' if count != 1 else ''}"
    if consolidation.verdict is not Verdict.ADMITTED:
        known = (
            "no moves do: proven"
            if consolidation.verdict is Verdict.INFEASIBLE
            else "no moves were found; there may be some"
        )
        message = f"{done}: {known}"
    elif not count:
        message = f"{done} without any move"
    else:
        places = ", ".join(map(where, consolidation.paths))
        message = f"{done}{f': {places}' if places else ''} after {moves}, {'' if consolidation.least else 'not '}proven least"
    return ConsolidationReport(
        goal,
        consolidation.verdict.value,
        tuple(map(_move, consolidation.moves)),
        consolidation.paths,
        consolidation.nodes,
        consolidation.least,
        message,
    )


def _move(move: ReplicaMove) -> MoveReport:
    key = move.unit
    return MoveReport(
        *(key.namespace, move.resource, move.number, move.role, move.replica),
        *(move.surplus, move.together, move.source, move.target),
    )
