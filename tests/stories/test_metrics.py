"""What metrics say while gangs come, wait, start and go, and what one resource costs the API server."""

from __future__ import annotations

from collections import Counter
from typing import Final

from prometheus_client import generate_latest

from builders.manifests import Object, workers
from cluster.workbench import name_of
from covey.observability.families import REGISTRY
from scrapes import Scrape
from stage import Stage

LIFE: Final = ("created_to_admitted", "admitted_to_bound", "bound_to_ready", "created_to_ready")
Writes = Counter[tuple[str, str, str]]


def scrape() -> Scrape:
    """What both processes would answer now."""
    return Scrape.parse(generate_latest(REGISTRY).decode())


def lives(seen: Scrape, figure: str = "count") -> dict[str, float]:
    """How many gangs each histogram of a gang's life has observed; or how many seconds of them."""
    return {name: seen(f"covey_gang_{name}_seconds_{figure}") for name in LIFE}


def waiting(seen: Scrape) -> Counter[str]:
    """How many gangs wait, by reason. Scheduler processes that were killed in stories before have left theirs behind."""
    return Counter({reason: int(count) for reason, count in seen.by("reason", "covey_gangs_waiting").items()})


def test_gang_when_it_starts_is_observed_once_in_every_stage_and_shown_until_it_goes(stage: Stage) -> None:
    stage.nodes(nodes=2)
    before = scrape()
    stage.create(workers("prefill"), workers("decode"))
    stage.ready(2)
    stage.advance(10)
    now = scrape()
    once = {name: count + 1 for name, count in lives(before).items()}
    assert lives(now) == once
    mine = {"namespace": stage.namespace, "name": "llm"}
    for state in ("desired", "minimum", "admitted", "scheduled", "ready"):
        assert now.by("role", f"covey_workload_replicas_{state}", **mine) == {"prefill": 1, "decode": 1}
    assert [now(f"covey_workload_units_{state}", **mine) for state in ("desired", "admitted", "ready")] == [1, 1, 1]
    assert now("covey_workload_condition", **mine, condition="Available") == 1
    assert now("covey_workload_condition", **mine, condition="Degraded") == 0
    for metric, labels, more in (
        ("covey_gang_admissions_total", {"kind": "minimum"}, 1),
        ("covey_extender_requests_total", {"verb": "bind", "result": "ok"}, 2),
    ):
        assert now(metric, **labels) == before(metric, **labels) + more
    stage.delete("DisaggregatedInference", "llm")
    stage.advance(10)
    gone = scrape()
    assert not gone.naming(**mine)
    assert waiting(gone) == waiting(before)
    assert lives(gone) == once


def test_gang_without_room_is_shown_with_its_reason_until_it_goes(stage: Stage) -> None:
    stage.nodes()
    before = scrape()
    stage.create(workers("decode", replicas=2, minReplicas=2), name="big")
    stage.refusal("big")
    refusals = {"reason": "Infeasible"}
    stage.advance(100)
    now, mine = scrape(), {"namespace": stage.namespace, "name": "big"}
    assert waiting(now) - waiting(before) == {"Infeasible": 1}
    assert now("covey_gang_refusals_total", **refusals) > before("covey_gang_refusals_total", **refusals)
    assert now("covey_gangs_waiting_oldest_age_seconds") > 100
    assert now("covey_workload_condition", **mine, condition="Admitted") == 0
    assert now("covey_workload_replicas_minimum", **mine, role="decode") == 2
    assert now("covey_workload_replicas_admitted", **mine, role="decode") == 0
    stage.delete("DisaggregatedInference", "big")
    stage.advance(10)
    gone = scrape()
    assert waiting(gone) == waiting(before)
    assert gone("covey_gangs_waiting_oldest_age_seconds") == 0
    assert not gone.naming(**mine)


