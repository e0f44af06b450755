"""The operator with the backend Volcano: groups first, minimums whole, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from builders.inferences import inference
from covey.api import constants as names
from covey.api import core
from covey.api.inference import BackendName, DisaggregatedInference
from covey.backends import Cluster, HyperNodes
from covey.backends.volcano import Volcano
from covey.operator.model.actions import Actions
from unit.backends.volcano.objects import DISCOVERED, workers
from unit.operator.world import Step, World

KEPT = frozenset(probe.name for probe in Volcano().probes())
GROUP = ("PodGroup.v1beta1.scheduling.volcano.sh", "llama-0")


class VolcanoWorld(World):
    """Pods are let go by the operator; vc-scheduler binds what it is told to here."""

    def __init__(self, resource: DisaggregatedInference) -> None:
        super().__init__(resource)
        self.cluster = Cluster(kept=KEPT, hyper_nodes=HyperNodes(DISCOVERED))

    def steps(self, actions: Actions) -> Iterator[Step]:
        yield from super().steps(actions)
        for item in actions.ungate:
            yield lambda item=item: self.pin(item.pod.metadata.name)

    def free(self) -> set[str]:
        """Replicas without a gate."""
        return {self.place(pod) for pod in self.pods.values() if not core.gates(pod)}

    def place(self, pod: core.Pod) -> str:
        labels = pod.metadata.labels or {}
        return f"{labels[names.LABEL_ROLE]} {labels[names.LABEL_REPLICA]}"


@pytest.fixture
def world() -> VolcanoWorld:
    roles: list[dict[str, Any]] = [workers("prefill", replicas=3, size=2, minReplicas=2), workers("decode", replicas=2)]
    return VolcanoWorld(inference(*roles, backend="Volcano"))


def test_a_higher_minimum_is_told_to_volcano_before_pods_go_for_it(world: VolcanoWorld) -> None:
    world.settle()
    higher = {"roles": [{**role.as_object(), "minReplicas": 2} for role in world.inference.spec.roles]}
    world.edits = higher
    planned = world.plan()
    assert [len(level) for level in planned.actions.apply] == [1, 0, 0]
    assert not planned.actions.ungate
    for step in world.steps(planned.actions):
        step()
    assert world.objects[GROUP].spec["minMember"] == 6
    assert {world.place(item.pod) for item in world.plan().actions.ungate} == {"decode 1"}


@pytest.mark.parametrize("runs", [False, True])
def test_an_operator_without_it_does_not_blame_the_cluster(world: VolcanoWorld, runs: bool) -> None:  # noqa: FBT001 - a parameter
    """Nothing was probed then, so that its kinds seem to lack what they have."""
    if runs:
        world.settle()
    world.cluster = Cluster(enabled=frozenset({BackendName.EXTENDER}))
    verdict = world.judge()
    assert verdict.problem is not None
    assert "the operator runs without backend Volcano: add it to its --backends" in verdict.problem.message
    assert not world.plan().actions
