"""Services and addresses with everything running: what the EndpointSlices of the real controller say."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object
from cluster.published import Published, check_addresses
from cluster.serving import AddNodes, Serving, fewest_serving, serves, serving, workers
from cluster.workbench import label, name_of, uid_of, uids
from kubelet import environment_of
from localcluster import eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

PORTS: dict[str, Any] = {"ports": [{"name": "http", "port": 8000}]}
OWN = {"subdomain": "UniquePerReplica"}
LWS = "leaderworkerset.sigs.k8s.io"


@pytest.fixture
def published(serving: Serving) -> Published:
    return Published(serving)


def pair(*, image: str = "1", decode: str = "", **network: Any) -> list[Object]:
    """Two replicas of two prefill pods, two decode pods."""
    found = [workers("prefill", replicas=2, size=2, network=network), workers("decode", replicas=2)]
    for each, tag in zip(found, (image, decode or image), strict=True):
        each["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{tag}"
    return found


def await_ready(serving: Serving, count: int) -> list[Object]:
    serving.await_bound(count)
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    return serving.pods()


def await_complete(serving: Serving, count: int) -> list[Object]:
    def complete() -> bool:
        assert len(serving.pods()) == count
        return serving.condition("Progressing")["reason"] == "Complete"

    eventually(complete, 180, "everything is rolled")
    return serving.pods()


def services(serving: Serving) -> set[str]:
    return {name_of(each) for each in serving.owned("Service")}


def await_services(serving: Serving, wanted: set[str], timeout: float = 60) -> None:
    def there() -> bool:
        assert services(serving) == wanted
        return True

    eventually(there, timeout, "the Services are as wanted")


def await_resolved(published: Published, pods: list[Object]) -> None:
    """Wait until the EndpointSlices are of these pods."""

    def resolved() -> bool:
        check_resolved(published, pods)
        return True

    eventually(resolved, 60, "every address leads to its pod")


def check_resolved(published: Published, pods: list[Object]) -> None:
    """Each pod's address, and its leader's, leads to that pod alone."""
    ips = {pod["spec"]["hostname"]: pod["status"]["podIP"] for pod in pods}
    for pod in pods:
        told = environment_of(pod)
        hostname, subdomain = pod["spec"]["hostname"], pod["spec"]["subdomain"]
        assert published.resolve(f"{hostname}.{subdomain}.{published.serving.namespace}") == [ips[hostname]]
        leader = told["LWS_LEADER_ADDRESS"]
        assert leader == told["COVEY_LEADER_ADDRESS"]
        assert leader.partition(".")[0] == f"{hostname.rpartition('-')[0]}-0"
        assert published.resolve(leader) == [ips[leader.partition(".")[0]]]
        assert told["COVEY_REVISION"] == label(pod, "revision")


def test_a_replica_has_a_service_of_its_own_which_its_successor_inherits(
    serving: Serving, published: Published, nodes: AddNodes
) -> None:
    """LWS 5.2: with UniquePerReplica one headless Service for each replica."""
    nodes(blocks=1, racks=2, nodes=4)
    with published.record() as recording:
        serving.create(*pair(**OWN))
        pods = await_ready(serving, 6)
        assert services(serving) == {"llm-0-prefill-0", "llm-0-prefill-1", "llm-pods"}
        await_resolved(published, pods)
        for pod in pods:
            for role in ("prefill", "decode"):
                address = environment_of(pod)[f"COVEY_ROLE_{role.upper()}_ADDRESS"]
                [leader] = serving.pods(role=role, replica=0, index=0)
                assert published.resolve(address) == [leader["status"]["podIP"]]
        lost = serving.pods(role="prefill", replica=1)
        serving.delete("Pod", name_of(lost[0]))
        eventually(lambda: not uids(lost) & uids(serving.pods()), 60, "the replica is replaced")
        pods = await_ready(serving, 6)
        await_resolved(published, pods)
        recording.wait(lambda events: check_addresses(events) == 8)
    serving.change({"roles": [{**pair(**OWN)[0], "replicas": 1}, pair()[1]]})
    await_services(serving, {"llm-0-prefill-0", "llm-pods"})


def test_a_change_of_the_subdomain_is_rolled_and_back(serving: Serving, published: Published, nodes: AddNodes) -> None:
    """LWS 5.2: Shared to UniquePerReplica changes the leader's address and rolls the groups; surge replicas too."""
    nodes(blocks=1, racks=2, nodes=5)
    serving.create(*pair())
    before = await_ready(serving, 6)
    decode = uids(serving.pods(role="decode"))
    with serving.cluster.record(serving.path("Pod")) as recording, published.record() as slices:
        serving.change({"roles": pair(**OWN)})
        pods = await_complete(serving, 6)
        numbers = {label(pod, "replica") for pod in pods if label(pod, "role") == "prefill"}
        await_services(serving, {"llm-pods", *(f"llm-0-prefill-{number}" for number in numbers)})
        await_resolved(published, pods)
        serving.change({"roles": pair(subdomain="Shared")})
        pods = await_complete(serving, 6)
        await_services(serving, {"llm-pods"})
        await_resolved(published, pods)
        assert fewest_serving(before, recording.events, "prefill", 2) == 2
        check_addresses(slices.events)
    assert uids(serving.pods(role="decode")) == decode


