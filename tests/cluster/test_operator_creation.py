"""From a resource to gated pods: order, identity, membership, and that one delete removes all."""

import itertools
from collections import Counter
from collections.abc import Callable
from urllib.request import urlopen

import pytest

from builders.manifests import Object, role, template
from cluster.operating import bench, operator
from cluster.workbench import OWNED, Workbench, hostnames, is_gated, label, name_of, uid_of
from localcluster import Cluster, Process, eventually

__all__ = ["bench", "operator"]


def version(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])


def test_every_level_is_there_before_the_next(bench: Workbench) -> None:
    bench.create(replicas=2)
    bench.await_pods(12)
    # Nobody but the operator writes here, and it writes each object once.
    composites = bench.owned("CompositePodGroup")
    roots = [item for item in composites if "covey.dev/role" not in item["metadata"]["labels"]]
    inner = [item for item in composites if item not in roots]
    levels = [bench.owned("Workload"), roots, inner, *map(bench.owned, ("PodGroup", "Service", "Pod"))]
    assert [len(level) for level in levels] == [1, 2, 2, 6, 1, 12]
    for above, below in itertools.pairwise(levels):
        assert max(map(version, above)) < min(map(version, below))


def test_pods_are_gated_at_birth(bench: Workbench) -> None:
    with bench.cluster.record(bench.path("Pod")) as recording:
        bench.create()
        recording.wait(lambda events: sum(kind == "ADDED" for kind, _ in events) == 6)
    for kind, pod in recording.events:
        if kind == "ADDED":
            assert is_gated(pod)
            assert pod["spec"]["schedulerName"] == "covey-scheduler"


def test_identity_and_membership(bench: Workbench) -> None:
    resource = bench.create()
    pods = bench.await_pods(6)
    assert hostnames(pods) == [
        "0-decode-0-0",
        "0-decode-1-0",
        "0-prefill-0-0",
        "0-prefill-0-1",
        "0-prefill-1-0",
        "0-prefill-1-1",
    ]
    groups = {name_of(group): group for group in bench.owned("PodGroup")}
    for kind in OWNED:
        for item in bench.owned(kind):
            (owner,) = item["metadata"]["ownerReferences"]
            assert (owner["uid"], owner["controller"]) == (uid_of(resource), True)
            assert label(item, "inference") == "llm"
    members = Counter(pod["metadata"]["labels"]["scheduling.covey.dev/pod-group"] for pod in pods)
    assert members == {"llm-0-prefill-0": 2, "llm-0-prefill-1": 2, "llm-0-decode": 2}
    assert members.keys() == groups.keys()
    assert all(name_of(pod).startswith(f"llm-{pod['spec']['hostname']}-") for pod in pods)


def test_start_scripts_find_their_leader(bench: Workbench) -> None:
    bench.create()
    (worker,) = (pod for pod in bench.await_pods(6) if pod["spec"]["hostname"] == "0-prefill-1-1")
    (container,) = worker["spec"]["containers"]
    env = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert list(env)[:3] == ["LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"]
    assert env["LWS_LEADER_ADDRESS"] == f"0-prefill-1-0.llm-pods.{bench.namespace}"
    assert (env["LWS_GROUP_SIZE"], env["LWS_WORKER_INDEX"]) == ("2", "1")
    service = bench.get("Service", "llm-pods")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= worker["metadata"]["labels"].items()
    assert worker["spec"]["subdomain"] == "llm-pods"


def test_nothing_is_created_twice(bench: Workbench, operator: Process) -> None:
    """The watch is behind the answers to so many creations; what it has not shown yet is not asked for again."""
    refused = already_exists(operator)
    bench.create(role("prefill", replicas=100, size=4), name="big")
    bench.await_pods(400)
    bench.create(role("other"), name="marker")
    bench.await_pods(1, inference="marker")
    assert already_exists(operator) == refused


def already_exists(operator: Process) -> float:
    """How many creations of pods the API server has answered with AlreadyExists."""
    with urlopen(operator.metrics_url) as page:
        lines = page.read().decode().splitlines()
    name = 'covey_kube_requests_total{code="409",resource="pods",verb="create"}'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_one_delete_removes_all(bench: Workbench) -> None:
    bench.create()
    bench.await_pods(6)
    bench.delete("DisaggregatedInference", "llm")
    eventually(
        lambda: not any(bench.owned(kind) for kind in (*OWNED, "ControllerRevision")),
        timeout=60,
        describe="nothing is left",
    )


