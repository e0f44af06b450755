"""A refused request ends what depends on it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.kube.errors import AlreadyExists, Conflict, Forbidden, KubeError, Retryable, Unreachable
from covey.kube.resources import POD_GROUPS, PODS, SERVICES, Resource
from covey.operator.model.problem import Blocked
from unit.operator.test_execute import DENIED, Server, execute
from unit.operator.world import World

QUOTA = Forbidden(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: gpus')
Refuses = Callable[[Mapping[str, Any]], bool]


class Picky(Server):
    """Refuses to create what it does not like."""

    def __init__(self, world: World, kind: Resource, refuses: Refuses, error: Exception = DENIED) -> None:
        super().__init__(world)
        self.kind, self.refuses, self.error = kind, refuses, error
        self.asked: list[str] = []
        self.groups: list[str] = []

    async def create(self, resource: Resource, body: Mapping[str, Any], *_: Any, type: Any, **__: Any) -> Any:  # noqa: A002 - Client's
        if resource == PODS:
            self.asked.append(body["spec"]["hostname"])
        if resource == self.kind and self.refuses(body):
            raise self.error
        if resource == POD_GROUPS:
            self.groups.append(body["metadata"]["name"])
        return await super().create(resource, body, type=type)

    @property
    def hosts(self) -> set[str]:
        """The host names of the pods that it has created."""
        return {name for name in self.created if name in self.asked}


def roles(*, wide: int = 3) -> tuple[dict[str, Any], ...]:
    return role("prefill", size=2, replicas=wide, minReplicas=1), role("decode", replicas=2, minReplicas=1)


def is_pod(*hosts: str) -> Refuses:
    return lambda body: body["spec"]["hostname"] in hosts


def has_label(**labels: str) -> Refuses:
    wanted = {f"covey.dev/{key}": value for key, value in labels.items()}
    return lambda body: wanted.items() <= body["metadata"]["labels"].items()


PREFILL_1 = {"0-prefill-1-0", "0-prefill-1-1"}
EVERY = PREFILL_1 | {"0-prefill-0-0", "0-prefill-0-1", "0-prefill-2-0", "0-prefill-2-1", "0-decode-0-0", "0-decode-1-0"}


async def test_a_refused_role_keeps_no_other_from_being_repaired() -> None:
    """As with a quota that is full of the larger of two: what fits of the other is there."""
    world = World.serving(inference(*roles()))
    for host in ("0-prefill-1-0", "0-prefill-2-0", "0-decode-1-0"):
        world.vanish(world.name_at(host))
    server = Picky(world, PODS, has_label(role="prefill"), QUOTA)
    with pytest.raises(Blocked) as blocked:
        await execute(world, server)
    assert server.hosts == {"0-decode-1-0"}
    assert blocked.value.problem.reason == names.REASON_QUOTA_EXCEEDED


async def test_a_minimum_that_is_refused_ends_its_unit() -> None:
    """What is there of a gang that cannot start serves nobody."""
    world = World(inference(role("prefill", replicas=9, minReplicas=4), role("decode"), replicas=2))
    server = Picky(world, PODS, has_label(unit="0", role="decode"), QUOTA)
    with pytest.raises(Blocked):
        await execute(world, server)
    assert {f"1-prefill-{replica}-0" for replica in range(9)} | {"1-decode-0-0"} <= server.hosts
    assert sum(host.startswith("0-") for host in server.hosts) <= 1


@pytest.mark.parametrize(
    ("kind", "refuses", "error", "hosts"),
    [
        pytest.param(POD_GROUPS, has_label(role="prefill", replica="1"), DENIED, PREFILL_1, id="its group"),
        pytest.param(PODS, is_pod("0-prefill-1-0"), DENIED, PREFILL_1, id="its first pod"),
        pytest.param(
            PODS, is_pod("0-decode-1-0"), Conflict(409, "Conflict", "busy"), {"0-decode-1-0"}, id="a busy name"
        ),
    ],
)
async def test_what_is_refused_ends_its_replica_and_no_other(
    kind: Resource, refuses: Refuses, error: Exception, hosts: set[str]
) -> None:
    world = World(inference(*roles()))
    server = Picky(world, kind, refuses, error)
    with pytest.raises((Blocked, Conflict), match=r"hands off|busy"):
        await execute(world, server)
    # Of a replica whose first pod is refused the others may have been sent already.
    assert EVERY - hosts <= server.hosts <= EVERY - hosts | ({"0-prefill-1-1"} if kind == PODS else set())


@pytest.mark.parametrize("runs", [True, False])
async def test_a_service_whose_name_is_taken_ends_its_role_and_the_start_of_a_unit(*, runs: bool) -> None:
    prefill, decode = roles()
    world = World(inference({**prefill, "network": {"ports": [{"name": "http", "port": 8000}]}}, decode))
    if runs:
        world.settle()
        world.serve()
        for host in ("0-prefill-1-0", "0-decode-1-0"):
            world.vanish(world.name_at(host))
        world.objects = {key: each for key, each in world.objects.items() if key[1] != "llama-prefill"}
    taken = AlreadyExists(409, "AlreadyExists", "llama-prefill")
    server = Picky(world, SERVICES, has_label(role="prefill"), taken)
    with pytest.raises((Blocked, KubeError, Retryable)):
        await execute(world, server)
    assert server.hosts == ({"0-decode-1-0"} if runs else set())


async def test_who_does_not_answer_is_not_asked_for_the_rest() -> None:
    world = World(inference(*roles()))
    server = Picky(world, PODS, is_pod("0-prefill-0-0"), Unreachable("no answer"))
    with pytest.raises(Unreachable):
        await execute(world, server)
    assert "0-decode-1-0" not in server.asked
