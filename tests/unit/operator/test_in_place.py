"""Images that are updated in place through the whole plan: what is written, when a pod serves again, what is told."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest

from builders import inferences, pods
from builders.inferences import template
from covey.api import constants as names
from covey.api import core
from covey.kube.client import Client
from covey.kube.errors import Forbidden, Invalid, NotFound
from covey.operator.execute.put import put_images
from covey.operator.model import podstate
from covey.operator.model.actions import UpdateInPlace
from unit.operator.test_rolling import act
from unit.operator.world import World

UPDATE = {"inPlace": "IfPossible", "maxSurge": 0, "maxUnavailable": 1}


def llama(image: str = "1", *, update: dict[str, Any] | None = None, **pod: Any) -> Any:
    """Two replicas of each role; decode takes another image in place."""
    made = template(containers=[{"name": "engine", "image": f"engine:{image}"}], **pod)
    return inferences.llama(
        decode={"replicas": 2, "size": 2, "template": made, "update": UPDATE if update is None else update}
    )


def run_all(world: World) -> None:
    for name, pod in list(world.pods.items()):
        if not podstate.is_dead(pod):
            world.bind(name)
            world.run(name)


@pytest.fixture
def world() -> World:
    made = World.settled(llama())
    run_all(made)
    made.tell()
    return made


def of(world: World, replica: int) -> list[str]:
    """The names of the pods of a decode replica."""
    return sorted(
        name
        for name, pod in world.pods.items()
        if (pod.metadata.label(names.LABEL_ROLE), pod.metadata.label(names.LABEL_REPLICA)) == ("decode", str(replica))
    )


def test_a_replica_between_two_revisions_does_not_serve_and_is_finished(world: World) -> None:
    """Whatever has become of the budget meanwhile, and of the wish."""
    world.inference = llama("2")
    steps = list(world.steps(world.plan().actions))
    first = of(world, 1)[0]
    for step in steps:
        step()
        if podstate.is_open(world.pods[first]):
            break
    world.forget()
    run_all(world)
    assert all(podstate.is_ready(pod) for pod in world.pods.values())
    world.inference = llama("2", update={})
    planned = world.plan()
    assert [item.pod.metadata.name for item in planned.actions.in_place] == of(world, 1)[1:]
    assert not planned.actions.delete_pods, "the other one is all that serves"
    assert not [each for each in planned.actions.relabel if each.annotations], "it is not over"


def test_restarts_for_new_images_are_no_failures_and_later_ones_are(world: World) -> None:
    world.notes = True
    act(world, 2)
    before = {name: pod.metadata.uid for name, pod in world.pods.items()}
    world.inference = llama("2")
    act(world)
    first, second = of(world, 1)
    # The peer crashes, twice, before its own image has come.
    world.run(first)
    world.say(second, core.ContainerStatus("engine", image_id="engine:1", restart_count=2))
    act(world)
    world.run(second)
    for _ in range(4):
        act(world)
        run_all(world)
    assert {name: pod.metadata.uid for name, pod in world.pods.items()} == before
    world.say(second, core.ContainerStatus("engine", image_id="engine:2", restart_count=4))
    planned = world.plan()
    assert {item.pod.metadata.name for item in planned.actions.delete_pods} == {first, second}


def test_a_change_that_is_taken_back_before_the_kubelet_has_heard_of_it_restarts_nothing(world: World) -> None:
    """It sees the image that it runs, and does nothing but say by which generation it goes."""
    for image in ("2", "1"):
        world.inference = llama(image)
        act(world)
    for name in of(world, 1):
        assert not podstate.is_ready(world.pods[name]), "it may just be at work"
        world.run(name)
        assert [each.restart_count for each in world.statuses[world.pods[name].metadata.uid]] == [0]
        assert podstate.is_ready(world.pods[name])
    act(world, 2)
    assert not world.plan().actions
    assert not any(map(podstate.is_open, world.pods.values()))


def test_a_pod_that_is_ready_is_believed_after_a_minute(world: World) -> None:
    world.inference = llama("2")
    act(world)
    assert all(podstate.is_open(world.pods[name]) for name in of(world, 1))
    assert not world.plan().actions
    assert 0 < (world.plan().rolling.again or 0) <= podstate.PATIENCE  # type: ignore[union-attr] # there is one
    world.now += podstate.PATIENCE
    world.change(of(world, 1)[1], status={"conditions": (core.Condition("Ready", "False"),)})
    assert not world.plan().actions, "all of the replica"
    world.ready(of(world, 1)[1])
    act(world)
    assert not any(podstate.is_open(world.pods[name]) for name in of(world, 1))


FORMER = {"imageID": "old", "restarts": 1, "generation": 3}


def pod(status: dict[str, Any] | None, *, seen: int | None = None, former: Any = None, generation: int = 4) -> core.Pod:
    """A pod whose engine was updated in place: its container's status, and the generation that the kubelet has seen."""
    written = former if isinstance(former, str) else json.dumps({"engine": former or FORMER})
    return pods.pod(
        labels={"covey.dev/revision": "a"},
        annotations={names.ANNOTATION_IN_PLACE: written},
        spec={"containers": [{"name": "engine", "image": "engine:2"}]},
        status={
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "engine", **status}] if status is not None else [],
            **({"observedGeneration": seen} if seen is not None else {}),
        },
        generation=generation,
        resourceVersion="7",
    )


