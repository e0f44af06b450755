"""Whatever happens to a process whose watches are late and whose requests fail: it ends with exactly what is wanted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inferences import inferences
from covey.api.inference import DisaggregatedInference
from unit.operator import test_convergence
from unit.operator.test_convergence import assert_is_wanted
from unit.operator.wild.rough import Event, roughen, with_roughness
from unit.operator.wild.wild_world import Wild

_NAMES = {"act": "pass", "crash": "kill"}


@settings(settings.get_profile("storm"))
@given(
    inferences(max_units=2, max_replicas=3, max_size=3), with_roughness(test_convergence.event), st.integers(0, 1 << 32)
)
def test_it_converges(resource: DisaggregatedInference, happened: list[Event], seed: int) -> None:
    with Wild(resource, seed) as wild:
        for event in happened:
            if event[0] == "former":
                # What a former release has made is there before this one starts.
                wild.restart(lambda world, event=event: test_convergence.happen(world, event))
            elif not roughen(wild, event, _NAMES):
                with wild.hands() as world:
                    test_convergence.happen(world, event)
        wild.settle()
        assert_is_wanted(wild.truth())
