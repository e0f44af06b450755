"""What a tenant may not do to pods, with the admission policy of the chart: each forgery, and each neighbour that passes.

The tenant has the cluster role ``edit`` in one namespace, as a team usually does, and all that the chart adds to it.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiClient, ApiException

from cluster.workbench import name_of
from install.chart import NAMESPACE, Object
from install.test_installation import DINFS, await_covey, pods
from localcluster import Cluster, eventually, request, status_of
from localcluster.programs import ROOT

pytestmark = pytest.mark.usefixtures("covey")

TEAM = "tenant"
GATE = "scheduling.covey.dev/gang"
MEMBER = {"scheduling.covey.dev/pod-group": "llama-0-prefill-0"}
PINNED = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0-0-0"]}]}
]}}}  # fmt: skip


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Iterator[ApiClient]:
    """Requests of a service account that may edit one namespace."""
    with cluster.service_account_client(TEAM, "developer") as client:
        subject = {"kind": "ServiceAccount", "name": "developer", "namespace": TEAM}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}/rolebindings"
        cluster.ensure(path, {"metadata": {"name": "developer"}, "roleRef": role, "subjects": [subject]})
        eventually(lambda: may_list(client, f"/api/v1/namespaces/{TEAM}/pods"), 60, "the tenant has rights")
        eventually(lambda: may_list(client, DINFS.format(TEAM)), 60, "edit was given Covey's rights")
        eventually(lambda: is_in_force(client), 60, "the API server has taken the policy over")
        yield client


def may_list(client: ApiClient, path: str) -> bool:
    """The API server takes a right over a moment after it was given."""
    try:
        request(client, "GET", path)
    except ApiException as error:
        if error.status != 403:
            raise
        return False
    return True


def is_in_force(client: ApiClient) -> bool:
    """The API server refuses what the policy does; it takes a new one over a moment after it was made."""
    forged = manifest(annotations={"scheduling.covey.dev/pinned": "1"})
    try:
        request(client, "POST", f"/api/v1/namespaces/{TEAM}/pods?dryRun=All", forged)
    except ApiException as error:
        return "ValidatingAdmissionPolicy" in str(error)
    return False


@pytest.fixture(scope="module")
def too_big(cluster: Cluster, tenant: ApiClient) -> Iterator[str]:
    """The name of a resource of the tenant's whose gang does not fit, and so waits."""
    await_covey(cluster)
    big = ROOT / "examples" / "too-big.yaml"
    cluster.kubectl("apply", "--server-side", f"--namespace={TEAM}", f"--filename={big}")
    yield "too-big"
    # Nobody waits for its pods: the garbage collector learns of new kinds once in half a minute.
    request(tenant, "DELETE", f"{DINFS.format(TEAM)}/too-big")


@pytest.fixture
def waiting(cluster: Cluster, too_big: str) -> Object:
    """A pod of that gang, gated. It may be another one for each test: one that is deleted is made again."""
    found: list[Object] = eventually(lambda: pods(cluster, TEAM, inference=too_big), 60, "its pods are there")
    return found[0]


def manifest(*, gated: bool = False, spec: Object | None = None, **metadata: Any) -> Object:
    """A pod with a name that no other has: kwok may delete a namesake of one that went."""
    container = {"name": "main", "image": "registry.test/job:1"}
    gates = [{"name": GATE}] if gated else []
    return {
        "metadata": {"generateName": "own-", **metadata},
        "spec": {"containers": [container], "schedulingGates": gates, **(spec or {})},
    }


def denied(client: ApiClient, method: str, path: str, body: Any, sentence: str, **options: Any) -> None:
    """The request is refused by the policy with this sentence."""
    with pytest.raises(ApiException) as caught:
        request(client, method, f"/api/v1/namespaces/{TEAM}/pods{path}", body, **options)
    said = status_of(caught.value)["message"]
    assert "ValidatingAdmissionPolicy 'covey-pods'" in said
    assert sentence in said


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (manifest(labels=MEMBER), "must be created with the scheduling gate scheduling.covey.dev/gang"),
        (manifest(labels=MEMBER, gated=True), "you may not create PodGroups here"),
        (manifest(labels={"scheduling.covey.dev/extender": "active"}), "are set, changed and removed by Covey alone"),
        (manifest(labels={"topology.covey.dev/rack": "r0"}), "are set, changed and removed by Covey alone"),
        (manifest(annotations={"topology.covey.dev/rack": "r0"}), "are set, changed and removed by Covey alone"),
        (manifest(annotations={"scheduling.covey.dev/pinned": "1"}), "are set, changed and removed by Covey alone"),
        (manifest(gated=True, spec={"affinity": PINNED}), "is chosen by Covey alone"),
    ],
    ids=["a member without gate", "a member", "a Service's label", "a domain's label", "a domain", "a mark", "a pin"],
)
def test_no_pod_is_born_with(tenant: ApiClient, pod: Object, sentence: str) -> None:
    denied(tenant, "POST", "", pod, sentence)


