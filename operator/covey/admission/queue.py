"""The units that admission knows, by what is to be done with each: pure.

Open ones stand in line (``order``). Refused ones sleep until something can help them (``wake``): those that ask the
same question sleep together, and only the first of them stands in line when room has come that may help. It is planned,
and a refusal is the answer for all the others; if it gets its places, the next one is asked.

The state of one unit between two passes of admission, and its assessment from the unit: pure.

All of it follows from the API objects; it is kept only so that a pass looks at what changed and at nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice, takewhile
from typing import Final

import msgspec

from covey.admission import gangs
from covey.admission.entitlement import FIRST, Lane
from covey.admission.expected import expected_wait, is_expected
from covey.admission.gangs import Surroundings, UnplannableError
from covey.admission.order import Line, Order, Queue
from covey.admission.reservation import scarce
from covey.admission.status import Decision
from covey.admission.tree import Key, Unit
from covey.admission.wake import Ask
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


class Want(Enum):
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
    want: Want
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
        waits = self.want in {Want.PODS, Want.SETTLED, Want.MINIMUM} and not self.refused
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
        return Entry(unit, Want.NOTHING, replace(decision, claim=None))  # most units, most of the time
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
        return Entry(unit, Want.MINIMUM if settled else Want.SETTLED, decision, gang, since, asks=_short(unit, shape))
    replaces = decision.claim is not None and decision.claim.purpose in {PURPOSE_EVACUATION, PURPOSE_SUCCESSION}
    decision, kept = replace(decision, claim=None), decision
    if gangs.wants_surplus(gang) and unit.minimum_met(podstate.occupies_node):
        is_rest = isinstance(unit.root, core.NativeGroup) and unit.root.is_rest
        same = before is not None and before.want in {Want.SURPLUS, *([Want.SETTLED] if is_rest else [])}
        since = _since(before if same else None, now)
        if is_rest and now < since + SETTLE:
            return Entry(unit, Want.SETTLED, decision, gang, since)  # more of them may be about to come
        decision = kept if replaces else decision
        return Entry(unit, Want.SURPLUS, decision, gang, since, asks=_requested_resources(unit, shape))
    if any(map(is_expected, unit.pods())):
        decision = replace(decision, reason=REASON_RESERVED, message=RESERVED)
    return Entry(unit, Want.NOTHING, decision, gang)


def refusal(entry: Entry, refused: Refusal) -> Entry:
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
    return Entry(unit, Want.PODS, decision, since=_since(before, now))


def _short(unit: Unit, shape: Callable[[core.Pod], Shape]) -> frozenset[str]:
    """The scarce resources that the pods without places ask for."""
    return frozenset(scarce(shape(pod)) for pod in unit.pods() if not podstate.occupies_node(pod))


def _requested_resources(unit: Unit, shape: Callable[[core.Pod], Shape]) -> frozenset[str]:
    """All resources that the pods without places ask for."""
    waiting = (shape(pod) for pod in unit.pods() if not podstate.occupies_node(pod))
    return frozenset(name for each in waiting for name, amount in each.requests if amount > 0)


def _since(before: Entry | None, now: float) -> float:
    return before.since if before is not None and before.since is not None else now


#: The place of a unit that could not be shown to the planner.
NO_ORDER: Final[Order] = (0, "", "", "", 0, "")
#: Units of one question that are asked whether others may claim before them.
_PASSED: Final = 64
_PLANNED: Final = frozenset({Want.MINIMUM, Want.SURPLUS})
_WAITING: Final = frozenset({Want.PODS, Want.SETTLED, Want.MINIMUM})


@dataclass(frozen=True, slots=True)
class Answer:
    """The refusal of a question, and the gangs (UIDs) whose nodes were closed to the gang that was planned."""

    decision: Decision
    closed: frozenset[str]


@dataclass(slots=True)
class Alike:
    """Refused units of one question. ``lead`` stands in line for all of them.

    ``asked`` is when the answer was got (event loop's clock), ``version`` that of the inventory then.
    """

    ask: Ask
    answer: Answer
    members: Queue[Key] = field(default_factory=Queue)
    lead: Key | None = None
    asked: float = 0.0
    version: int = 0


class Shelf:
    """Every unit's entry, in its place."""

    def __init__(self) -> None:
        self.entries: dict[Key, Entry] = {}
        #: Those whose minimum has no place.
        self.unplaced: dict[Key, Entry] = {}
        self._line: Line[Key] = Line()
        self._line.spare = lambda roots, most: self.spare([self.entries[root] for root in roots], most)
        self._asleep: dict[Hashable, Alike] = {}
        self._of: dict[Key, Hashable] = {}
        #: The lane of a unit that stands in line.
        self.lane: Callable[[Entry], Lane] = lambda _entry: FIRST
        #: The pods that may take places and keep none of these minimums from its own, counted up to a number.
        self.spare: Callable[[Sequence[Entry], int], int] = lambda _coming, _most: 0

    def next(self, now: float) -> Key | None:
        """The unit whose turn it is (event loop's clock)."""
        return self._line.next(now, self._lane_of)

    def find_next(self, now: float) -> Generator[None, None, Key | None]:
        """The same with pauses (``Line.find_next``)."""
        return self._line.find_next(now, self._lane_of)

    def _lane_of(self, root: Key) -> Lane:
        return self.lane(self.entries[root])

    def renew(self) -> None:
        """Lanes may have become better."""
        self._line.renew()

    def rest(self, root: Key) -> None:
        """A unit stands aside until it is put in its place again."""
        self._line.drop(root)

    def last_answer(self, ask: Ask) -> str | None:
        """The last answer to a question that several gangs may ask."""
        alike = None if ask.key is None else self._asleep.get(ask.key)
        return alike.answer.decision.message if alike is not None else None

    def decision(self, root: Key) -> Decision:
        """The last decision about a unit; of a refused one the last answer to its question."""
        entry = self.entries.get(root)
        if entry is None:
            return Decision()
        alike = self._asleep.get(self._of.get(root))
        if alike is None or alike.ask.key is None:
            return entry.decision
        said = alike.answer.decision
        return replace(entry.decision, reason=said.reason, message=said.message)

    def update(self, root: Key, entry: Entry) -> None:
        """A unit as it is now; not for one that sleeps."""
        self._take_out(root)
        self._file(root, entry)
        if entry.want in _PLANNED:
            self._line_up(root, entry)

    def lay_to_sleep(self, root: Key, entry: Entry, ask: Ask, closed: frozenset[str] = frozenset()) -> Alike:
        """A unit was refused; it sleeps among those of its question, and the answer is theirs too."""
        self._take_out(root)
        self._file(root, entry)
        key: Hashable = (root,) if ask.key is None else ask.key
        alike = self._asleep.get(key)
        answer = Answer(entry.decision, closed)
        if alike is None:
            alike = self._asleep[key] = Alike(ask, answer)
        elif answer.closed <= alike.answer.closed:
            alike.answer = answer
        if alike.lead is not None and _order(entry) < self.entries[alike.lead].order:
            self._line.drop(alike.lead)  # to it at least as much is closed
            alike.lead = None
        alike.members.add(root, _order(entry))
        self._of[root] = key
        return alike

    def join(self, root: Key, entry: Entry, ask: Ask, closed: frozenset[str]) -> bool:
        """Let a unit take over the answer that its question got: the room is the same, and no less is closed to it.

        Returns whether there was such an answer.
        """
        alike = None if ask.key is None else self._asleep.get(ask.key)
        if alike is None or alike.lead is not None or not alike.answer.closed <= closed:
            return False
        said = alike.answer.decision
        decision = replace(entry.decision, reason=said.reason, message=said.message)
        self.lay_to_sleep(root, replace(entry, decision=decision, refused=True), ask, alike.answer.closed)
        return True

    def drop(self, root: Key) -> None:
        """The unit is gone."""
        self._take_out(root)
        self.entries.pop(root, None)
        self.unplaced.pop(root, None)

    def find_refused(self, accepts: Callable[[Entry], bool]) -> list[tuple[Key, Entry]]:
        """Find units whose minimum was refused and that are accepted, in the order of the queue."""
        waiting = (each for each in self.unplaced.items() if each[1].refused and each[1].gang is not None)
        return sorted((each for each in waiting if accepts(each[1])), key=lambda each: (each[1].order, each[0]))

    def leads(
        self, root: Key, queue_of: Callable[[Key], str | None], is_passed: Callable[[Key], bool] = lambda _root: False
    ) -> bool:
        """Tell whether a refused unit is the first of its queue among those that ask the same question.

        Native groups come before nobody: room is kept for none of them. Neither do those that are passed; of them no more
        than some are asked, so that it may be told of more than one that it is the first.
        """
        alike, mine = self._asleep.get(self._of.get(root)), queue_of(root)
        members = alike.members if alike is not None else ()
        own = (each for each in members if queue_of(each) == mine and not self.entries[each].unit.root.is_native)
        return (
            all(is_passed(each) for each in islice(takewhile(lambda each: each != root, own), _PASSED))
            and root in members
        )

    def amend(self, root: Key, entry: Entry) -> None:
        """Something that a sleeping unit keeps has changed; it sleeps on."""
        self.entries[root] = entry
        if root in self.unplaced:
            self.unplaced[root] = entry

    @property
    def quiet(self) -> bool:
        """No refused unit waits for room."""
        return not self._asleep

    def sleeping(self) -> list[Alike]:
        """The questions that wait for room."""
        return [alike for alike in self._asleep.values() if alike.lead is None]

    def questions(self) -> Collection[Alike]:
        """All questions of refused units, also those that stand in line to be asked again."""
        return self._asleep.values()

    def wake(self, alike: Alike) -> None:
        """Something may have helped: the first of these units is asked, then perhaps the others."""
        first = alike.members.first()
        entry = self.entries[first[1]] if first is not None else None
        if alike.lead is None and first is not None and entry is not None and entry.want in _PLANNED:
            alike.lead = first[1]
            self._line_up(alike.lead, entry)

    def _line_up(self, root: Key, entry: Entry) -> None:
        if entry.want is Want.SURPLUS and entry.since is not None:
            pods = _count_waiting(entry.gang)
            self._line.add(root, entry.order, surplus=True, since=entry.since, takes=entry.asks, pods=pods)
        else:
            self._line.add(root, entry.order, surplus=entry.want is Want.SURPLUS)

    def _file(self, root: Key, entry: Entry) -> None:
        self.entries[root] = entry
        if entry.want in _WAITING:
            self.unplaced[root] = entry
        else:
            self.unplaced.pop(root, None)
        if entry.want in _WAITING and not entry.refused and entry.since is not None and entry.gang is not None:
            self._line.expect(root, entry.gang.priority, entry.since + SETTLE, entry.asks)
        else:
            self._line.forget(root)

    def _take_out(self, root: Key) -> None:
        self._line.drop(root)
        self._line.forget(root)
        key = self._of.pop(root, None)
        alike = self._asleep.get(key)
        if alike is None:
            return
        alike.members.drop(root)
        if not alike.members:
            del self._asleep[key]
        elif alike.lead == root:
            alike.lead = None
            self.wake(alike)


def _count_waiting(gang: Gang | None) -> int:
    replicas = (replica for role in gang.roles for replica in role.replicas) if gang is not None else ()
    return sum(pod.node is None for replica in replicas for pod in replica.pods)


def _order(entry: Entry) -> Order:
    """The place of a unit, also of one that could not be shown to the planner."""
    return entry.gang.order if entry.gang is not None else NO_ORDER


__all__ = ["Alike", "Answer", "Shelf"]