def test_a_service_with_a_cluster_ip_sends_requests_to_ready_leaders(
    serving: Serving, published: Published, nodes: AddNodes
) -> None:
    """RBG 5.2: LeaderOnly to All and back changes endpoints only."""
    nodes(blocks=1, racks=2, nodes=5)
    serving.create(*pair(**PORTS, service={}))
    pods = await_ready(serving, 6)
    prefill = [pod for pod in pods if label(pod, "role") == "prefill"]
    leaders = [pod for pod in prefill if label(pod, "index") == "0"]
    assert services(serving) == {"llm-prefill", "llm-prefill-svc", "llm-pods"}
    told = {environment_of(pod)["COVEY_ROLE_PREFILL_SERVICE"] for pod in pods}
    assert told == {f"llm-prefill-svc.{serving.namespace}"}
    spec = serving.get("Service", "llm-prefill-svc")["spec"]
    assert (spec["type"], spec["clusterIP"] not in {"", "None"}) == ("ClusterIP", True)
    published.await_pods("llm-prefill-svc", leaders)
    serving.change({"roles": pair(**PORTS, service={"endpoints": "All"})})
    published.await_pods("llm-prefill-svc", prefill)
    serving.change({"roles": pair(**PORTS, service={"endpoints": "Leaders"})})
    published.await_pods("llm-prefill-svc", leaders)
    assert serving.get("Service", "llm-prefill-svc")["spec"]["clusterIP"] == spec["clusterIP"]
    # A leader that is not Ready takes no requests, and its workers still find it.
    path = f"{serving.path('Pod', name_of(leaders[0]))}/status"
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    serving.cluster.api("PATCH", path, {"status": {"conditions": conditions}})
    published.await_pods("llm-prefill-svc", leaders[1:])
    address = environment_of(leaders[0])["LWS_LEADER_ADDRESS"]
    assert published.resolve(address) == [leaders[0]["status"]["podIP"]]
    serving.change({"roles": pair(**PORTS)})
    await_services(serving, {"llm-prefill", "llm-pods"})
    assert uids(serving.pods()) == uids(pods)


def test_an_address_is_that_of_the_new_resource_while_the_pods_of_the_former_end(
    serving: Serving, published: Published, nodes: AddNodes
) -> None:
    """Deleted and created again under the same name, with an hour of grace, say: two pods would answer to one name."""
    nodes(blocks=1, racks=3, nodes=4)
    serving.create(*pair(**PORTS, service={"endpoints": "All"}))
    former = await_ready(serving, 6)
    for pod in former:
        held = {"metadata": {"finalizers": ["test.example.com/ends-slowly"]}}
        serving.cluster.api("PATCH", serving.path("Pod", name_of(pod)), held, patch="merge")
    try:
        serving.delete("DisaggregatedInference", "llm")
        eventually(lambda: all("deletionTimestamp" in pod["metadata"] for pod in serving.pods()), 60, "the former end")
        serving.create(*pair(**PORTS, service={"endpoints": "All"}))

        def alone() -> list[Object]:
            found = [pod for pod in serving.pods() if uid_of(pod) not in uids(former) and serves(pod)]
            assert len(found) == 6
            return found

        pods = eventually(alone, 60, "the new pods serve")
        for pod in pods:
            address = f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}.{serving.namespace}"
            eventually(
                lambda a=address, p=pod: published.resolve(a) == [p["status"]["podIP"]], 60, f"{address} is one's"
            )
        published.await_pods("llm-prefill-svc", [pod for pod in pods if label(pod, "role") == "prefill"])
    finally:
        for pod in former:
            done = {"metadata": {"finalizers": []}}
            serving.cluster.api("PATCH", serving.path("Pod", name_of(pod)), done, patch="merge")
    serving.await_pods(6)


