"""Metrics of free devices: placement quality of the cluster (``placement.cluster.devices`` counts it).

Counted is the room that guard and barrier decide on, which is what the planner sees but for what is lifted while it
plans. Not at a scrape and not at an event: every ``EVERY`` seconds at most, only when something has changed, and in a
thread. On the event loop nothing happens but a look at each node's version, and copies of what changed.

Series are bounded: ``MOST`` kinds of devices, the levels of one topology (at most ten), four states. What nodes say of
themselves beyond that is only counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from covey.api import core
from covey.observability import scheduler_metrics as metrics
from covey.observability.families import REGISTRY
from covey.observability.logging import get_logger
from covey.placement.cluster.device_claims import CLAIMED
from covey.placement.cluster.devices import CLUSTER, NodeDevices, Report, devices_of, report
from covey.placement.cluster.inventory import NO_TOPOLOGY, Inventory, path_of
from covey.placement.cluster.node_filters import state_cause
from covey.placement.model import Topology

log = get_logger(__name__)

#: Seconds between two counts, at least.
EVERY: Final = 15.0
#: Kinds of devices that have series.
MOST: Final = 16


class _Copy(NamedTuple):
    """A node as it was when it was looked at."""

    version: int
    node: core.Node
    allocatable: Mapping[str, int]
    free: Mapping[str, int]


class DeviceGauges(Collector):
    """The series of the last count of devices."""

    def __init__(self, guards: Callable[[str], bool] = lambda _resource: True) -> None:
        self.report = Report()
        self._guards = guards

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The metrics without their values."""
        yield from _families(Report(), self._guards)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics as of the last count; a scrape calls it from a thread."""
        yield from _families(self.report, self._guards)


class Surveyor:
    """Counts devices while this process leads.

    Args:
        room: what is free now; read on the event loop alone.
        topology: of whoever names none; raises LookupError where that is not clear.
        guards: tells whether kube-scheduler asks the guard for pods that want a resource.
        sleep: for tests.
    """

    def __init__(
        self,
        room: Inventory,
        topology: Callable[[], Topology],
        *,
        guards: Callable[[str], bool] = lambda _resource: True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.gauges = DeviceGauges(guards)
        self._room = room
        self._topology = topology
        self._sleep = sleep
        self._seen: tuple[int, Topology] | None = None
        self._versions: dict[str, int] = {}
        self._counted: dict[str, NodeDevices] = {}

    async def run(self) -> None:
        """Count for ever."""
        REGISTRY.register(self.gauges)
        try:
            while True:
                try:
                    await self.look()
                except Exception:
                    # Nobody is to go without a place because he cannot be counted.
                    log.exception("devices not counted")
                await self._sleep(EVERY)
        finally:
            REGISTRY.unregister(self.gauges)

    async def look(self) -> None:
        """Count once, if anything has changed since."""
        topology = self._default_topology()
        now = (self._room.trees[NO_TOPOLOGY.name].root.version, topology)
        if now == self._seen:
            return
        # In another topology every node lies elsewhere.
        known = self._versions if self._seen is not None and self._seen[1] == topology else {}
        nodes = self._room.nodes
        changed = {
            name: _Copy(state.version, state.node, state.allocatable, dict(state.free))
            for name, state in nodes.items()
            if known.get(name) != state.version
        }
        gone = self._versions.keys() - nodes.keys()
        self.gauges.report = await asyncio.to_thread(self._count, changed, gone, topology)
        self._seen = now

    def _default_topology(self) -> Topology:
        try:
            return self._topology()
        except LookupError:
            return NO_TOPOLOGY

    def _count(self, changed: Mapping[str, _Copy], gone: set[str], topology: Topology) -> Report:
        """Runs in a thread, one at a time; nobody else touches what it keeps."""
        for name in gone:
            del self._versions[name], self._counted[name]
        for name, each in changed.items():
            labels = each.node.metadata.labels or {}
            path, closed = path_of(topology, labels), state_cause(each.node) is not None
            self._counted[name] = devices_of(path, labels, each.allocatable, each.free, closed=closed)
            self._versions[name] = each.version
        return report(self._counted.values(), [level.name for level in topology.levels], MOST)


def _families(found: Report, guards: Callable[[str], bool]) -> Iterator[GaugeMetricFamily]:
    devices = metrics.DEVICES.gauges()
    stranded = metrics.DEVICES_STRANDED.gauges()
    largest = metrics.DEVICES_LARGEST_GANG.gauges()
    fragmentation = metrics.DEVICES_FRAGMENTATION.gauges()
    free = metrics.FREE_DOMAINS.gauges()
    dropped = metrics.DEVICE_KINDS_DROPPED.gauges()
    for kind, share in found.shares.items():
        for state, value in zip(share._fields, share, strict=True):
            devices.add_metric((*kind, state), value)
    for (kind, level), each in found.levels.items():
        largest.add_metric((*kind, level), each.largest_gang)
        fragmentation.add_metric((*kind, level), each.fragmentation)
        if level != CLUSTER:
            stranded.add_metric((*kind, level), each.stranded)
            free.add_metric((*kind, level), each.free_domains)
    dropped.add_metric((), found.dropped)
    unguarded = metrics.DEVICES_UNGUARDED.gauges()
    # No pod asks kube-scheduler for what claims are counted by.
    asked = {kind.resource for kind in found.shares if CLAIMED not in kind.resource}
    for resource in (each for each in asked if not guards(each)):
        unguarded.add_metric((resource,), 1)
    yield from (devices, stranded, largest, fragmentation, free, dropped, unguarded)
