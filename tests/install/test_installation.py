"""Helm and kubectl on a real cluster: install, use, upgrade, roll back, uninstall, under exactly the chart's rights.

The tests follow one installation through its life, in this order; each says what it needs of those before it.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from kubernetes.client import ApiException

from authority import Authority
from builders.files import covey as covey_cli
from cluster.workbench import is_ready, name_of, uid_of
from install.audit import Audit
from install.chart import CHART, NAMESPACE, Helm, HelmError, Object
from localcluster import Cluster, eventually
from localcluster.programs import ROOT

DINFS = "/apis/inference.covey.dev/v1alpha1/namespaces/{}/disaggregatedinferences"
SCALERS = "/apis/inference.covey.dev/v1alpha1/namespaces/default/rolescalers"
PODS = "/api/v1/namespaces/{}/pods"
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"
POD_GROUPS = "/apis/scheduling.covey.dev/v1alpha1/namespaces/{}/podgroups"
#: What the operator creates for a resource, beside pods; the budget is for all of a namespace.
KINDS = (
    "/apis/scheduling.covey.dev/v1alpha1/namespaces/{}/workloads",
    "/apis/scheduling.covey.dev/v1alpha1/namespaces/{}/compositepodgroups",
    POD_GROUPS,
    "/api/v1/namespaces/{}/services",
    BUDGETS,
    "/apis/apps/v1/namespaces/{}/controllerrevisions",
)
EXAMPLE = ROOT / "examples" / "disaggregated.yaml"


def pods(cluster: Cluster, namespace: str, **labels: str) -> list[Object]:
    """Live pods with these labels, by name."""
    found = cluster.api("GET", PODS.format(namespace))["items"]
    live = [each for each in found if "deletionTimestamp" not in each["metadata"]]
    wanted = {f"covey.dev/{key}": value for key, value in labels.items()}.items()
    return sorted((each for each in live if wanted <= each["metadata"].get("labels", {}).items()), key=name_of)


def dinfs(cluster: Cluster) -> list[Object]:
    """All resources; a CRD that was changed a moment ago is served again soon."""
    found: Object = eventually(lambda: cluster.api("GET", DINFS.format("default")))
    return list(found["items"])


def admitted(cluster: Cluster, name: str, namespace: str = "default") -> bool:
    """The resource says that all of it is bound and ready."""
    status = cluster.api("GET", f"{DINFS.format(namespace)}/{name}").get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    assert conditions.get("Admitted") == "True", str(status.get("summary"))
    assert conditions.get("Available") == "True", str(status.get("summary"))
    return all(role["ready"] == role["replicas"] for role in status["roles"])


def apply_example(cluster: Cluster, namespace: str = "default", name: str = "llama") -> list[Object]:
    """Apply the README's example and wait until all of it runs; returns its pods."""
    example = yaml.safe_load(EXAMPLE.read_text())
    example["metadata"] = {"name": name, "namespace": namespace}
    cluster.apply(example)
    eventually(lambda: admitted(cluster, name, namespace), 120, f"{namespace}/{name} runs")
    return pods(cluster, namespace, inference=name)


def await_covey(cluster: Cluster, replicas: int = 1) -> None:
    """Wait until exactly so many pods of each process are there: those of an earlier revision have gone."""

    def settled() -> bool:
        found = pods(cluster, NAMESPACE)
        assert len(found) == 2 * replicas, str([name_of(each) for each in found])
        return all(map(is_ready, found))

    eventually(settled, 120, f"{replicas} of each process")


@pytest.fixture
def certificates() -> Object:
    """The secret of mode Existing."""
    authority = Authority()
    certificate, key = authority.issue("covey-scheduler-extender")
    data = {"tls.crt": certificate, "tls.key": key, "ca.crt": authority.pem}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "covey-scheduler-extender-tls", "namespace": NAMESPACE},
        "stringData": {name: text.decode() for name, text in data.items()},
    }


def test_install_gives_a_working_set(cluster: Cluster, helm: Helm) -> None:
    labels = cluster.api("GET", f"/api/v1/namespaces/{NAMESPACE}")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    said = helm.install()
    assert "kubectl apply -f examples/disaggregated.yaml" in said
    await_covey(cluster)
    assert len(apply_example(cluster)) == 16
    assert "4/4" in cluster.kubectl("get", "dinf", "llama")


