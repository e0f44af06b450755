"""kill -9 of each process while binds are held, and of kube-scheduler in the midst of them; ``tests/stories`` has the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import AddNodes, Event, Serving, check_history, serving, workers
from cluster.workbench import uid_of
from late_volume import LateVolume
from localcluster import Cluster, Recording
from scheduler_trees import node_of

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


@pytest.mark.slow  # 256 pods
def test_kube_scheduler_in_mid_release(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    nodes(racks=4, nodes=8)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*LARGE, topology={"required": "block"})
        recording.wait(lambda events: any(node_of(pod) for _, pod in events[-1:]), 120)
        covey_to_kill.kube_scheduler.restart(kill=True)
        await_all_bound(recording, 256)
        assert check_history(recording.events, *LARGE) == 256
    assert len(serving.await_bound(256)) == 256
