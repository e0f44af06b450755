"""Edits, reversals, scales, deaths and crashes through the whole plan: what serves is never given up beyond its budget.

The planner's own promises are tested in ``unit/rollout``. Here pods are what it is told by: their labels, their
deletion, what is left of them after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.model import image_update, podstate
from covey.operator.model.node_drain import Notice
from covey.operator.replicas.progress import replica_states, running_revisions
from unit.operator.world import World

Event = tuple[str, int]
ROLES = ("prefill", "decode")
NEVER: dict[str, Any] = {}
IN_PLACE: dict[str, Any] = {"inPlace": "IfPossible"}
#: How a role is updated, and how many of it may be missing.
UPDATES = ((NEVER, 0), (IN_PLACE, 0), ({**IN_PLACE, "maxSurge": 0, "maxUnavailable": 1}, 1))


def resource(
    images: Sequence[int], replicas: Sequence[int], sizes: Sequence[int], drains: Sequence[int], updates: Sequence[int]
) -> DisaggregatedInference:
    made = zip(ROLES, images, replicas, sizes, drains, updates, strict=True)
    return inference(
        *(
            role(name, replicas=count, size=size, drainSeconds=drain)
            | {"template": running(image), "update": UPDATES[update][0]}
            for name, image, count, size, drain, update in made
        )
    )


def running(image: int) -> dict[str, Any]:
    """Between some revisions only the image changes, between others something else as well."""
    found = template(nodeSelector={"odd": str(image % 2)})
    return {"spec": {**found["spec"], "containers": [{"name": "engine", "image": f"engine:{image}"}]}}


event = st.tuples(
    st.sampled_from(
        ["edit", "edit all", "replicas", "size", "serve", "serve", "fail", "vanish", "finish", "restart", "crash"]
        + ["run"]
        + ["leave", "return", "time", "idle"]
        + ["act"] * 6
    ),
    st.integers(0, 60),
)


class Storm:
    """A world that runs, and what is asked of it."""

    def __init__(
        self,
        replicas: tuple[int, int],
        sizes: tuple[int, int],
        drains: tuple[int, int] = (0, 0),
        updates: tuple[int, int] = (0, 0),
    ) -> None:
        self.images, self.replicas, self.sizes, self.drains = [0, 0], list(replicas), list(sizes), drains
        self.updates = updates
        self.world = self.begin(self.wanted())
        for name in list(self.world.pods):
            self.serve(name)

    def begin(self, resource: DisaggregatedInference) -> World:
        """A world in which everything has been created."""
        return World.settled(resource)

    def wanted(self) -> DisaggregatedInference:
        return resource(self.images, self.replicas, self.sizes, self.drains, self.updates)

    def serve(self, name: str) -> None:
        pod = self.world.pods[name]
        if podstate.is_dead(pod):
            return
        if not podstate.is_bound(pod):
            # Each replica has a node of its own, which is not to be empty.
            number = int(pod.metadata.label("covey.dev/replica") or 0)
            nodes = (f"node-{pod.metadata.label('covey.dev/role')}-{number}-{turn}" for turn in count())
            self.world.bind(name, next(node for node in nodes if node not in self.world.notices))
        self.world.run(name)

    def nodes(self) -> list[str]:
        return sorted({pod.spec.node_name for pod in self.world.pods.values() if pod.spec.node_name})

    def ready(self) -> dict[str, int]:
        """Replicas of each role that serve; one whose pods are of two revisions will be restarted."""
        observed, in_force = self.world.observe(), self.world.judge().wanted
        states = replica_states(observed, in_force, running_revisions(observed, in_force)).get(0, {})
        return {
            name: sum(state.is_ready and not self.is_torn(name, n) for n, state in states.get(name, {}).items())
            for name in ROLES
        }

    def is_torn(self, role: str, replica: int) -> bool:
        return (
            len(
                {
                    pod.metadata.label("covey.dev/revision")
                    for pod in self.world.pods.values()
                    if (pod.metadata.label("covey.dev/role"), pod.metadata.label("covey.dev/replica"))
                    == (role, str(replica))
                    and not podstate.is_dead(pod)
                }
            )
            > 1
        )

    def act(self, writes: int | None = None) -> None:
        """One pass, ended by a crash after so many writes; after each of them enough serves."""
        before = self.ready()
        for step in islice(list(self.world.steps(self.world.plan().actions)), writes):
            step()
            self.world.check()
            after = self.ready()
            for name, wanted, update in zip(ROLES, self.replicas, self.updates, strict=True):
                missing = UPDATES[update][1]
                least = max(1, wanted - missing) if wanted > 1 or not missing else 0
                assert after[name] >= min(before[name], least), (name, before, after)
        self.world.tell()

    def happen(self, kind: str, number: int) -> None:
        world, pods = self.world, sorted(self.world.pods)
        match kind:
            case "edit":
                self.images[number % 2] = number % 3
            case "edit all":
                self.images[:] = [number % 3] * 2
            case "replicas":
                self.replicas[number % 2] = 1 + number % 4
            case "size" if self.sizes[number % 2] > 1:
                # From one pod to several nothing is rolled.
                self.sizes[number % 2] = 2 + number % 3
            case "serve" if pods:
                slot = world.pods[pods[number % len(pods)]].metadata.label("covey.dev/replica")
                for name in pods:
                    if world.pods[name].metadata.label("covey.dev/replica") == slot:
                        self.serve(name)
            case "run" if pods:
                name = pods[number % len(pods)]
                if podstate.is_bound(world.pods[name]) and not podstate.is_dead(world.pods[name]):
                    world.run(name)
            case "fail" if pods:
                world.fail(pods[number % len(pods)])
            case "vanish" if pods:
                world.vanish(pods[number % len(pods)])
            case "finish":
                world.finish()
            case "restart":
                world.forget()
            case "crash":
                self.act(number % 8)
                world.forget()
            case "leave" if self.nodes():
                left = Notice("cordoned", since=world.now, waits=bool(number % 2))
                self.world.notices[self.nodes()[number % len(self.nodes())]] = left
            case "return":
                self.world.notices.clear()
            case "time":
                world.now += number
            case "idle" if pods:
                world.annotate(pods[number % len(pods)], {names.ANNOTATION_IN_FLIGHT: "0"})
            case "act":
                self.act()
            case _:
                pass
        world.inference = self.wanted()


pairs: Any = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(
    pairs,
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from([(0, 0), (30, 0), (30, 20)]),
    st.tuples(*[st.integers(0, 2)] * 2),
    st.lists(event, max_size=24),
)
def test_enough_serves_after_every_write_and_it_ends(
    replicas: tuple[int, int],
    sizes: tuple[int, int],
    drains: tuple[int, int],
    updates: tuple[int, int],
    happened: list[Event],
) -> None:
    storm = Storm(replicas, sizes, drains, updates)
    for kind, number in happened:
        storm.happen(kind, number)
    world = storm.world
    for _ in range(60):
        storm.act()
        world.finish()
        world.now += 31
        for name in list(world.pods):
            storm.serve(name)
        if not world.plan().actions and "rollout" not in world.tell():
            break
    assert not world.plan().actions, world.status.get("rollout")
    assert_ended(storm)


def assert_ended(storm: Storm) -> None:
    """All of it is as it was asked for last."""
    world, wanted = storm.world, storm.world.judge().wanted
    told = {
        (pod.metadata.label("covey.dev/role"), pod.metadata.label("covey.dev/revision")) for pod in world.pods.values()
    }
    assert told == {(name, wanted.roles[name].hash) for name in ROLES}
    for pod in world.pods.values():
        assert not image_update.is_open(pod)
        assert (
            pod.spec.containers[0].image
            == f"engine:{storm.images[ROLES.index(pod.metadata.label('covey.dev/role') or '')]}"
        )
    assert len(world.pods) == sum(count * size for count, size in zip(storm.replicas, storm.sizes, strict=True))
    # Who may have no surge and is at its minimum stays where it is.
    bound = {
        name
        for name, replica_count, update in zip(ROLES, storm.replicas, storm.updates, strict=True)
        if UPDATES[update][1] and replica_count == 1
    }
    left = [pod for pod in world.pods.values() if pod.spec.node_name in world.notices]
    assert {pod.metadata.label("covey.dev/role") for pod in left} <= bound