def test_uninstall_keeps_what_people_made(cluster: Cluster, uninstall: Callable[[], str]) -> None:
    running = {uid_of(each) for each in pods(cluster, "default")}
    assert "[CustomResourceDefinition] disaggregatedinferences.inference.covey.dev" in uninstall()
    assert len(cluster.api("GET", DINFS.format("default"))["items"]) == 1
    assert {uid_of(each) for each in pods(cluster, "default")} == running
    for kind in ("clusterroles", "clusterrolebindings"):
        left = cluster.api("GET", f"/apis/rbac.authorization.k8s.io/v1/{kind}")["items"]
        assert not [name_of(each) for each in left if name_of(each).startswith("covey")]


def test_drains_wait_for_the_budgets_that_stay_until_they_are_released(cluster: Cluster) -> None:
    pod = name_of(pods(cluster, "default", role="decode")[0])
    asked = {"metadata": {"name": pod}, "deleteOptions": {"dryRun": ["All"]}}

    def evict() -> Object:
        return cluster.api("POST", f"{PODS.format('default')}/{pod}/eviction", asked)

    with pytest.raises(ApiException, match="violate the pod's disruption budget"):
        evict()
    released = covey_cli("release-budgets", "-A", "--kubeconfig", cluster.kubeconfig)
    assert 'poddisruptionbudget.policy "covey-gangs" deleted from default namespace\n' in released.stdout
    assert eventually(evict, 60, "the API server knows that there is no budget")["status"] == "Success"


def test_the_crds_go_by_hand(cluster: Cluster) -> None:
    cluster.api("DELETE", f"{DINFS.format('default')}/llama")
    eventually(lambda: not pods(cluster, "default"), 120, "the garbage collector has deleted the pods")
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    cluster.kubectl("delete", "--wait=false", f"--filename={ROOT}/crds")
    eventually(lambda: not [each for each in cluster.api("GET", path)["items"] if "covey" in name_of(each)], 120)


def test_a_first_installation_may_bring_a_topology(cluster: Cluster, helm: Helm) -> None:
    helm.install({"topology": {"preset": "kueue"}})
    await_covey(cluster)
    assert cluster.api("GET", "/apis/scheduling.covey.dev/v1alpha1/clustertopologies/default")
    assert len(apply_example(cluster)) == 16


def test_an_upgrade_while_gangs_run_restarts_nothing(cluster: Cluster, helm: Helm) -> None:
    before = {uid_of(each) for each in pods(cluster, "default")}
    with cluster.record(PODS.format("default")) as recording:
        helm.install({"topology": {"preset": "kueue"}, "replicas": 2, "podAnnotations": {"example.com/roll": "1"}})
        await_covey(cluster, replicas=2)
        # The new leaders are at work: they see to a change.
        cluster.api("PATCH", f"{DINFS.format('default')}/llama", {"metadata": {"labels": {"seen": "yes"}}})
        assert len(apply_example(cluster, name="second")) == 16
        deleted = [name_of(pod) for kind, pod in recording.events if kind == "DELETED"]
    assert not deleted
    assert before <= {uid_of(each) for each in pods(cluster, "default")}


def test_a_rollback_restarts_nothing(cluster: Cluster, helm: Helm) -> None:
    before = {uid_of(each) for each in pods(cluster, "default")}
    helm.run("rollback", "covey", "1", f"--namespace={NAMESPACE}", "--wait")
    await_covey(cluster)
    eventually(lambda: admitted(cluster, "llama"), 60, "it runs as before")
    assert {uid_of(each) for each in pods(cluster, "default")} == before
    # It came by a hook with revision 1 and as an ordinary object with revision 2.
    assert cluster.api("GET", "/apis/scheduling.covey.dev/v1alpha1/clustertopologies/default")


