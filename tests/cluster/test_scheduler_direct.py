"""Gangs of a scheduler name that no kube-scheduler serves, bound by the scheduler process itself; no kube-scheduler runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from localcluster import Cluster, Process, eventually
from scheduler_trees import SCHEDULER, Bench, Role, gates_of, node_of, pin_of

AddNodes = Callable[..., list[str]]
NAME = "covey-direct"


@pytest.fixture(scope="module", autouse=True)
def scheduler(cluster: Cluster) -> Iterator[Process]:
    """The scheduler process alone."""
    try:
        yield cluster.start_covey("scheduler", f"--direct-scheduler-name={NAME}")
    finally:
        cluster.forget("covey-scheduler")


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


def test_a_gang_is_bound_where_it_was_pinned_and_others_wait_for_kube_scheduler(bench: Bench, nodes: AddNodes) -> None:
    nodes(nodes=8)
    others = bench.unit("others", Role("prefill", size=2, spec={"schedulerName": SCHEDULER}))
    ours = bench.unit("ours", *(Role(name, size=2, spec={"schedulerName": NAME}) for name in ("prefill", "decode")))
    eventually(lambda: len(ours.bound()) == 4)
    assert all(pin_of(pod) == node_of(pod) for pod in ours.pods())
    eventually(lambda: not any(gates_of(pod) for pod in others.pods()))
    assert not others.bound()
    conditions = {each["type"]: each for each in ours.pods()[0]["status"]["conditions"]}
    assert conditions["PodScheduled"]["status"] == "True"


def test_what_only_kube_scheduler_knows_is_refused_by_name(bench: Bench, nodes: AddNodes) -> None:
    nodes(nodes=2)
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    tree = bench.unit("spread", Role("decode", spec={"schedulerName": NAME, "topologySpreadConstraints": [spread]}))

    def said() -> bool:
        conditions = bench.group("spread", "compositepodgroups").get("status", {}).get("conditions", [])
        text = next((each["message"] for each in conditions if each["type"] == "Admitted"), "")
        return "has topologySpreadConstraints, which only kube-scheduler knows" in text and NAME in text

    eventually(said)
    assert all(gates_of(pod) for pod in tree.pods())


def test_whoever_comes_after_a_killed_process_binds_what_it_let_go(
    bench: Bench, nodes: AddNodes, scheduler: Process
) -> None:
    nodes(nodes=24)
    tree = bench.unit("killed", *(Role(name, size=12, spec={"schedulerName": NAME}) for name in ("prefill", "decode")))
    eventually(lambda: any(pin_of(pod) for pod in tree.pods()))
    scheduler.kill()
    scheduler.start()
    eventually(lambda: len(tree.bound()) == 24)
