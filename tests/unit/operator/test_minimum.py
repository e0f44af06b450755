"""One answer to whether a unit has its minimum, whoever is asked."""

from __future__ import annotations

from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference, role
from covey.backends import BACKENDS, Cluster
from covey.compile import Scale
from covey.operator.release import progress_of
from covey.operator.replicas.scale import count_unit
from unit.operator.world import World


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
