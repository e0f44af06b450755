"""What a thief of Covey's tokens may not do to pods: RBAC would allow each of these, the chart's policies do not.

The requests are made with tokens of the chart's own service accounts. That nothing is refused which Covey itself needs is
shown by ``test_installation.py``: no request of a whole life stays forbidden.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiClient, ApiException

from cluster.workbench import name_of
from covey.backends import BACKENDS
from covey.kube.resources import PODS as PROBED
from install.audit import Audit
from install.chart import NAMESPACE, Helm, Object, find, kustomized
from install.test_chart import MATRIX
from install.test_installation import apply_example, await_covey, pods
from install.test_policy import GATE, MEMBER, manifest
from localcluster import Cluster, eventually, request, status_of

pytestmark = pytest.mark.usefixtures("covey", "at_rest")

TEAM = "robbed"
PODS = "/api/v1/namespaces/{}/pods"
OTHER_IMAGE = [{"op": "replace", "path": "/spec/containers/0/image", "value": "registry.test/miner:1"}]
PLANNED = {"schedulerName": "covey-scheduler"}
TOLERANT = [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}]


@pytest.fixture(scope="module")
def at_rest(cluster: Cluster) -> None:
    """Both lead, so that what they ask for once in their lives has been asked for."""
    await_covey(cluster)
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    held = lambda: {name_of(each) for each in cluster.api("GET", leases)["items"]}  # noqa: E731 - of this path
    eventually(lambda: held() >= {"covey-operator", "covey-planner"}, 60, "both lead")
    cluster.ensure("/api/v1/namespaces", {"metadata": {"name": TEAM}})
    eventually(lambda: cluster.api("GET", f"/api/v1/namespaces/{TEAM}/serviceaccounts/default"))


@pytest.fixture(autouse=True)
def _pardoned(audit: Audit) -> Iterator[None]:
    """What is refused here is no request of Covey's."""
    with audit.pardon():
        yield


@pytest.fixture(scope="module")
def scheduler(cluster: Cluster, audit: Audit) -> Iterator[ApiClient]:
    yield from _stolen(cluster, audit, "covey-scheduler")


@pytest.fixture(scope="module")
def operator(cluster: Cluster, audit: Audit) -> Iterator[ApiClient]:
    yield from _stolen(cluster, audit, "covey-operator")


def _stolen(cluster: Cluster, audit: Audit, account: str) -> Iterator[ApiClient]:
    with cluster.service_account_client(NAMESPACE, account) as client:
        with audit.pardon():
            eventually(lambda: _is_in_force(cluster, client), 60, "the API server has taken the policy over")
        yield client


def _is_in_force(cluster: Cluster, client: ApiClient) -> bool:
    """Both accounts have the right to patch pods, and the policies alone keep them from those of Covey itself."""
    [first, *_] = pods(cluster, NAMESPACE)
    try:
        change = {"metadata": {"annotations": {"example.com/a": "b"}}}
        request(client, "PATCH", f"{PODS.format(NAMESPACE)}/{name_of(first)}?dryRun=All", change)
    except ApiException as error:
        return "covey-account" in str(error)
    return False


@pytest.fixture
def plain(cluster: Cluster) -> Iterator[str]:
    """The path of a pod of a scheduler that is none of Covey's."""
    yield from _pod(cluster, manifest(spec={"schedulerName": "somebodys"}))


@pytest.fixture
def member(cluster: Cluster) -> Iterator[str]:
    """The path of a gated member."""
    spec = {"schedulingGates": [{"name": GATE}, {"name": "example.com/theirs"}], "schedulerName": "covey-scheduler"}
    yield from _pod(cluster, manifest(labels=MEMBER | {"app": "engine"}, spec=spec))


def _pod(cluster: Cluster, body: Object) -> Iterator[str]:
    listed = PODS.format(TEAM)
    path = f"{listed}/{name_of(cluster.api('POST', listed, body))}"
    yield path
    cluster.api("DELETE", f"{path}?gracePeriodSeconds=0")


def _refused(client: ApiClient, method: str, path: str, body: Any, sentence: str) -> None:
    with pytest.raises(ApiException) as caught:
        request(client, method, path, body)
    said = status_of(caught.value)["message"]
    assert "ValidatingAdmissionPolicy 'covey-account-" in said
    assert sentence in said


@pytest.mark.parametrize(
    "name",
    [
        "covey-account-scheduler",
        "covey-account-operator",
        "covey-account-operator-objects",
        "covey-pods",
        "covey-groups",
        "covey-preemptions",
    ],
)
def test_the_expressions_are_of_the_right_types(cluster: Cluster, name: str) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"
    status = eventually(lambda: cluster.api("GET", path).get("status"), 60, "kube-controller-manager has looked at it")
    assert not status["typeChecking"].get("expressionWarnings")


