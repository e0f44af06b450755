"""Scaling from outside: units through the resource, replicas of a role through its RoleScaler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from builders.manifests import Object, role
from cluster.operating import bench, operator
from cluster.workbench import Workbench, hostnames, label, name_of, uid_of, uids
from localcluster import Process, eventually

__all__ = ["bench", "operator"]

EXTERNAL = {"scaling": {"mode": "External"}}


def roles(**prefill: Any) -> list[Object]:
    return [role("prefill", **{"replicas": 2, "size": 2, **EXTERNAL, **prefill}), role("decode")]


def scale(bench: Workbench, replicas: int, name: str = "llm-prefill", kind: str = "rscale") -> str:
    return bench.cluster.kubectl("scale", kind, name, "-n", bench.namespace, f"--replicas={replicas}", check=False)


def scaler(bench: Workbench, name: str = "llm-prefill") -> Object:
    return bench.get("RoleScaler", name)


def by_unit(bench: Workbench) -> dict[str, int]:
    return dict(Counter(label(pod, "unit") for pod in bench.pods(role="prefill", index=0)))


def await_status(bench: Workbench, **status: Any) -> Object:
    """Wait until the status of the RoleScaler says so of its present generation."""

    def reached() -> Object:
        found = scaler(bench)
        told = found.get("status", {})
        assert status.items() <= told.items(), str(told)
        assert told["observedGeneration"] == found["metadata"]["generation"]
        return found

    return eventually(reached)


def condition(found: Object) -> tuple[str, str, str]:
    (told,) = found["status"]["conditions"]
    assert told["type"] == "ScalingLimited"
    return told["status"], told["reason"], told["message"]


def test_a_role_is_scaled_over_all_units(bench: Workbench) -> None:
    bench.create(*roles(), replicas=2)
    bench.await_pods(8, role="prefill")
    found = await_status(bench, replicas=4)
    assert found["spec"] == {"replicas": 4, "minReplicas": 2}
    assert found["metadata"]["ownerReferences"][0]["uid"] == uid_of(bench.get("DisaggregatedInference", "llm"))
    assert "llm-prefill" in bench.cluster.kubectl("get", "rscale", "-n", bench.namespace)
    before = uids(bench.pods())
    scale(bench, 7)
    bench.await_pods(14, role="prefill")
    assert by_unit(bench) == {"0": 4, "1": 3}
    assert before <= uids(bench.pods())
    selector = await_status(bench, replicas=7)["status"]["selector"]
    path = f"{bench.path('Pod')}?labelSelector={selector}"
    assert {label(pod, "index") for pod in bench.cluster.api("GET", path)["items"]} == {"0"}
    assert len(bench.cluster.api("GET", path)["items"]) == 7
    scale(bench, 3)
    bench.await_pods(6, role="prefill")
    assert by_unit(bench) == {"0": 2, "1": 1}


def test_fewer_than_the_minimum_are_refused_with_a_sentence(bench: Workbench) -> None:
    bench.create(*roles(), replicas=3)
    await_status(bench, replicas=6)
    answer = scale(bench, 2)
    assert (
        "2 replicas are fewer than the 3 that the role needs over all units (minReplicas of the role times units): "
        "ask for at least so many"
    ) in answer
    assert scaler(bench)["spec"]["replicas"] == 6
    scale(bench, 3)
    bench.await_pods(6, role="prefill")
    # More units raise the floor: the value stays, and is told about.
    scale(bench, 4, "llm", "dinf")
    found = eventually(lambda: _limited(bench))
    assert found["spec"] == {"replicas": 3, "minReplicas": 4}
    assert condition(found)[:2] == ("True", "TooFewReplicas")
    bench.await_pods(8, role="prefill")


def _limited(bench: Workbench) -> Object:
    found = await_status(bench, replicas=4)
    assert condition(found)[0] == "True", str(found)
    return found


def test_scaling_is_valid_before_the_first_pod(bench: Workbench) -> None:
    quota = {"metadata": {"name": "no-pods"}, "spec": {"hard": {"pods": "0"}}}
    bench.cluster.api("POST", bench.path("ResourceQuota"), quota)
    path = bench.path("ResourceQuota", "no-pods")
    eventually(lambda: bench.cluster.api("GET", path)["status"].get("hard") == {"pods": "0"})
    bench.create(*roles(), replicas=2)
    await_status(bench, replicas=0)
    eventually(lambda: _tells(bench, "DisaggregatedInference", "llm", 2))
    eventually(lambda: _tells(bench, "RoleScaler", "llm-prefill", 0))
    assert not bench.pods()


def _tells(bench: Workbench, kind: str, name: str, replicas: int) -> bool:
    """The scale subresource has what an autoscaler needs."""
    found = bench.cluster.api("GET", f"{bench.path(kind, name)}/scale")["status"]
    return found["replicas"] == replicas and bool(found.get("selector"))


def test_the_value_survives_edits_and_a_restart_of_the_operator(bench: Workbench, operator: Process) -> None:
    bench.create(*roles(), replicas=2)
    await_status(bench, replicas=4)
    scale(bench, 5)
    before = uids(bench.await_pods(10, role="prefill"))
    bench.change({"roles": roles(replicas=9)})
    bench.change({"replicas": 3})
    bench.await_pods(3, role="decode")
    # Pods of one pass are made side by side: those of the other role may come a moment later.
    eventually(lambda: by_unit(bench) == {"0": 2, "1": 2, "2": 1}, describe=lambda: str(by_unit(bench)))
    assert scaler(bench)["spec"]["replicas"] == 5
    operator.kill()
    scale(bench, 8)
    operator.start()
    bench.await_pods(16, role="prefill")
    assert by_unit(bench) == {"0": 3, "1": 3, "2": 2}
    assert scaler(bench)["spec"]["replicas"] == 8
    managers = [each["manager"] for each in scaler(bench)["metadata"]["managedFields"] if "f:replicas" in _spec(each)]
    assert managers == ["kubectl"]
    assert before & uids(bench.pods())


def _spec(entry: Object) -> Object:
    return dict(entry["fieldsV1"].get("f:spec", {})) if entry.get("subresource") != "status" else {}


def test_static_and_external_are_live(bench: Workbench) -> None:
    bench.create(role("prefill", replicas=2), role("decode"), replicas=2)
    before = uids(bench.await_pods(6))
    bench.change({"roles": [role("prefill", replicas=1, **EXTERNAL), role("decode")]})
    found = await_status(bench, replicas=4)
    assert found["spec"]["replicas"] == 4
    assert uids(bench.pods()) == before
    scale(bench, 6)
    bench.await_pods(6, role="prefill")
    bench.change({"roles": [role("prefill", replicas=1), role("decode")]})
    bench.await_pods(2, role="prefill")
    eventually(lambda: not bench.all("RoleScaler"))


def test_units_go_to_zero_and_come_back_to_their_place(bench: Workbench) -> None:
    bench.create(*roles(), replicas=2)
    await_status(bench, replicas=4)
    scale(bench, 5)
    bench.await_pods(10, role="prefill")
    created = bench.get("Workload", "llm")["metadata"]
    scale(bench, 0, "llm", "dinf")
    bench.await_pods(0)
    eventually(lambda: not bench.owned("PodGroup") and not bench.owned("CompositePodGroup"))
    await_status(bench, replicas=0)
    # The age of the Workload is the place in the queue.
    assert bench.get("Workload", "llm")["metadata"]["uid"] == created["uid"]
    assert scaler(bench)["spec"] == {"replicas": 5, "minReplicas": 0}
    scale(bench, 2, "llm", "dinf")
    bench.await_pods(10, role="prefill")
    assert bench.get("Workload", "llm")["metadata"]["uid"] == created["uid"]


def test_a_foreign_scaler_of_the_name_is_not_adopted(bench: Workbench) -> None:
    body = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": "RoleScaler", "metadata": {"name": "llm-prefill"}}
    bench.cluster.api("POST", bench.path("RoleScaler"), {**body, "spec": {"replicas": 7}})
    bench.create(*roles())
    message = bench.await_condition("Progressing", "False", "NameTaken")
    assert message.startswith("RoleScaler llm-prefill exists and is not Covey's")
    bench.await_pods(4, role="prefill")
    assert "ownerReferences" not in scaler(bench)["metadata"]
    bench.delete("RoleScaler", "llm-prefill")
    await_status(bench, replicas=2)
    bench.await_condition("Progressing", "True", "Waiting")


def test_what_people_take_away_comes_back(bench: Workbench) -> None:
    bench.create(*roles())
    await_status(bench, replicas=2)
    scale(bench, 3)
    before = uids(bench.await_pods(6, role="prefill"))
    bench.delete("RoleScaler", "llm-prefill")
    assert await_status(bench, replicas=3)["spec"]["replicas"] == 3
    labels = {"metadata": {"labels": {"covey.dev/inference": None}}}
    bench.cluster.api("PATCH", bench.path("RoleScaler", "llm-prefill"), labels)
    eventually(lambda: scaler(bench)["metadata"]["labels"].get("covey.dev/inference") == "llm")
    assert uids(bench.pods(role="prefill")) == before


def test_it_goes_with_its_resource(bench: Workbench) -> None:
    bench.create(*roles())
    await_status(bench, replicas=2)
    bench.delete("DisaggregatedInference", "llm")
    eventually(lambda: not bench.all("RoleScaler"))


def leaders(bench: Workbench) -> list[Object]:
    """Live pods that the resource's own selector finds."""
    selector = bench.get("DisaggregatedInference", "llm")["status"]["selector"]
    found = bench.cluster.api("GET", f"{bench.path('Pod')}?labelSelector={selector}")["items"]
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def await_leaders(bench: Workbench, *names: str) -> list[Object]:
    def there() -> list[Object]:
        found = leaders(bench)
        assert hostnames(found) == sorted(names)
        return found

    return eventually(there)


