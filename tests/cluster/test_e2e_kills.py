"""kill -9 of each process at the worst moment: every gang is whole in the end, and never was anything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import AddNodes, Event, Serving, check_history, serving, workers
from cluster.workbench import is_gated, label, uid_of
from late_volume import LateVolume
from localcluster import Cluster, Recording
from scheduler_trees import node_of, pin_of

__all__ = ["serving"]

#: 256 pods, all of them the minimum.
LARGE = (
    workers("prefill", gpus=1, replicas=16, minReplicas=16, size=8, topology={"required": "rack"}),
    workers("decode", gpus=1, replicas=8, minReplicas=8, size=16, topology={"required": "rack"}),
)


def await_all_bound(recording: Recording, count: int) -> None:
    """Wait until so many places have a bound pod, as the recording tells."""

    def reached(events: list[Event]) -> bool:
        latest = {uid_of(pod): (kind, pod) for kind, pod in events}
        bound = {pod["spec"]["hostname"] for kind, pod in latest.values() if kind != "DELETED" and node_of(pod)}
        return len(bound) == count

    recording.wait(reached, 240)


@pytest.mark.slow  # 256 pods
def test_operator_in_the_middle_of_creation(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    nodes(racks=4, nodes=8)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*LARGE, topology={"required": "block"})
        # At the first pod: all 256 take a few seconds, and what is watched comes late on a machine with other work.
        recording.wait(lambda events: len(events) >= 1, 60)
        covey_to_kill.operator.kill()
        assert 0 < len(serving.pods()) < 256
        assert not serving.bound()
        covey_to_kill.operator.start()
        await_all_bound(recording, 256)
        assert check_history(recording.events, *LARGE) == 256
        born = Counter(pod["spec"]["hostname"] for kind, pod in recording.events if kind == "ADDED")
    assert set(born.values()) == {1}
    assert len(serving.await_bound(256)) == 256
    serving.await_condition("Available", "True", "Available")


@pytest.mark.slow  # 256 pods
def test_scheduler_in_the_middle_of_an_admission(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    nodes(racks=4, nodes=8)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*LARGE, topology={"required": "block"})
        recording.wait(lambda events: any(pin_of(pod) for _, pod in events[-1:]), 120)
        covey_to_kill.scheduler.kill()
        pods = serving.pods()
        assert 0 < sum(map(is_gated, pods)) < 256
        assert not serving.bound()
        covey_to_kill.scheduler.start()
        await_all_bound(recording, 256)
        assert check_history(recording.events, *LARGE) >= 256
    assert {uid_of(pod) for pod in serving.await_bound(256)} == {uid_of(pod) for pod in pods}


@pytest.fixture
def volume(cluster: Cluster, namespace: str) -> Iterator[LateVolume]:
    made = LateVolume(cluster, namespace)
    yield made
    made.remove()


@pytest.mark.parametrize("victims", [["kube_scheduler"], ["scheduler", "kube_scheduler"], ["operator", "scheduler"]])
def test_while_binds_are_held(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey, volume: LateVolume, victims: list[str]
) -> None:
    nodes(nodes=8)
    roles = [workers("prefill", size=7), workers("decode", spec=volume.pod_spec)]
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*roles)
        volume.wait_wanted()
        before: list[Object] = serving.pods()
        assert not serving.bound()
        for victim in victims:
            getattr(covey_to_kill, victim).kill()
        for victim in victims:
            getattr(covey_to_kill, victim).start()
        assert not serving.bound()
        volume.provide()
        await_all_bound(recording, 8)
        assert check_history(recording.events, *roles) == 8
    assert {uid_of(pod) for pod in serving.await_bound(8)} == {uid_of(pod) for pod in before}


@pytest.mark.slow  # twice 256 pods
@pytest.mark.parametrize("victim", ["scheduler", "kube_scheduler"])
def test_in_mid_release(serving: Serving, nodes: AddNodes, covey_to_kill: Covey, victim: str) -> None:
    nodes(racks=4, nodes=8)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*LARGE, topology={"required": "block"})
        recording.wait(lambda events: any(node_of(pod) for _, pod in events[-1:]), 120)
        getattr(covey_to_kill, victim).restart(kill=True)
        await_all_bound(recording, 256)
        assert check_history(recording.events, *LARGE) == 256
    assert len(serving.await_bound(256)) == 256


def test_everything_at_once_while_a_resource_grows(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    """Nobody is there when the spec changes and a pod goes; whoever comes back finds it on the API server."""
    nodes(racks=4, nodes=2)
    roles = [workers("prefill", size=2, topology={"required": "rack"}), workers("decode")]
    serving.create(*roles, topology={"required": "block"})
    before = serving.await_bound(3)
    with serving.cluster.record(serving.path("Pod")) as recording:
        for process in (covey_to_kill.operator, covey_to_kill.scheduler, covey_to_kill.kube_scheduler):
            process.kill()
        (decode,) = [pod for pod in before if label(pod, "role") == "decode"]
        serving.cluster.api("DELETE", f"{serving.path('Pod', decode['metadata']['name'])}?gracePeriodSeconds=0")
        serving.change({"roles": [{**roles[0], "replicas": 2}, {**roles[1], "replicas": 2}]})
        for process in (covey_to_kill.kube_scheduler, covey_to_kill.scheduler, covey_to_kill.operator):
            process.start(wait=False)
        await_all_bound(recording, 6)
        assert check_history(recording.events, *roles) == 4
    after = {uid_of(pod) for pod in serving.await_bound(6)}
    assert {uid_of(pod) for pod in before if pod is not decode} <= after
