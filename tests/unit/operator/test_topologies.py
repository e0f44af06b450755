"""Topologies are read when they are stale, whatever goes wrong on the way, and a change is told once."""

import asyncio
from typing import Any, cast

from covey.api import core
from covey.kube.client import Client
from covey.kube.errors import Unreachable
from covey.operator.observe.topologies import Topologies
from unit.kube.virtual_time import now, run

ONE = core.ClusterTopology(metadata=core.Meta(name="one"))


class Cluster:
    """Answers a LIST with what there is, after the given failures."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.there: list[core.ClusterTopology] = [ONE]
        self.asked: list[float] = []
        self.changes = 0
        self.topologies = Topologies(cast(Client, self), self.changed)

    async def list(self, *_: Any, **__: Any) -> tuple[list[core.ClusterTopology], str]:
        self.asked.append(now())
        await asyncio.sleep(0.01)
        if self.failures:
            raise self.failures.pop(0)
        return list(self.there), "1"

    def changed(self) -> None:
        self.changes += 1


def watching(cluster: Cluster, main: Any) -> None:
    async def under_way() -> None:
        task = asyncio.create_task(cluster.topologies.run())
        await main()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(under_way())


def test_many_events_are_one_reading_and_one_change() -> None:
    cluster = Cluster()

    async def main() -> None:
        for _ in range(100):
            cluster.topologies.stale()
        await cluster.topologies.synced.wait()
        assert cluster.topologies.found == (ONE,)
        cluster.topologies.stale()
        await asyncio.sleep(1)
        assert len(cluster.asked) == 2
        assert cluster.changes == 1, "nothing has changed the second time"

    watching(cluster, main)


def test_a_reading_that_fails_is_done_again() -> None:
    cluster = Cluster(*(Unreachable("gone") for _ in range(3)))

    async def main() -> None:
        cluster.topologies.stale()
        await cluster.topologies.synced.wait()
        assert [round(at, 1) for at in cluster.asked] == [0.0, 0.5, 1.5, 3.5]

    watching(cluster, main)


def test_a_deletion_that_nobody_told_of_is_found() -> None:
    cluster = Cluster()

    async def main() -> None:
        cluster.topologies.stale()
        await cluster.topologies.synced.wait()
        cluster.there.clear()
        await asyncio.sleep(700)
        assert cluster.topologies.found == ()
        assert cluster.changes == 2

    watching(cluster, main)
