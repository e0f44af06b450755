"""``terminationDelaySeconds`` counts against the minimum that was met last."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders import inferences
from builders.inferences import inference, role, template
from covey.api.inference import DisaggregatedInference
from covey.backends import BACKENDS, Cluster
from covey.compile import Scale
from covey.operator.release import progress_of
from covey.operator.replicas.scale import count_unit
from unit.operator.test_loss import act, bound, of_unit
from unit.operator.world import World

DELAY = {"terminationDelaySeconds": 60}


def llama(decode: dict[str, Any] | None = None, **prefill: Any) -> DisaggregatedInference:
    """Three prefill replicas of one pod, and a delay until what is below its minimum goes."""
    fields = {"replicas": 3, "size": 1, **prefill}
    more = {"disruption": found} if (found := fields.pop("disruption", None)) else {}
    return inferences.llama(fields, {"replicas": 1, **(decode or {})}, gang=DELAY, **more)


def serving(wanted: DisaggregatedInference, *, but: str = "-") -> World:
    world = World.settled(wanted)
    for name in list(world.pods):
        if but not in name or but == "-":
            world.bind(name, f"node-of-{name}")
            world.ready(name)
    world.tell()
    return world


def wait(world: World) -> None:
    for _ in range(6):
        act(world)
        world.now += 40


def test_a_rollout_that_may_go_below_the_minimum_is_no_loss() -> None:
    update = {"maxSurge": 0, "maxUnavailable": 2}
    world = serving(llama(minReplicas=3, update=update))
    world.inference = llama(minReplicas=3, update=update, template=template(nodeSelector={"new": "yes"}))
    wait(world)
    assert len([name for name in bound(world) if "prefill" in name]) == 1
    assert of_unit(world)["metMinimum"][0] == {"name": "prefill", "replicas": 1}


@given(st.lists(st.booleans(), min_size=12, max_size=12), st.integers(1, 3), st.integers(0, 2))
def test_backends_are_told_the_same_as_the_status_says(bound: list[bool], prefill: int, decode: int) -> None:
    roles = (role("prefill", size=2, replicas=3, minReplicas=prefill), role("decode", replicas=3, minReplicas=decode))
    world = World(inference(*roles))
    world.cluster = Cluster(kept=frozenset(probe.name for each in BACKENDS for probe in each.probes()))
    world.settle()
    for name, has_node in zip(sorted(world.pods), bound, strict=False):
        if has_node:
            world.bind(name)
    planned, observed = world.plan(), world.observe()
    progress = progress_of(world.inference, planned.layout, planned.states, observed)
    scale = Scale.of(world.inference.spec)
    for unit in planned.layout.units:
        counted = count_unit(scale.unit(unit), planned.states.get(unit, {}), attrgetter("is_bound"))
        assert progress.has_minimum(unit) is counted.has_minimum