def test_a_replica_that_drains_takes_no_requests_and_keeps_its_address(
    serving: Serving, published: Published, nodes: AddNodes
) -> None:
    """It is to go, by a smaller scale, and has an hour for what it still serves."""
    nodes(blocks=1, racks=2, nodes=4)
    [prefill, decode] = pair(**PORTS, **OWN, service={"endpoints": "All"})
    serving.create({**prefill, "drainSeconds": 3600}, decode)
    pods = await_ready(serving, 6)
    before = [pod for pod in pods if label(pod, "role") == "prefill"]
    published.await_pods("llm-prefill-svc", before)
    serving.change({"roles": [{**prefill, "drainSeconds": 3600, "replicas": 1}, decode]})

    def marked() -> list[Object]:
        found = [pod for pod in serving.pods(role="prefill", draining="true") if serves(pod)]
        assert len(found) == 2
        return found

    going = eventually(marked, 60, "a replica drains")
    published.await_pods("llm-prefill-svc", [pod for pod in before if uid_of(pod) not in uids(going)])
    [leader] = [pod for pod in going if label(pod, "index") == "0"]
    address = environment_of(going[1])["LWS_LEADER_ADDRESS"]
    eventually(lambda: published.resolve(address) == [leader["status"]["podIP"]], 60, f"{address} is known")
    for pod in going:
        idle = {"metadata": {"annotations": {"covey.dev/in-flight": "0"}}}
        serving.cluster.api("PATCH", serving.path("Pod", name_of(pod)), idle)
    serving.await_pods(2, 60, role="prefill")
    [number] = {label(pod, "replica") for pod in before if uid_of(pod) not in uids(going)}
    await_services(serving, {f"llm-0-prefill-{number}", "llm-prefill-svc", "llm-pods"})


def test_revisions_that_run_side_by_side_have_services_of_their_own(
    serving: Serving, published: Published, nodes: AddNodes
) -> None:
    """DS 5.1, llm-d#499: a Service for each role of a revision, once every role of it has a Ready replica."""
    nodes(blocks=1, racks=2, nodes=6)
    kept = {"update": {"partition": 1}}
    serving.create(*({**each, **kept} for each in pair()))
    former = await_ready(serving, 6)
    revisions = [{(label(pod, "role"), label(pod, "revision")) for pod in former}]
    with serving.cluster.record(serving.path("Service")) as recording:
        serving.change({"roles": [{**each, **kept} for each in pair(image="2")]})

        def mixed() -> bool:
            images = [pod["spec"]["containers"][0]["image"] for pod in serving.pods() if serves(pod)]
            assert sorted(images) == ["registry.test/engine:1"] * 3 + ["registry.test/engine:2"] * 3
            return len(serving.pods()) == 6

        eventually(mixed, 120, "half of the replicas are of the new revision")
        pods = serving.pods()
        everything = {(label(pod, "role"), label(pod, "revision")) for pod in pods}
        revisions.append(everything - revisions[0])
        wholes = eventually(lambda: paired(serving), 60)
        assert sorted(map(sorted, wholes.values())) == sorted(map(sorted, revisions))
        rollout = serving.get("DisaggregatedInference", "llm")["status"]["rollout"]
        assert wholes[rollout["fromRevision"]] == revisions[0]
        assert wholes[rollout["toRevision"]] == revisions[1]
        for service in serving.owned("Service"):
            labels = service["metadata"]["labels"]
            if "covey.dev/whole-revision" in labels:
                leaders = serving.pods(role=labels["covey.dev/role"], revision=labels["covey.dev/revision"], index=0)
                published.await_pods(name_of(service), leaders)
        serving.change({"roles": [{**each, "update": {"partition": 0}} for each in pair(image="2")]})
        await_complete(serving, 6)
        await_services(serving, {"llm-pods"})
        check_together(recording.events, {"prefill", "decode"})