@pytest.mark.parametrize(
    "pod",
    [
        manifest(),
        manifest(spec={"affinity": PINNED}),
        manifest(gated=True),
        manifest(labels={"covey.dev/team": "a"}, annotations={"example.com/scheduling.covey.dev": "x"}),
    ],
    ids=["a plain pod", "a plain pod for one node", "a pod with our gate, of no group", "labels of others"],
)
def test_a_tenants_own_pods_pass(tenant: ApiClient, pod: Object) -> None:
    path = f"/api/v1/namespaces/{TEAM}/pods"
    made = f"{path}/{name_of(request(tenant, 'POST', path, pod))}"
    request(tenant, "PATCH", made, {"metadata": {"labels": {"mine": "yes"}}})
    request(tenant, "DELETE", f"{made}?gracePeriodSeconds=0")


@pytest.mark.usefixtures("tenant")
def test_a_group_of_a_resource_is_made_by_covey_alone(cluster: Cluster) -> None:
    """A claim could name it, and nobody would ever take it down."""
    owner = {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "name": "ghost",
        "uid": "1",
    }
    path = f"/apis/scheduling.covey.dev/v1alpha1/namespaces/{TEAM}/podgroups"
    kind = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "PodGroup"}
    group = {**kind, "metadata": {"name": "mine"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
    forged = {**group, "metadata": {"name": "mine", "ownerReferences": [{**owner, "controller": True}]}}
    with pytest.raises(ApiException) as caught:
        request(cluster.client, "POST", path, forged)
    said = status_of(caught.value)["message"]
    assert "ValidatingAdmissionPolicy 'covey-groups'" in said
    assert "is made by Covey's operator alone" in said
    request(cluster.client, "POST", path, group)
    request(cluster.client, "DELETE", f"{path}/mine")


@pytest.mark.usefixtures("tenant")
def test_a_preemption_is_written_by_covey_alone(cluster: Cluster) -> None:
    """Who is left aside for whom is read from it again; the garbage collector may change its metadata."""
    path = f"/apis/scheduling.covey.dev/v1alpha1/namespaces/{TEAM}/preemptions"
    victim = {"uid": "1", "kind": "Pod", "namespace": TEAM, "workload": "web", "pods": 1}
    beneficiary = {"kind": "PodGroup", "name": "mine", "uid": "2"}
    spec = {"beneficiary": beneficiary, "reason": "Priority", "summary": "1 pod of web", "victims": [victim]}
    kind = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "Preemption"}
    made = {**kind, "metadata": {"name": "mine"}, "spec": spec}
    forged = {"status": {"outcome": "GivenUp", "victims": [{"uid": "1", "state": "Late"}]}}

    def refused(method: str, where: str, body: Any) -> None:
        with pytest.raises(ApiException) as caught:
            request(cluster.client, method, where, body)
        said = status_of(caught.value)["message"]
        assert "ValidatingAdmissionPolicy 'covey-preemptions'" in said
        assert "are written by Covey's scheduler process alone" in said

    refused("POST", path, made)
    with cluster.service_account_client(NAMESPACE, "covey-scheduler") as scheduler:
        request(scheduler, "POST", path, made)
    refused("PATCH", f"{path}/mine/status", forged)
    request(cluster.client, "PATCH", f"{path}/mine", {"metadata": {"labels": {"mine": "yes"}}})
    request(cluster.client, "DELETE", f"{path}/mine")


def test_nobody_lifts_a_gate(tenant: ApiClient, cluster: Cluster, waiting: Object) -> None:
    lift = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    denied(tenant, "PATCH", f"/{name_of(waiting)}", lift, "are lifted by Covey alone")
    denied(cluster.client, "PATCH", f"/{name_of(waiting)}", lift, "are lifted by Covey alone")


def test_a_gate_can_be_lifted_in_an_emergency(cluster: Cluster, waiting: Object) -> None:
    """Break-glass: an administrator without the group is refused like everybody."""
    lift = json.dumps([{"op": "remove", "path": "/spec/schedulingGates/0"}])
    patch = ("patch", "pod", name_of(waiting), f"--namespace={TEAM}", "--type=json", f"--patch={lift}", "--output=json")
    who = ("--dry-run=server", "--as=on-call", "--as-group=system:masters")
    with pytest.raises(RuntimeError, match="are lifted by Covey alone"):
        cluster.kubectl(*patch, *who)
    lifted = json.loads(cluster.kubectl(*patch, *who, "--as-group=covey:break-glass"))
    assert not lifted["spec"].get("schedulingGates")


def test_nobody_lifts_the_gate_of_a_pod_of_no_group(tenant: ApiClient) -> None:
    path = f"/api/v1/namespaces/{TEAM}/pods"
    name = name_of(request(tenant, "POST", path, manifest(gated=True)))
    lift = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    denied(tenant, "PATCH", f"/{name}", lift, "are lifted by Covey alone")
    request(tenant, "DELETE", f"{path}/{name}?gracePeriodSeconds=0")


def test_nobody_pins_a_member(tenant: ApiClient, waiting: Object) -> None:
    denied(tenant, "PATCH", f"/{name_of(waiting)}", {"spec": {"affinity": PINNED}}, "is chosen by Covey alone")


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("labels", "scheduling.covey.dev/pod-group", "forged"),
        ("labels", "scheduling.covey.dev/pod-group", None),
        ("annotations", "scheduling.covey.dev/release", "forged"),
    ],
)
def test_nobody_touches_marks(tenant: ApiClient, waiting: Object, kind: str, key: str, value: str | None) -> None:
    body = {"metadata": {kind: {key: value}}}
    denied(tenant, "PATCH", f"/{name_of(waiting)}", body, "are set, changed and removed by Covey alone")


