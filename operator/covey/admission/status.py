"""The status of groups: pure, computed whole from the unit as it is and the last decision about it.

Nothing here needs a memory: after a restart the pods tell what is admitted and bound, the old status tells since
when, and the first pass of admission tells why not. A condition's transition time changes with its status only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from covey.admission.gangs import find_unkept_spreads
from covey.admission.nodes import TreeNode
from covey.admission.preferred_levels import preferences
from covey.admission.roles import Replica, UnitRole
from covey.admission.split_groups import find_split_groups
from covey.admission.tree import Unit, replica_met
from covey.api import core
from covey.api.constants import (
    ADMITTED,
    LABEL_ROLE,
    MOVABLE,
    REASON_ADMITTED,
    REASON_BELOW_MINIMUM,
    REASON_INFEASIBLE,
    REASON_WAITING,
    REFUSALS,
    SCHEDULED,
    SURPLUS_ADMITTED,
    TOPOLOGY_SATISFIED,
)
from covey.model import podstate
from covey.placement.cluster.shape import has_unkept_spread, unmodelled_constraints
from covey.placement.model import Path, Topology

Settled = Callable[[core.Pod], bool]
NodePath = Callable[[str], Path]
#: Reasons for want of something else than room.
_STUCK: Final = frozenset(REFUSALS) - {REASON_INFEASIBLE}
#: What ``Movable`` says; its reason names what it is about.
_MOVES: Final = "it would fit if what is left of this were given up and placed anew"


@dataclass(frozen=True, slots=True)
class Decision:
    """The last decision of admission about a unit.

    ``reason`` is why its minimum is not admitted: nothing when it is, or when nothing was decided yet. ``topology`` is
    the one that was used. ``move``: what would have to be given up for it to fit (``moving``). The rest is to be kept
    in the root's status. Of a unit whose minimum is admitted ``reason`` and ``message`` are about its surplus.
    """

    reason: str | None = None
    message: str = ""
    topology: Topology | None = None
    excluded: tuple[core.ExcludedNode, ...] = ()
    claim: core.Claim | None = None
    move: str = ""
    succession: core.GroupSuccession | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """One condition without its time."""

    type: str
    true: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Facts:
    """One group's status before the old one is looked at."""

    group: core.Group
    said: Sequence[Said]
    admitted: int
    scheduled: int
    nodes: Sequence[str] = ()
    decision: Decision = field(default_factory=Decision)


def statuses(
    unit: Unit, decision: Decision, path_of: NodePath, now: str, settled: Settled = lambda _: False
) -> list[tuple[core.Group, dict[str, Any]]]:
    """The status of every group of a unit.

    Args:
        unit: the unit as it is.
        decision: the last decision about it.
        path_of: a node's domain path in the unit's topology.
        now: the time of conditions that change, RFC 3339.
        settled: whether all claims of a pod are bound to volumes.
    """
    desired = {id(role.group): role.desired for role in unit.roles}
    replicas = {id(replica.group): replica for role in unit.roles if role.whole for replica in role.replicas}
    facts = [_root(unit, decision, path_of, settled)]
    for node in unit.tree.walk():
        if node is not unit.tree:
            replica = replicas.get(id(node.group))
            facts.append(_leaf(replica) if node.leaf and replica else _group(node, desired.get(id(node.group))))
    return [(fact.group, _status(fact, decision.topology, path_of, now)) for fact in facts]


def _root(unit: Unit, decision: Decision, path_of: NodePath, settled: Settled) -> Facts:
    admitted, bound = _is_minimum_met(unit, podstate.is_placed), _is_minimum_met(unit, podstate.occupies_node)
    conditions = [
        _with_warning(
            unit,
            settled,
            Said(ADMITTED, admitted, REASON_ADMITTED, _admission_message(unit, decision))
            if admitted
            else Said(ADMITTED, admitted, *_why_not(unit, decision)),
            decision.topology,
            path_of,
        ),
        Said(
            SCHEDULED, bound, SCHEDULED if bound else REASON_WAITING, _tally(unit, podstate.occupies_node, "are bound")
        ),
        *_preferences(unit, decision.topology, path_of),
        *_refused_surplus(unit, decision, admitted=admitted),
        *([] if admitted or not decision.move else [Said(MOVABLE, true=True, reason=decision.move, message=_MOVES)]),
    ]
    nodes = _places(unit.followers())
    tree = unit.tree
    return Facts(
        unit.root,
        conditions,
        tree.count_met(podstate.is_placed),
        tree.count_met(podstate.occupies_node),
        nodes,
        decision,
    )


