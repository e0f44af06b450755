"""The queue that a resource names reaches its groups, and follows every change."""

from __future__ import annotations

from builders.manifests import Object
from cluster.operating import bench, operator
from cluster.workbench import Workbench
from localcluster import eventually

__all__ = ["bench", "operator"]


def named(bench: Workbench) -> tuple[str | None, str | None]:
    """The queue that the root and the Workload's template name."""
    [unit] = [each for each in bench.all("CompositePodGroup") if "parentCompositePodGroupName" not in each["spec"]]
    [found] = bench.all("Workload")
    [root] = found["spec"]["compositePodGroupTemplates"]
    return unit["spec"].get("queue"), root.get("queue")


def test_a_queue_is_carried_to_the_groups(bench: Workbench) -> None:
    bench.create(queue="search")
    pods = bench.await_pods(6)
    assert named(bench) == ("search", "search")
    change: Object = {"queue": "batch"}
    bench.change(change)
    eventually(lambda: named(bench) == ("batch", "batch"))
    bench.change({"queue": None})
    eventually(lambda: named(bench) == (None, None))
    assert {each["metadata"]["uid"] for each in bench.pods()} == {each["metadata"]["uid"] for each in pods}
