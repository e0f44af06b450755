"""Election over a register with compare-and-swap, which is all that an election needs of an API server."""

import asyncio
import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.errors import AlreadyExists, Conflict, Forbidden, LeaseLost, NotFound, Unreachable
from covey.kube.lease import LeaseElector, LeaseTerms
from covey.kube.resources import SUBJECT_ACCESS_REVIEWS, Resource
from virtual_time import now, virtual


@dataclass
class Wire:
    """How one request fares: seconds until it arrives, seconds until its answer does, and whether that is lost."""

    there: float = 0.0
    back: float = 0.0
    lost: bool = False


@dataclass
class Register:
    """One object. What has been sent arrives, even when the sender has given up waiting."""

    lease: dict[str, Any] | None = None
    versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    pending: set[asyncio.Task[dict[str, Any]]] = field(default_factory=set)
    log: list[tuple[float, str]] = field(default_factory=list)

    def read(self) -> dict[str, Any]:
        if self.lease is None:
            raise NotFound(404)
        return copy.deepcopy(self.lease)

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.lease is not None:
            raise AlreadyExists(409)
        return self.write(body)

    def replace(self, body: dict[str, Any]) -> dict[str, Any]:
        assert self.lease is not None
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(409)
        return self.write(body)

    def write(self, body: dict[str, Any]) -> dict[str, Any]:
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(next(self.versions))
        self.log.append((now(), body["spec"]["holderIdentity"]))
        return self.read()