def _refused_surplus(unit: Unit, decision: Decision, *, admitted: bool) -> Iterator[Said]:
    if admitted and decision.reason in REFUSALS and not all(map(podstate.is_placed, unit.pods())):
        yield Said(SURPLUS_ADMITTED, true=False, reason=decision.reason, message=decision.message)


def _group(node: TreeNode, desired: int | None) -> Facts:
    """A group below the root: how many of its pods, or of its groups, have what they need."""
    admitted, bound = node.count_met(podstate.is_placed), node.count_met(podstate.occupies_node)
    need = max(node.count, 1)
    ours = node.group.metadata.label(LABEL_ROLE) is not None
    what = "replicas" if ours else "pods" if node.leaf else "groups"
    there = desired if desired is not None else max(need, len(node.pods if node.leaf else node.gangs))
    condition = _both(admitted >= need, bound >= need, f"{admitted} of {there} {what}")
    return Facts(node.group, condition, admitted, bound, _places(pod for below in node.walk() for pod in below.pods))


def _leaf(replica: Replica) -> Facts:
    admitted = sum(map(podstate.is_placed, replica.pods))
    bound = sum(map(podstate.occupies_node, replica.pods))
    condition = _both(admitted >= replica.size, bound >= replica.size, f"{admitted} of {replica.size} pods")
    return Facts(replica.group, condition, admitted, bound, _places(replica.pods))


def _both(admitted: bool, bound: bool, tally: str) -> list[Said]:  # noqa: FBT001 - two answers of one kind
    return [
        Said(ADMITTED, admitted, REASON_ADMITTED if admitted else REASON_WAITING, f"{tally} are assigned nodes"),
        Said(SCHEDULED, bound, SCHEDULED if bound else REASON_WAITING, "bound" if bound else "not all bound yet"),
    ]


def _is_minimum_met(unit: Unit, accepted: Callable[[core.Pod], bool]) -> bool:
    """The unit's minimum holds; where none is asked for, at least something of it is there."""
    return unit.minimum_met(accepted) and any(map(accepted, unit.pods()))


def _admission_message(unit: Unit, decision: Decision) -> str:
    """The progress of a unit, and the obstacle to its surplus, unless that is only room."""
    tally = _tally(unit, podstate.is_placed, "are assigned nodes")
    stuck = decision.reason in _STUCK
    return f"{tally}; {decision.message}" if stuck else tally


def _why_not(unit: Unit, decision: Decision) -> tuple[str, str]:
    if decision.reason is not None:
        return decision.reason, decision.message
    if any(podstate.occupies_node(pod) for pod in unit.pods()):
        return REASON_BELOW_MINIMUM, _tally(unit, podstate.is_placed, "are assigned nodes")
    return REASON_WAITING, "waits to be planned"


def _with_warning(unit: Unit, settled: Settled, said: Said, topology: Topology | None, path_of: NodePath) -> Said:
    """Say what the plan does not take into account, so that nobody wonders why kube-scheduler disagrees with it."""
    names = sorted({name for pod in unit.pods() for name in unmodelled_constraints(pod, volumes_settled=settled(pod))})
    if names:
        said = replace(said, message=f"{said.message}; the pods use what Covey does not model: {', '.join(names)}")
    if any(map(has_unkept_spread, unit.pods())) or (topology is not None and find_unkept_spreads(unit, topology)):
        said = replace(said, message=f"{said.message}; {_UNKEPT}")
    torn = list(find_split_groups(unit, topology, path_of)) if topology is not None and said.true else []
    if torn:
        said = replace(said, message="; ".join([said.message, *torn]))
    if unit.untried:
        untried = ", ".join(unit.untried)
        said = replace(said, message=f"{said.message}; preferred inside what comes whole, and not tried: {untried}")
    return said


_UNKEPT: Final = (
    "their topologySpreadConstraints with DoNotSchedule are kept by nobody, as each is pinned to one node: write"
    " ScheduleAnyway, or nodeAffinityPolicy Ignore"
)


