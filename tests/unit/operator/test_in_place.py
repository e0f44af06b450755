"""Images that are updated in place through the whole plan: what is written, when a pod serves again, what is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from builders import inferences, pods
from builders.inferences import template
from covey.api import constants as names
from covey.api import core
from covey.model import image_update, podstate
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


def test_restarts_for_new_images_are_no_failures_and_later_ones_are(world: World) -> None:
    world.notes = True
    world.act(2)
    before = {name: pod.metadata.uid for name, pod in world.pods.items()}
    world.inference = llama("2")
    world.act()
    first, second = world.names_of("decode", 1)
    # The peer crashes, twice, before its own image has come.
    world.run(first)
    world.say(second, core.ContainerStatus("engine", image_id="engine:1", restart_count=2))
    world.act()
    world.run(second)
    for _ in range(4):
        world.act()
        run_all(world)
    assert {name: pod.metadata.uid for name, pod in world.pods.items()} == before
    world.say(second, core.ContainerStatus("engine", image_id="engine:2", restart_count=4))
    planned = world.plan()
    assert {item.pod.metadata.name for item in planned.actions.delete_pods} == {first, second}


def test_a_change_that_is_taken_back_before_the_kubelet_has_heard_of_it_restarts_nothing(world: World) -> None:
    """It sees the image that it runs, and does nothing but say by which generation it goes."""
    for image in ("2", "1"):
        world.inference = llama(image)
        world.act()
    for name in world.names_of("decode", 1):
        assert not podstate.is_ready(world.pods[name]), "it may just be at work"
        world.run(name)
        assert [each.restart_count for each in world.statuses[world.pods[name].metadata.uid]] == [0]
        assert podstate.is_ready(world.pods[name])
    world.act(2)
    assert not world.plan().actions
    assert not any(map(image_update.is_open, world.pods.values()))


def test_a_pod_that_is_ready_is_believed_after_a_minute(world: World) -> None:
    world.inference = llama("2")
    world.act()
    assert all(image_update.is_open(world.pods[name]) for name in world.names_of("decode", 1))
    assert not world.plan().actions
    assert 0 < (world.plan().again or 0) <= image_update.PATIENCE
    world.now += image_update.PATIENCE
    world.change(world.names_of("decode", 1)[1], status={"conditions": (core.Condition("Ready", "False"),)})
    assert not world.plan().actions, "all of the replica"
    world.ready(world.names_of("decode", 1)[1])
    world.act()
    assert not any(image_update.is_open(world.pods[name]) for name in world.names_of("decode", 1))


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
    assert image_update.is_restarted(found) == runs
    assert podstate.is_ready(found) == runs
