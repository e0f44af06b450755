"""What a scrape of both processes says while gangs come, wait, start and go."""

from __future__ import annotations

import contextlib
import time
import urllib.request
from collections.abc import Callable
from typing import Any, Literal

import pytest
from kubernetes.client import ApiException

from cluster.conftest import Covey
from cluster.serving import AddNodes, Serving, serving, workers
from covey.api import core
from localcluster import Cluster, Process, eventually
from scrapes import Scrape

__all__ = ["serving"]

LIFE = {
    "scheduler": ("covey_gang_created_to_admitted_seconds", "covey_gang_admitted_to_bound_seconds"),
    "operator": ("covey_gang_bound_to_ready_seconds", "covey_gang_created_to_ready_seconds"),
}
WAITING = "covey_gangs_waiting"
MASTER = "leader_election_master_status"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/covey-system/leases"


def text_of(process: Process) -> str:
    with urllib.request.urlopen(process.metrics_url, timeout=10) as answer:
        return str(answer.read().decode())


def scrape(process: Process) -> Scrape:
    return Scrape.parse(text_of(process))


def lives(covey: Covey) -> dict[str, float]:
    """How many gangs each histogram of a gang's life has observed."""
    return {
        metric: scrape(getattr(covey, process))(f"{metric}_count")
        for process, names in LIFE.items()
        for metric in names
    }


def seconds(covey: Covey, stage: str) -> float:
    """All that a histogram of a gang's life has observed."""
    metric = f"covey_gang_{stage}_seconds"
    process = next(process for process, names in LIFE.items() if metric in names)
    return scrape(getattr(covey, process))(f"{metric}_sum")


def await_scrape(process: Process, check: Callable[[Scrape], Any], describe: str) -> Scrape:
    """Scrape until what was expected is there."""
    found: list[Scrape] = []

    def there() -> bool:
        found[:] = [scrape(process)]
        return bool(check(found[0]))

    eventually(there, 60, describe)
    return found[0]


def leads(lease: str) -> Callable[[Scrape], bool]:
    """Whether a process holds the lease, by its own account."""
    return lambda seen: seen(MASTER, name=lease) == 1


def is_alone(seen: Scrape) -> bool:
    """What other tests have left is gone."""
    return not seen.by("reason", WAITING)


def test_a_gang_that_starts_is_seen_once_in_every_stage(serving: Serving, nodes: AddNodes, covey: Covey) -> None:
    nodes(nodes=2)
    before, scheduler = lives(covey), scrape(covey.scheduler)
    serving.create(workers("prefill"), workers("decode"))
    serving.await_bound(2)
    serving.await_condition("Available", "True", "Available")
    eventually(lambda: lives(covey) == {metric: count + 1 for metric, count in before.items()}, 60, "one more of each")
    mine = {"namespace": serving.namespace, "name": "llm"}
    seen = await_scrape(
        covey.operator, lambda now: now("covey_workload_condition", **mine, condition="Available") == 1, "it is shown"
    )
    for state in ("desired", "minimum", "admitted", "scheduled", "ready"):
        assert seen.by("role", f"covey_workload_replicas_{state}", **mine) == {"prefill": 1, "decode": 1}
    assert [seen(f"covey_workload_units_{state}", **mine) for state in ("desired", "admitted", "ready")] == [1, 1, 1]
    assert seen("covey_workload_condition", **mine, condition="Degraded") == 0
    now = scrape(covey.scheduler)
    assert now("covey_gang_admissions_total", kind="minimum") == 1 + scheduler(
        "covey_gang_admissions_total", kind="minimum"
    )
    for verb in ("filter", "bind"):
        was = scheduler("covey_extender_requests_total", verb=verb, result="ok")
        assert now("covey_extender_requests_total", verb=verb, result="ok") >= was + 2
    # Deleted: nothing names it any more, and nobody counts it as a gang that waits.
    serving.delete("DisaggregatedInference", "llm")
    await_scrape(covey.operator, lambda now: not now.naming(**mine), "no series names it")
    await_scrape(covey.scheduler, is_alone, "nobody waits")
    assert lives(covey) == {metric: count + 1 for metric, count in before.items()}


def test_a_gang_without_room_is_shown_with_its_reason_until_it_goes(
    serving: Serving, nodes: AddNodes, covey: Covey
) -> None:
    nodes()
    before = await_scrape(covey.scheduler, is_alone, "nobody waits")
    serving.create(workers("decode", replicas=2, minReplicas=2), name="big")
    serving.await_condition("Admitted", "False", "Infeasible", "big")
    seen = scrape(covey.scheduler)
    assert seen.by("reason", WAITING) == {"Infeasible": 1}
    assert seen("covey_gang_refusals_total", reason="Infeasible") > before(
        "covey_gang_refusals_total", reason="Infeasible"
    )
    age = seen("covey_gangs_waiting_oldest_age_seconds")
    assert age > 0
    await_scrape(covey.scheduler, lambda now: now("covey_gangs_waiting_oldest_age_seconds") > age, "it waits longer")
    shown = await_scrape(covey.operator, lambda now: now("covey_workload_units_desired", name="big"), "it is shown")
    assert shown("covey_workload_condition", name="big", condition="Admitted") == 0
    assert shown("covey_workload_replicas_minimum", name="big", role="decode") == 2
    assert shown("covey_workload_replicas_admitted", name="big", role="decode") == 0
    serving.delete("DisaggregatedInference", "big")
    gone = await_scrape(covey.scheduler, is_alone, "nobody waits")
    assert gone("covey_gangs_waiting_oldest_age_seconds") == 0
    await_scrape(covey.operator, lambda now: not now.naming(serving.namespace, "big"), "no series names it")


