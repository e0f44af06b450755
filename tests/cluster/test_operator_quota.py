"""ResourceQuotas of a real control plane: a minimum fits whole, or no pod of it is there."""

from __future__ import annotations

from typing import Any

from builders.manifests import Object, role, template
from cluster.conftest import AddNodes
from cluster.operating import bench, operator
from cluster.workbench import Workbench, label, name_of
from localcluster import Process, eventually

__all__ = ["bench", "operator"]

GPU = "requests.nvidia.com/gpu"


def gang(*gpus: int, **fields: Any) -> list[Object]:
    """Roles of one replica each, of one pod that takes so many devices."""
    return [
        role(f"role-{number}", template=template(containers=[engine(count)]), **fields)
        for number, count in enumerate(gpus)
    ]


def engine(gpus: int) -> Object:
    return {"name": "engine", "image": "engine:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}


def set_quota(bench: Workbench, gpus: int) -> None:
    """A quota for all pods of the namespace; it is there once it is counted."""
    body = {"metadata": {"name": "gpus"}, "spec": {"hard": {GPU: str(gpus)}}}
    if bench.all("ResourceQuota"):
        bench.cluster.api("PATCH", bench.path("ResourceQuota", "gpus"), body)
    else:
        bench.cluster.api("POST", bench.path("ResourceQuota"), body)
    eventually(lambda: bench.get("ResourceQuota", "gpus")["status"]["hard"][GPU] == str(gpus))


def of(bench: Workbench, name: str) -> list[Object]:
    return bench.pods(inference=name)


def test_of_two_gangs_with_room_for_one_and_a_half_one_is_there_and_the_other_holds_nothing(bench: Workbench) -> None:
    set_quota(bench, 48)
    names = [f"gang-{number}" for number in range(4)]
    for name in names:
        bench.create(*gang(8, 8, 8, 8), name=name)

    def settled() -> list[str]:
        counts = {name: len(of(bench, name)) for name in names}
        assert sorted(counts.values()) == [0, 0, 0, 4], str(counts)
        return [name for name, count in counts.items() if not count]

    waiting = eventually(settled, describe="one gang is there")
    for name in waiting:
        message = bench.await_condition("Admitted", "False", "QuotaExceeded", name)
        assert f"quota {bench.namespace}/gpus: {GPU} 32 needed, 16 left" in message
        assert message.startswith("no pod of unit 0 is created before its whole minimum fits")
        assert bench.condition("QuotaLimited", name)["status"] == "True"
    # A quota that is raised wakes one more, and no half of another.
    set_quota(bench, 80)
    eventually(lambda: sorted(len(of(bench, name)) for name in names) == [0, 0, 4, 4], describe="two gangs are there")


def test_a_minimum_that_runs_comes_first_across_a_restart(bench: Workbench, operator: Process, nodes: AddNodes) -> None:
    [node] = nodes(racks=1, nodes=1)
    set_quota(bench, 24)
    bench.create(*gang(8, 8), name="serving")
    bench.bind(bench.await_pods(2), node)
    bench.create(*gang(12), name="waiting")
    bench.await_condition("Admitted", "False", "QuotaExceeded", "waiting")
    for dies in (False, True):
        if dies:
            operator.kill()
        lost = next(pod for pod in of(bench, "serving") if label(pod, "role") == "role-1")
        bench.delete("Pod", name_of(lost))
        if dies:
            gone = name_of(lost)
            eventually(lambda gone=gone: gone not in {name_of(pod) for pod in bench.all("Pod")})
            eventually(lambda: bench.get("ResourceQuota", "gpus")["status"]["used"][GPU] == "8")
            operator.start()
        both = bench.await_pods(2, inference="serving")
        assert not of(bench, "waiting")
        bench.bind([pod for pod in both if label(pod, "role") == "role-1"], node)
    assert not of(bench, "waiting")
    set_quota(bench, 28)
    bench.await_pods(1, inference="waiting")


def test_what_a_quota_does_not_count_is_not_held_up(bench: Workbench) -> None:
    body = {"metadata": {"name": "jobs"}, "spec": {"hard": {"pods": "0"}, "scopes": ["Terminating"]}}
    bench.cluster.api("POST", bench.path("ResourceQuota"), body)
    eventually(lambda: bench.get("ResourceQuota", "jobs")["status"].get("hard"))
    bench.create(*gang(8, 8))
    bench.await_pods(2)


def test_a_default_of_a_limit_range_is_counted(bench: Workbench) -> None:
    item = {"type": "Container", "defaultRequest": {"cpu": "2"}}
    bench.cluster.api(
        "POST",
        f"/api/v1/namespaces/{bench.namespace}/limitranges",
        {"metadata": {"name": "defaults"}, "spec": {"limits": [item]}},
    )
    body = {"metadata": {"name": "cpu"}, "spec": {"hard": {"requests.cpu": "3"}}}
    bench.cluster.api("POST", bench.path("ResourceQuota"), body)
    eventually(lambda: bench.get("ResourceQuota", "cpu")["status"].get("hard"))
    bench.create(*gang(8, 8))
    message = bench.await_condition("Admitted", "False", "QuotaExceeded")
    assert f"quota {bench.namespace}/cpu: requests.cpu 4 needed, 3 left" in message
    assert not bench.pods()
