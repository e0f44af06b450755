"""Two processes and one lease, on a real API server; the second one's clock may run ahead."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from covey.kube.client import Client
from covey.kube.clock import SYSTEM, Clock
from covey.kube.errors import LeaseLost
from covey.kube.lease import LeaseElector, LeaseTerms
from covey.kube.resources import LEASES
from localcluster import Cluster

#: As by default, with more looks.
_TERMS = LeaseTerms(15, 10, 0.3)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="test") as made:
        yield made


def elector(
    client: Client, namespace: str, identity: str, *, terms: LeaseTerms = _TERMS, clock: Clock = SYSTEM
) -> LeaseElector:
    return LeaseElector(client, namespace, namespace, identity, account="covey-operator", terms=terms, clock=clock)


async def holder(client: Client, namespace: str) -> str:
    spec = (await client.get(LEASES, namespace, namespace))["spec"]
    return str(spec.get("holderIdentity", ""))


async def test_lease_when_its_holder_is_silent_is_taken_and_when_it_is_released_at_once(
    client: Client, namespace: str
) -> None:
    first = elector(client, namespace, "first")
    ahead = 0.0
    second = elector(client, namespace, "second", clock=Clock(lambda: time.monotonic() + ahead))
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    while second.holder != "first":  # noqa: ASYNC110 - nobody tells of a look at the lease
        await asyncio.sleep(0.05)
    assert (first.is_leader, second.is_leader) == (True, False)
    # As after kill -9: nobody renews, nobody releases.
    ahead = 60.0
    await waiting
    lease = await client.get(LEASES, namespace, namespace)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("second", 2)
    with pytest.raises(LeaseLost):
        await first.hold()
    await second.release()
    assert await holder(client, namespace) == ""
    await elector(client, namespace, "third").acquire()
    assert await holder(client, namespace) == "third"


async def test_lease_when_many_ask_for_it_at_once_has_one_holder(client: Client, namespace: str) -> None:
    candidates = [elector(client, namespace, f"c{number}") for number in range(5)]
    tasks = [asyncio.create_task(candidate.acquire()) for candidate in candidates]
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    assert sum(candidate.is_leader for candidate in candidates) == 1
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_lease_when_the_api_server_does_not_answer_is_lost(
    client: Client, cluster: Cluster, namespace: str
) -> None:
    candidate = elector(client, namespace, "first", terms=LeaseTerms(3, 2, 0.3))
    await candidate.acquire()
    server = cluster.processes["kube-apiserver"]
    server.pause()
    try:
        with pytest.raises(LeaseLost, match="could not be renewed"):
            await asyncio.wait_for(candidate.hold(), 30)
    finally:
        server.resume()