@pytest.mark.parametrize(
    "change",
    [{"metadata": {"annotations": {"scheduling.covey.dev/wake": "1"}}}, OTHER_IMAGE],
    ids=["a mark", "an image"],
)
def test_the_scheduler_process_leaves_pods_of_others(scheduler: ApiClient, plain: str, change: Any) -> None:
    _refused(scheduler, "PATCH", plain, change, "only pods of the schedulers that it serves")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (OTHER_IMAGE, "of a pod's spec"),
        (TOLERANT, "of a pod's spec"),
        ([{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1}], "of a pod's spec"),
        ([{"op": "add", "path": "/spec/nodeSelector", "value": {"a": "b"}}], "of a pod's spec"),
        ([{"op": "remove", "path": "/spec/schedulingGates/1"}], "lifts the gate scheduling.covey.dev/gang"),
        ({"metadata": {"labels": {"app": "other"}}}, "of a pod's metadata"),
        ({"metadata": {"labels": {"app": None}}}, "of a pod's metadata"),
        ({"metadata": {"annotations": {"example.com/a": "b"}}}, "of a pod's metadata"),
        ({"metadata": {"finalizers": ["example.com/never"]}}, "of a pod's metadata"),
    ],
    ids=["image", "toleration", "deadline", "selector", "their gate", "label", "no label", "annotation", "finalizer"],
)
def test_the_scheduler_process_changes_its_marks_alone(
    scheduler: ApiClient, member: str, change: Any, sentence: str
) -> None:
    _refused(scheduler, "PATCH", member, change, sentence)


@pytest.mark.parametrize("by", ["chart", "kustomize"])
def test_in_mode_existing_it_marks_pods_of_the_other_profiles(
    cluster: Cluster, offline: Helm, scheduler: ApiClient, plain: str, by: str
) -> None:
    made = offline.render(MATRIX["existing"]) if by == "chart" else kustomized("existing-scheduler")
    policy = find(made, "ValidatingAdmissionPolicy", "covey-account-scheduler")
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name_of(policy)}"
    before = cluster.api("GET", path)["spec"]
    mark = {"metadata": {"annotations": {"scheduling.covey.dev/wake": "1"}}}
    for ordinary in _pod(cluster, manifest(spec={"nodeSelector": {"nowhere": "yes"}})):
        assert _try(scheduler, ordinary, mark) == 403
        cluster.api("PATCH", path, {"spec": policy["spec"]})
        try:
            eventually(lambda pod=ordinary: _try(scheduler, pod, mark) == 200, 60, "the policy was taken over")
            _refused(scheduler, "PATCH", plain, mark, "only pods of the schedulers that it serves")
            _refused(scheduler, "PATCH", ordinary, OTHER_IMAGE, "of a pod's spec")
        finally:
            cluster.api("PATCH", path, {"spec": before})
            eventually(lambda pod=ordinary: _try(scheduler, pod, mark) == 403, 60, "the former one is back")


def _try(client: ApiClient, path: str, body: Any) -> int:
    try:
        request(client, "PATCH", f"{path}?dryRun=All", body)
    except ApiException as error:
        return int(error.status)
    return 200


def test_the_scheduler_process_pins_members(scheduler: ApiClient, member: str) -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0-0-0"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    metadata = {"annotations": {"topology.covey.dev/rack": "a"}, "labels": {"topology.covey.dev/rack": "a"}}
    spec = {"schedulingGates": [{"name": "example.com/theirs"}], "affinity": {"nodeAffinity": required}}
    pinned = request(scheduler, "PATCH", member, {"metadata": metadata | {"managedFields": [{}]}, "spec": spec})
    assert pinned["spec"]["schedulingGates"] == spec["schedulingGates"]


def test_the_scheduler_process_ends_no_pod(scheduler: ApiClient, member: str, plain: str) -> None:
    """Kubernetes' own role for schedulers lets it."""
    for path in (member, plain):
        _refused(scheduler, "DELETE", path, None, "creates and deletes no pods")


def _owned(cluster: Cluster, **more: Any) -> Object:
    """A pod as the operator makes them."""
    apply_example(cluster, namespace=TEAM)
    path = f"/apis/inference.covey.dev/v1alpha1/namespaces/{TEAM}/disaggregatedinferences/llama"
    uid = cluster.api("GET", path)["metadata"]["uid"]
    owner = {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "name": "llama",
        "uid": uid,
    }
    labels = {"covey.dev/inference": "llama"}
    return manifest(**({"labels": labels, "ownerReferences": [owner | {"controller": True}]} | more))


