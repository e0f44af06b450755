"""A pod that serves stays, however late, forgetful or unheard the operator is: nobody asked for less, and it is not broken."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from unit.operator.test_convergence import replica_of
from unit.operator.wild.rough import Event, roughen, with_roughness
from unit.operator.wild.wild_world import Wild
from unit.operator.world import World

_EVENTS = ("fail", "vanish", "delete", "unready", "object", "label", "serve", "serve", "finish")
_LABELS = (names.LABEL_ADDRESS, names.LABEL_GANG, names.LABEL_UNIT_LEADER, names.LABEL_REPLICA)


class Serving:
    """A resource that serves, and the pods that nobody has done anything to."""

    def __init__(self, seed: int, *, network: bool) -> None:
        more = {"network": {"ports": [{"name": "http", "port": 8000}], "service": {}}} if network else {}
        roles = (role("prefill", replicas=2, minReplicas=1, size=2, **more), role("decode", replicas=3, minReplicas=2))
        self.wild = Wild(inference(*roles, replicas=2), seed)
        self.wild.settle()
        with self.wild.hands() as world:
            self._serve(world)
        self.wild.settle()
        self.healthy = {name: pod.metadata.uid for name, pod in self.wild.truth().pods.items()}
        self.wild.checks.append(self.check)

    def check(self, world: World) -> None:
        going = {name for name, pod in world.pods.items() if pod.metadata.deletion_timestamp is not None}
        left = {name: pod.metadata.uid for name, pod in world.pods.items() if name not in going}
        assert self.healthy.items() <= left.items(), f"given up without need: {self.healthy.keys() - left.keys()}"

    def happen(self, world: World, kind: str, number: int) -> None:
        pods = sorted(world.pods)
        name = pods[number % len(pods)]
        match kind:
            case "serve":
                self._serve(world)
            case "finish":
                world.finish()
            case "object" if world.objects:
                world.objects.pop(sorted(world.objects)[number % len(world.objects)])
            case "label":
                world.label(name, {_LABELS[number % len(_LABELS)]: None})
            case "unready" if world.pods[name].spec.node_name:
                self._say(world, name, "False")
            case "fail" | "vanish" | "delete":
                self.healthy = {each: uid for each, uid in self.healthy.items() if each not in replica_of(world, name)}
                {"fail": World.fail, "vanish": World.vanish, "delete": World.delete}[kind](world, name)
            case _:
                pass

    def _serve(self, world: World) -> None:
        for name, pod in list(world.pods.items()):
            if pod.metadata.deletion_timestamp is None and pod.status.phase != "Failed":
                if not pod.spec.node_name:
                    world.bind(name, f"node-{name}")
                self._say(world, name, "True")

    @staticmethod
    def _say(world: World, name: str, ready: str) -> None:
        world.change(name, status={"phase": "Running", "conditions": (core.Condition("Ready", ready),)})


@settings(settings.get_profile("storm"))
@given(with_roughness(st.tuples(st.sampled_from(_EVENTS), st.integers(0, 60))), st.booleans(), st.integers(0, 1 << 32))
def test_what_serves_stays(happened: list[Event], network: bool, seed: int) -> None:  # noqa: FBT001 - a case
    serving = Serving(seed, network=network)
    with serving.wild as wild:
        for event in happened:
            if not roughen(wild, event, {}):
                with wild.hands() as world:
                    serving.happen(world, *event)
        wild.settle()
        assert len(wild.truth().pods) == 2 * (2 * 2 + 3)
