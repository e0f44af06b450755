"""Kopf is the operator's way in, on a real API server: nothing without it, and nothing missed whatever breaks."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.manifests import role
from cluster.workbench import Workbench
from localcluster import Cluster, Process, eventually
from localcluster.probe import answers
from localcluster.programs import ENVIRONMENT
from soak.proxy import Proxy, proxied_kubeconfig

#: Runs the operator as the command line does, but Kopf has no handler of DisaggregatedInferences.
_DEAF = """
import sys
import kopf
from covey.operator import handlers
kept = [each for each in handlers.REGISTRY._watching._handlers if "inferences" not in (each.selector.any_name or each.selector.plural or "")]
assert len(kept) == len(handlers.REGISTRY._watching._handlers) - 1
handlers.REGISTRY._watching._handlers[:] = kept
from covey.cli.main import main
sys.argv = ["covey", *sys.argv[1:]]
main()
"""


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


@pytest.mark.slow  # a lease runs out
def test_nothing_is_expanded_while_kopf_does_not_watch_it(cluster: Cluster, bench: Workbench) -> None:
    whole = cluster.start_covey("operator")
    bench.create(role("r"), name="seen")
    bench.await_pods(1)
    command = [sys.executable, "-c", _DEAF, *whole.command[3:]]
    cluster.stop_all()
    deaf = Process("covey-deaf", command, directory=cluster.directory, ready=lambda: True, environment=ENVIRONMENT)
    cluster.launch(lambda: deaf)
    try:
        bench.create(role("r"), name="unseen")
        health = whole.health_url
        # As long as a whole operator takes to be ready and to expand it, several times over.
        time.sleep(5)
        assert deaf.alive
        assert not answers(f"{health}/readyz"), "it has seen no list of them"
        assert len(bench.pods()) == 1
    finally:
        cluster.forget("covey-deaf")
    cluster.start_covey("operator")
    bench.await_pods(2)
    cluster.stop_all()


def test_a_deletion_while_the_watch_is_cut_is_not_undone(bench: Workbench, proxy: Proxy, operator: Process) -> None:
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
    bench.create(role("r"), name="later")
    eventually(lambda: {pod["metadata"]["labels"]["covey.dev/inference"] for pod in bench.pods()} == {"other", "later"})
    assert {group["metadata"]["labels"]["covey.dev/inference"] for group in bench.owned("PodGroup")} == {
        "other",
        "later",
    }
    assert operator.alive


def test_a_namesake_made_while_the_watch_is_cut_is_expanded(bench: Workbench, proxy: Proxy, operator: Process) -> None:
    bench.create(role("r"))
    bench.await_pods(1)
    proxy.trouble.blind = True
    proxy.cut_watches()
    bench.delete("DisaggregatedInference", "llm")
    eventually(lambda: not bench.pods())
    made = bench.create(role("r", replicas=2))
    proxy.trouble.clear()
    pods = bench.await_pods(2)
    owners = {owner["uid"] for pod in pods for owner in pod["metadata"]["ownerReferences"]}
    assert owners == {made["metadata"]["uid"]}
    assert operator.alive


@pytest.mark.parametrize("kind", ["429", "500", "503", "reset"])
def test_refusals_pass(bench: Workbench, proxy: Proxy, operator: Process, kind: str) -> None:
    proxy.trouble.shares[kind] = 1.0
    proxy.trouble.expired = 1.0
    proxy.cut_watches()
    bench.create(role("r"))
    eventually(lambda: proxy.injected[kind] >= 5)
    proxy.trouble.clear()
    proxy.cut_watches()
    bench.await_pods(1)
    assert operator.alive


def test_rights_that_are_taken_away_and_given_back(cluster: Cluster, bench: Workbench, operator: Process) -> None:
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


def test_an_api_server_that_comes_back_is_listened_to(cluster: Cluster, bench: Workbench, operator: Process) -> None:
    bench.create(role("r"))
    bench.await_pods(1)
    cluster.processes["kube-apiserver"].restart(kill=True)
    bench.create(role("r"), name="later")
    bench.await_pods(2)
    assert operator.alive


@pytest.mark.slow  # a lease runs out
def test_what_is_made_while_nobody_leads_is_expanded_by_who_does_next(cluster: Cluster, bench: Workbench) -> None:
    try:
        leader = cluster.start_covey("operator", "--leader-elect=true", name="covey-operator-a")
        holder = eventually(lambda: cluster.api("GET", _LEASE)["spec"]["holderIdentity"])
        standby = cluster.start_covey("operator", "--leader-elect=true", name="covey-operator-b")
        leader.pause()
        bench.create(role("r"))
        eventually(lambda: cluster.api("GET", _LEASE)["spec"]["holderIdentity"] not in {"", holder})
        bench.await_pods(1)
        assert standby.alive
    finally:
        leader.kill()
        cluster.stop_all()


_LEASE = "/apis/coordination.k8s.io/v1/namespaces/covey-system/leases/covey-operator"


@pytest.mark.slow
def test_a_connection_that_died_without_a_word_is_given_up(bench: Workbench, proxy: Proxy, operator: Process) -> None:
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
def test_hostile_objects_blind_nobody_and_fill_no_memory(cluster: Cluster, bench: Workbench) -> None:
    deep = '{"a":' * 9_000 + "1" + "}" * 9_000
    # Too large to be read, and as large as is read.
    wide = ["[" + ",".join(["{}"] * number) + "]" for number in (430_000, 170_000)]
    operator = cluster.start_covey("operator")
    try:
        for number in range(12):
            _create(cluster, bench, f"wide-{number}", wide[number % 2])
        _create(cluster, bench, "deep", deep)
        bench.create(role("r"), name="good")
        bench.await_pods(1, inference="good")
        # kubectl can decode it; Python cannot.
        message = 'jsonpath={.status.conditions[?(@.reason=="Invalid")].message}'
        arguments = ("get", "dinf", "deep", "-n", bench.namespace, "-o", message)
        eventually(lambda: "nested too deeply" in cluster.kubectl(*arguments))
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
    finally:
        for number in range(12):
            bench.delete("DisaggregatedInference", f"wide-{number}")
        bench.delete("DisaggregatedInference", "deep")
        cluster.stop_all()


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