def test_processes_when_they_begin_anew_observe_no_gang_again(stage: Stage) -> None:
    """One gang runs; another waits, and gets its room only after the restart."""
    stage.nodes()
    stage.create(workers("decode"), name="first")
    stage.ready(1)
    stage.create(workers("decode"), name="second")
    stage.refusal("second")
    stage.advance(100)
    before = scrape()
    for name in ("operator", "scheduler"):
        stage.kill_now(name)
    stage.nodes(nodes=2)
    stage.ready(2)
    stage.advance(10)
    now = scrape()
    assert lives(now) == {name: count + 1 for name, count in lives(before).items()}
    assert now.naming(stage.namespace, "first"), "but the state of the other is shown"
    # The times are those of the one that waited.
    took = {name: total - lives(before, "sum")[name] for name, total in lives(now, "sum").items()}
    assert took["created_to_admitted"] >= 100
    assert max(took["admitted_to_bound"], took["bound_to_ready"]) < 100
    # What is lost and comes back is a degradation, and no new life.
    stage.delete("Pod", name_of(stage.pods(inference="first")[0]))
    stage.ready(2)
    assert scrape()("covey_gang_degradations_total") == now("covey_gang_degradations_total") + 1
    assert lives(scrape()) == lives(now)


def writes(stage: Stage) -> Writes:
    """What both processes have written so far: how often each verb of each resource."""
    return Counter(write[:3] for wire in stage.ground.wires.values() for write in wire.writes)


#: Requests for a resource of 2 x 4 pods, from its creation until all pods are Ready and nothing is written any more.
COSTS: Final = {
    ("operator", "create", "controllerrevisions"): 1,
    ("operator", "create", "workloads"): 1,
    ("operator", "create", "compositepodgroups"): 1,
    ("operator", "create", "podgroups"): 2,
    ("operator", "create", "services"): 1,
    ("operator", "create", "pods"): 8,
    ("scheduler", "patch", "pods"): 8,
    ("scheduler", "bind", "pods"): 8,
    # The topology that it is planned by.
    ("scheduler", "patch", "compositepodgroups"): 1,
}
#: What is told as things go on: no more often than this.
TOLD: Final = {
    # Created, Admitted, Scheduled, Available, or fewer where one follows at once on another.
    ("operator", "create", "events"): 4,
    ("operator", "apply", "disaggregatedinferences"): 4,
    ("scheduler", "apply", "compositepodgroups"): 3,
    ("scheduler", "apply", "podgroups"): 4,
}


def test_resource_costs_the_api_server_a_write_for_each_object_and_few_statuses(stage: Stage) -> None:
    stage.nodes(racks=2, nodes=2)
    roles = [workers(name, gpus=1, replicas=4, minReplicas=4) for name in ("prefill", "decode")]
    stage.create(*roles, name="first")
    stage.ready(8)
    stage.advance(10)
    first = writes(stage)
    assert len(stage.dry_runs("operator")) == 1, "both roles have one template"
    assert first["operator", "create", "poddisruptionbudgets"] == 1, "that of the namespace"
    stage.create(*roles, name="second")
    stage.ready(8, inference="second")
    stage.advance(10)
    second = writes(stage) - first
    assert len(stage.dry_runs("operator")) == 1
    assert not {key: count for key, count in second.items() if count > (COSTS | TOLD).get(key, 0)}
    assert not {key: second[key] for key, count in COSTS.items() if second[key] < count}
    stage.advance(3600)
    assert writes(stage) - first == second, "whoever rests costs nothing"


def managers(stage: Stage, group: str) -> set[tuple[str, str]]:
    found = stage.get("PodGroup", group)["metadata"]["managedFields"]
    return {(field["manager"], field["operation"]) for field in found if not field.get("subresource")}


def test_field_of_what_was_created_is_given_up_like_one_of_what_was_applied(stage: Stage) -> None:
    """A role's level goes from its group."""
    host: Object = {"required": "host"}
    stage.create(workers("prefill", size=2, topology=host), workers("decode"))
    stage.settle()
    assert managers(stage, "llm-0-prefill-0") == {("covey-operator", "Update")}
    assert "schedulingConstraints" in stage.get("PodGroup", "llm-0-prefill-0")["spec"]
    stage.change(roles=[workers("prefill", size=2), workers("decode")])
    stage.settle()
    assert not stage.get("PodGroup", "llm-0-prefill-0")["spec"].get("schedulingConstraints")
    assert managers(stage, "llm-0-prefill-0") == {("covey-operator", "Apply")}
