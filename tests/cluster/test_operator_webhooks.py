"""An API server that refuses what is applied, because a webhook is down: the resource says so, and can still shrink."""

from collections.abc import Callable, Iterator

import pytest
from kubernetes.client import ApiException

from builders.manifests import role, template
from cluster.operating import bench, operator
from cluster.workbench import OWNED, Workbench
from localcluster import Cluster, eventually

__all__ = ["bench", "operator"]

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
GROUP = "scheduling.covey.dev"
Refuse = Callable[[str], None]


@pytest.fixture
def refuse(cluster: Cluster, bench: Workbench) -> Iterator[Refuse]:
    """Let the API server refuse writes of a kind in the namespace, by a webhook that nobody answers."""

    def install(kind: str) -> None:
        what = {"apiGroups": ["", GROUP], "apiVersions": ["*"], "resources": [f"{kind.lower()}s"]}
        rule = {**what, "operations": ["CREATE", "UPDATE"]}
        webhook = {
            "name": "down.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/down"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}},
            "rules": [rule],
        }
        cluster.api("POST", WEBHOOKS, {"metadata": {"name": bench.namespace}, "webhooks": [webhook]})
        # The API server takes a moment to know of it.
        eventually(lambda: _is_refused(bench, kind), describe="the webhook is in force")

    yield install
    cluster.api("DELETE", f"{WEBHOOKS}/{bench.namespace}")


def _is_refused(bench: Workbench, kind: str) -> bool:
    api_version = "v1" if kind == "Service" else f"{GROUP}/v1alpha1"
    spec = {"clusterIP": "None"} if kind == "Service" else {"schedulingPolicy": {"basic": {}}}
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "probe"}, "spec": spec}
    try:
        bench.cluster.api("POST", f"{bench.path(kind)}?dryRun=All", body)
    except ApiException as error:
        return "down.example.com" in str(error)
    return False


def test_what_cannot_be_created_is_said(bench: Workbench, refuse: Refuse, cluster: Cluster) -> None:
    refuse("PodGroup")
    bench.create()
    assert "down.example.com" in bench.await_condition("Admitted", "False", "RequestRefused")
    eventually(lambda: "RequestRefused" in bench.events())
    cluster.api("PATCH", f"{WEBHOOKS}/{bench.namespace}", {"webhooks": []})
    bench.await_pods(6)
    bench.await_condition("Admitted", "False", "Waiting")


@pytest.fixture
def forbid_pods(cluster: Cluster, bench: Workbench) -> Iterator[Callable[[], None]]:
    """A policy against all pods of the namespace is in force; calling it ends that."""
    api = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}}}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "no pods today"}],
    }
    binding = {"policyName": bench.namespace, "validationActions": ["Deny"], "matchResources": here}
    cluster.api("POST", f"{api}ies", {"metadata": {"name": bench.namespace}, "spec": spec})
    cluster.api("POST", f"{api}ybindings", {"metadata": {"name": bench.namespace}, "spec": binding})

    def allow() -> None:
        cluster.api("PATCH", f"{api}ies/{bench.namespace}", {"spec": {"validations": [{"expression": "true"}]}})

    def is_in_force() -> bool:
        pod = {"metadata": {"name": "probe"}, "spec": template()["spec"]}
        try:
            cluster.api("POST", f"{bench.path('Pod')}?dryRun=All", pod)
        except ApiException as error:
            return "no pods today" in str(error)
        return False

    eventually(is_in_force, describe="the policy is in force")
    yield allow
    cluster.api("DELETE", f"{api}ybindings/{bench.namespace}")
    cluster.api("DELETE", f"{api}ies/{bench.namespace}")


def test_what_a_policy_forbids_is_tried_again(bench: Workbench, forbid_pods: Callable[[], None]) -> None:
    bench.create()
    assert "no pods today" in bench.await_condition("Admitted", "False", "TemplateRejected")
    forbid_pods()
    bench.await_pods(6)
    bench.await_condition("Admitted", "False", "Waiting")


def test_suspend_and_scale_down_go_on(bench: Workbench, refuse: Refuse) -> None:
    bench.create()
    bench.await_pods(6)
    refuse("Service")
    ports = {"ports": [{"name": "http", "port": 8000}]}
    bench.change({"roles": [role("prefill", size=2), role("decode", network=ports)]})
    bench.await_pods(3)
    assert "down.example.com" in bench.await_condition("Progressing", "False", "RequestRefused")
    bench.change({"suspend": True})
    bench.await_pods(0)
    eventually(lambda: not any(bench.owned(kind) for kind in OWNED))
    bench.await_condition("Admitted", "False", "Suspended")
