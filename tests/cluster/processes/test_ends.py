"""The ends of Covey's processes: as asked for, and in the midst of binds."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from urllib.request import urlopen

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.scraping import scrape
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


def test_processes_answer_probes_and_scrapes_and_end_when_they_are_asked_to(covey_to_kill: Covey) -> None:
    for process, metric in (
        (covey_to_kill.operator, "covey_workqueue_depth"),
        (covey_to_kill.scheduler, "covey_barrier_held"),
    ):
        for probe in ("healthz", "readyz"):
            with urlopen(f"{process.health_url}/{probe}") as answer:
                assert answer.status == HTTPStatus.OK
        seen = scrape(process)
        assert {metric, "covey_kube_requests_total"} <= {name for name, _ in seen.samples}
        lists, watches = (seen.by("resource", f"covey_watch_{what}_total") for what in ("lists", "starts"))
        assert lists == dict.fromkeys(lists, 1)
        assert {"pods", "compositepodgroups", "podgroups"} <= lists.keys() <= watches.keys()
        assert not any(name == "leader_election_master_status" for name, _ in seen.samples), (
            "0 would mean: nobody leads"
        )
        assert process.stop(timeout=60) == 0
        assert '"event":"stopping"' in process.log_text()


@pytest.fixture
def volume(cluster: Cluster, namespace: str) -> Iterator[LateVolume]:
    made = LateVolume(cluster, namespace)
    yield made
    made.remove()


@pytest.mark.parametrize("victims", [["operator", "scheduler"], ["scheduler", "kube_scheduler"]])
def test_processes_when_they_are_killed_while_binds_are_held_bind_the_gang_whole(
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


def await_all_bound(recording: Recording, count: int) -> None:
    """Wait until so many places have a bound pod, as the recording tells."""

    def reached(events: list[Event]) -> bool:
        latest = {uid_of(pod): (kind, pod) for kind, pod in events}
        bound = {pod["spec"]["hostname"] for kind, pod in latest.values() if kind != "DELETED" and node_of(pod)}
        return len(bound) == count

    recording.wait(reached, 240)


@pytest.mark.slow  # 256 pods
def test_kube_scheduler_when_it_is_killed_in_the_midst_of_binds_binds_the_rest(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey
) -> None:
    nodes(racks=4, nodes=8)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*LARGE, topology={"required": "block"})
        recording.wait(lambda events: any(node_of(pod) for _, pod in events[-1:]), 120)
        covey_to_kill.kube_scheduler.restart(kill=True)
        await_all_bound(recording, 256)
        assert check_history(recording.events, *LARGE) == 256
    assert len(serving.await_bound(256)) == 256