def test_one_pod_stands_for_each_unit(bench: Workbench, nodes: Callable[..., list[str]]) -> None:
    (node, *_) = nodes(blocks=1, racks=1, nodes=1)
    bench.create(role("router", minReplicas=0), role("prefill", replicas=2, size=2), role("decode"), replicas=2)
    with bench.cluster.record(bench.path("Pod")) as recording:
        bench.bind(bench.await_pods(12), node)
        (first, _) = await_leaders(bench, "0-prefill-0-0", "1-prefill-0-0")
        # Its replica is lost: the label moves to its successor.
        bench.delete("Pod", name_of(first))
        eventually(lambda: uid_of(first) not in uids(leaders(bench)))
        bench.await_pods(12)
        found = await_leaders(bench, "0-prefill-1-0", "1-prefill-0-0")
        bench.bind(
            [pod for pod in bench.pods(unit=0, replica=0, role="prefill") if not pod["spec"].get("nodeName")], node
        )
        await_leaders(bench, "0-prefill-0-0", "1-prefill-0-0")
        scale(bench, 1, "llm", "dinf")
        bench.await_pods(6)
        await_leaders(bench, "0-prefill-0-0")
    assert found
    standing: dict[str, Object] = {}
    for kind, pod in recording.events:
        standing.pop(uid_of(pod), None)
        if kind != "DELETED" and stands(pod):
            standing[uid_of(pod)] = pod
        units = [label(each, "unit") for each in standing.values()]
        assert len(set(units)) == len(units), "two pods stand for one unit"


def stands(pod: Object) -> bool:
    metadata = pod["metadata"]
    return "covey.dev/unit-leader" in metadata.get("labels", {}) and not metadata.get("deletionTimestamp")