def test_an_upgrade_of_the_crds_keeps_every_object(cluster: Cluster, helm: Helm, tmp_path: Path) -> None:
    older = shutil.copytree(CHART, tmp_path / "covey")
    file = older / "files" / "crds" / "inference.covey.dev_disaggregatedinferences.yaml"
    crd = yaml.safe_load(file.read_text())
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["readyUnits"]
    crd["spec"]["versions"][0]["additionalPrinterColumns"].pop()
    file.write_text(yaml.safe_dump(crd, sort_keys=False))

    def fields() -> set[str]:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/disaggregatedinferences.inference.covey.dev"
        served = cluster.api("GET", path)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return set(served["properties"]["status"]["properties"])

    helm.install(chart=older)
    assert "readyUnits" not in fields()
    before = {uid_of(each) for each in dinfs(cluster)}
    running = {uid_of(each) for each in pods(cluster, "default")}
    helm.install()
    assert "readyUnits" in fields()
    assert {uid_of(each) for each in dinfs(cluster)} == before
    assert {uid_of(each) for each in pods(cluster, "default")} == running
    assert len(before) == 2


def test_crds_that_were_applied_by_hand_hold_up_neither_an_upgrade_nor_a_rollback(
    cluster: Cluster, helm: Helm, tmp_path: Path
) -> None:
    """One that the older release has not, one of another content: both are the hand's, until Helm is told to take them over."""
    older = shutil.copytree(CHART, tmp_path / "covey")
    (older / "files" / "crds" / "scheduling.covey.dev_queues.yaml").unlink()
    file = older / "files" / "crds" / "inference.covey.dev_disaggregatedinferences.yaml"
    crd = yaml.safe_load(file.read_text())
    crd["spec"]["versions"][0]["additionalPrinterColumns"].pop()
    file.write_text(yaml.safe_dump(crd, sort_keys=False))
    helm.install(chart=older)
    cluster.kubectl("delete", "crd", "queues.scheduling.covey.dev")
    before = helm.revision()
    running = {uid_of(each) for each in pods(cluster, "default")}
    cluster.kubectl("apply", f"--filename={ROOT}/crds")
    with pytest.raises(HelmError, match="invalid ownership metadata"):
        helm.install()
    # As docs/operations/installation.md has it.
    flags = (f"--namespace={NAMESPACE}", "--take-ownership", "--force-conflicts", "--wait")
    helm.run("upgrade", "covey", str(CHART), "--reset-then-reuse-values", *flags)
    with pytest.raises(HelmError, match="conflict"):
        helm.run("rollback", "covey", before, f"--namespace={NAMESPACE}", "--wait")
    helm.run("rollback", "covey", before, f"--namespace={NAMESPACE}", "--force-conflicts", "--wait")
    helm.install()
    await_covey(cluster)
    assert {uid_of(each) for each in pods(cluster, "default")} == running


def test_a_second_installation_elsewhere_is_refused_before_it_takes_anything_over(cluster: Cluster, helm: Helm) -> None:
    """``--take-ownership`` would give it the rights and the policies of the first."""
    objects = "clusterrolebindings,clusterroles,validatingadmissionpolicies"
    before = cluster.kubectl("get", objects, "--output=name")
    bound = cluster.api("GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/covey-scheduler-cluster")
    flags = ("--namespace=team-b", "--create-namespace", "--take-ownership", "--set=watchNamespaces={team-b}")
    with pytest.raises(
        HelmError, match="installed once in a cluster, and release covey in namespace covey-system is there"
    ):
        helm.run("install", "covey-b", str(CHART), *flags)
    with pytest.raises(HelmError, match="installed once in a cluster"):
        helm.run("install", "covey", str(CHART), *flags)
    assert cluster.kubectl("get", objects, "--output=name") == before
    assert cluster.api("GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/covey-scheduler-cluster") == bound


def test_a_second_installation_takes_over(cluster: Cluster, helm: Helm, uninstall: Callable[[], str]) -> None:
    running = {uid_of(each) for each in pods(cluster, "default")}
    uninstall()
    helm.install()
    await_covey(cluster)
    cluster.api("DELETE", f"{PODS.format('default')}/{name_of(pods(cluster, 'default', inference='second')[0])}")
    # The leases of the first one run out: it had no right left to release them.
    eventually(lambda: len(found := pods(cluster, "default")) == 32 and running != set(map(uid_of, found)), 180)
    eventually(lambda: admitted(cluster, "second"), 120, "the lost pod was replaced")
    for name in ("llama", "second"):
        cluster.api("DELETE", f"{DINFS.format('default')}/{name}")
    eventually(lambda: not pods(cluster, "default"), 120, "everything is gone")


