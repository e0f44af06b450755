"""Refusals are told at a bounded pace; nothing else waits.

One event can change what is said of thousands of gangs that wait. A refusal written late harms nobody, but thousands of
writes at once do. So a status that only says why a gang still has no place waits for its turn, and so does the Event
that goes with it: together no more than ``RATE`` a second. First come those whose verdict or reason has changed,
namespaces taking turns, then those in which only numbers have, and these only when they have lasted.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

from covey.admission.nodes import Key
from covey.admission.status import observed_status
from covey.api import core
from covey.api.constants import ADMITTED, REFUSALS, SURPLUS_ADMITTED
from covey.kube.rounds import Rounds
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger

log = get_logger(__name__)


#: Statuses and Events of refusals a second, in all.
RATE: Final = 20.0
#: Seconds that changed numbers must last.
LASTING: Final = 30.0


class Lane(StrEnum):
    """The kind of change in a refusal's status, by which its write is paced."""

    VERDICT = "verdict"
    NUMBERS = "numbers"


def lane(group: core.Group, status: Mapping[str, Any]) -> Lane | None:
    """The lane in which a root's new status waits; None when it is to be written at once."""
    new = next((each for each in status["conditions"] if each["type"] == ADMITTED), None)
    old = core.condition(group.status.conditions, ADMITTED)
    if new is not None and new["status"] == "True" and _says_surplus_anew(group, status):
        return Lane.NUMBERS
    if new is None or new["status"] == "True" or new["reason"] not in REFUSALS:
        return None
    if old is not None and old.status == "True":
        return None  # it has lost its places: news for whoever repairs it
    return Lane.NUMBERS if _essence(observed_status(group)) == _essence(status) else Lane.VERDICT


def _says_surplus_anew(group: core.Group, status: Mapping[str, Any]) -> bool:
    """Tell whether nothing is new but the words for which surplus was refused."""
    stored = observed_status(group)
    if _essence(stored) != _essence(status):
        return False

    def words(conditions: Iterable[Mapping[str, Any]]) -> list[str]:
        return [each["message"] for each in conditions if each["type"] != SURPLUS_ADMITTED]

    return words(stored["conditions"]) == words(status["conditions"])


def _essence(status: Mapping[str, Any]) -> object:
    """A status without the words of its conditions and their times."""
    conditions = [(each["type"], each["status"], each["reason"]) for each in status.get("conditions", ())]
    return conditions, {key: value for key, value in status.items() if key != "conditions"}


class Bucket:
    """So many turns a second, none saved up."""

    def __init__(
        self,
        rate: float,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pause = 1.0 / rate
        self._clock = clock
        self._sleep = sleep
        self._next = clock()

    async def take(self, count: int = 1) -> None:
        """Wait for so many turns."""
        now = self._clock()
        begins = max(now, self._next)
        self._next = begins + count * self._pause
        if begins > now:
            await self._sleep(begins - now)


class Pacer:
    """Units whose refusal is to be told.

    Args:
        write: writes a unit's status; of a changed verdict its Event goes along.
        bucket: the turns.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        write: Callable[[Key, Lane], Awaitable[None]],
        bucket: Bucket,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._write = write
        self._bucket = bucket
        self._clock = clock
        self._lanes: dict[Lane, OrderedDict[Key, float]] = {each: OrderedDict() for each in Lane}
        self._turns: Rounds[Key] = Rounds(attrgetter("namespace"))
        self._wake = asyncio.Event()
        for each in Lane:
            metrics.REFUSALS_UNTOLD.labels(each).set(0)

    def add(self, root: Key, where: Lane) -> None:
        """A unit's status waits for its turn; it keeps the place that it has, if that is no worse."""
        if root in self._lanes[Lane.VERDICT]:
            return
        if where is Lane.VERDICT:
            self._lanes[Lane.NUMBERS].pop(root, None)
            self._turns.add(root)
        self._lanes[where].setdefault(root, self._clock())
        self._count()
        self._wake.set()

    def drop(self, root: Key) -> None:
        """Drop a unit: nothing about it waits any more."""
        for each in self._lanes.values():
            each.pop(root, None)
        self._turns.discard(root)
        self._count()

    @property
    def idle(self) -> bool:
        """No changed verdict waits."""
        return not self._lanes[Lane.VERDICT]

    async def run(self) -> None:
        """Write for ever."""
        while True:
            found = self._next()
            if found is None:
                self._wake.clear()
                await self._rest()
                continue
            where, root = found
            await self._bucket.take(2 if where is Lane.VERDICT else 1)
            if self._lanes[where].pop(root, None) is None:
                continue  # it was dropped meanwhile, or has moved
            self._turns.discard(root)
            self._count()
            try:
                await self._write(root, where)
            except Exception as error:  # noqa: BLE001 - one unit's failure must not stop the others
                log.warning("refusal not written", namespace=root.namespace, root=root.name, error=str(error))
                self.add(root, where)

    def _next(self) -> tuple[Lane, Key] | None:
        if self._turns:
            return Lane.VERDICT, self._turns.first()
        for root, since in self._lanes[Lane.NUMBERS].items():
            return (Lane.NUMBERS, root) if since + LASTING <= self._clock() else None
        return None

    async def _rest(self) -> None:
        """Rest until something is added, or the oldest numbers have lasted."""
        oldest = next(iter(self._lanes[Lane.NUMBERS].values()), None)
        if oldest is None:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(max(0.01, oldest + LASTING - self._clock())):
                await self._wake.wait()
        except TimeoutError:
            return

    def _count(self) -> None:
        for name, each in self._lanes.items():
            metrics.REFUSALS_UNTOLD.labels(name).set(len(each))