def test_services_when_a_mesh_asks_for_protocols_labels_and_annotations_have_them_until_they_are_taken_back(
    serving: Serving, nodes: AddNodes
) -> None:
    nodes(nodes=1)
    ports = [{"name": "http", "port": 8000, "appProtocol": "kubernetes.io/h2c"}]
    own = {"labels": {"team": "search"}, "annotations": {"networking.istio.io/exportTo": "."}}
    asked = workers("prefill", gpus=1, network={"ports": ports, "metadata": own, "service": {}})
    decode = workers("decode", gpus=1)
    decode["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 29500}]
    serving.create(asked, decode)
    before = uids(await_ready(serving, 2))

    def told(name: str) -> tuple[str | None, str | None, str | None]:
        service = serving.get("Service", name)
        metadata, (port,) = service["metadata"], service["spec"]["ports"]
        found = (metadata["labels"].get("team"), metadata["annotations"].get("networking.istio.io/exportTo"))
        return port.get("appProtocol"), *found

    names = ("llm-prefill", "llm-prefill-svc")
    assert [told(name) for name in names] == [("kubernetes.io/h2c", "search", ".")] * 2
    assert [port["port"] for port in serving.get("Service", "llm-pods")["spec"]["ports"]] == [29500]
    serving.change({"roles": [{**asked, "network": {**PORTS, "service": {}}}, decode]})
    eventually(lambda: [told(name) for name in names] == [(None, None, None)] * 2, 60, "they are taken back")
    assert uids(serving.pods()) == before


def paired(serving: Serving) -> dict[str, set[tuple[str, str]]]:
    """Role and revision of the pods behind the Services of each revision of the resource; both have to be there."""
    found: dict[str, set[tuple[str, str]]] = {}
    for service in serving.owned("Service"):
        labels = service["metadata"]["labels"]
        if whole := labels.get("covey.dev/whole-revision"):
            found.setdefault(whole, set()).add((labels["covey.dev/role"], labels["covey.dev/revision"]))
    assert [len(roles) for roles in found.values()] == [2, 2]
    return found


def check_together(events: list[tuple[str, Object]], roles: set[str]) -> None:
    """There were two revisions with Services, each with one for every role."""
    made: dict[str, set[str]] = {}
    for kind, service in events:
        labels = service["metadata"]["labels"]
        if kind == "ADDED" and (whole := labels.get("covey.dev/whole-revision")):
            made.setdefault(whole, set()).add(labels["covey.dev/role"])
    assert list(made.values()) == [roles, roles]


def test_a_service_that_cannot_be_had_is_told_and_holds_nothing_up(serving: Serving, nodes: AddNodes) -> None:
    """The name of one is a stranger's, those of revisions are beyond the quota: gangs start and roll all the same."""
    nodes(blocks=1, racks=2, nodes=6)
    stranger = {"metadata": {"name": "llm-prefill-svc"}, "spec": {"ports": [{"port": 80}]}}
    serving.cluster.api("POST", serving.path("Service"), stranger)
    serving.create(*pair(**PORTS, service={}))
    await_ready(serving, 6)
    assert "llm-prefill-svc exists and is not Covey's" in serving.await_condition("Progressing", "False", "NameTaken")
    serving.delete("Service", "llm-prefill-svc")
    # Nobody tells of strangers' objects: it is tried again once a minute.
    await_services(serving, {"llm-prefill", "llm-prefill-svc", "llm-pods"}, 120)
    serving.await_condition("Progressing", "True", "Complete")
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"services": "3"}}}
    serving.cluster.api("POST", serving.path("ResourceQuota"), quota)
    eventually(lambda: serving.get("ResourceQuota", "few").get("status", {}).get("used", {}).get("services") == "3")
    wanted = pair(image="2", **PORTS, service={})
    serving.change({"roles": [{**each, "update": {"partition": 1}} for each in wanted]})

    def mixed() -> bool:
        images = [pod["spec"]["containers"][0]["image"] for pod in serving.pods() if serves(pod)]
        assert sorted(images) == ["registry.test/engine:1"] * 3 + ["registry.test/engine:2"] * 3
        return len(serving.pods()) == 6

    eventually(mixed, 120, "half of the replicas are of the new revision")
    assert "exceeded quota" in serving.await_condition("Progressing", "False", "RequestRefused")
    serving.delete("ResourceQuota", "few")
    eventually(lambda: len(paired(serving)) == 2, 90, "the Services of both revisions are there")


