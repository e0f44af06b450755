"""The moves that would free one more rack, as a metric: the leader's own search, with the rights of its account."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.conftest import Covey
from cluster.serving import RACK, AddNodes, Serving, serving, workers
from localcluster import Cluster, eventually
from localcluster.programs import ROOT, scheduler_config
from scheduler_trees import node_of
from scrapes import Scrape

__all__ = ["serving"]

RIGHTS = ROOT / "manifests" / "components" / "consolidation" / "rights.yaml"
MOVES = "covey_consolidation_moves"
VERDICT = "covey_consolidation_verdict"


@pytest.fixture(scope="module")
def covey(cluster: Cluster) -> Iterator[Covey]:
    """The processes; the scheduler process looks for moves all the time."""
    cluster.install_rbac(ROOT / "manifests" / "base" / "rbac", RIGHTS)
    try:
        flags = ("--consolidation-level=rack", "--consolidation-interval=1s", "--leader-elect=true")
        scheduler = cluster.start_covey("scheduler", *flags)
        kube_scheduler = cluster.start_scheduler(scheduler_config(scheduler))
        yield Covey(cluster.start_covey("operator"), scheduler, kube_scheduler)
    finally:
        cluster.stop_all()
        cluster.kubectl("delete", "-f", str(RIGHTS))


def await_scrape(covey: Covey, check: Callable[[Scrape], Any], describe: str) -> Scrape:
    """Scrape the scheduler process until what was expected is there."""

    def there() -> Scrape | None:
        with urllib.request.urlopen(covey.scheduler.metrics_url, timeout=10) as answer:
            found = Scrape.parse(answer.read().decode())
        return found if check(found) else None

    return eventually(there, 120, describe)


def answers(covey: Covey) -> list[dict[str, Any]]:
    """What the log has of each answer."""
    lines = [json.loads(line) for line in covey.scheduler.log_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "moves were looked for"]


def test_one_move_would_free_a_rack(covey: Covey, serving: Serving, nodes: AddNodes) -> None:
    """Two racks with a replica in each, once the pods are gone that kept them apart; then none at all."""
    names = nodes(racks=2, nodes=2)
    racks = {name: serving.cluster.api("GET", f"/api/v1/nodes/{name}")["metadata"]["labels"][RACK] for name in names}
    others = [serving.take_room(name) for name in {racks[name]: name for name in names}.values()]
    serving.create(workers("decode", replicas=2, minReplicas=1), name="chat")
    bound = serving.await_bound(2, inference="chat")
    assert len({racks[node_of(pod)] for pod in bound}) == 2
    seen = await_scrape(covey, lambda now: now(VERDICT, level="rack", verdict="Infeasible"), "others keep both racks")
    assert not [name for name, _ in seen.samples if name == MOVES]
    failed = seen("covey_consolidation_searches_total", result="failed")  # before there was a rack
    for name in others:
        serving.free_room(name)
    seen = await_scrape(covey, lambda now: now(MOVES, level="rack") == 1, "one move is known")
    assert seen.by("verdict", VERDICT, level="rack") == {"Admitted": 1}
    assert seen("covey_consolidation_searches_total", result="answered") >= 2
    assert seen("covey_consolidation_searches_total", result="failed") == failed
    last = answers(covey)[-1]
    assert last["found"].startswith("1 more rack is free: ")
    assert last["found"].endswith(" after 1 move, proven least")
    assert last["warnings"] == [], "its account may read all that counts"
    assert {node_of(pod) for pod in serving.bound(inference="chat")} == {node_of(pod) for pod in bound}, "none moves"
    serving.delete("DisaggregatedInference", "chat")
    gone = await_scrape(covey, lambda now: now(VERDICT, level="rack", verdict="Infeasible"), "both racks are free")
    assert not [name for name, _ in gone.samples if name == MOVES]


def test_who_does_not_lead_does_not_search(covey: Covey, cluster: Cluster, nodes: AddNodes) -> None:
    nodes(racks=2, nodes=2)
    await_scrape(covey, lambda now: now("covey_consolidation_searches_total", result="answered"), "the leader searches")
    standby = cluster.start_covey(
        "scheduler",
        "--consolidation-level=rack",
        "--consolidation-interval=1s",
        "--leader-elect=true",
        name="covey-scheduler-b",
    )
    try:
        before = len(answers(covey))
        eventually(lambda: len(answers(covey)) > before + 1, 60, "the leader goes on")
        with urllib.request.urlopen(standby.metrics_url, timeout=10) as answer:
            seen = Scrape.parse(answer.read().decode())
        assert seen("covey_consolidation_searches_total") == 0
        assert not [name for name, _ in seen.samples if name == VERDICT]
    finally:
        cluster.forget("covey-scheduler-b")
