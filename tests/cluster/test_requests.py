"""What one resource costs the API server, and that objects written in the cheap way stay the operator's own."""

import time
from collections import Counter
from collections.abc import Callable
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.conftest import Covey
from cluster.serving import Serving, serving, workers
from cluster.workbench import name_of
from localcluster import Process, eventually

__all__ = ["serving"]

Requests = Counter[tuple[str, str, str]]
#: By program, verb and resource: at most so many requests for a resource of 2 x 4 pods, from its creation until all pods
#: are Ready and nothing is written any more. Whatever is not here is not asked at all.
BOUNDS = {
    ("operator", "create", "controllerrevisions"): 1,
    ("operator", "create", "workloads"): 1,
    ("operator", "create", "compositepodgroups"): 1,
    ("operator", "create", "podgroups"): 2,
    ("operator", "create", "services"): 1,
    ("operator", "create", "pods"): 8,
    # Scheduled or Admitted before it, Available.
    ("operator", "create", "events"): 3,
    # Ready. Another when that takes longer than two seconds, of a slow machine, and one that it is bound.
    ("operator", "apply", "disaggregatedinferences"): 3,
    # Pins.
    ("scheduler", "patch", "pods"): 8,
    ("scheduler", "bind", "pods"): 8,
    # The root tells its topology before the first pin, and that it is bound.
    ("scheduler", "patch", "compositepodgroups"): 1,
    ("scheduler", "apply", "compositepodgroups"): 1,
}
#: Seconds between two writes of a status that passes: whatever takes longer than usual costs one more for each.
SPACED = {
    ("operator", "apply", "disaggregatedinferences"): 2.0,
    ("scheduler", "apply", "compositepodgroups"): 3.0,
    # Two of them.
    ("scheduler", "apply", "podgroups"): 1.5,
}
#: Seconds that it takes at most where nothing is slow.
USUAL = 4.0
#: Seconds for which the dry run of a template holds for others like it.
SHARED = 60.0
#: For the first resource of a namespace only: a dry run for each role's template, and the budget of the namespace.
FIRST = {("operator", "create", "pods"): 2, ("operator", "create", "poddisruptionbudgets"): 1}


@pytest.fixture
def requests(covey: Covey) -> Callable[[], Requests]:
    """Writes and reads of single objects that both processes have made so far."""

    def of(program: str, process: Process) -> Requests:
        with urlopen(process.metrics_url) as page:
            text = page.read().decode()
        found: Requests = Counter()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "covey_kube_requests_total" and sample.labels["verb"] not in {"list", "watch"}:
                    found[program, sample.labels["verb"], sample.labels["resource"]] += int(sample.value)
        return found

    return lambda: of("operator", covey.operator) + of("scheduler", covey.scheduler)


def at_rest(requests: Callable[[], Requests], seconds: float = 5.0) -> Requests:
    """The requests so far, once none has come for a while: longer than any status write is put off."""
    last, since = requests(), time.monotonic()

    def rests() -> bool:
        nonlocal last, since
        if (now := requests()) != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > seconds

    eventually(rests, 60, "nothing is asked any more")
    return last


@pytest.mark.slow  # half a minute of rest
def test_what_one_resource_costs(
    serving: Serving, nodes: Callable[..., list[str]], requests: Callable[[], Requests]
) -> None:
    nodes(blocks=1, racks=2, nodes=2)
    roles = [workers(name, gpus=1, replicas=4, minReplicas=4) for name in ("prefill", "decode")]

    def cost(name: str) -> tuple[Requests, Requests]:
        """Requests for one resource, and their bounds: higher where it took longer than usual."""
        before, begun = at_rest(requests), time.monotonic()
        serving.create(*roles, name=name)
        serving.await_bound(8, inference=name)
        serving.await_condition("Progressing", "True", "Complete", name)
        late = max(0.0, time.monotonic() - begun - USUAL)
        return at_rest(requests) - before, Counter(BOUNDS) + Counter(
            {key: int(late / each) for key, each in SPACED.items()}
        )

    begun = time.monotonic()
    (first, few), (second, bounds) = cost("first"), cost("second")
    if time.monotonic() - begun > SHARED:
        bounds["operator", "create", "pods"] += FIRST["operator", "create", "pods"]
    over = {key: (count, bounds[key]) for key, count in second.items() if count > bounds[key]}
    assert not over, f"(found, bound): {over}"
    assert first.total() <= few.total() + sum(FIRST.values())
    assert first["operator", "create", "poddisruptionbudgets"] == 1


def managers(serving: Serving, kind: str, name: str) -> set[tuple[str, str]]:
    found = serving.get(kind, name)["metadata"]["managedFields"]
    return {(each["manager"], each["operation"]) for each in found if not each.get("subresource")}


def test_what_was_created_is_given_up_like_what_was_applied(serving: Serving, covey: Covey) -> None:
    """A role's level goes from its group; so does a role's part of the Workload."""
    assert covey
    rack = {"required": "host"}
    serving.create(workers("prefill", size=2, topology=rack), workers("decode"))
    serving.await_pods(3)
    assert managers(serving, "PodGroup", "llm-0-prefill-0") == {("covey-operator", "Update")}
    assert "schedulingConstraints" in serving.get("PodGroup", "llm-0-prefill-0")["spec"]
    serving.change({"roles": [workers("prefill", size=2), workers("decode")]})

    def given_up() -> bool:
        group = serving.get("PodGroup", "llm-0-prefill-0")
        assert not group["spec"].get("schedulingConstraints"), str(group["spec"])
        return True

    eventually(given_up, describe="the level is gone from the group")
    assert managers(serving, "PodGroup", "llm-0-prefill-0") == {("covey-operator", "Apply")}


def test_fields_of_others_stay(serving: Serving, covey: Covey) -> None:
    """Whoever adds a field keeps it when the operator applies its own."""
    assert covey
    serving.create(workers("decode", replicas=2, network={"ports": [{"name": "http", "port": 8000}]}))
    serving.await_pods(2)
    service = serving.path("Service", "llm-decode")
    serving.cluster.api("PATCH", service, {"metadata": {"labels": {"theirs": "yes", "covey.dev/role": "wrong"}}})

    def mended() -> bool:
        labels = serving.get("Service", "llm-decode")["metadata"]["labels"]
        assert labels["covey.dev/role"] == "decode"
        return labels["theirs"] == "yes"

    assert eventually(mended)
    assert {name_of(each) for each in serving.owned("Service")} == {"llm-decode"}