def test_namespaced_mode_sees_to_its_namespaces_alone(cluster: Cluster, helm: Helm) -> None:
    cluster.ensure("/api/v1/namespaces", {"metadata": {"name": "team-a"}})
    with pytest.raises(HelmError, match=r"create it first \(kubectl create namespace absent"):
        helm.install({"watchNamespaces": ["team-a", "absent"]})
    helm.install({"watchNamespaces": ["team-a"]})
    await_covey(cluster)
    elsewhere = yaml.safe_load(EXAMPLE.read_text())
    cluster.apply(elsewhere)
    apply_example(cluster, "team-a")
    assert not pods(cluster, "default")

    def mark(namespace: str) -> str:
        pod = name_of(cluster.api("GET", PODS.format(namespace))["items"][0])
        change = {"metadata": {"labels": {"topology.covey.dev/rack": "r0"}}}
        try:
            return name_of(cluster.api("PATCH", f"{PODS.format(namespace)}/{pod}?dryRun=All", change))
        except ApiException as error:
            return str(error.body)

    # The policy holds there and where Covey is, and not elsewhere.
    spec = {"containers": [{"name": "main", "image": "registry.test/job:1"}]}
    cluster.api("POST", PODS.format("default"), {"metadata": {"name": "theirs"}, "spec": spec})
    for closed in ("team-a", NAMESPACE):
        eventually(lambda closed=closed: "removed by Covey alone" in mark(closed), 60, f"the policy holds in {closed}")
    eventually(lambda: mark("default") == "theirs", 60, "others are not asked")
    cluster.api("DELETE", f"{PODS.format('default')}/theirs?gracePeriodSeconds=0")
    cluster.api("DELETE", f"{DINFS.format('default')}/llama")
    cluster.api("DELETE", f"{DINFS.format('team-a')}/llama")
    eventually(lambda: not pods(cluster, "team-a"), 120, "everything is gone")


def test_for_an_existing_scheduler_callers_are_sent_to_the_leader(
    cluster: Cluster, helm: Helm, uninstall: Callable[[], str], certificates: Object
) -> None:
    uninstall()
    cluster.apply(certificates)
    said = helm.install({"scheduler": {"mode": "Existing"}, "replicas": 2})
    assert "your kube-scheduler must call Covey" in said
    await_covey(cluster, replicas=2)

    def endpoints(service: str = "covey-scheduler-extender") -> list[str]:
        query = f"labelSelector=kubernetes.io/service-name%3D{service}"
        path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices?{query}"
        slices = cluster.api("GET", path)["items"]
        return [each["targetRef"]["name"] for one in slices for each in one["endpoints"] or ()]

    eventually(lambda: len(endpoints("covey-scheduler-guard")) == 2, 120, "both guard")
    [first] = eventually(lambda: len(found := endpoints()) == 1 and found, 120, "one replica serves")
    cluster.api("DELETE", f"{PODS.format(NAMESPACE)}/{first}?gracePeriodSeconds=0")
    [second] = eventually(lambda: len(found := endpoints()) == 1 and found[0] != first and found, 120, "another serves")
    assert second != first


def test_kustomize_installs_the_same(cluster: Cluster, uninstall: Callable[[], str]) -> None:
    uninstall()
    overlay = str(ROOT / "manifests" / "overlays" / "ha")
    cluster.kubectl("apply", "-k", overlay)
    await_covey(cluster, replicas=2)
    assert len(apply_example(cluster)) == 16


