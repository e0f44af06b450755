"""Gangs of other controllers that lack pods, several in one namespace: each may hold what the pods of the other need.

A ResourceQuota charges pods that are gated, and controllers create what they get: two gangs may hold a part of a quota
each, and neither ever starts. Quotas are not read here. Gangs of which some pods have been there for a minute, and not
the minimum, name each other in their conditions. The youngest whose pods a Job's controller makes, which waits before it
makes others, gives its pods back: longer after each time, in memory alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from covey.admission import podstate
from covey.admission.expected import is_expected
from covey.admission.queue import Entry, Want
from covey.admission.tree import Key, Unit
from covey.api import core
from covey.api.constants import REASON_WAITING

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
    since: float
    due: float
    times: int = 0
    lasts: bool = False


class BlockedGangs:
    """The gangs that lack pods, by namespace.

    Args:
        mark: has a unit looked at again.
    """

    def __init__(self, mark: Callable[[Key], None]) -> None:
        self._mark = mark
        self._waiting: dict[str, dict[Key, _Waiting]] = {}
        #: How often gangs have given their pods back, until they start or are gone.
        self._times: dict[Key, int] = {}

    def note(self, root: Key, entry: Entry, now: float) -> Entry:
        """Take notice of a unit; its entry names another one that waits beside it.

        Args:
            root: its key.
            entry: as it was assessed.
            now: the event loop's clock.
        """
        line = self._waiting.get(root.namespace, {})
        if not _lacks_pods(entry):
            if entry.want is not Want.PODS:
                self._times.pop(root, None)
            self._drop(root)
            return entry
        before = line.get(root)
        if before is None:
            times = self._times.get(root, 0)
            due = now + min(FIRST * 2.0 ** min(times, 16), LONGEST)
            line = self._waiting.setdefault(root.namespace, {})
            line[root] = _Waiting(entry.unit, now, due, times)
            self._tell(root)
        else:
            before.unit = entry.unit
            if not before.lasts and now >= before.since + LASTING:
                before.lasts = True
                self._tell(root)
        other = self._other(root, now)
        if other is None:
            return entry
        why = (
            f"{entry.decision.message}; {other.name} lacks pods as well: where a ResourceQuota of the namespace has no room,"
            " neither starts before the other's pods are gone"
        )
        return replace(entry, decision=replace(entry.decision, message=why))

    def left(self, root: Key, now: float) -> float | None:
        """Seconds until something is to be done or said for a unit by time alone; None for nothing."""
        waiting = self._waiting.get(root.namespace, {}).get(root)
        times = (waiting.since + LASTING, waiting.due) if waiting is not None else ()
        return min((time - now for time in times if time > now), default=None)

    def take_pods(self, root: Key, now: float) -> list[core.Pod]:
        """The pods that a unit gives back now, to one that is older; none where their controller makes others at once."""
        waiting = self._waiting.get(root.namespace, {}).get(root)
        if waiting is None or now < waiting.due or self._other(root, now, older=True) is None:
            return []
        pods = [*waiting.unit.pods()]
        if any((owner := pod.metadata.controller) is None or owner.kind != "Job" for pod in pods):
            return []
        self._times[root] = waiting.times + 1
        self._drop(root)
        return pods

    def forget(self, root: Key) -> None:
        """A unit is gone."""
        self._times.pop(root, None)
        self._drop(root)

    def _other(self, root: Key, now: float, *, older: bool = False) -> Key | None:
        line = self._waiting.get(root.namespace, {})
        mine = line[root]
        if now < mine.since + LASTING:
            return None
        others = (
            (_age(each.unit), key)
            for key, each in line.items()
            if key != root and now >= each.since + LASTING and (not older or _age(each.unit) < _age(mine.unit))
        )
        return min(others, default=("", None))[1]

    def _drop(self, root: Key) -> None:
        line = self._waiting.get(root.namespace, {})
        if line.pop(root, None) is not None:
            self._tell(root)
        if not line:
            self._waiting.pop(root.namespace, None)

    def _tell(self, root: Key) -> None:
        """Have others looked at: of the oldest it is another that waits beside them, and the youngest may give pods back."""
        line = self._waiting.get(root.namespace, {})
        others = sorted((key for key in line if key != root), key=lambda key: _age(line[key].unit))
        for key in {*others[:2], *others[-1:]}:
            self._mark(key)


def _lacks_pods(entry: Entry) -> bool:
    if entry.want is not Want.PODS or entry.decision.reason != REASON_WAITING:
        return False
    owner, pods = entry.unit.root.metadata.controller, [*entry.unit.pods()]
    is_ours = owner is not None and owner.kind == "DisaggregatedInference"
    return bool(pods) and not is_ours and not any(podstate.is_placed(pod) or is_expected(pod) for pod in pods)


def _age(unit: Unit) -> str:
    """The older the smaller."""
    meta = unit.root.metadata
    return f"{meta.creation_timestamp} {meta.name}"
