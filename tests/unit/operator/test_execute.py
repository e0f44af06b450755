"""What is done when the API server denies a part of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.compile import Owner, Slot
from covey.kube.client import Client
from covey.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unreachable
from covey.kube.resources import Resource
from covey.kube.turns import Turns
from covey.operator.execute.executor import Executor
from covey.operator.execute.pods import PodCallbacks
from covey.operator.model.actions import Actions, DeletePod, Drain, Relabel, Serve
from covey.operator.model.place import Tombstone
from covey.operator.model.problem import Blocked
from covey.operator.observe.missing import find_remaining
from merge_patch import merge
from scheduler_loop import settle
from unit.operator.world import World

OWNER = Owner("ml", "llama", "uid-llama")
DENIED = Forbidden(403, "Forbidden", 'admission webhook "labels.example.com" denied the request: hands off')


class Server:
    """Takes every write but those that it denies, and remembers them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.denied: dict[tuple[str, str], Exception] = {}
        self.patched: list[str] = []
        self.bodies: list[Any] = []
        self.applied: list[str] = []
        self.ungated: dict[str, object] = {}
        self.deleted: list[str] = []
        self.created: list[str] = []
        self._uids = itertools.count(1)

    async def merge_patch(self, _: Resource, name: str, __: str, body: Any, **more: Any) -> core.Pod | None:
        if more.get("manager") == names.MANAGER_OPERATOR_NOTES:
            return None
        self._refuse("patch", name)
        self.patched.append(name)
        self.bodies.append(body)
        return msgspec.convert(merge(msgspec.to_builtins(self.world.pods[name]), body), core.Pod)

    async def apply(self, _: Resource, body: Any, **__: Any) -> None:
        self._refuse("patch", body["metadata"]["name"])
        self.applied.append(body["metadata"]["name"])

    async def json_patch(self, _: Resource, name: str, __: str, operations: object, **___: Any) -> None:
        self._refuse("patch", name)
        self.ungated[name] = operations

    async def delete(self, _: Resource, name: str, __: str, **___: Any) -> None:
        self._refuse("delete", name)
        self.deleted.append(name)

    async def create(self, _: Resource, body: Mapping[str, Any], *, type: Any, **__: Any) -> Any:  # noqa: A002 - Client's
        self._refuse("create", body["metadata"]["name"])
        self.created.append(body.get("spec", {}).get("hostname") or body["metadata"]["name"])
        made = {**body, "metadata": {**body["metadata"], "uid": f"new-{next(self._uids)}"}}
        return msgspec.json.decode(msgspec.json.encode(made), type=type)

    async def get(self, _: Resource, name: str, __: str, **___: Any) -> core.Pod:
        if name not in self.world.pods:
            raise NotFound(404, "NotFound", name)
        return self.world.pods[name]

    def _refuse(self, verb: str, name: str) -> None:
        if (verb, name) in self.denied:
            raise self.denied[verb, name]


@pytest.fixture
def world() -> World:
    return World.serving(inference(role("prefill", size=2), role("decode", replicas=3)))


async def execute(world: World, server: Server, actions: Actions | None = None) -> None:
    """Carry out these actions, or what is planned."""
    executor = Executor(cast("Client", server), OWNER, world.observe(), lambda *_: None)
    await executor.run(world.plan().actions if actions is None else actions)


@pytest.mark.parametrize(
    ("verb", "deleted", "created"), [("patch", [0, 1], [1]), ("delete", [1], [0, 1])], ids=("patch", "delete")
)
async def test_an_address_never_means_two_pods_where_a_write_of_one_is_denied(
    world: World, verb: str, deleted: list[int], created: list[int]
) -> None:
    """Whose address cannot be taken away is deleted all the same: with it goes its address."""
    failed = [world.name_at(f"0-decode-{number}-0") for number in range(2)]
    for name in failed:
        world.fail(name)
    server = Server(world)
    server.denied[verb, failed[0]] = DENIED
    with pytest.raises(Blocked):
        await execute(world, server)
    assert sorted(server.deleted) == sorted(failed[number] for number in deleted)
    assert sorted(server.created) == [f"0-decode-{number}-0" for number in created]


@pytest.mark.parametrize("verb", ["patch", "delete"])
async def test_a_conflict_is_not_taken_for_the_end_of_a_pod(world: World, verb: str) -> None:
    """The API server also answers so where an object is busy: a successor would have the address of a pod that lives."""
    lost = world.name_at("0-decode-0-0")
    world.fail(lost)
    server = Server(world)
    server.denied[verb, lost] = Conflict(409, "Conflict", "the object has been modified")
    with pytest.raises(Conflict):
        await execute(world, server)
    assert not server.created