def test_the_operator_creates_only_pods_of_resources(cluster: Cluster, operator: ApiClient) -> None:
    path, owned = f"{PODS.format(TEAM)}?dryRun=All", _owned(cluster)
    request(operator, "POST", path, owned)
    _refused(operator, "POST", path, manifest(), "only pods whose controller is a DisaggregatedInference")
    _refused(operator, "POST", path, _owned(cluster, labels={}), "in the label covey.dev/inference")
    [owner] = owned["metadata"]["ownerReferences"]
    loose = _owned(cluster, ownerReferences=[owner | {"controller": False}])
    _refused(operator, "POST", path, loose, "only pods whose controller is a DisaggregatedInference")
    hardened = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
    owned["spec"]["containers"][0]["securityContext"] = hardened | {"seccompProfile": {"type": "RuntimeDefault"}}
    for closed in ("kube-system", NAMESPACE):
        _refused(operator, "POST", f"{PODS.format(closed)}?dryRun=All", owned, "in its own namespace")


def test_the_operator_asks_what_the_api_server_keeps_of_pods(operator: ApiClient) -> None:
    """The probes of the backends, in all of which its account is the same."""
    bodies = [each.body for backend in BACKENDS for each in backend.probes() if each.resource is PROBED]
    assert bodies
    for body in bodies:
        request(operator, "POST", f"{PODS.format(TEAM)}?dryRun=All", body)
        _refused(operator, "POST", PODS.format(TEAM), body, "only pods whose controller is a DisaggregatedInference")


def test_the_operator_leaves_pods_of_others(operator: ApiClient, plain: str) -> None:
    sentence = "only pods whose controller is a DisaggregatedInference"
    _refused(operator, "PATCH", plain, OTHER_IMAGE, sentence)
    owner = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": "DisaggregatedInference", "name": "x", "uid": "y"}
    _refused(operator, "PATCH", plain, {"metadata": {"ownerReferences": [owner | {"controller": True}]}}, sentence)
    _refused(operator, "DELETE", plain, None, sentence)


def test_the_operator_ends_pods_of_jobs_only_where_they_lost_their_places(
    cluster: Cluster, operator: ApiClient, scheduler: ApiClient
) -> None:
    sentence = "and those of Jobs, StatefulSets and groups of scheduling.k8s.io that lost their nodes"
    jobs = f"/apis/batch/v1/namespaces/{TEAM}/jobs"
    pod = manifest(labels=MEMBER, gated=True, spec={"schedulerName": "covey-scheduler", "restartPolicy": "Never"})
    template = {"metadata": {"labels": MEMBER}, "spec": pod["spec"]}
    cluster.api("POST", jobs, {"metadata": {"name": "train"}, "spec": {"template": template}})
    try:
        listed = f"{PODS.format(TEAM)}?labelSelector=job-name%3Dtrain"
        [made] = eventually(lambda: cluster.api("GET", listed)["items"], 60, "the Job has its pod")
        path = f"{PODS.format(TEAM)}/{name_of(made)}"
        failed = {"status": {"phase": "Failed"}}
        _refused(operator, "PATCH", f"{path}/status?dryRun=All", failed, sentence)
        _refused(operator, "DELETE", f"{path}?dryRun=All", None, sentence)
        request(scheduler, "PATCH", path, {"metadata": {"annotations": {"scheduling.covey.dev/release": "Timeout"}}})
        request(operator, "PATCH", f"{path}/status?dryRun=All", failed)
        request(operator, "DELETE", f"{path}?dryRun=All")
        _refused(operator, "PATCH", f"{path}?dryRun=All", OTHER_IMAGE, sentence)
    finally:
        cluster.api("DELETE", f"{jobs}/train?propagationPolicy=Background")


@pytest.mark.parametrize("is_member", [False, True])
def test_of_stateful_sets_the_operator_ends_only_members(
    cluster: Cluster,
    operator: ApiClient,
    scheduler: ApiClient,
    is_member: bool,  # noqa: FBT001 - a column
) -> None:
    """Whatever is written into annotations of others."""
    labels = {"app": "x", **(MEMBER if is_member else {})}
    template = {"metadata": {"labels": labels}, "spec": manifest(gated=True, spec=PLANNED)["spec"]}
    sets, name = f"/apis/apps/v1/namespaces/{TEAM}/statefulsets", f"db-{is_member}".lower()
    spec = {"replicas": 1, "serviceName": "x", "selector": {"matchLabels": {"app": "x"}}, "template": template}
    cluster.api("POST", sets, {"metadata": {"name": name}, "spec": spec})
    try:
        path = f"{PODS.format(TEAM)}/{name}-0"
        eventually(lambda: cluster.api("GET", path), 60, "the StatefulSet has its pod")
        request(scheduler, "PATCH", path, {"metadata": {"annotations": {"scheduling.covey.dev/release": "Timeout"}}})
        if is_member:
            request(operator, "DELETE", f"{path}?dryRun=All")
        else:
            _refused(operator, "DELETE", f"{path}?dryRun=All", None, "that lost their nodes")
    finally:
        cluster.api("DELETE", f"{sets}/{name}?propagationPolicy=Background")


