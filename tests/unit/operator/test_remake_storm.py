"""Whatever is asked of fixed groups, in whatever order passes and places come: what serves goes on serving."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.model import podstate
from unit.operator.test_native import Native, uids

EVENTS = st.lists(
    st.tuples(st.sampled_from(["ask", "mode", "roll", "crash", "act", "place", "serve", "forget"]), st.integers(0, 99)),
    max_size=24,
)
MODES = ("Unit", "Replica", "Pod")


def wanted(least: int, mode: str, replicas: int, pod: int = 0) -> DisaggregatedInference:
    pods = template(nodeSelector={"pod": str(pod)})
    roles = (role("prefill", size=2, replicas=3, minReplicas=least), role("decode", template=pods))
    return inference(*roles, replicas=replicas, disruptionMode=mode, backend="Kubernetes")


def serving(world: Native) -> int:
    """Units that have a Ready replica of each role."""
    ready: dict[str, dict[str, list[str]]] = {}
    for pod in world.pods.values():
        if podstate.is_ready(pod):
            labels = pod.metadata.labels or {}
            found = ready.setdefault(labels[names.LABEL_UNIT], {}).setdefault(labels[names.LABEL_ROLE], [])
            found.append(labels[names.LABEL_REPLICA])
    whole = [roles for roles in ready.values() if any(roles.get("prefill", []).count(n) == 2 for n in "012345")]
    return sum("decode" in roles for roles in whole)


def serve(world: Native, unit: str | None = None) -> None:
    for name, pod in list(world.pods.items()):
        if podstate.is_bound(pod) and unit in {None, pod.metadata.label(names.LABEL_UNIT)}:
            world.ready(name)


@settings(settings.get_profile("storm"))
@given(EVENTS, st.integers(1, 2))
def test_what_serves_goes_on_serving(events: list[tuple[str, int]], replicas: int) -> None:
    world = Native(role("decode"))
    asked = {"least": 1, "mode": "Unit", "pod": 0}
    world.inference = wanted(1, "Unit", replicas)
    for _ in range(3):
        world.rest()
        world.place()
        serve(world)
    world.rest()
    assert serving(world) == replicas
    for event, number in events:
        if event == "ask":
            asked["least"] = 1 + number % 3
        elif event == "mode":
            asked["mode"] = MODES[number % 3]
        elif event == "roll":
            asked["pod"] = number % 2
        elif event == "crash":
            for step in list(world.steps(world.plan().actions))[: number % 7]:
                step()
        elif event == "act":
            world.act()
        elif event == "place":
            world.place()
        elif event == "serve":
            serve(world, str(number % 4))
        else:
            world.forget()
        world.inference = wanted(int(asked["least"]), str(asked["mode"]), replicas, int(asked["pod"]))
        assert serving(world) >= replicas, (event, number)
    for _ in range(24):
        world.place()
        serve(world)
        world.act()
        assert serving(world) >= replicas
    world.rest()
    assert len({unit for unit in range(8) if uids(world, unit)}) == replicas
    policies = [
        owned.spec["schedulingPolicy"] for (_, name), owned in world.objects.items() if name.endswith("-prefill")
    ]
    assert policies == [{"gang": {"minGroupCount": asked["least"]}}] * replicas
    assert names.REMAKE_PENDING not in world.conditions()