@pytest.mark.parametrize("kind", ["relabel", "drain", "serve"])
async def test_a_webhook_that_calls_its_denial_a_conflict_keeps_nobody_else_from_anything(
    world: World, kind: str
) -> None:
    """It would end every pass, for ever."""
    stuck, lost = world.name_at("0-decode-0-0"), world.name_at("0-decode-1-0")
    server = Server(world)
    server.denied["patch", stuck] = Conflict(409, "Conflict", DENIED.message)
    pod = world.pods[stuck]
    actions: dict[str, Any] = {
        "relabel": Actions(relabel=(Relabel(pod, {"a": "b"}),)),
        "drain": Actions(drain=(Drain(pod, 0.0, 0.0),)),
        "serve": Actions(serve=(Serve(pod, serving=False),)),
    }
    with pytest.raises(Blocked, match="hands off"):
        await execute(world, server, replace(actions[kind], delete_pods=(DeletePod(world.pods[lost], "lost"),)))
    assert server.deleted == [lost]


@pytest.mark.parametrize("gone", [False, True])
async def test_a_pod_is_deleted_only_after_it_was_marked(world: World, gone: bool) -> None:  # noqa: FBT001 - a case
    """A mark that meets a conflict is written again, for nothing else says for whom the pod went."""
    victim = world.name_at("0-decode-0-0")
    pod = world.pods[victim]
    server = Server(world)
    server.denied["patch", victim] = Conflict(409, "Conflict", "the object has been modified")
    if gone:
        del world.pods[victim]
    actions = Actions(drain=(Drain(pod, 0.0, 0.0, claimed_by="uid-root"),), delete_pods=(DeletePod(pod, "preempted"),))
    with contextlib.nullcontext() if gone else pytest.raises(Conflict):
        await execute(world, server, actions)
    assert server.deleted == ([victim] if gone else [])


async def test_a_replica_of_which_a_mark_is_denied_keeps_its_place(world: World) -> None:
    """It would be gone and nothing say for whom, and a part of it would not serve on where the claim is given up."""
    pods = {slot: world.pods[world.name_at(slot)] for slot in ("0-prefill-0-0", "0-prefill-0-1", "0-decode-0-0")}
    stuck, _, other = (pod.metadata.name for pod in pods.values())
    server = Server(world)
    server.denied["patch", stuck] = DENIED
    marks = tuple(Drain(pod, 0.0, 0.0, claimed_by="uid-root") for pod in pods.values())
    with pytest.raises(Blocked, match=stuck):
        await execute(
            world, server, Actions(drain=marks, delete_pods=tuple(DeletePod(pod, "preempted") for pod in pods.values()))
        )
    assert server.deleted == [other]


async def test_a_waiting_pod_that_may_not_be_deleted_gets_no_successor() -> None:
    """It keeps its address, which nobody has taken from it first: it would have gone at once."""
    world = World.settled(inference(role("decode", replicas=2)))
    world.inference = inference(role("decode", replicas=2, template=template(nodeSelector={"new": "yes"})))
    stuck, other = world.name_at("0-decode-0-0"), world.name_at("0-decode-1-0")
    server = Server(world)
    server.denied["delete", stuck] = DENIED
    with pytest.raises(Blocked):
        await execute(world, server)
    assert server.deleted == [other]
    assert [name for name in server.created if "decode-" in name and name.startswith("0-")] == ["0-decode-1-0"]


@pytest.mark.parametrize("error", [Unreachable("no answer"), ApiError(503, "ServiceUnavailable", "shutting down")])
async def test_without_an_answer_nothing_more_is_begun(world: World, error: Exception) -> None:
    lost = world.name_at("0-decode-1-0")
    world.fail(lost)
    server = Server(world)
    server.denied["patch", lost] = error
    with pytest.raises(type(error)):
        await execute(world, server)
    assert not server.deleted
    assert not server.created


@pytest.mark.parametrize("denied", [False, True])
async def test_a_pod_that_has_lost_its_label_is_still_in_its_place(world: World, denied: bool) -> None:  # noqa: FBT001 - a case
    """It is asked for by name; whoever answers is of the snapshot, so that nobody takes its place."""
    hidden, gone = world.name_at("0-decode-0-0"), world.name_at("0-decode-1-0")
    missing = {
        Slot(0, "decode", 0, 0): Tombstone.of(world.pods[hidden], confirmed=False),
        Slot(0, "decode", 1, 0): Tombstone.of(world.pods[gone], confirmed=False),
    }
    owned = core.OwnerReference(name="llama", uid="uid-llama", controller=True)
    world.change(hidden, metadata={"owner_references": (owned,)})
    del world.pods[gone]
    server = Server(world)
    if denied:
        server.denied["patch", hidden] = DENIED
    found = await find_remaining(cast("Client", server), OWNER, missing)
    assert {slot: pod.metadata.name for slot, pod in found.items()} == {Slot(0, "decode", 0, 0): hidden}


