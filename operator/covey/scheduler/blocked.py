"""Gangs of other controllers that lack pods, several in one namespace: each may hold what the pods of the other need.

A ResourceQuota charges pods that are gated, and controllers create what they get: two gangs may hold a part of a quota
each, and neither ever starts. Quotas are not read here. Gangs of which some pods have been there for a minute, and not
the minimum, name each other in their conditions. The youngest whose pods a Job's controller makes, which waits before it
makes others, gives its pods back: longer after each time, in memory alone.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from covey.admission.entry import Entry, QueueStage
from covey.admission.expected import is_expected
from covey.admission.nodes import Key
from covey.admission.tree import Unit
from covey.api.constants import REASON_WAITING, RELEASE_GIVEN_BACK
from covey.model import podstate
from covey.scheduler.plugin import Plugin

#: Seconds for which gangs lack pods side by side before they say so.
LASTING: Final = 30.0
#: Seconds until a gang gives its pods back: doubled from the first to the last.
FIRST: Final = 60.0
LONGEST: Final = 3600.0


@dataclass(slots=True)
class _Waiting:
    """A gang that lacks pods: since when, when it gives back those that it has, and how often it has.

    ``lasts``: for a while by now, and the others have been looked at for it.
    """

    unit: Unit
    age: tuple[str, str]
    since: float
    due: float
    times: int = 0
    lasts: bool = False


@dataclass(slots=True)
class _Line:
    """The gangs of a namespace that lack pods: one has ten thousand, and each is looked at."""

    waiting: dict[Key, _Waiting] = field(default_factory=dict)
    #: From the oldest to the youngest, by creation and name: all, and those that have lacked pods for a while.
    ages: list[tuple[tuple[str, str], Key]] = field(default_factory=list)
    lasting: list[tuple[tuple[str, str], Key]] = field(default_factory=list)
    #: The others, from the first that came; some may be gone.
    coming: deque[tuple[Key, _Waiting]] = field(default_factory=deque)

    def add(self, root: Key, waiting: _Waiting) -> None:
        """Add a gang; none came later than it."""
        self.waiting[root] = waiting
        insort(self.ages, (waiting.age, root))
        self.coming.append((root, waiting))
        self.find_lasting(waiting.since)  # so that no more are remembered than come in a while

    def drop(self, root: Key) -> None:
        """Forget a gang."""
        entry = (self.waiting.pop(root).age, root)
        for line in (self.ages, self.lasting):
            place = bisect_left(line, entry)
            if line[place : place + 1] == [entry]:
                del line[place]

    def find_lasting(self, now: float) -> list[tuple[tuple[str, str], Key]]:
        """The gangs that have lacked pods for a while, from the oldest to the youngest."""
        while self.coming and now >= self.coming[0][1].since + LASTING:
            root, waiting = self.coming.popleft()
            if self.waiting.get(root) is waiting:
                insort(self.lasting, (waiting.age, root))
        return self.lasting


class BlockedGangs(Plugin):
    """The gangs that lack pods, by namespace.

    Args:
        clock: monotonic seconds; None for those of the event loop.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._lines: dict[str, _Line] = {}
        #: How often gangs have given their pods back, until they start or are gone.
        self._times: dict[Key, int] = {}

    def assess(self, entry: Entry, before: Entry | None) -> Entry:  # noqa: ARG002 - as every plugin
        """Take notice of a unit; its entry names another one that waits beside it."""
        root, now = entry.unit.key, self._clock()
        if not _lacks_pods(entry):
            if entry.stage is not QueueStage.PODS:
                self._times.pop(root, None)
            self._drop(root)
            return entry
        known = self._find(root)
        if known is None:
            times = self._times.get(root, 0)
            due = now + min(FIRST * 2.0 ** min(times, 16), LONGEST)
            age = (str(entry.unit.root.metadata.creation_timestamp), root.name)
            self._lines.setdefault(root.namespace, _Line()).add(root, _Waiting(entry.unit, age, now, due, times))
            self._tell(root)
        else:
            known.unit = entry.unit
            if not known.lasts and now >= known.since + LASTING:
                known.lasts = True
                self._tell(root)
        other = self._other(root, now)
        if other is None:
            return entry
        why = (
            f"{entry.decision.message}; {other.name} lacks pods as well: where a ResourceQuota of the namespace is full,"
            " neither starts before the other's pods are gone"
        )
        return replace(entry, decision=replace(entry.decision, message=why))

    def deadlines(self, entry: Entry) -> Iterator[float]:
        """Seconds until something is to be done or said for a unit by time alone."""
        waiting, now = self._find(entry.unit.key), self._clock()
        times = (waiting.since + LASTING, waiting.due) if waiting is not None else ()
        yield from (time - now for time in times if time > now)

    def note_assessed(self, root: Key) -> None:
        """Give up the pods of a unit for one that is older, when it is time; not where their controller makes others at once."""
        waiting, now = self._find(root), self._clock()
        if waiting is None or now < waiting.due or self._other(root, now, older=True) is None:
            return
        pods = [*waiting.unit.pods()]
        if any((owner := pod.metadata.controller) is None or owner.kind != "Job" for pod in pods):
            return
        self._times[root] = waiting.times + 1
        self._drop(root)
        if pods:
            self.handle.commits.give_up(pods, RELEASE_GIVEN_BACK)

    def forget(self, root: Key) -> None:
        """A unit is gone."""
        self._times.pop(root, None)
        self._drop(root)

    def _find(self, root: Key) -> _Waiting | None:
        line = self._lines.get(root.namespace)
        return line.waiting.get(root) if line is not None else None

    def _other(self, root: Key, now: float, *, older: bool = False) -> Key | None:
        """The oldest of the others that have lacked pods for a while, as this one has."""
        line = self._lines[root.namespace]
        mine = line.waiting[root]
        if now < mine.since + LASTING:
            return None
        oldest = (each for each in line.find_lasting(now)[:2] if each[1] != root)
        return next((key for age, key in oldest if not older or age < mine.age), None)

    def _drop(self, root: Key) -> None:
        line = self._lines.get(root.namespace)
        if line is None or root not in line.waiting:
            return
        line.drop(root)
        self._tell(root)
        if not line.waiting:
            del self._lines[root.namespace]

    def _tell(self, root: Key) -> None:
        """Have others looked at: of the oldest it is another that waits beside them, and the youngest may give pods back."""
        ages = self._lines[root.namespace].ages
        oldest = [key for _, key in ages[:3] if key != root][:2]
        youngest = [key for _, key in ages[-2:] if key != root][-1:]
        for key in {*oldest, *youngest}:
            self.handle.queue.requeue(key)


def _lacks_pods(entry: Entry) -> bool:
    if entry.stage is not QueueStage.PODS or entry.decision.reason != REASON_WAITING:
        return False
    owner, pods = entry.unit.root.metadata.controller, [*entry.unit.pods()]
    is_ours = owner is not None and owner.kind == "DisaggregatedInference"
    return bool(pods) and not is_ours and not any(podstate.is_placed(pod) or is_expected(pod) for pod in pods)