@pytest.mark.parametrize(
    ("found", "runs"),
    [
        (pod({"imageID": "old", "restartCount": 1}), False),
        (pod({"imageID": "new", "restartCount": 1}), True),
        # The same image by another name, or a crash before the kubelet has heard of the change.
        (pod({"imageID": "old", "restartCount": 2}), False),
        (pod({"imageID": "old", "restartCount": 2}, seen=4), False),
        (pod({"imageID": "new", "restartCount": 2}, seen=3), False),
        (pod({"imageID": "new", "restartCount": 2}, seen=4), True),
        (pod({"imageID": "old", "restartCount": 1}, seen=4), False),
        # API servers before 1.33 count no generations of pods.
        (pod({"imageID": "new", "restartCount": 1}, seen=0, generation=0), True),
        (pod(None), False),
        # Nothing had been said of it before.
        (pod({}, former={"imageID": "", "restarts": -1, "generation": 3}), True),
        # Somebody has written something else there.
        (pod({"imageID": "old", "restartCount": 1}, former="yes"), True),
        (pod({"imageID": "old", "restartCount": 1}, former='{"engine": 3}'), True),
    ],
)
def test_a_pod_serves_with_its_new_images_only(found: core.Pod, *, runs: bool) -> None:
    assert podstate.is_restarted(found) == runs
    assert podstate.is_ready(found) == runs


class Server:
    """One stored pod, and what a patch of it is answered with."""

    def __init__(self, stored: core.Pod, answer: Exception | None = None, *, moves: bool = False) -> None:
        self.stored = podstate.Stored(stored.metadata, stored.spec, stored.status)
        self.answer = answer
        self.moves = moves
        self.operations: list[dict[str, Any]] = []

    async def get(self, *_: Any, **__: Any) -> podstate.Stored:
        return self.stored

    async def json_patch(self, _: Any, __: str, ___: str, operations: list[dict[str, Any]], **____: Any) -> str:
        self.operations = operations
        if self.moves:
            metadata = msgspec.structs.replace(self.stored.metadata, resource_version="8")
            self.stored = msgspec.structs.replace(self.stored, metadata=metadata)
        if self.answer is not None:
            raise self.answer
        return "written"


async def put(server: Server, revision: str = "b") -> Any:
    action = UpdateInPlace(pod({}), {"engine": "engine:3"}, revision, 1700.5)
    return await put_images(cast("Client", server), action)


async def test_a_pod_without_annotations_gets_its_first_one_only_as_it_was_read() -> None:
    found = pod({})
    bare = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, annotations=None))
    server = Server(bare)
    await put(server)
    assert server.operations[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert server.operations[-1]["path"] == "/metadata/annotations"


async def test_a_lost_race_is_no_denial() -> None:
    failed = Invalid(422, "Invalid", "the server rejected our request due to an error in our request")
    assert await put(Server(pod({}), failed, moves=True)) is None
    with pytest.raises(Invalid):
        await put(Server(pod({}), failed))
    with pytest.raises(Forbidden):
        await put(Server(pod({}), Forbidden(403, "Forbidden", "no"), moves=True))
    with pytest.raises(NotFound):
        await put(Server(pod({}), NotFound(404, "NotFound", "p")))
