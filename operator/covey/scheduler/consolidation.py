"""Metrics of the moves that would free one more domain of a level, looked for while this process leads.

The search is that of ``covey plan --defrag``: seconds of processor time, and an inventory that stands still meanwhile. So a
process of its own does it, which reads the cluster for itself by the same account and yields to others: the loop and the
inventory of this one go on. One runs at a time, and none outlives the task that has started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import msgspec
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from covey.kube.clock import Clock
from covey.observability import scheduler_metrics as metrics
from covey.observability.families import REGISTRY
from covey.observability.logging import get_logger
from covey.placement.model import Verdict
from covey.scheduler.settings import Settings

log = get_logger(__name__)

#: Seconds after which a search is given up.
PATIENCE: Final = 300.0
#: Added to the niceness of the search.
_NICE: Final = 10
#: Bytes of its output that are kept.
_MOST: Final = 1 << 22
#: Exit statuses of an answer: moves are known, none help (proven), none were found.
_ANSWERED: Final = (0, 3, 4)


class _Topology(msgspec.Struct, frozen=True):
    name: str


class _Found(msgspec.Struct, frozen=True):
    verdict: Verdict
    moves: tuple[msgspec.Raw, ...]
    message: str


class _Answer(msgspec.Struct, frozen=True):
    """The part of the report of ``covey plan`` that is told, and when it came, in seconds since the epoch."""

    topology: _Topology
    consolidation: _Found
    warnings: tuple[str, ...]
    at: float = 0.0


class Searcher(Collector):
    """Runs a command that prints such a report, again and again, and shows the last answer; no series before the first.

    ``pause`` is in seconds, between two searches; ``patience`` too, after which one is given up.
    """

    def __init__(
        self, level: str, command: Sequence[str], clock: Clock, *, pause: float, patience: float = PATIENCE
    ) -> None:
        self._level = level
        self._command = command
        self._pause = pause
        self._patience = patience
        self._clock = clock
        self._answer: _Answer | None = None

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics as of the last answer; a scrape calls it from a thread."""
        moves, verdicts = metrics.CONSOLIDATION_MOVES.gauges(), metrics.CONSOLIDATION_VERDICT.gauges()
        answered, answer = metrics.CONSOLIDATION_ANSWERED.gauges(), self._answer
        if answer is not None:
            labels, found = (answer.topology.name, self._level), answer.consolidation
            for verdict in Verdict:
                verdicts.add_metric((*labels, verdict.value), int(verdict is found.verdict))
            if found.verdict is Verdict.ADMITTED:
                moves.add_metric(labels, len(found.moves))
            answered.add_metric(labels, answer.at)
        yield from (moves, verdicts, answered)

    async def run(self, ready: Callable[[], Awaitable[object]]) -> None:
        """Search for ever, once a new leader has decided about all that there is."""
        await ready()
        REGISTRY.register(self)
        try:
            while True:
                await self.look()
                await self._clock.sleep(self._pause)
        finally:
            REGISTRY.unregister(self)

    async def look(self) -> None:
        """Search once. Where that has no answer the last one stays, with its age."""
        result = "failed"
        try:
            async with asyncio.timeout(self._patience):
                found = msgspec.json.decode(await self._ask(), type=_Answer)
            self._answer = msgspec.structs.replace(found, at=self._clock.wall())
            result = "answered"
            log.info("moves were looked for", found=found.consolidation.message, warnings=found.warnings)
        except TimeoutError:
            result = "timeout"
            log.warning("a search for moves was given up", seconds=self._patience)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("a search for moves has failed", error=str(error))
        metrics.CONSOLIDATION_SEARCHES.labels(result).inc()

    async def _ask(self) -> bytes:
        child = await asyncio.create_subprocess_exec(*self._command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            # It has no threads yet, and those to come inherit it. Between fork and exec it would not be safe beside ours.
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, child.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICE)
            said, complaint = await asyncio.gather(_beginning(child.stdout), _beginning(child.stderr))
            status = await child.wait()
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        if status not in _ANSWERED:
            raise ValueError(f"exit status {status}: {complaint.decode(errors='replace').strip()[-500:]}")
        return said


def search_command(settings: Settings) -> list[str]:
    """Return the command that searches, on the cluster of this process."""
    where = {"--kubeconfig": settings.kubeconfig, "--context": settings.context}
    given = [f"{flag}={value}" for flag, value in where.items() if value is not None]
    free = f"--free=+1 {settings.consolidation_level}"
    return [sys.executable, "-m", "covey", "plan", "--cluster", "--defrag", free, "--output=json", *given]


async def _beginning(stream: asyncio.StreamReader) -> bytes:
    """Read all of a stream, so that its writer can end, and keep the beginning."""
    found = b""
    while part := await stream.read(1 << 16):
        found += part[: _MOST - len(found)]
    return found
