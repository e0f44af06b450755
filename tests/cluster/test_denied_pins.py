"""A policy of the cluster that denies one pin of a gang: nobody is flooded, nobody's room is kept, and people know why."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.client import ApiException

from localcluster import Cluster, Process, eventually
from scheduler_trees import Bench, Replacing, Role, node_of, pin_of
from scrapes import Scrape

AddNodes = Callable[..., list[str]]
Json = dict[str, Any]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
MARK = "held-back"
WORDS = "this team may not use GPUs before Monday"


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


class Policy:
    """Denies to lift the gate of every pod with a mark in one namespace."""

    def __init__(self, bench: Bench) -> None:
        self._cluster, self._bench = bench.cluster, bench
        self._name = f"deny-{bench.namespace}"

    def install(self) -> None:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
        marked = f"has(object.metadata.labels) && '{MARK}' in object.metadata.labels"
        validation = {"expression": f"!({marked}) || has(object.spec.schedulingGates)", "message": WORDS}
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self._bench.namespace}}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
            "validations": [validation],
        }
        binding = {"policyName": self._name, "validationActions": ["Deny"]}
        self._cluster.api("POST", POLICIES, self._named(spec))
        self._cluster.api("POST", BINDINGS, self._named(binding))
        eventually(self._denies, describe="the policy holds")

    def remove(self) -> None:
        for path in (POLICIES, BINDINGS):
            try:
                self._cluster.api("DELETE", f"{path}/{self._name}")
            except ApiException as error:
                if error.status != 404:
                    raise

    def _named(self, spec: Json) -> Json:
        return {"metadata": {"name": self._name}, "spec": spec}

    def _denies(self) -> bool:
        """A policy takes a moment until the API server knows it."""
        path, name = self._bench.pods_path, "probe"
        body = {
            "metadata": {"name": name, "labels": {MARK: ""}},
            "spec": {"schedulingGates": [{"name": "example.com/x"}], "containers": [{"name": "c", "image": "x"}]},
        }
        self._cluster.api("POST", path, body)
        try:
            self._cluster.api("PATCH", f"{path}/{name}", [{"op": "remove", "path": "/spec/schedulingGates/0"}])
        except ApiException as error:
            return WORDS in str(error)
        finally:
            self._bench.delete(name)
        return False


@pytest.fixture
def policy(bench: Bench) -> Iterator[Policy]:
    made = Policy(bench)
    made.install()
    yield made
    made.remove()


def requests_about_pods(scheduler: Process) -> float:
    with urllib.request.urlopen(scheduler.metrics_url, timeout=10) as answer:
        scrape = Scrape.parse(answer.read().decode())
    metric = "covey_kube_requests_total"
    return sum(scrape(metric, verb=verb, resource="pods") for verb in ("patch", "get"))


@pytest.mark.slow  # half a minute of refusals
def test_a_denied_pin_floods_nobody_and_keeps_nobodys_room(
    bench: Bench, nodes: AddNodes, scheduler: Process, policy: Policy
) -> None:
    nodes(nodes=2)
    tree = bench.unit("denied", Role("decode", replicas=2, minimum=2), timeout=12, pods=False)
    marked = tree.manifests[1]
    marked["metadata"]["labels"][MARK] = ""
    before = requests_about_pods(scheduler)
    with Replacing(tree) as replacing:
        tree.create()
        # The mate is pinned and waits; the API server is asked again seldom, and later each time.
        eventually(lambda: any(pin_of(pod) for pod in tree.pods()))
        said = tree.wait_refused("PinDenied")
        assert WORDS in said
        assert f"the API server denied the pin of pod {marked['metadata']['name']} to node" in said
        time.sleep(10)  # the span of which the requests are counted
        assert requests_about_pods(scheduler) - before <= 20
        # After the gang's time-out its room is given back, for good.
        eventually(lambda: replacing.released == ["Timeout"], 30, lambda: str(replacing.released))
        other = bench.unit("other", Role("decode", replicas=2, minimum=2))
        other.wait_bound()
        assert tree.wait_refused("PinDenied")
        assert not [pod for pod in tree.pods() if pin_of(pod)]
        # Once the policy is gone the gang comes by itself.
        for pod in other.pods():
            bench.delete(pod["metadata"]["name"])
        policy.remove()
        tree.wait_bound(timeout=90)
    assert len({node_of(pod) for pod in tree.bound()}) == 2
