"""What the operator hears of the API server, by reflectors and by Kopf: nothing is missed, whatever breaks on the way or is written."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.manifests import role
from cluster.scraping import await_scrape, scrape
from cluster.workbench import Workbench, label, uid_of
from localcluster import Cluster, Process, eventually
from soak.proxy import Proxy, proxied_kubeconfig


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    """Between the operator and the API server."""
    with Proxy(cluster.server, cluster.files.authority, random.Random(1)) as running:
        yield running


@pytest.fixture
def operator(cluster: Cluster, proxy: Proxy) -> Iterator[Process]:
    """The operator behind the proxy."""
    kubeconfig = proxied_kubeconfig(cluster, proxy, "covey-operator")
    try:
        yield cluster.start_covey("operator", f"--kubeconfig={kubeconfig}")
    finally:
        cluster.stop_all()


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Workbench:
    return Workbench(cluster, namespace)


def test_resource_when_it_is_deleted_or_made_anew_while_the_watch_is_cut_is_taken_as_it_is(
    bench: Workbench, proxy: Proxy, operator: Process
) -> None:
    bench.create(role("r"))
    bench.create(role("r"), name="other")
    bench.await_pods(2)
    # No watch can be begun, and what was missed cannot be replayed: it has to be found by a list.
    proxy.trouble.blind, proxy.trouble.expired = True, 1.0
    proxy.cut_watches()
    bench.delete("DisaggregatedInference", "llm")
    eventually(lambda: len(bench.owned("PodGroup")) == 1, describe="the groups are collected")
    proxy.trouble.blind = False
    eventually(lambda: proxy.injected["410"] >= 3)
    proxy.trouble.clear()
    proxy.cut_watches()
    made = bench.create(role("r", replicas=2))
    bench.await_pods(3)
    owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in bench.pods(inference="llm")}
    assert owners == {uid_of(made)}, "a namesake"
    assert {label(group, "inference") for group in bench.owned("PodGroup")} == {"other", "llm"}
    assert operator.alive


@pytest.mark.parametrize("kind", ["429", "reset"])
def test_resource_when_the_api_server_answers_nobody_is_expanded_once_it_does(
    bench: Workbench, proxy: Proxy, operator: Process, kind: str
) -> None:
    proxy.trouble.shares[kind] = 1.0
    proxy.trouble.expired = 1.0
    proxy.cut_watches()
    bench.create(role("r"))
    eventually(lambda: proxy.injected[kind] >= 5)
    proxy.trouble.clear()
    proxy.cut_watches()
    bench.await_pods(1)
    assert operator.alive


def test_rights_when_they_are_taken_away_are_waited_for(cluster: Cluster, bench: Workbench, operator: Process) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/covey-operator"
    binding = cluster.api("GET", path)
    cluster.api("DELETE", path)
    # The API server takes a moment to heed that: who has begun a watch by then keeps it.
    asked = ("auth", "can-i", "list", "pods", "--as=system:serviceaccount:covey-system:covey-operator")
    eventually(lambda: "no" in cluster.kubectl(*asked, check=False).split(), describe="the rights are gone")
    operator.kill()
    operator.start(wait=False)
    bench.create(role("r"))
    eventually(lambda: "contact lost" in operator.log_text())
    for field in ("resourceVersion", "uid", "creationTimestamp"):
        del binding["metadata"][field]
    cluster.api("POST", path.removesuffix("/covey-operator"), binding)
    bench.await_pods(1)
    assert operator.alive


def test_api_server_when_it_comes_back_is_listened_to(cluster: Cluster, bench: Workbench, operator: Process) -> None:
    bench.create(role("r"))
    bench.await_pods(1)
    cluster.processes["kube-apiserver"].restart(kill=True)
    bench.create(role("r"), name="later")
    bench.await_pods(2)
    assert operator.alive


@pytest.mark.slow
def test_connection_when_it_died_without_a_word_is_given_up(bench: Workbench, proxy: Proxy, operator: Process) -> None:
    bench.create(role("r"))
    bench.await_pods(1)
    proxy.silence_watches()
    bench.create(role("r"), name="unheard")
    bench.await_pods(2, timeout=180)
    assert operator.alive


def resident(process: Process) -> int:
    """Bytes that the process holds at the most so far."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


#: The memory limit of the chart.
_LIMIT = 512 << 20


@pytest.mark.slow
@pytest.mark.timeout(900)  # 11 MB of JSON through everything; were all of it read, a start would take 620 MiB
def test_objects_when_they_are_hostile_blind_nobody_and_fill_no_memory(cluster: Cluster, bench: Workbench) -> None:
    deep = '{"a":' * 9_000 + "1" + "}" * 9_000
    # Too large to be read, and as large as is read.
    wide = ["[" + ",".join(["{}"] * number) + "]" for number in (430_000, 170_000)]
    operator = cluster.start_covey("operator")
    try:
        for number in range(12):
            _create(cluster, bench, f"wide-{number}", wide[number % 2])
        _create(cluster, bench, "deep", deep)
        _record(cluster, bench, deep)
        bench.create(role("r"), name="good")
        bench.await_pods(1, inference="good")
        # kubectl can decode it; Python cannot.
        await_scrape(
            operator,
            lambda seen: seen("covey_unreadable_objects_total", resource="disaggregatedinferences"),
            "the object that is too deep is counted",
        )
        assert f'["{bench.namespace}","deep"]' in operator.log_text()
        assert "characters as JSON; at most 524,288 are read" in bench.await_condition(
            "Ready", "False", "Invalid", name="wide-0"
        )
        assert operator.alive
        assert resident(operator) < _LIMIT
        # All of it is there when the next one begins.
        operator.restart(kill=True)
        bench.create(role("r"), name="later")
        bench.await_pods(1, inference="later")
        assert resident(operator) < _LIMIT
        assert scrape(operator)("covey_unreadable_objects_total", resource="controllerrevisions")
    finally:
        for number in range(12):
            bench.delete("DisaggregatedInference", f"wide-{number}")
        bench.delete("DisaggregatedInference", "deep")
        bench.delete("ControllerRevision", "unreadable")
        cluster.stop_all()


def _record(cluster: Cluster, bench: Workbench, content: str) -> None:
    """Create a record that cannot be read: its ``data`` may be any object."""
    metadata = {"name": "unreadable", "labels": {"covey.dev/inference": "good"}}
    body = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "revision": 1, "data": "DATA"}
    file = cluster.directory / "unreadable.json"
    file.write_text(json.dumps(body).replace('"DATA"', content))
    cluster.kubectl("create", "-n", bench.namespace, "-f", str(file))


def _create(cluster: Cluster, bench: Workbench, name: str, content: str) -> None:
    """Create a resource whose template holds a content that no Python here has to encode."""
    template = {"spec": {"containers": [{"name": "c", "image": "registry.test/engine:1"}], "zzz": "CONTENT"}}
    spec = {"roles": [{"name": "r", "replicas": 1, "size": 1, "template": template}]}
    body = {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": {"name": name},
        "spec": spec,
    }
    file = cluster.directory / f"{name}.json"
    file.write_text(json.dumps(body).replace('"CONTENT"', content))
    cluster.kubectl("create", "--validate=false", "-n", bench.namespace, "-f", str(file))