def test_every_right_that_a_life_needs_is_given(cluster: Cluster, audit: Audit) -> None:
    """All that Covey does with an object, on the installation of the test before."""

    def change(name: str, spec: Object) -> None:
        path = f"{DINFS.format('default')}/{name}"
        generation = cluster.api("PATCH", path, {"spec": spec})["metadata"]["generation"]
        eventually(
            lambda: cluster.api("GET", path).get("status", {}).get("observedGeneration") == generation,
            60,
            f"{name}: {spec}",
        )

    change("llama", {"replicas": 2})
    eventually(lambda: len(pods(cluster, "default", unit="1")) == 16, 60, "a second unit's pods are there")
    change("llama", {"replicas": 1})
    eventually(lambda: not pods(cluster, "default", unit="1"), 60, "the second unit is gone")

    # A pod that lost its label is found again.
    strayed = f"{PODS.format('default')}/{name_of(pods(cluster, 'default')[0])}"
    cluster.api("PATCH", strayed, {"metadata": {"labels": {"covey.dev/inference": None}}})
    eventually(lambda: len(pods(cluster, "default", inference="llama")) == 16, 60, "the label is given back")

    # So is every other object, whose name is taken when it is to be created.
    for kind in KINDS:
        path = f"{kind.format('default')}?labelSelector=covey.dev/inference={'' if kind is BUDGETS else 'llama'}"
        found = name_of(cluster.api("GET", path)["items"][0])
        cluster.api(
            "PATCH", f"{kind.format('default')}/{found}", {"metadata": {"labels": {"covey.dev/inference": None}}}
        )
        names = lambda path=path: {name_of(each) for each in cluster.api("GET", path)["items"]}  # noqa: E731 - of this kind
        eventually(lambda found=found, names=names: found in names(), 60, f"{found} has its label again")

    # What an autoscaler writes to comes, is found again, and goes.
    roles = cluster.api("GET", f"{DINFS.format('default')}/llama")["spec"]["roles"]
    change("llama", {"roles": [roles[0] | {"scaling": {"mode": "External"}}, *roles[1:]]})
    scaler = f"{SCALERS}/llama-{roles[0]['name']}"
    eventually(lambda: cluster.api("GET", scaler).get("status", {}).get("selector"), 60, "the RoleScaler is there")
    cluster.api("PATCH", scaler, {"metadata": {"labels": {"covey.dev/inference": None}}})
    eventually(
        lambda: "covey.dev/inference" in cluster.api("GET", scaler)["metadata"]["labels"], 60, "it is found again"
    )
    change("llama", {"roles": roles})
    eventually(lambda: not cluster.api("GET", SCALERS)["items"], 60, "the RoleScaler is gone")

    # What is said again becomes a series.
    for _ in range(3):
        cluster.api("DELETE", f"{PODS.format('default')}/{name_of(pods(cluster, 'default', role='decode')[0])}")
        eventually(lambda: len(pods(cluster, "default")) == 16 and admitted(cluster, "llama"), 60, "it is whole again")

    # Old revisions go: what has not started follows every change.
    big = yaml.safe_load((ROOT / "examples" / "too-big.yaml").read_text())
    cluster.apply(big | {"metadata": {"name": "big", "namespace": "default"}})
    for number in range(13):
        for role in big["spec"]["roles"]:
            role["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{number}"
        change("big", {"roles": big["spec"]["roles"]})
    services = "/api/v1/namespaces/default/services?labelSelector=covey.dev/inference%3Dllama"
    assert cluster.api("GET", services)["items"]

    def refused() -> bool:
        found = cluster.api("GET", f"{POD_GROUPS.format('default')}?labelSelector=covey.dev/inference%3Dbig")["items"]
        return bool(found) and all(each.get("status", {}).get("conditions") for each in found)

    eventually(refused, 60, "what does not fit is said at each of its groups")
    change("llama", {"suspend": True})
    eventually(lambda: not cluster.api("GET", services)["items"], 60, "it is suspended")
    change("big", {"suspend": True})
    eventually(lambda: not cluster.api("GET", BUDGETS.format("default"))["items"], 60, "nobody needs the budget")

    # A readiness gate that is Covey's is opened, whoever has closed it.
    gated = yaml.safe_load(EXAMPLE.read_text()) | {"metadata": {"name": "gated", "namespace": "default"}}
    for role in gated["spec"]["roles"]:
        role["template"]["spec"]["readinessGates"] = [{"conditionType": "covey.dev/serving"}]
    cluster.apply(gated)
    eventually(lambda: admitted(cluster, "gated"), 60, "it runs")
    pod = f"{PODS.format('default')}/{name_of(pods(cluster, 'default', inference='gated', role='decode')[0])}"
    closed = {"status": {"conditions": [{"type": "covey.dev/serving", "status": "False"}]}}
    cluster.api("PATCH", f"{pod}/status", closed, patch="strategic")

    def opened() -> bool:
        conditions = cluster.api("GET", pod)["status"]["conditions"]
        return any((each["type"], each["status"]) == ("covey.dev/serving", "True") for each in conditions)

    eventually(opened, 60, "the gate is open")
    for name in ("llama", "big", "gated"):
        cluster.api("DELETE", f"{DINFS.format('default')}/{name}")

    # What pods would claim is read before they are created.
    request = {"name": "gpus", "exactly": {"deviceClassName": "none"}}
    template = {"metadata": {"name": "gpus"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    templates = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
    cluster.api("POST", templates, template)
    claiming = yaml.safe_load(EXAMPLE.read_text()) | {"metadata": {"name": "claiming", "namespace": "default"}}
    for role in claiming["spec"]["roles"]:
        named = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}, {"name": "more", "resourceClaimName": "none"}]
        role["template"]["spec"]["resourceClaims"] = named
    cluster.apply(claiming)
    path = f"{DINFS.format('default')}/claiming"
    eventually(lambda: "ResourceClaim none does not exist" in str(cluster.api("GET", path).get("status")), 60)
    assert not pods(cluster, "default", inference="claiming")
    cluster.api("DELETE", path)
    cluster.api("DELETE", f"{templates}/gpus")

    # A queue is told what of it is used.
    flavors = [{"resources": [{"name": "nvidia.com/gpu", "nominal": 8}]}]
    body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "unused"}}
    cluster.apply(body | {"spec": {"flavors": flavors}})
    queue = "/apis/scheduling.covey.dev/v1alpha1/queues/unused"
    eventually(lambda: cluster.api("GET", queue).get("status", {}).get("resources"), 60, "its use is written")
    cluster.api("DELETE", queue)

    # The scheduler process reads a pod that it does not know, and repeats what it has said.
    [scheduler, *_] = (each for each in pods(cluster, NAMESPACE) if "scheduler" in name_of(each))
    addresses = json.loads((cluster.directory / "pods" / name_of(scheduler) / "addresses.json").read_text())
    call = {"PodName": "nobody", "PodNamespace": "default", "PodUID": "1", "Node": "node-0-0-0"}
    with urlopen(f"http://{addresses['8890']}/barrier/bind", json.dumps(call).encode()) as answer:
        assert "gone" in json.load(answer)["Error"]
    assert any(audit.requests())