def test_labels_of_leaderworkerset_come_and_go_on_pods_that_run(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=2, nodes=4)
    serving.create(*pair())
    before = uids(await_ready(serving, 6))

    def labelled() -> list[Object]:
        return list(
            serving.cluster.api(
                "GET", f"{serving.path('Pod')}?labelSelector={LWS}/name=llm-prefill,{LWS}/worker-index=0"
            )["items"]
        )

    assert not labelled()
    serving.change({"compat": {"lwsLabels": "Always"}})
    eventually(lambda: len(labelled()) == 2, 60, "both leaders are found")
    keys = {pod["metadata"]["labels"][f"{LWS}/group-key"] for pod in labelled()}
    assert len(keys) == 2

    def members(key: str) -> list[str]:
        found = serving.cluster.api("GET", f"{serving.path('Pod')}?labelSelector={LWS}/group-key={key}")["items"]
        return sorted(pod["metadata"]["labels"][f"{LWS}/worker-index"] for pod in found)

    # Pods are labelled one after the other.
    eventually(lambda: {tuple(members(key)) for key in keys} == {("0", "1")}, 60, "both replicas have their members")
    serving.change({"compat": {"lwsLabels": None}})
    eventually(lambda: not any(LWS in key for pod in serving.pods() for key in pod["metadata"]["labels"]), 60)
    assert uids(serving.pods()) == before
    # Of revisions that differ in live fields only, the newest is kept.
    eventually(lambda: len(serving.owned("ControllerRevision")) == 1, 60)


def test_where_leaderworkerset_is_installed_its_webhook_denies_pods_with_its_labels(
    serving: Serving, nodes: AddNodes
) -> None:
    """Its pod webhook denies whatever has the label ``name`` and not its annotation ``size``; a policy says the same."""
    nodes(blocks=1, racks=2, nodes=4)
    api = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    name, cluster = serving.namespace, serving.cluster
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    check = (
        f"!has(object.metadata.labels) || !('{LWS}/name' in object.metadata.labels) || "
        f"(has(object.metadata.annotations) && '{LWS}/size' in object.metadata.annotations)"
    )
    validation = {"expression": check, "message": "size annotation is unexpectedly missing"}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    cluster.api("POST", f"{api}ies", {"metadata": {"name": name}, "spec": spec})
    cluster.api("POST", f"{api}ybindings", {"metadata": {"name": name}, "spec": binding})
    try:
        labels = {"metadata": {"name": "probe", "labels": {f"{LWS}/name": "x"}}}
        probe = {**labels, "spec": {"containers": [{"name": "c", "image": "i"}]}}

        def in_force() -> bool:
            try:
                cluster.api("POST", f"{serving.path('Pod')}?dryRun=All", probe)
            except ApiException as error:
                return "size annotation" in str(error)
            return False

        eventually(in_force, 60, "the policy is in force")
        serving.create(*pair(), compat={"lwsLabels": "Always"})
        message = serving.await_condition("Admitted", "False", "TemplateRejected")
        assert "size annotation is unexpectedly missing" in message
        serving.change({"compat": {"lwsLabels": "Never"}})
        await_ready(serving, 6)
    finally:
        cluster.api("DELETE", f"{api}ybindings/{name}")
        cluster.api("DELETE", f"{api}ies/{name}")


def test_containers_are_told_the_domain_of_every_level(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=2, racks=2, nodes=3)
    serving.create(*pair(), topology={"required": "block"})
    pods = await_ready(serving, 6)
    found = {name_of(node): node["metadata"]["labels"] for node in serving.cluster.api("GET", "/api/v1/nodes")["items"]}
    for pod in pods:
        told, labels = environment_of(pod), found[node_of(pod)]
        assert told["COVEY_DOMAIN_BLOCK"] == labels["cloud.provider.com/topology-block"]
        assert told["COVEY_DOMAIN_RACK"] == labels["cloud.provider.com/topology-rack"]
        assert told["COVEY_DOMAIN_HOST"] == labels["kubernetes.io/hostname"]
    assert len({environment_of(pod)["COVEY_DOMAIN_BLOCK"] for pod in pods}) == 1
    assert len({uid_of(pod) for pod in pods}) == 6