def test_a_namesake_that_comes_at_once_is_made_anew(bench: Workbench) -> None:
    bench.create()
    before = {uid_of(pod) for pod in bench.await_pods(6)}
    bench.delete("DisaggregatedInference", "llm")
    again = bench.create()

    def renewed() -> bool:
        pods = [pod for pod in bench.pods() if pod["metadata"]["ownerReferences"][0]["uid"] == uid_of(again)]
        return len(pods) == 6 and not before & {uid_of(pod) for pod in pods}

    eventually(renewed, timeout=60)
    bench.await_pods(6)


@pytest.mark.parametrize("pods_seen", [0, 1, 30])
def test_killed_in_the_middle_of_creation(bench: Workbench, operator: Process, pods_seen: int) -> None:
    with bench.cluster.record(bench.path("Pod")) as recording:
        bench.create(role("prefill", replicas=20, size=4), name="big")
        if pods_seen:
            recording.wait(lambda events: len(events) >= pods_seen)
        else:
            eventually(lambda: bench.all("Workload"))
        operator.kill()
        operator.start()
        bench.await_pods(80)
        # Changes of pods are among the events.
        recording.wait(lambda events: sum(kind == "ADDED" for kind, _ in events) >= 80)
        born = Counter(pod["spec"]["hostname"] for kind, pod in recording.events if kind == "ADDED")
    assert len(born) == 80
    assert set(born.values()) == {1}
    assert len(bench.owned("PodGroup")) == 20


def test_status_and_events_of_a_new_resource(bench: Workbench) -> None:
    bench.create()
    bench.await_pods(6)
    bench.await_condition("Admitted", "False", "Waiting")
    bench.await_condition("BackendSupported", "True", "Supported")

    def settled() -> Object:
        status = bench.get("DisaggregatedInference", "llm")["status"]
        assert [each["updated"] for each in status["roles"]] == [2, 2], status["roles"]
        return status

    status = eventually(settled)
    assert status["summary"]["ready"] == "prefill 0/2 decode 0/2"
    assert status["units"] == 1
    assert status["unitStatuses"][0]["phase"] == "Pending"
    eventually(lambda: "Created" in bench.events())


def test_the_scheduler_s_reason_is_shown(bench: Workbench) -> None:
    bench.create()
    bench.await_pods(6)
    message = "prefill: 1 of 1 replicas fit nowhere: no rack has 16 free nvidia.com/gpu"
    bench.admit(status="False", reason="Infeasible", message=message)
    assert bench.await_condition("Admitted", "False", "Infeasible") == message
    assert message in bench.cluster.kubectl("get", "dinf", "llm", "-n", bench.namespace, "-o", "wide")
    eventually(lambda: "Infeasible" in bench.events())


def test_from_admitted_to_available(bench: Workbench, nodes: Callable[..., list[str]], cluster: Cluster) -> None:
    (node, *_) = nodes(blocks=1, racks=1, nodes=1)
    bench.create()
    pods = bench.await_pods(6)
    bench.admit()
    bench.await_condition("Admitted", "True", "Admitted")
    bench.await_condition("Scheduled", "False", "NotBound")
    bench.bind(pods, node)
    bench.await_condition("Available", "True", "Available")
    bench.await_condition("Progressing", "True", "Complete")
    status = bench.get("DisaggregatedInference", "llm")["status"]
    assert status["readyUnits"] == 1
    assert status["summary"]["ready"] == "prefill 2/2 decode 2/2"
    # Of stages that are reached within one look only the last is told: these pods are ready as soon as they are bound.
    eventually(lambda: {"Admitted", "Available"} <= bench.events())
    # Nothing changes any more: nothing is written.
    seen = bench.get("DisaggregatedInference", "llm")["metadata"]["resourceVersion"]
    cluster.api("PATCH", bench.path("Pod", name_of(pods[0])), {"metadata": {"annotations": {"looked": "at"}}})
    bench.create(role("other"), name="marker")
    bench.await_pods(1, inference="marker")
    assert bench.get("DisaggregatedInference", "llm")["metadata"]["resourceVersion"] == seen


def test_sidecars_of_the_user_stay(bench: Workbench) -> None:
    own = [{"name": "LWS_GROUP_SIZE", "value": "9"}, {"name": "MINE", "value": "$(LWS_GROUP_SIZE)"}]
    containers = [{"name": "engine", "image": "registry.test/engine:1", "env": own}]
    bench.create(role("prefill", size=2, template=template(containers=containers)))
    (leader, _) = bench.await_pods(2)
    env = leader["spec"]["containers"][0]["env"]
    assert [item["value"] for item in env if item["name"] == "LWS_GROUP_SIZE"] == ["2"]
    assert env[-1] == own[1]