async def test_a_pod_whose_images_may_not_be_changed_keeps_nobody_else_from_it() -> None:
    def wanted(image: str) -> DisaggregatedInference:
        made = template(containers=[{"name": "engine", "image": image}])
        update = {"inPlace": "IfPossible", "maxSurge": 0, "maxUnavailable": 1}
        return inference(role("decode", size=2, template=made, update=update))

    world = World.settled(wanted("engine:1"))
    for name in list(world.pods):
        world.bind(name)
        world.run(name)
    world.inference = wanted("engine:2")
    first, second = sorted(world.pods)
    server = Server(world)
    server.denied["patch", first] = DENIED
    with pytest.raises(Blocked) as blocked:
        await execute(world, server)
    assert list(server.ungated) == [second]
    assert f"images of pod {first}" in blocked.value.problem.message


async def test_pod_gets_another_name_when_a_stranger_has_its_name(world: World) -> None:
    world.fail(world.name_at("0-decode-1-0"))
    server, tried = Server(world), []
    create = server.create

    async def take_first(resource: Resource, body: Mapping[str, Any], **options: Any) -> Any:
        tried.append(name := body["metadata"]["name"])
        if len(tried) == 1:
            world.pods[name] = core.Pod(core.Meta(name=name, namespace="ml", uid="stranger"))
            raise AlreadyExists(409, "AlreadyExists", name)
        return await create(resource, body, **options)

    server.create = take_first  # type: ignore[method-assign]
    await execute(world, server)
    assert len(set(tried)) == 2


async def test_pod_stays_when_it_serves_by_the_time_it_is_deleted(world: World) -> None:
    name = world.name_at("0-decode-2-0")
    seen = msgspec.structs.replace(world.pods[name], status=core.PodStatus())
    server, changed = Server(world), [Conflict(409, "Conflict", "it was changed")]

    async def delete(_: Resource, pod: str, __: str, **___: Any) -> None:
        if changed:
            raise changed.pop()
        server.deleted.append(pod)

    server.delete = delete  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="serves by now"):
        await execute(world, server, Actions(delete_pods=(DeletePod(seen, "surplus"),)))
    assert server.deleted == []


async def test_a_mark_says_since_when_until_when_and_for_whom(world: World) -> None:
    """All of it in one patch: a process that is killed has written all of it, or nothing."""
    server = Server(world)
    pods = [world.pods[world.name_at(f"0-decode-{number}-0")] for number in (2, 1)]
    await execute(world, server, Actions(drain=(Drain(pods[0], 0.0, 0.0, "root"), Drain(pods[1], 0.0, 0.0))))
    told = [body["metadata"]["annotations"] for body in server.bodies]
    since = dict.fromkeys((names.ANNOTATION_DRAINING_SINCE, names.ANNOTATION_DRAIN_UNTIL), "1970-01-01T00:00:00Z")
    assert told == [{**since, names.ANNOTATION_CLAIMED_BY: "root"}, since]


@pytest.mark.parametrize("seconds", [0, 60])
async def test_a_pairing_that_a_pod_could_not_leave_is_not_rolled_out(seconds: int) -> None:
    """Decode cannot follow to the new prefill: without the old one a router had nobody at all."""
    world = World.serving(inference(role("prefill", drainSeconds=seconds), role("decode")))
    new = template(nodeSelector={"new": "yes"})
    world.inference = inference(role("prefill", drainSeconds=seconds, template=new), role("decode"))
    world.carry_out()
    world.serve()
    old, decode = world.name_at("0-prefill-0-0"), world.name_at("0-decode-0-0")
    whole = world.plan().actions
    actions = Actions(pair=whole.pair, drain=whole.drain, delete_pods=whole.delete_pods)
    for denied, expected in ((False, [decode, old]), (True, [])):
        server = Server(world)
        actions = replace(actions, serve=(Serve(world.pods[old], serving=False),) if denied else ())
        server.denied = {("patch", decode): DENIED} if denied else {}
        with pytest.raises(Blocked) if denied else contextlib.nullcontext():
            await execute(world, server, actions)
        assert [*server.patched, *server.applied, *server.deleted] == expected


async def test_pods_when_several_resources_create_them_come_by_resource_the_oldest_first(world: World) -> None:
    for number in range(2):
        world.fail(world.name_at(f"0-decode-{number}-0"))
    turns, born = Turns(1), list[str]()

    async def create(age: str) -> None:
        callbacks, turn = PodCallbacks(created=lambda _: born.append(age)), turns.take((age,))
        client, observed = cast("Client", Server(world)), world.observe()
        executor = Executor(client, OWNER, observed, lambda *_: None, pods=callbacks, turn=turn)
        await executor.run(world.plan().actions)

    async with asyncio.TaskGroup() as group, turns.take(("0",)):
        for age in ("2", "1"):
            group.create_task(create(age))
        await settle()
        assert not born
    assert born == ["1", "1", "2", "2"]