def test_no_request_stayed_forbidden(audit: Audit) -> None:
    """A process may begin a moment before the API server knows its rights: what it was refused then it asks again."""
    answers = {
        (each.account, each.verb, each.group, each.resource, each.namespace): each.code for each in audit.requests()
    }
    assert not {asked for asked, code in answers.items() if code == 403}


def test_no_policy_refused_a_request_of_coveys_own(audit: Audit) -> None:
    """Of all modes and both ways to install: a refusal of one pod must not hide behind the next pod that passes."""
    assert any(each.resource == "pods" and each.verb == "patch" for each in audit.requests())
    assert not {each.message for each in audit.requests() if "ValidatingAdmissionPolicy" in each.message}


#: Rights that the API server asks for within another request: whether an owner may be blocked.
UNASKED = {
    ("covey-operator", "update", "inference.covey.dev", "disaggregatedinferences/finalizers"),
}
#: What only a repetition asks for: an Event that comes again within two minutes becomes a series, by a patch, which
#: ``tests/cluster/test_kube_events.py`` shows on an API server. The scheduler process repeats none while all goes well.
REPEATED = {("covey-scheduler", "patch", "events.k8s.io", "events")}
#: What is asked only where another namespace has a lease of Covey's (``tests/cluster/processes/test_leaders.py``).
ELSEWHERE = {
    (account, "create", "authorization.k8s.io", "subjectaccessreviews")
    for account in ("covey-operator", "covey-scheduler")
}
#: What is asked only where Evictions are served, by an alpha gate (``tests/stories/test_evictions.py``).
EVICTED = {
    ("covey-operator", "get", "lifecycle.k8s.io", "evictions"),
    ("covey-operator", "watch", "lifecycle.k8s.io", "evictions"),
    ("covey-operator", "patch", "lifecycle.k8s.io", "evictions/status"),
}
#: What is asked only where others give way to a gang (``tests/stories/test_preemption.py``).
TAKEN = {
    ("covey-scheduler", "create", "scheduling.covey.dev", "preemptions"),
    ("covey-scheduler", "delete", "scheduling.covey.dev", "preemptions"),
    ("covey-scheduler", "patch", "scheduling.covey.dev", "preemptions/status"),
}


