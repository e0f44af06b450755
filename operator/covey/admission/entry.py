"""The state of one unit between two passes of the scheduler, and its assessment from the unit: pure.

All of it follows from the API objects; it is kept only so that a pass looks at what changed and at nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import msgspec

from covey.admission import gangs
from covey.admission.expected import expected_wait, is_expected
from covey.admission.gangs import Surroundings, UnplannableError
from covey.admission.reservation import scarce
from covey.admission.status import Decision
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import (
    ADMITTED,
    ANNOTATION_CAPACITY_ASKED,
    PURPOSE_CAPACITY,
    PURPOSE_EVACUATION,
    PURPOSE_SUCCESSION,
    REASON_INFEASIBLE,
    REASON_RESERVED,
    REASON_UNKNOWN,
    REASON_WAITING,
)
from covey.model import podstate
from covey.placement.model import Gang, Refusal, Shape, Topology, Verdict

#: Seconds that a unit whose minimum is there waits for the rest, so that its domain is chosen with that in view.
SETTLE: Final = 2.0
#: What is said of a gang whose pods are created only now.
RESERVED: Final = "nodes are reserved for the pods of its minimum, which are about to be created"


class QueueStage(Enum):
    """The need of a unit for the planner now."""

    NOTHING = "nothing"
    PODS = "pods"  # its minimum has pods that do not exist, or are not ours to plan
    SETTLED = "settled"  # its minimum could be planned, the rest is still being created
    MINIMUM = "minimum"
    SURPLUS = "surplus"


@dataclass(frozen=True, slots=True)
class Entry:
    """A unit, its gang, and what became of it.

    ``since`` is when its minimum was first wanted (event loop's clock), or its surplus. ``refused``: planned as it is
    and found no room; only new room helps. ``asks``: resources that its pods without places are short of: of a minimum
    the scarce ones, of surplus all.
    """

    unit: Unit
    stage: QueueStage
    decision: Decision
    gang: Gang | None = None
    since: float | None = None
    refused: bool = False
    asks: frozenset[str] = frozenset()

    @property
    def order(self) -> tuple[int, str, str, str, int, str]:
        """The gang's place among gangs."""
        assert self.gang is not None
        return self.gang.order

    @property
    def asks_nodes(self) -> bool:
        """An autoscaler makes nodes for it, says the operator."""
        return self.unit.root.metadata.annotation(ANNOTATION_CAPACITY_ASKED) is not None

    def settling(self, now: float) -> bool:
        """The unit is young and its minimum unplaced: for a moment it waits for the rest of its pods."""
        waits = self.stage in {QueueStage.PODS, QueueStage.SETTLED, QueueStage.MINIMUM} and not self.refused
        return waits and self.since is not None and now < self.since + SETTLE


def is_news(before: Decision, after: Decision) -> bool:
    """Something is said of a unit now that was not; that its topology is known by now is no news."""
    return before != after and (before.topology is not None or replace(before, topology=after.topology) != after)


def assess(
    unit: Unit,
    topology: Topology | UnplannableError,
    around: Surroundings,
    shape: Callable[[core.Pod], Shape],
    before: Entry | None,
    kept: Decision,
    now: float,
) -> Entry:
    """A unit's entry from what is known now.

    Args:
        unit: the unit.
        topology: the topology to plan it in, or why there is none.
        around: what the gang takes from outside.
        shape: a pod's shape.
        before: its entry until now.
        kept: the excluded nodes and the claim that its status must keep.
        now: the event loop's clock.
    """
    if isinstance(topology, UnplannableError):
        return _blocked_entry(unit, topology, kept, before, now)
    decision = replace(kept, topology=topology)
    if (wait := expected_wait(unit.root)) is not None:
        return _blocked_entry(unit, UnplannableError(*wait), decision, before, now)
    if (
        unit.problem is None
        and all(map(podstate.occupies_node, unit.pods()))
        and unit.minimum_met(podstate.occupies_node)
    ):
        return Entry(unit, QueueStage.NOTHING, replace(decision, claim=None))  # most units, most of the time
    try:
        gang = gangs.build_gang(unit, topology, shape, around)
    except UnplannableError as error:
        return _blocked_entry(unit, error, decision, before, now)
    lacking = gangs.missing(unit, gang)
    if lacking is not None:
        return replace(
            _blocked_entry(unit, UnplannableError(REASON_WAITING, lacking), decision, before, now),
            gang=gang,
            asks=_short(unit, shape),
        )
    if gangs.wants_minimum(gang):
        since = _since(before, now)
        rooted = any(pod.node for role in gang.roles for replica in role.replicas for pod in replica.pods)
        settled = rooted or unit.all_there() or now >= since + SETTLE
        return Entry(
            unit, QueueStage.MINIMUM if settled else QueueStage.SETTLED, decision, gang, since, asks=_short(unit, shape)
        )
    replaces = decision.claim is not None and decision.claim.purpose in {PURPOSE_EVACUATION, PURPOSE_SUCCESSION}
    decision, kept = replace(decision, claim=None), decision
    if gangs.wants_surplus(gang) and unit.minimum_met(podstate.occupies_node):
        is_rest = isinstance(unit.root, core.NativeGroup) and unit.root.is_rest
        same = before is not None and before.stage in {QueueStage.SURPLUS, *([QueueStage.SETTLED] if is_rest else [])}
        since = _since(before if same else None, now)
        if is_rest and now < since + SETTLE:
            return Entry(unit, QueueStage.SETTLED, decision, gang, since)  # more of them may be about to come
        decision = kept if replaces else decision
        return Entry(unit, QueueStage.SURPLUS, decision, gang, since, asks=_requested_resources(unit, shape))
    if any(map(is_expected, unit.pods())):
        decision = replace(decision, reason=REASON_RESERVED, message=RESERVED)
    return Entry(unit, QueueStage.NOTHING, decision, gang)


def with_refusal(entry: Entry, refused: Refusal) -> Entry:
    """The entry of a gang whose minimum found no room."""
    reason = REASON_UNKNOWN if refused.verdict is Verdict.UNKNOWN else REASON_INFEASIBLE
    decision = replace(entry.decision, reason=reason, message=refused.message)
    return replace(entry, decision=decision, refused=True)


def waiting_since(root: core.Group) -> float | None:
    """Since when a unit has not been admitted, seconds since the epoch, as its status tells."""
    found = core.condition(root.status.conditions, ADMITTED)
    if found is not None and found.status == "True":
        return None
    return core.seconds(found.last_transition_time if found else root.metadata.creation_timestamp)


def excluded_now(nodes: Iterable[core.ExcludedNode], now: float, longest: float) -> tuple[core.ExcludedNode, ...]:
    """Exclusions that have not run out.

    Args:
        nodes: as a status lists them.
        now: seconds since the epoch.
        longest: seconds for which a node is ever left out: what would last longer was written by another clock.
    """
    return tuple(each for each in nodes if 0.0 < (core.seconds(each.until) or 0.0) - now <= longest)


def _blocked_entry(unit: Unit, error: UnplannableError, kept: Decision, before: Entry | None, now: float) -> Entry:
    # For what cannot be planned no room is kept, and nobody gives way to it; but the clock of its claim goes on, or pods
    # that come and go would stop it. That to nodes which came has none.
    outlasts = kept.claim is not None and kept.claim.purpose != PURPOSE_CAPACITY
    claim = msgspec.structs.replace(kept.claim, nodes=(), victims=()) if kept.claim is not None and outlasts else None
    decision = replace(kept, reason=error.reason, message=error.message, claim=claim)
    return Entry(unit, QueueStage.PODS, decision, since=_since(before, now))


def _short(unit: Unit, shape: Callable[[core.Pod], Shape]) -> frozenset[str]:
    """The scarce resources that the pods without places ask for."""
    return frozenset(scarce(shape(pod)) for pod in unit.pods() if not podstate.occupies_node(pod))


def _requested_resources(unit: Unit, shape: Callable[[core.Pod], Shape]) -> frozenset[str]:
    """All resources that the pods without places ask for."""
    waiting = (shape(pod) for pod in unit.pods() if not podstate.occupies_node(pod))
    return frozenset(name for each in waiting for name, amount in each.requests if amount > 0)


def _since(before: Entry | None, now: float) -> float:
    return before.since if before is not None and before.since is not None else now
