"""`covey plan --cluster` shows the API server a pod of each template, as a dry run, and plans what that makes of it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builders import files
from builders.files import GPU, Object, inference, pod_spec, role, workload, write
from localcluster import Cluster, eventually

#: An answer, its exit status, and what else was said.
Plan = Callable[..., tuple[Any, int, str]]
#: What is read of a cluster for a plan.
READ = {
    "": ["nodes", "pods", "namespaces", "persistentvolumes", "persistentvolumeclaims", "limitranges", "resourcequotas"],
    "apps": ["controllerrevisions"],
    "node.k8s.io": ["runtimeclasses"],
    "resource.k8s.io": ["*"],
    "scheduling.k8s.io": ["priorityclasses"],
    "scheduling.covey.dev": ["*"],
}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolic"
LARGE = {"type": "Container", "default": {"memory": "600Gi"}, "defaultRequest": {"memory": "600Gi"}}


@pytest.fixture
def plan(cluster: Cluster, namespace: str, tmp_path: Path) -> Plan:
    def call(*documents: Object, kubeconfig: Path | None = None) -> tuple[Any, int, str]:
        arguments = ["plan", "--cluster", "-f", write(tmp_path / "in.json", documents), "-n", namespace, "-o", "json"]
        result = files.covey(*arguments, "--kubeconfig", kubeconfig or cluster.kubeconfig)
        return json.loads(result.stdout) if result.stdout else None, result.exit_code, result.stderr

    return call


def warnings(answer: Any) -> str:
    """What is said besides; other tests leave leases behind that nobody holds any more."""
    return "\n".join(warning for warning in answer["warnings"] if " leads: " not in warning)


def gang(**more: Any) -> Object:
    """Four pods of two GPUs, for which a node has room."""
    return inference("llm", role("w", 4, 4, template={"spec": pod_spec(2, **more)}))


def limited(cluster: Cluster, namespace: str) -> None:
    body = {"metadata": {"name": "defaults"}, "spec": {"limits": [LARGE]}}
    cluster.api("POST", f"/api/v1/namespaces/{namespace}/limitranges", body)


def test_a_plan_when_the_api_server_gives_host_ports_and_defaults_counts_these(
    cluster: Cluster, plan: Plan, nodes: Any, namespace: str
) -> None:
    nodes(racks=1, nodes=2)
    answer, status, _ = plan(gang())
    assert (workload(answer, "llm")["verdict"], status, warnings(answer)) == ("Admitted", 0, "")
    hosted = gang(hostNetwork=True)
    hosted["spec"]["roles"][0]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 30000}]
    answer, status, _ = plan(hosted)
    assert (status, "host port" in json.dumps(workload(answer, "llm")["reasons"])) == (3, True)
    limited(cluster, namespace)

    def counted() -> bool:
        # The API server learns of a LimitRange a moment after it has taken it.
        answer, status, _ = plan(gang())
        return status == 3 and "memory" in json.dumps(workload(answer, "llm")["reasons"])

    eventually(counted)
    pods = cluster.api("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    assert pods == [], "nothing is written"


@pytest.fixture
def tolerating(cluster: Cluster, namespace: str) -> Iterator[None]:
    """A policy gives each pod of the namespace that is none of Covey's a toleration, as a webhook would."""
    name = f"tolerate-{uuid.uuid4().hex[:6]}"
    value = 'value: [Object.spec.tolerations{key: "pool", operator: "Exists"}]'
    patch = f'[JSONPatch{{op: "add", path: "/spec/tolerations", {value}}}]'
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [
            {
                "name": "strangers",
                "expression": "!object.metadata.?labels.orValue({}).exists(key, key.contains('covey.dev'))",
            }
        ],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    cluster.api("POST", f"{POLICIES}ies", {"metadata": {"name": name}, "spec": spec})
    binding = {"policyName": name, "matchResources": here}
    cluster.api("POST", f"{POLICIES}ybindings", {"metadata": {"name": name}, "spec": binding})
    yield
    cluster.delete(f"{POLICIES}ybindings/{name}")
    cluster.delete(f"{POLICIES}ies/{name}")


@pytest.mark.usefixtures("tolerating")
def test_a_plan_when_admission_adds_a_toleration_plans_with_it(plan: Plan, nodes: Any) -> None:
    """The pod that is shown has none of Covey's labels."""
    nodes(racks=1, nodes=1, taints=[{"key": "pool", "effect": "NoSchedule"}])
    eventually(lambda: workload(plan(gang())[0], "llm")["verdict"] == "Admitted")


@pytest.fixture
def reader(cluster: Cluster, namespace: str) -> Iterator[Path]:
    """The kubeconfig of an account that may read everything, and create nothing."""
    name = f"reader-{uuid.uuid4().hex[:6]}"
    rules = [{"apiGroups": [group], "resources": kinds, "verbs": ["get", "list"]} for group, kinds in READ.items()]
    cluster.api("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    kubeconfig = cluster.service_account_kubeconfig(namespace, name)
    cluster.api("POST", f"{RBAC}/clusterrolebindings", binding)
    yield kubeconfig
    cluster.delete(f"{RBAC}/clusterrolebindings/{name}")
    cluster.delete(f"{RBAC}/clusterroles/{name}")


def test_a_plan_when_its_caller_may_create_no_pods_counts_limit_ranges_and_says_what_it_did_not_ask(
    cluster: Cluster, plan: Plan, nodes: Any, namespace: str, reader: Path
) -> None:
    nodes(racks=1, nodes=2)
    limited(cluster, namespace)
    answer, status, _ = eventually(lambda: found if (found := plan(gang(), kubeconfig=reader))[0] else None)
    assert (status, "memory" in json.dumps(workload(answer, "llm")["reasons"])) == (3, True)
    assert len(warnings(answer).splitlines()) == 1
    assert "role w" in warnings(answer)
    assert 'cannot create resource "pods"' in warnings(answer)


def test_a_plan_when_quota_refuses_the_pod_says_so_and_plans_the_template_as_written(
    cluster: Cluster, plan: Plan, nodes: Any, namespace: str
) -> None:
    nodes(racks=1, nodes=2)
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {f"requests.{GPU}": "0"}}}
    cluster.api("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    answer = eventually(lambda: found if "exceeded quota" in warnings(found := plan(gang())[0]) else None)
    planned = workload(answer, "llm")
    assert (planned["verdict"], "none" in json.dumps(planned["reasons"])) == ("Infeasible", True), planned["reasons"]


def test_a_plan_when_a_pod_names_what_does_not_exist_yet_says_so(plan: Plan, nodes: Any) -> None:
    """It may come with the same manifests."""
    nodes(racks=1, nodes=2)
    answer, status, _ = plan(gang(serviceAccountName="engine"))
    assert (workload(answer, "llm")["verdict"], status) == ("Admitted", 0)
    assert 'serviceaccount "engine" not found' in warnings(answer)


def test_a_plan_when_the_api_server_refuses_a_template_is_bad_input(plan: Plan, nodes: Any) -> None:
    nodes(racks=1, nodes=2)
    _, status, text = plan(gang(restartPolicy="Sometimes"))
    assert (status, "spec.roles[0].template" in text, "restartPolicy" in text) == (2, True, True)