def test_no_right_is_given_that_nothing_needs(audit: Audit, offline: Helm) -> None:
    used = {
        (each.account, each.verb, each.group, each.resource)
        for each in audit.requests()
        if each.agent.startswith("covey") and each.code != 403
    }
    leases = {
        (each.account, each.verb, "coordination.k8s.io", "leases")
        for each in audit.requests()
        if each.resource == "leases"
    }
    given = set(_given(offline.render()))
    assert given - used - leases - UNASKED - REPEATED - ELSEWHERE - EVICTED - TAKEN == set()


@pytest.mark.parametrize("right", sorted(UNASKED), ids=lambda right: f"{right[1]}-{right[3].replace('/', '-')}")
def test_without_a_right_that_is_asked_within_a_request_nothing_works(
    cluster: Cluster, audit: Audit, right: tuple[str, str, str, str]
) -> None:
    account, verb, group, resource = right
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{account}"
    rules = cluster.api("GET", path)["rules"]
    with audit.pardon():
        cluster.api("PATCH", path, {"rules": list(_without(rules, verb, group, resource))})
        name = f"no-{resource.partition('/')[0]}"
        try:
            eventually(lambda: not _may(cluster, right), 60, "the API server knows that the right is gone")
            cluster.apply(yaml.safe_load(EXAMPLE.read_text()) | {"metadata": {"name": name, "namespace": "default"}})

            def refused() -> bool:
                found = cluster.api("GET", f"{DINFS.format('default')}/{name}").get("status", {})
                said = [each.get("message", "") for each in found.get("conditions", ())]
                assert any("forbidden" in each or "cannot" in each for each in said), str(said)
                return True

            eventually(refused, 60, "the resource says what is refused")
        finally:
            cluster.api("PATCH", path, {"rules": rules})
            cluster.api("DELETE", f"{DINFS.format('default')}/{name}")


def test_kustomize_takes_everything_away(cluster: Cluster) -> None:
    overlay = str(ROOT / "manifests" / "overlays" / "ha")
    cluster.kubectl("delete", "--wait=false", "-k", overlay)
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    eventually(lambda: not [each for each in cluster.api("GET", crds)["items"] if "covey" in name_of(each)], 120)
    eventually(lambda: NAMESPACE not in map(name_of, cluster.api("GET", "/api/v1/namespaces")["items"]), 180)


def _may(cluster: Cluster, right: tuple[str, str, str, str]) -> bool:
    account, verb, group, resource = right
    plural, _, subresource = resource.partition("/")
    asked = {"namespace": "default", "verb": verb, "group": group, "resource": plural, "subresource": subresource}
    spec = {"user": f"system:serviceaccount:{NAMESPACE}:{account}", "resourceAttributes": asked}
    answer = cluster.api("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    return bool(answer["status"]["allowed"])


def _without(rules: list[Object], verb: str, group: str, resource: str) -> Iterator[Object]:
    for rule in rules:
        if group in rule["apiGroups"] and resource in rule["resources"]:
            others = [each for each in rule["resources"] if each != resource]
            verbs = [each for each in rule["verbs"] if each != verb]
            yield from ([rule | {"resources": others}] if others else ())
            yield from ([rule | {"resources": [resource], "verbs": verbs}] if verbs else ())
        else:
            yield rule


def _given(objects: list[Object]) -> Iterator[tuple[str, str, str, str]]:
    """Account, verb, group and resource of every rule of the chart's own roles of its processes."""
    roles = {(each["kind"], name_of(each)): each for each in objects if each["kind"] in {"Role", "ClusterRole"}}
    for each in objects:
        if each["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        role = roles.get((each["roleRef"]["kind"], each["roleRef"]["name"]))
        for rule in role["rules"] if role else ():
            for group, resource in ((group, resource) for group in rule["apiGroups"] for resource in rule["resources"]):
                yield from ((each["subjects"][0]["name"], verb, group, resource) for verb in rule["verbs"])
