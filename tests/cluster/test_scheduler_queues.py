"""Two Queues of a cohort: what each may have, who waits for quota, and what their statuses say, on a real API server."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from localcluster import Cluster, Process, eventually
from localcluster.programs import ROOT
from scheduler_trees import Bench, Role, node_of
from scrapes import Scrape

AddNodes = Callable[..., list[str]]
pytestmark = pytest.mark.usefixtures("scheduler")
Json = dict[str, Any]
API = "scheduling.covey.dev/v1alpha1"
QUEUES = "/apis/scheduling.covey.dev/v1alpha1/queues"


class Quotas:
    """Makes Queues for one namespace, and takes them away again."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.names: list[str] = []

    def make(self, name: str, nominal: int, **spec: Any) -> None:
        amounts = {key: spec.pop(key) for key in ("borrow", "lend") if key in spec}
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        flavor = {"resources": [{"name": "nvidia.com/gpu", "nominal": nominal, **amounts}]}
        spec = {"namespaces": {"selector": selector}, "cohort": self.namespace, "flavors": [flavor], **spec}
        body = {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        self.cluster.api("POST", QUEUES, body)
        self.names.append(name)

    def usage(self, name: str) -> dict[str, int]:
        found = self.cluster.api("GET", f"{QUEUES}/{name}").get("status", {}).get("resources", [{}])[0]
        return {key: value for key, value in found.items() if key != "name"}

    def condition(self, name: str, kind: str) -> Json:
        found = self.cluster.api("GET", f"{QUEUES}/{name}").get("status", {}).get("conditions", [])
        return next(each for each in found if each["type"] == kind)

    def nominal(self, name: str, nominal: int) -> None:
        flavors = [{"resources": [{"name": "nvidia.com/gpu", "nominal": nominal}]}]
        self.cluster.api("PATCH", f"{QUEUES}/{name}", {"spec": {"flavors": flavors}})

    def delete(self, name: str) -> None:
        self.names.remove(name)
        self.cluster.api("DELETE", f"{QUEUES}/{name}")


@pytest.fixture
def quotas(cluster: Cluster, namespace: str) -> Iterator[Quotas]:
    made = Quotas(cluster, namespace)
    yield made
    for name in made.names:
        cluster.api("DELETE", f"{QUEUES}/{name}")


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


def bound(bench: Bench, name: str) -> int:
    return sum(bool(node_of(pod)) for pod in bench.all() if pod["metadata"]["name"].startswith(f"{name}-"))


def test_two_queues_of_a_cohort(bench: Bench, quotas: Quotas, nodes: AddNodes, kubectl: Callable[..., str]) -> None:
    nodes(nodes=6)
    quotas.make(mine := f"{bench.namespace}-a", 16, borrow=8)
    quotas.make(theirs := f"{bench.namespace}-b", 16)
    bench.unit("first", Role("decode", replicas=4), queue=mine)
    eventually(lambda: bound(bench, "first") == 3)
    bench.unit("second", Role("decode", replicas=3, minimum=3), queue=mine)

    def refused() -> Json:
        found = bench.condition("second")
        return found if found.get("reason") == "OverQuota" else {}

    message = eventually(refused)["message"]
    assert f"minimums of {mine} do not borrow" in message
    bench.unit("third", Role("decode"), queue=theirs)
    eventually(lambda: bound(bench, "third") == 1)
    usage = {"nominal": 16, "used": 24, "borrowed": 8, "lent": 0, "waiting": 32}
    eventually(lambda: quotas.usage(mine) == usage)
    eventually(lambda: quotas.usage(theirs) == {"nominal": 16, "used": 8, "borrowed": 0, "lent": 8, "waiting": 0})
    shown = kubectl("get", "cvq", mine)
    assert "24/16" in shown
    # The cohort is full: 32 of 32.
    bench.unit("fourth", Role("decode"), queue=theirs)
    eventually(lambda: bench.condition("fourth").get("reason") == "OverQuota")
    quotas.nominal(theirs, 24)
    eventually(lambda: bound(bench, "fourth") == 1)
    # A queue that goes takes nothing with it, and what is left of its units says so.
    quotas.delete(theirs)
    eventually(lambda: f"there is no Queue {theirs}" in bench.condition("third").get("message", ""))
    assert bound(bench, "third") == 1


def test_a_namespace_that_several_queues_select_must_name_one(bench: Bench, quotas: Quotas, nodes: AddNodes) -> None:
    nodes(nodes=1)
    quotas.make(f"{bench.namespace}-c", 8)
    quotas.make(f"{bench.namespace}-d", 8)
    bench.unit("lost", Role("decode"))
    eventually(lambda: bench.condition("lost").get("reason") == "QueueAmbiguous")
    quotas.delete(f"{bench.namespace}-d")
    eventually(lambda: bound(bench, "lost") == 1)


def test_a_quota_below_what_is_used_evicts_nobody(bench: Bench, quotas: Quotas, nodes: AddNodes) -> None:
    nodes(nodes=4)
    quotas.make(mine := f"{bench.namespace}-f", 24)
    bench.unit("first", Role("decode", replicas=3), queue=mine)
    eventually(lambda: bound(bench, "first") == 3)
    quotas.nominal(mine, 8)
    eventually(lambda: quotas.usage(mine).get("nominal") == 8)
    assert quotas.usage(mine)["used"] == 24
    assert quotas.condition(mine, "WithinLimits")["status"] == "False"
    bench.unit("second", Role("decode"), queue=mine)
    eventually(lambda: bench.condition("second").get("reason") == "OverQuota")
    assert bound(bench, "first") == 3
    surplus = sorted(pod["metadata"]["name"] for pod in bench.all() if pod["metadata"]["name"].startswith("first-"))[1:]
    for name in surplus:
        bench.delete(name)
    # What is left of it is all that the queue may have.
    eventually(lambda: quotas.condition(mine, "WithinLimits")["status"] == "True")
    assert bound(bench, "second") == 0
    quotas.nominal(mine, 16)
    eventually(lambda: bound(bench, "second") == 1)


def served(process: Process) -> float:
    with urllib.request.urlopen(process.metrics_url, timeout=10) as answer:
        return Scrape.parse(answer.read().decode())("covey_queues_served")


def test_a_cluster_that_was_upgraded_without_the_kind_goes_on(
    cluster: Cluster, scheduler: Process, bench: Bench, quotas: Quotas, nodes: AddNodes
) -> None:
    nodes(nodes=2)
    path = f"{ROOT}/crds/scheduling.covey.dev_queues.yaml"
    cluster.kubectl("delete", f"--filename={path}")
    try:
        scheduler.restart()
        bench.unit("one", Role("decode"))
        eventually(lambda: bound(bench, "one") == 1)
        assert served(scheduler) == 0.0
        assert "quota is not counted" in scheduler.log_text()
    finally:
        cluster.kubectl("apply", "--server-side", f"--filename={path}")
    eventually(lambda: served(scheduler) == 1.0, 60)
    name = f"{bench.namespace}-e"
    eventually(lambda: quotas.make(name, 8) or True, 30)
    eventually(lambda: quotas.usage(name).get("used") == 8)
    bench.unit("two", Role("decode"))
    eventually(lambda: bench.condition("two").get("reason") == "OverQuota")
