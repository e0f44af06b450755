"""Bind calls that the process makes itself: for whom, when, and until when."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from builders.members import GATE, cache, group, member, node, role_groups
from covey.api import core
from covey.scheduler.cache import Cache
from covey.scheduler.direct import FIRST_WAIT, LONGEST_WAIT, DirectBinding
from covey.scheduler.guard import BindArgs
from virtual_time import now, run

NAME = "covey-direct"
GROUPS = [group("root", composite=True, minimum=1), *role_groups("decode", replicas=1, minimum=1, size=2)]


class Barrier:
    """Answers bind calls in order, then success."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, str, str]] = []
        self.times: list[float] = []

    async def bind(self, args: BindArgs) -> str:
        self.calls.append((args.pod_name, args.pod_uid, args.node))
        self.times.append(asyncio.get_running_loop().time())
        return self.answers.pop(0) if self.answers else ""


def named(pod: core.Pod, name: str = NAME, **spec: Any) -> core.Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduler_name=name, **spec))


def direct(made: Cache, barrier: Barrier, name: str = NAME, *, leads: bool = True) -> DirectBinding:
    anything: Any = barrier
    return DirectBinding(made, anything, name, leads=lambda: leads)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


PINNED = named(member("decode", 0, 0, size=2, pin="n0"))


async def test_only_the_leader_calls_and_only_where_a_name_is_given() -> None:
    barrier = Barrier()
    made = cache(node("n0"), *GROUPS, PINNED, named(member("decode", 0, 1, size=2, pin="n0"), ""))
    direct(made, barrier, leads=False).begin()
    direct(made, barrier, "").begin()
    await settle()
    assert barrier.calls == []


def test_a_refused_call_is_made_again_later_each_time() -> None:
    async def waited() -> list[float]:
        barrier = Barrier(*["node n0: not ready"] * 6)
        begun = now()
        direct(cache(node("n0"), *GROUPS, PINNED), barrier).begin()
        await asyncio.sleep(120)
        return [round(at - begun) for at in barrier.times]

    assert run(waited()) == [0, 1, 3, 7, 15, 25, 35]
    assert (FIRST_WAIT, LONGEST_WAIT) == (1.0, 10.0)


def test_what_only_kube_scheduler_knows_is_refused_under_this_name_alone() -> None:
    pod = named(member("decode", 0, 0, size=2, gates=[GATE]), resource_claims=({"name": "gpu"},))
    made = direct(cache(), Barrier())
    assert made.obstacle(pod) == (
        "pod root-decode-0-0 has resourceClaims, which only kube-scheduler knows, and scheduler covey-direct is none: "
        "name another (spec.schedulerName)"
    )
    assert made.obstacle(named(pod, "covey-scheduler")) is None
    assert made.obstacle(named(member("decode", 0, 0, size=2, gates=[GATE]))) is None
