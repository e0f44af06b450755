"""Failures under any policy with late watches, refused requests and kills: in the end all of it runs again."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inferences import inference
from covey.operator.model import podstate
from unit.operator import test_failing_storm
from unit.operator.test_failing_storm import EVENTS, roles, serve
from unit.operator.wild.rough import Event, roughen, with_roughness
from unit.operator.wild.wild_world import Wild

_NAMES = {"act": "pass", "note": "pass"}


@settings(settings.get_profile("storm"))
@given(
    roles(),
    st.integers(1, 2),
    with_roughness(st.tuples(st.sampled_from(EVENTS), st.integers(0, 40))),
    st.integers(0, 1 << 32),
)
def test_in_the_end_everything_runs(wanted: list[dict[str, Any]], units: int, happened: list[Event], seed: int) -> None:
    with Wild(inference(*wanted, replicas=units), seed) as wild:
        for event in happened:
            if not roughen(wild, event, _NAMES):
                with wild.hands() as world:
                    test_failing_storm.happen(world, *event)
        for _ in range(8):
            wild.settle()
            with wild.hands() as world:
                serve(world)
                world.now += 1000
        wild.settle()
        places = wild.truth().observe().pods
        assert all(len(pods) == 1 and podstate.is_ready(pods[0]) for pods in places.values())
        assert len(places) == units * sum(each["replicas"] * each["size"] for each in wanted)
