"""Two processes and one lease, on a real API server; the second one's clock may run ahead."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from covey.kube.client import Client
from covey.kube.clock import SYSTEM, Clock
from covey.kube.lease import LeaseElector, LeaseLost, Terms
from covey.kube.resources import LEASES
from localcluster import Cluster

#: As by default, with more looks.
_TERMS = Terms(15, 10, 0.3)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="test") as made:
        yield made


def elector(
    client: Client, namespace: str, identity: str, *, terms: Terms = _TERMS, clock: Clock = SYSTEM
) -> LeaseElector:
    return LeaseElector(client, namespace, namespace, identity, account="covey-operator", terms=terms, clock=clock)


async def holder(client: Client, namespace: str) -> str:
    spec = (await client.get(LEASES, namespace, namespace))["spec"]
    return str(spec.get("holderIdentity", ""))


async def test_one_leads_and_the_other_takes_over(client: Client, namespace: str) -> None:
    ahead = 0.0
    first = elector(client, namespace, "first")
    second = elector(client, namespace, "second", clock=Clock(lambda: time.monotonic() + ahead))
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    waiting = asyncio.create_task(second.acquire())
    done, _ = await asyncio.wait([holding, waiting], timeout=5)
    assert not done
    assert (first.is_leader, second.is_leader, second.holder) == (True, False, "first")

    # As after kill -9: nobody renews, nobody releases.
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    # Once the second has seen the last renewal.
    await asyncio.sleep(2)
    ahead = 60.0
    await asyncio.wait_for(waiting, 30)
    assert second.is_leader
    lease = await client.get(LEASES, namespace, namespace)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("second", 2)
    with pytest.raises(LeaseLost):
        await first.hold()

    await second.release()
    assert await holder(client, namespace) == ""
    third = elector(client, namespace, "third")
    await asyncio.wait_for(third.acquire(), 30)
    assert await holder(client, namespace) == "third"


async def test_a_lease_that_was_taken_away_is_lost_at_once(client: Client, namespace: str) -> None:
    candidate = elector(client, namespace, "first")
    await candidate.acquire()
    holding = asyncio.create_task(candidate.hold())
    await client.merge_patch(LEASES, namespace, namespace, {"spec": {"holderIdentity": "thief"}})
    with pytest.raises(LeaseLost, match="held by thief"):
        await asyncio.wait_for(holding, 30)
    await candidate.release()
    assert await holder(client, namespace) == "thief"


async def test_many_start_at_once_and_one_leads(client: Client, namespace: str) -> None:
    candidates = [elector(client, namespace, f"c{number}") for number in range(5)]
    tasks = [asyncio.create_task(candidate.acquire()) for candidate in candidates]
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    assert len(done) == 1
    assert sum(candidate.is_leader for candidate in candidates) == 1
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_an_api_server_that_does_not_answer_costs_the_lease(
    client: Client, cluster: Cluster, namespace: str
) -> None:
    candidate = elector(client, namespace, "first", terms=Terms(3, 2, 0.3))
    await candidate.acquire()
    server = cluster.processes["kube-apiserver"]
    server.pause()
    try:
        with pytest.raises(LeaseLost, match="could not be renewed"):
            await asyncio.wait_for(candidate.hold(), 30)
    finally:
        server.resume()
