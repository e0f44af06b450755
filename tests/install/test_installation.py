"""Helm and kubectl on a real cluster: install, use, upgrade, roll back, uninstall, under exactly the chart's rights.

The tests follow one installation through its life, in this order; each says what it needs of those before it.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import yaml

from cluster.workbench import is_ready, name_of, uid_of
from install.audit import Audit
from install.chart import CHART, NAMESPACE, Helm, Object
from localcluster import Cluster, eventually
from localcluster.programs import ROOT

DINFS = "/apis/inference.covey.dev/v1alpha1/namespaces/{}/disaggregatedinferences"
PODS = "/api/v1/namespaces/{}/pods"
EXAMPLE = ROOT / "examples" / "disaggregated.yaml"


def pods(cluster: Cluster, namespace: str, **labels: str) -> list[Object]:
    """Live pods with these labels, by name."""
    found = cluster.api("GET", PODS.format(namespace))["items"]
    live = [each for each in found if "deletionTimestamp" not in each["metadata"]]
    wanted = {f"covey.dev/{key}": value for key, value in labels.items()}.items()
    return sorted((each for each in live if wanted <= each["metadata"].get("labels", {}).items()), key=name_of)


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
    eventually(lambda: admitted(cluster, name, namespace), 60, f"{namespace}/{name} runs")
    return pods(cluster, namespace, inference=name)


def await_covey(cluster: Cluster, replicas: int = 1) -> None:
    """Wait until exactly so many pods of each process are there: those of an earlier revision have gone."""

    def settled() -> bool:
        found = pods(cluster, NAMESPACE)
        assert len(found) == 2 * replicas, str([name_of(each) for each in found])
        return all(map(is_ready, found))

    eventually(settled, 60, f"{replicas} of each process")


def test_install_gives_a_working_set(cluster: Cluster, helm: Helm) -> None:
    said = helm.install({"topology": {"preset": "kueue"}})
    assert "kubectl apply -f examples/disaggregated.yaml" in said
    await_covey(cluster)
    assert len(apply_example(cluster)) == 16
    assert cluster.api("GET", "/apis/scheduling.covey.dev/v1alpha1/clustertopologies/default")
    assert "4/4" in cluster.kubectl("get", "dinf", "llama")


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
    eventually(lambda: admitted(cluster, "llama"))
    assert {uid_of(each) for each in pods(cluster, "default")} == before
    # It came by a hook with revision 1 and as an ordinary object with revision 2.
    assert cluster.api("GET", "/apis/scheduling.covey.dev/v1alpha1/clustertopologies/default")


def test_an_upgrade_of_the_crds_keeps_every_object(cluster: Cluster, helm: Helm, tmp_path: Path) -> None:
    older = shutil.copytree(CHART, tmp_path / "covey")
    file = older / "files" / "crds" / "inference.covey.dev_disaggregatedinferences.yaml"
    crd = yaml.safe_load(file.read_text())
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["queue"]
    crd["spec"]["versions"][0]["additionalPrinterColumns"].pop()
    file.write_text(yaml.safe_dump(crd, sort_keys=False))

    def fields() -> set[str]:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/disaggregatedinferences.inference.covey.dev"
        served = cluster.api("GET", path)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return set(served["properties"]["spec"]["properties"])

    helm.install(chart=older)
    assert "queue" not in fields()
    before = {uid_of(each) for each in cluster.api("GET", DINFS.format("default"))["items"]}
    running = {uid_of(each) for each in pods(cluster, "default")}
    helm.install()
    assert "queue" in fields()
    assert {uid_of(each) for each in cluster.api("GET", DINFS.format("default"))["items"]} == before
    assert {uid_of(each) for each in pods(cluster, "default")} == running
    assert len(before) == 2


def test_uninstall_keeps_what_people_made(cluster: Cluster, helm: Helm) -> None:
    running = {uid_of(each) for each in pods(cluster, "default")}
    said = helm.run("uninstall", "covey", f"--namespace={NAMESPACE}", "--wait")
    assert "[CustomResourceDefinition] disaggregatedinferences.inference.covey.dev" in said
    eventually(lambda: not pods(cluster, NAMESPACE), describe="Covey's pods are gone")
    assert len(cluster.api("GET", DINFS.format("default"))["items"]) == 2
    assert {uid_of(each) for each in pods(cluster, "default")} == running
    for kind in ("clusterroles", "clusterrolebindings"):
        left = cluster.api("GET", f"/apis/rbac.authorization.k8s.io/v1/{kind}")["items"]
        assert not [name_of(each) for each in left if name_of(each).startswith("covey")]


def test_a_second_installation_takes_over(cluster: Cluster, helm: Helm) -> None:
    running = {uid_of(each) for each in pods(cluster, "default")}
    helm.install()
    await_covey(cluster)
    cluster.api("DELETE", f"{PODS.format('default')}/{name_of(pods(cluster, 'default', inference='second')[0])}")
    eventually(lambda: {uid_of(each) for each in pods(cluster, "default")} != running)
    eventually(lambda: admitted(cluster, "second"), 60, "the lost pod was replaced")
    for name in ("llama", "second"):
        cluster.api("DELETE", f"{DINFS.format('default')}/{name}")
    eventually(lambda: not pods(cluster, "default"), 60, "everything is gone")


def test_namespaced_mode_sees_to_its_namespaces_alone(cluster: Cluster, helm: Helm) -> None:
    cluster.ensure("/api/v1/namespaces", {"metadata": {"name": "team-a"}})
    helm.install({"watchNamespaces": ["team-a"]})
    await_covey(cluster)
    elsewhere = yaml.safe_load(EXAMPLE.read_text())
    cluster.apply(elsewhere)
    apply_example(cluster, "team-a")
    assert not pods(cluster, "default")
    cluster.api("DELETE", f"{DINFS.format('default')}/llama")
    cluster.api("DELETE", f"{DINFS.format('team-a')}/llama")
    eventually(lambda: not pods(cluster, "team-a"), 60, "everything is gone")


def test_for_an_existing_scheduler_callers_are_sent_to_the_leader(
    cluster: Cluster, helm: Helm, certificates: Object
) -> None:
    cluster.apply(certificates)
    said = helm.install({"scheduler": {"mode": "Existing"}, "replicas": 2})
    assert "your kube-scheduler must call Covey" in said
    await_covey(cluster, replicas=2)

    def endpoints() -> list[str]:
        path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
        slices = cluster.api("GET", path)["items"]
        return [each["targetRef"]["name"] for one in slices for each in one["endpoints"] or ()]

    [first] = eventually(lambda: len(found := endpoints()) == 1 and found, 60, "one replica serves")
    cluster.api("DELETE", f"{PODS.format(NAMESPACE)}/{first}?gracePeriodSeconds=0")
    [second] = eventually(lambda: len(found := endpoints()) == 1 and found[0] != first and found, 60, "another serves")
    assert second != first


def test_kustomize_installs_the_same(cluster: Cluster, helm: Helm) -> None:
    helm.run("uninstall", "covey", f"--namespace={NAMESPACE}", "--wait")
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(ROOT / "manifests" / "overlays" / "ha"))
    await_covey(cluster, replicas=2)
    assert len(apply_example(cluster)) == 16


def test_every_right_that_a_life_needs_is_given(cluster: Cluster, audit: Audit) -> None:
    """Everything else that Covey does with an object, on the installation of the test before."""
    dinf = f"{DINFS.format('default')}/llama"
    cluster.api("PATCH", dinf, {"spec": {"replicas": 2}})
    eventually(lambda: len(pods(cluster, "default", unit="1")) == 16, 60, "a second unit's pods are there")
    for number in range(12):
        roles = cluster.api("GET", dinf)["spec"]["roles"]
        roles[0]["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{number}"
        cluster.api("PATCH", dinf, {"spec": {"replicas": 1, "roles": roles}})
    eventually(lambda: not pods(cluster, "default", unit="1"), 60, "the second unit is gone")
    roles[0]["network"]["ports"][0]["port"] = 8001
    cluster.api("PATCH", dinf, {"spec": {"roles": roles, "topology": {"required": "zone"}}})
    eventually(lambda: admitted(cluster, "llama"), 60, "it runs")
    cluster.api("DELETE", dinf)
    eventually(lambda: not pods(cluster, "default"), 60, "everything is gone")
    assert any(audit.requests())


def test_no_request_was_forbidden(audit: Audit) -> None:
    forbidden = {(each.account, each.verb, each.group, each.resource) for each in audit.requests() if each.code == 403}
    assert not forbidden


#: Rights that the API server asks for without a request: admission looks whether an owner may be blocked.
UNASKED = {("covey-operator", "update", "inference.covey.dev", "disaggregatedinferences/finalizers")}


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
    assert given - used - leases - UNASKED == set()


def test_owners_may_be_blocked_only_by_the_right_to_their_finalizers(cluster: Cluster) -> None:
    """That the right above is needed: OwnerReferencesPermissionEnforcement is on in this cluster."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/covey-operator"
    rules = cluster.api("GET", path)["rules"]
    without = [each for each in rules if "disaggregatedinferences/finalizers" not in each["resources"]]
    assert len(without) == len(rules) - 1
    cluster.api("PATCH", path, {"rules": without})
    try:
        cluster.apply(yaml.safe_load(EXAMPLE.read_text()) | {"metadata": {"name": "blocked", "namespace": "default"}})

        def refused() -> bool:
            conditions = (
                cluster.api("GET", f"{DINFS.format('default')}/blocked").get("status", {}).get("conditions", ())
            )
            return any("cannot set blockOwnerDeletion" in each.get("message", "") for each in conditions)

        eventually(refused, 60, "the resource says what is refused")
    finally:
        cluster.api("PATCH", path, {"rules": rules})
        cluster.api("DELETE", f"{DINFS.format('default')}/blocked")


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