class Link:
    """A candidate's client: its requests fare as the wires say, the last one for ever."""

    def __init__(self, register: Register, *wires: Wire) -> None:
        self.register = register
        #: Leases of the same name in other namespaces; None where that may not be read.
        self.others: list[Register] | None = []
        #: Whether the account of their namespace has rights in the cluster.
        self.installed = True
        self.wires = list(wires) or [Wire()]
        self.requests: list[str] = []

    async def get(self, *_: Any) -> dict[str, Any]:
        return await self.send("get", self.register.read)

    async def list(self, *_: Any, fields: str) -> tuple[list[dict[str, Any]], str]:
        assert fields.startswith("metadata.name=")
        if self.others is None:
            raise Forbidden(403)
        return [register.read() for register in (self.register, *self.others) if register.lease is not None], "1"

    async def create(self, resource: Resource, body: dict[str, Any], _namespace: str = "") -> dict[str, Any]:
        if resource is SUBJECT_ACCESS_REVIEWS:
            assert body["spec"]["user"] == "system:serviceaccount:covey-system:covey-operator"
            return {"status": {"allowed": self.installed}}
        return await self.send("create", lambda: self.register.create(body))

    async def replace(self, _: Any, body: dict[str, Any]) -> dict[str, Any]:
        return await self.send("replace", lambda: self.register.replace(body))

    async def send(self, verb: str, act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        wire = self.wires.pop(0) if len(self.wires) > 1 else self.wires[0]
        self.requests.append(verb)

        async def arrive() -> dict[str, Any]:
            await asyncio.sleep(wire.there)
            return act()

        task = asyncio.create_task(arrive())
        self.register.pending.add(task)
        task.add_done_callback(self.register.pending.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        answer = await asyncio.shield(task)
        await asyncio.sleep(wire.back)
        if wire.lost:
            raise Unreachable("the answer was lost")
        return answer


DEAD = Wire(there=float("inf"))


def elector(
    link: Link, identity: str = "a", *, offset: float = 0.0, name: str = "lease", namespace: str = "covey-system"
) -> LeaseElector:
    """A candidate whose clocks show their own times."""
    loop = asyncio.get_running_loop()
    return LeaseElector(
        cast(Client, link),
        name,
        namespace,
        identity,
        account="covey-operator",
        clock=Clock(lambda: offset + loop.time(), lambda: abs(offset) + loop.time(), random=lambda: 0.5),
    )


async def leading() -> tuple[Register, Link, LeaseElector]:
    """A candidate that has the lease, its client, and the server's record."""
    register = Register()
    link = Link(register)
    candidate = elector(link)
    await candidate.acquire()
    return register, link, candidate


async def end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@virtual
async def test_a_living_holder_is_left_alone() -> None:
    register = Register()
    holder, other = elector(Link(register), "a"), elector(Link(register), "b")
    await holder.acquire()
    tasks = [asyncio.create_task(holder.hold()), asyncio.create_task(other.acquire())]
    await asyncio.sleep(1000)
    assert holder.is_leader
    assert not other.is_leader
    assert other.holder == "a"
    await end(*tasks)


async def beside(holder: LeaseElector, register: Register) -> LeaseElector:
    """A candidate of another installation than a holder's."""
    await holder.acquire()
    link = Link(Register())
    link.others = [register]
    return elector(link, "newcomer", offset=1e6, namespace="team-b")


@virtual
async def test_a_lease_is_taken_when_a_tenant_renews_one_of_that_name() -> None:
    register = Register()
    link = Link(Register())
    link.others, link.installed = [register], False
    tenant = elector(Link(register), "tenant")
    await tenant.acquire()
    hold = asyncio.create_task(tenant.hold())
    await elector(link, "newcomer", namespace="team-b").acquire()
    assert now() == 0
    await end(hold)


@virtual
async def test_a_lease_that_nobody_renews_is_no_installation() -> None:
    register = Register()
    newcomer = await beside(elector(Link(register), "gone"), register)
    await newcomer.acquire()
    assert 15 <= now() <= 20


@virtual
async def test_a_lease_is_taken_when_other_installations_may_not_be_looked_for() -> None:
    link = Link(Register())
    link.others = None
    await elector(link).acquire()
    assert now() == 0


@virtual
async def test_renewal_counts_from_when_it_was_sent_when_its_answer_is_late() -> None:
    _, link, candidate = await leading()
    link.wires = [Wire(back=4.0), DEAD]
    with pytest.raises(LeaseLost, match="could not be renewed"):
        await candidate.hold()
    assert now() == 2.0 + 10.0


@pytest.mark.parametrize("wire", [Wire(lost=True), Wire(back=6.0), Wire(there=6.0)])
@virtual
async def test_one_lost_answer_does_not_lose_the_lease(wire: Wire) -> None:
    _, link, candidate = await leading()
    link.wires = [wire, Wire()]
    hold = asyncio.create_task(candidate.hold())
    await asyncio.sleep(60)
    assert candidate.is_leader
    assert not hold.done()
    await end(hold)


@virtual
async def test_a_process_that_was_stopped_finds_its_lease_lost() -> None:
    register = Register()
    time = 0.0
    link = Link(register)
    candidate = LeaseElector(
        cast(Client, link), "l", "ns", "a", account="covey-operator", clock=Clock(lambda: time, random=lambda: 0.0)
    )
    await candidate.acquire()
    led = candidate.is_leader
    time = 11.0
    assert (led, candidate.is_leader) == (True, False)
    with pytest.raises(LeaseLost):
        await candidate.hold()
    # It did not even try: the lease may be somebody else's by now.
    assert link.requests == ["get", "create"]


@virtual
async def test_release_after_a_renewal_that_was_cancelled_on_its_way() -> None:
    register, link, candidate = await leading()
    link.wires = [Wire(back=3.0), Wire()]
    hold = asyncio.create_task(candidate.hold())
    await asyncio.sleep(3)
    await end(hold)
    await candidate.release()
    assert register.read()["spec"]["holderIdentity"] == ""


@virtual
async def test_release_without_an_answer_ends() -> None:
    _, link, candidate = await leading()
    link.wires = [DEAD]
    await candidate.release()
    assert now() == 5.0


WIRES = st.lists(
    st.builds(Wire, st.sampled_from([0, 0, 0, 0.3, 4, 12, 60]), st.sampled_from([0, 0, 0.3, 4, 20]), st.booleans()),
    max_size=25,
)


@given(wires=st.lists(WIRES, min_size=2, max_size=3), offsets=st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3))
@virtual
async def test_never_two_leaders_and_always_one_in_the_end(wires: list[list[Wire]], offsets: list[float]) -> None:
    async def live(candidate: LeaseElector, leaders: list[str], identity: str) -> None:
        """A process that is started again whenever it loses its lease."""
        while True:
            await candidate.acquire()
            leaders.append(identity)
            with pytest.raises(LeaseLost):
                await candidate.hold()

    register = Register()
    leaders: list[str] = []
    candidates = [
        elector(Link(register, *script, Wire()), f"c{number}", offset=offsets[number])
        for number, script in enumerate(wires)
    ]
    tasks = [asyncio.create_task(live(candidate, leaders, f"c{number}")) for number, candidate in enumerate(candidates)]
    for _ in range(1200):
        await asyncio.sleep(0.5)
        assert sum(candidate.is_leader for candidate in candidates) <= 1
    assert sum(candidate.is_leader for candidate in candidates) == 1
    await end(*tasks, *register.pending)


@pytest.mark.parametrize("wrong", [{"duration": 10}, {"retry": 9}, {"retry": 0}])
def test_times_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"1\.2 \* retry < renew_deadline < duration"):
        LeaseTerms(**wrong)