def test_restarted_processes_observe_no_gang_again(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    """Two gangs run; a third begins to wait, and gets its room only after the restart."""
    nodes(nodes=2)
    for name in ("first", "second"):
        serving.create(workers("decode"), name=name)
    serving.await_bound(2)
    serving.create(workers("decode"), name="third")
    serving.await_condition("Admitted", "False", "Infeasible", "third")
    created = core.seconds(serving.get("CompositePodGroup", "third-0")["metadata"]["creationTimestamp"]) or 0.0
    for name in ("first", "second"):
        serving.await_condition("Available", "True", "Available", name)
    roots = ("first-0", "second-0")
    eventually(
        lambda: all(is_scheduled(serving.get("CompositePodGroup", root)) for root in roots), 60, "all is recorded"
    )
    for process in (covey_to_kill.operator, covey_to_kill.scheduler):
        process.restart(kill=True)
    waited = time.time() - created
    nodes()
    serving.await_bound(3)
    eventually(lambda: set(lives(covey_to_kill).values()) == {1}, 60, lambda: str(lives(covey_to_kill)))
    assert scrape(covey_to_kill.operator).naming(serving.namespace, "first"), "but shows the others' state"
    # The third one's times are its own. When it was ready the API tells in whole seconds.
    until = time.time() - created
    assert waited <= seconds(covey_to_kill, "created_to_admitted") < until
    assert waited - 1 <= seconds(covey_to_kill, "created_to_ready") < until
    assert seconds(covey_to_kill, "admitted_to_bound") < until - waited
    assert seconds(covey_to_kill, "bound_to_ready") < until - waited + 1
    # What is lost and comes back is a degradation, and no new life.
    gone = serving.pods(inference="first")[0]
    serving.delete("Pod", gone["metadata"]["name"])
    await_scrape(covey_to_kill.operator, lambda now: now("covey_gang_degradations_total") == 1, "the loss is counted")
    serving.await_bound(3)
    serving.await_condition("Available", "True", "Available", "first")
    assert set(lives(covey_to_kill).values()) == {1}


def is_scheduled(root: dict[str, Any]) -> bool:
    conditions = root.get("status", {}).get("conditions", ())
    return any(each["type"] == "Scheduled" and each["status"] == "True" for each in conditions)


@pytest.mark.parametrize("name", ["operator", "scheduler"])
def test_the_process_tells_of_its_watches_and_requests(covey: Covey, name: str) -> None:
    seen = scrape(getattr(covey, name))
    lists, watches = (seen.by("resource", f"covey_watch_{what}_total") for what in ("lists", "starts"))
    assert lists == dict.fromkeys(lists, 1)
    own = "disaggregatedinferences" if name == "operator" else "clustertopologies"
    assert {"pods", "compositepodgroups", "podgroups", own} <= lists.keys() <= watches.keys()
    assert max(seen.by("resource", "covey_watch_silence_seconds").values()) < 120
    answered = seen("covey_kube_requests_total", verb="list", code="200")
    assert seen("covey_kube_request_duration_seconds_count", verb="list") >= answered >= len(lists)
    queue = "inference" if name == "operator" else "status"
    assert seen("covey_workqueue_adds_total", name=queue) >= seen(
        "covey_workqueue_queue_duration_seconds_count", name=queue
    )


@pytest.mark.parametrize(("program", "lease"), [("operator", "covey-operator"), ("scheduler", "covey-planner")])
def test_who_leads_is_shown_by_both_programs(
    cluster: Cluster, program: Literal["operator", "scheduler"], lease: str
) -> None:
    names = [f"covey-{program}-{letter}" for letter in "ab"]
    with contextlib.suppress(ApiException):
        cluster.api("DELETE", f"{LEASES}/{lease}")
    try:
        first = cluster.start_covey(program, "--leader-elect=true", name=names[0])
        await_scrape(first, leads(lease), "the first leads")
        second = cluster.start_covey(program, "--leader-elect=true", name=names[1])
        assert not leads(lease)(scrape(second))
        before = cluster.api("GET", f"{LEASES}/{lease}")["spec"]["leaseTransitions"]
        await_scrape(second, lambda now: now("covey_lease_transitions", name=lease) == before, "the other has read it")
        first.stop()
        after = await_scrape(second, leads(lease), "the second leads")
        assert after("covey_lease_transitions", name=lease) == before + 1
    finally:
        cluster.forget(*names)


def test_who_decides_without_a_lease_shows_none(covey: Covey) -> None:
    """0 would mean that nobody leads."""
    for process in (covey.operator, covey.scheduler):
        assert not any(name == MASTER for name, _ in scrape(process).samples), process.name