def test_the_operator_exchanges_images_of_its_pods_and_nothing_else_of_their_spec(
    cluster: Cluster, operator: ApiClient
) -> None:
    [first, *_] = apply_example(cluster, namespace=TEAM)
    path = f"{PODS.format(TEAM)}/{name_of(first)}?dryRun=All"
    request(operator, "PATCH", path, OTHER_IMAGE)
    _refused(operator, "PATCH", path, TOLERANT, "of its pods Covey's operator changes")
    _refused(operator, "PATCH", path, {"metadata": {"finalizers": ["example.com/x"]}}, "of its pods Covey's operator")


OBJECTS: dict[str, tuple[str, Object]] = {
    "services": ("/api/v1", {"spec": {"ports": [{"port": 80}], "selector": {"app": "x"}}}),
    "poddisruptionbudgets": (
        "/apis/policy/v1",
        {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}},
    ),
    "controllerrevisions": ("/apis/apps/v1", {"data": {}, "revision": 1}),
    "podtemplates": (
        "/api/v1",
        {"template": {"spec": {"containers": [{"name": "c", "image": "registry.test/c:1"}]}}},
    ),
}


@pytest.fixture
def asks_for_nodes(cluster: Cluster) -> Iterator[None]:
    """The right on PodTemplates, which the account has where capacity.provider is set."""
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}"
    rule = {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["create", "patch", "delete"]}
    subject = {"kind": "ServiceAccount", "name": "covey-operator", "namespace": NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "asks"}
    cluster.api("POST", f"{base}/roles", {"metadata": {"name": "asks"}, "rules": [rule]})
    binding = {"metadata": {"name": "asks"}, "roleRef": reference, "subjects": [subject]}
    cluster.api("POST", f"{base}/rolebindings", binding)
    yield
    cluster.api("DELETE", f"{base}/rolebindings/asks")
    cluster.api("DELETE", f"{base}/roles/asks")


@pytest.mark.usefixtures("asks_for_nodes")
@pytest.mark.parametrize("plural", sorted(OBJECTS))
def test_the_operator_leaves_objects_of_others(cluster: Cluster, operator: ApiClient, plural: str) -> None:
    base, body = OBJECTS[plural]
    path, sentence = f"{base}/namespaces/{TEAM}/{plural}", "whose controller is a DisaggregatedInference"
    owned = _owned(cluster)["metadata"]
    references, labels = owned["ownerReferences"], owned["labels"]
    change = {"metadata": {"annotations": {"example.com/a": "b"}}}
    adoption = {"metadata": {"ownerReferences": references}}
    made = cluster.api("POST", path, {"metadata": {"name": "theirs"}, **body})
    try:
        _refused(operator, "PATCH", f"{path}/theirs?dryRun=All", change, sentence)
        _refused(operator, "DELETE", f"{path}/theirs?dryRun=All", None, sentence)
        _refused(operator, "PATCH", f"{path}/theirs?dryRun=All", adoption, sentence)
        # With Covey's label, as a backup has it, it may be adopted, and no more.
        cluster.api("PATCH", f"{path}/theirs", {"metadata": {"labels": labels}})
        _refused(operator, "PATCH", f"{path}/theirs", change, sentence)
        _refused(operator, "DELETE", f"{path}/theirs?dryRun=All", None, sentence)
        request(operator, "PATCH", f"{path}/theirs?dryRun=All", adoption)
    finally:
        cluster.api("DELETE", f"{path}/{name_of(made)}")
    new = f"{path}?dryRun=All"
    _refused(operator, "POST", new, {"metadata": {"name": "loose", "labels": labels}, **body}, sentence)
    unlabelled = {"metadata": {"name": "own", "ownerReferences": references}, **body}
    _refused(operator, "POST", new, unlabelled, "in the label covey.dev/inference")
    request(
        operator, "POST", new, {"metadata": {"name": "own", "ownerReferences": references, "labels": labels}, **body}
    )


@pytest.mark.parametrize("plural", ["services", "poddisruptionbudgets", "controllerrevisions"])
def test_the_operator_changes_objects_of_resources(cluster: Cluster, operator: ApiClient, plural: str) -> None:
    """The budget of a namespace has no owner, and a name of its own."""
    apply_example(cluster, namespace=TEAM)
    path = f"{OBJECTS[plural][0]}/namespaces/{TEAM}/{plural}"
    [first, *_] = cluster.api("GET", f"{path}?labelSelector=covey.dev/inference")["items"]
    request(operator, "PATCH", f"{path}/{name_of(first)}?dryRun=All", {"metadata": {"annotations": {"a": "b"}}})
    request(operator, "DELETE", f"{path}/{name_of(first)}?dryRun=All")