def _tally(unit: Unit, accepted: Callable[[core.Pod], bool], what: str) -> str:
    """``prefill 3/4 (minimum 1), decode 2/2 (minimum 2) replicas are bound``."""
    parts = [f"{role.name} {_whole(role, accepted)}/{role.desired} (minimum {role.minimum})" for role in unit.roles]
    return f"{', '.join(parts)} replicas {what}"


def _whole(role: UnitRole, accepted: Callable[[core.Pod], bool]) -> int:
    return sum(replica_met(replica, accepted) for replica in role.replicas)


def _places(pods: Iterable[core.Pod]) -> list[str]:
    return [node for pod in pods if (node := pod.spec.node_name or podstate.pinned_node(pod)) is not None]


def _preferences(unit: Unit, topology: Topology | None, path_of: NodePath) -> list[Said]:
    """``TopologySatisfied``, where a level is preferred: reached by the placed pods of every scope, or not."""
    wishes = preferences(unit, topology, path_of) if topology is not None else []
    if topology is None or not wishes:
        return []
    missed = [f"{wish}: not in one {wish.level}" for wish in wishes if not wish.is_met(topology)]
    reason = "Preferred" if not missed else "NotReached"
    return [Said(TOPOLOGY_SATISFIED, not missed, reason, "; ".join(missed) or "every preferred level is reached")]


def _placement(topology: Topology | None, nodes: Sequence[str], path_of: NodePath) -> list[dict[str, Any]]:
    """The domains that hold all nodes, from the broadest level down as far as they share one."""
    paths = [path for node in nodes if (path := path_of(node))]
    if topology is None or not paths:
        return []
    placement: list[dict[str, Any]] = []
    for depth, level in enumerate(topology.levels, start=1):
        heads = {path[:depth] for path in paths}
        if len(heads) > 1:
            break
        head = heads.pop()
        if head[-1] is not None:
            placement.append({"level": level.name, "path": list(head)})
    return placement


def _status(facts: Facts, topology: Topology | None, path_of: NodePath, now: str) -> dict[str, Any]:
    old, planned = facts.group.status.conditions, facts.decision.topology
    generation, created = facts.group.metadata.generation, facts.group.metadata.creation_timestamp
    status: dict[str, Any] = {
        "conditions": [
            _condition(condition, core.condition(old, condition.type), generation, created, now)
            for condition in facts.said
        ],
        "admitted": facts.admitted,
        "scheduled": facts.scheduled,
        "topology": planned.name if planned is not None else facts.group.status.topology,
        "placement": _placement(topology, facts.nodes, path_of),
        "excludedNodes": [msgspec.to_builtins(excluded) for excluded in facts.decision.excluded],
    }
    if facts.decision.claim is not None:
        status["claim"] = msgspec.to_builtins(facts.decision.claim)
    if facts.decision.succession is not None:
        status["succession"] = msgspec.to_builtins(facts.decision.succession)
    return {key: value for key, value in status.items() if value not in ([], None)}


def _condition(condition: Said, old: core.Condition | None, generation: int, created: str, now: str) -> dict[str, Any]:
    status = "True" if condition.true else "False"
    same = old is not None and old.status == status
    # What was never otherwise has been so since the group was made. Waiting times are counted from it, and it tells a
    # gang that was never admitted from one that lost its places.
    begun = now if condition.true or old is not None else created or now
    return {
        "type": condition.type,
        "status": status,
        "reason": condition.reason,
        "message": condition.message[:32_000],
        "observedGeneration": generation,
        "lastTransitionTime": old.last_transition_time if same and old and old.last_transition_time else begun,
    }


def observed_status(group: core.Group) -> Mapping[str, Any]:
    """The status that a group has, in the form in which it is written."""
    status = group.status
    written: dict[str, Any] = {
        "conditions": core.dump_conditions(status.conditions),
        "admitted": status.admitted,
        "scheduled": status.scheduled,
        "topology": status.topology,
        "placement": [{"level": placement.level, "path": list(placement.path)} for placement in status.placement or ()],
        "excludedNodes": [msgspec.to_builtins(node) for node in status.excluded_nodes or ()],
    }
    if status.claim is not None:
        written["claim"] = msgspec.to_builtins(status.claim)
    if status.succession is not None:
        written["succession"] = msgspec.to_builtins(status.succession)
    return {key: value for key, value in written.items() if value not in ([], None)}