@pytest.mark.parametrize("key", ["covey.dev/replica", "covey.dev/index"])
def test_nobody_numbers_members_anew(tenant: ApiClient, waiting: Object, key: str) -> None:
    """Of those that are numbered alike one counts: the others would be free of quota."""
    body = {"metadata": {"labels": {key: "77"}}}
    denied(tenant, "PATCH", f"/{name_of(waiting)}", body, "number its place and do not change")


def test_marks_are_not_written_by_way_of_the_status(cluster: Cluster, waiting: Object) -> None:
    body = {"metadata": {"annotations": {"scheduling.covey.dev/release": "Timeout"}}}
    denied(cluster.client, "PATCH", f"/{name_of(waiting)}/status", body, "are set, changed and removed by Covey alone")


def test_a_member_keeps_its_owners_rights(tenant: ApiClient, waiting: Object) -> None:
    path = f"/api/v1/namespaces/{TEAM}/pods/{name_of(waiting)}"
    request(tenant, "PATCH", path, {"metadata": {"labels": {"mine": "yes"}, "annotations": {"example.com/note": "x"}}})
    request(tenant, "DELETE", path)


def test_who_may_create_groups_may_create_members(cluster: Cluster) -> None:
    """Ready trees: other controllers' pods under groups of their own."""
    path = f"/api/v1/namespaces/{TEAM}/pods"
    made = name_of(cluster.api("POST", path, manifest(labels=MEMBER, gated=True)))
    cluster.api("DELETE", f"{path}/{made}?gracePeriodSeconds=0")


def test_a_tenant_sees_what_a_resource_became_and_changes_none_of_it(tenant: ApiClient, waiting: Object) -> None:
    assert waiting
    groups = f"/apis/scheduling.covey.dev/v1alpha1/namespaces/{TEAM}/podgroups"
    [first, *_] = request(tenant, "GET", groups)["items"]
    with pytest.raises(ApiException, match="cannot delete resource"):
        request(tenant, "DELETE", f"{groups}/{name_of(first)}")
