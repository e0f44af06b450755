"""Services and addresses with everything running: what the EndpointSlices of the real controller say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubernetes.client import ApiException

from builders.manifests import Object, workers
from cluster.published import check_addresses, endpoints_of, resolved, service_of
from cluster.serving import fewest_serving
from cluster.workbench import label, name_of, uid_of, uids
from kubelet import environment_of
from scheduler_trees import node_of
from stage import Stage
from stage.play import INFERENCE
from stage.record import as_pairs

PORTS: dict[str, Any] = {"ports": [{"name": "http", "port": 8000}]}
OWN = {"subdomain": "UniquePerReplica"}
LWS = "leaderworkerset.sigs.k8s.io"
HALF = {"update": {"partition": 1}}


def pair(*, image: str = "1", **network: Any) -> list[Object]:
    """Two replicas of two prefill pods, two decode pods."""
    roles = [workers("prefill", replicas=2, size=2, network=network), workers("decode", replicas=2)]
    for role in roles:
        role["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{image}"
    return roles


def with_all(roles: Iterable[Object], fields: Object) -> list[Object]:
    """Roles with more fields."""
    return [{**role, **fields} for role in roles]


def services(stage: Stage) -> set[str]:
    """Names of the Services of the resource, at rest."""
    stage.settle()
    return {name_of(service) for service in stage.owned("Service")}


def resolve(stage: Stage, address: str) -> list[str]:
    """What the cluster's DNS answers for a pod's address ``<host name>.<Service>.<namespace>``."""
    return resolved(stage.all("EndpointSlice"), address)


def published(stage: Stage, service: str) -> set[str]:
    """Names of the pods that a Service sends requests to, at rest."""
    stage.settle()
    endpoints = [
        endpoint
        for item in stage.all("EndpointSlice")
        if service_of(item) == service
        for endpoint in endpoints_of(item)
    ]
    return {endpoint["targetRef"]["name"] for endpoint in endpoints if endpoint["conditions"]["ready"]}


def names(pods: Iterable[Object]) -> set[str]:
    return set(map(name_of, pods))


def check_resolved(stage: Stage, pods: list[Object]) -> None:
    """Each pod's address, and its leader's, leads to that pod alone."""
    ips = {pod["spec"]["hostname"]: pod["status"]["podIP"] for pod in pods}
    for pod in pods:
        environment = environment_of(pod)
        hostname, subdomain = pod["spec"]["hostname"], pod["spec"]["subdomain"]
        assert resolve(stage, f"{hostname}.{subdomain}.{stage.namespace}") == [ips[hostname]]
        leader = environment["LWS_LEADER_ADDRESS"]
        assert leader == environment["COVEY_LEADER_ADDRESS"]
        assert leader.partition(".")[0] == f"{hostname.rpartition('-')[0]}-0"
        assert resolve(stage, leader) == [ips[leader.partition(".")[0]]]
        assert environment["COVEY_REVISION"] == label(pod, "revision")


def rolled(stage: Stage) -> list[Object]:
    """All six pods at rest, when nothing is left to be rolled."""
    pods = stage.ready(6)
    assert stage.condition("Progressing")[:2] == ("True", "Complete")
    return pods


def test_replica_has_a_service_of_its_own_which_its_successor_inherits(stage: Stage) -> None:
    """LWS 5.2: with UniquePerReplica one headless Service for each replica."""
    stage.nodes(racks=2, nodes=4)
    stage.create(*pair(**OWN))
    pods = stage.ready(6)
    assert services(stage) == {"llm-0-prefill-0", "llm-0-prefill-1", "llm-pods"}
    check_resolved(stage, pods)
    for pod in pods:
        for role in ("prefill", "decode"):
            address = environment_of(pod)[f"COVEY_ROLE_{role.upper()}_ADDRESS"]
            [leader] = stage.pods(role=role, replica=0, index=0)
            assert resolve(stage, address) == [leader["status"]["podIP"]]
    lost = stage.pods(role="prefill", replica=1)
    stage.delete("Pod", name_of(lost[0]))
    pods = stage.ready(6)
    assert not uids(lost) & uids(pods)
    check_resolved(stage, pods)
    assert check_addresses(as_pairs(stage.history("EndpointSlice"))) == 8
    stage.change(roles=[{**pair(**OWN)[0], "replicas": 1}, pair()[1]])
    assert services(stage) == {"llm-0-prefill-0", "llm-pods"}


def test_subdomain_when_it_changes_is_rolled_and_back(stage: Stage) -> None:
    """LWS 5.2: Shared to UniquePerReplica changes the leader's address and rolls the groups; surge replicas too."""
    stage.nodes(racks=2, nodes=5)
    stage.create(*pair())
    before = stage.ready(6)
    since = len(stage.history("Pod"))
    stage.change(roles=pair(**OWN))
    pods = rolled(stage)
    numbers = {label(pod, "replica") for pod in pods if label(pod, "role") == "prefill"}
    assert services(stage) == {"llm-pods", *(f"llm-0-prefill-{number}" for number in numbers)}
    check_resolved(stage, pods)
    stage.change(roles=pair(subdomain="Shared"))
    pods = rolled(stage)
    assert services(stage) == {"llm-pods"}
    check_resolved(stage, pods)
    assert fewest_serving(before, as_pairs(stage.history("Pod")[since:]), "prefill", 2) == 2
    check_addresses(as_pairs(stage.history("EndpointSlice")))
    assert uids([pod for pod in before if label(pod, "role") == "decode"]) <= uids(pods)


def test_service_with_a_cluster_ip_sends_requests_to_ready_leaders(stage: Stage) -> None:
    """RBG 5.2: LeaderOnly to All and back changes endpoints only."""
    stage.nodes(racks=2, nodes=5)
    stage.create(*pair(**PORTS, service={}))
    pods = stage.ready(6)
    prefill = [pod for pod in pods if label(pod, "role") == "prefill"]
    leaders = [pod for pod in prefill if label(pod, "index") == "0"]
    assert services(stage) == {"llm-prefill", "llm-prefill-svc", "llm-pods"}
    told = {environment_of(pod)["COVEY_ROLE_PREFILL_SERVICE"] for pod in pods}
    assert told == {f"llm-prefill-svc.{stage.namespace}"}
    spec = stage.get("Service", "llm-prefill-svc")["spec"]
    assert spec["type"] == "ClusterIP"
    assert spec["clusterIP"] not in {"", "None"}
    assert published(stage, "llm-prefill-svc") == names(leaders)
    stage.change(roles=pair(**PORTS, service={"endpoints": "All"}))
    assert published(stage, "llm-prefill-svc") == names(prefill)
    stage.change(roles=pair(**PORTS, service={"endpoints": "Leaders"}))
    assert published(stage, "llm-prefill-svc") == names(leaders)
    assert stage.get("Service", "llm-prefill-svc")["spec"]["clusterIP"] == spec["clusterIP"]
    # A leader that is not Ready takes no requests, and its workers still find it.
    stage.patch_status("Pod", name_of(leaders[0]), {"conditions": [{"type": "Ready", "status": "False"}]})
    assert published(stage, "llm-prefill-svc") == names(leaders[1:])
    address = environment_of(leaders[0])["LWS_LEADER_ADDRESS"]
    assert resolve(stage, address) == [leaders[0]["status"]["podIP"]]
    stage.change(roles=pair(**PORTS))
    assert services(stage) == {"llm-prefill", "llm-pods"}
    assert uids(stage.pods()) == uids(pods)


def test_address_while_the_pods_of_a_former_resource_end_is_that_of_the_new_one(stage: Stage) -> None:
    """Deleted and created again under the same name, with an hour of grace, say: two pods would answer to one name."""
    stage.nodes(racks=3, nodes=4)
    everywhere = pair(**PORTS, service={"endpoints": "All"})
    stage.create(*everywhere)
    former = stage.ready(6)
    for pod in former:
        stage.patch("Pod", name_of(pod), {"metadata": {"finalizers": ["test.example.com/ends-slowly"]}})
    stage.delete(INFERENCE, "llm")
    stage.settle()
    assert not stage.pods()
    assert uids(stage.all("Pod")) == uids(former)
    stage.create(*everywhere)
    pods = stage.ready(6)
    for pod in pods:
        address = f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}.{stage.namespace}"
        assert resolve(stage, address) == [pod["status"]["podIP"]]
    assert published(stage, "llm-prefill-svc") == names(pod for pod in pods if label(pod, "role") == "prefill")
    for pod in former:
        stage.patch("Pod", name_of(pod), {"metadata": {"finalizers": None}})
    assert uids(stage.ready(6)) == uids(stage.all("Pod"))


def test_replica_when_it_drains_takes_no_requests_and_keeps_its_address(stage: Stage) -> None:
    """It is to go, by a smaller scale, and has an hour for what it still serves."""
    stage.nodes(racks=2, nodes=4)
    prefill, decode = pair(**PORTS, **OWN, service={"endpoints": "All"})
    prefill["drainSeconds"] = 3600
    stage.create(prefill, decode)
    before = [pod for pod in stage.ready(6) if label(pod, "role") == "prefill"]
    assert published(stage, "llm-prefill-svc") == names(before)
    stage.change(roles=[{**prefill, "replicas": 1}, decode])
    stage.ready(6)
    going = stage.pods(role="prefill", draining="true")
    assert len(going) == 2
    [left] = {label(pod, "replica") for pod in before if uid_of(pod) not in uids(going)}
    assert published(stage, "llm-prefill-svc") == names(before) - names(going)
    [leader] = [pod for pod in going if label(pod, "index") == "0"]
    assert resolve(stage, environment_of(going[1])["LWS_LEADER_ADDRESS"]) == [leader["status"]["podIP"]]
    for pod in going:
        stage.patch("Pod", name_of(pod), {"metadata": {"annotations": {"covey.dev/in-flight": "0"}}})
    stage.ready(4)
    assert services(stage) == {f"llm-0-prefill-{left}", "llm-prefill-svc", "llm-pods"}


def half_rolled(stage: Stage) -> list[Object]:
    """The pods at rest, half of which are of another image."""
    pods = stage.ready(6)
    images = [pod["spec"]["containers"][0]["image"] for pod in pods]
    assert sorted(images) == ["registry.test/engine:1"] * 3 + ["registry.test/engine:2"] * 3
    return pods


def paired(stage: Stage) -> dict[str, set[tuple[str, str]]]:
    """Role and revision of the pods behind the Services of each revision of the resource."""
    wholes: dict[str, set[tuple[str, str]]] = {}
    for service in stage.owned("Service"):
        labels = service["metadata"]["labels"]
        if whole := labels.get("covey.dev/whole-revision"):
            wholes.setdefault(whole, set()).add((labels["covey.dev/role"], labels["covey.dev/revision"]))
    return wholes


def sides(pods: Sequence[Object]) -> set[tuple[str, str]]:
    return {(label(pod, "role"), label(pod, "revision")) for pod in pods}


def test_revisions_when_they_run_side_by_side_have_services_of_their_own(stage: Stage) -> None:
    """DS 5.1, llm-d#499: a Service for each role of a revision, once every role of it has a Ready replica."""
    stage.nodes(racks=2, nodes=6)
    stage.create(*with_all(pair(), HALF))
    former = sides(stage.ready(6))
    stage.change(roles=with_all(pair(image="2"), HALF))
    both = sides(half_rolled(stage))
    rollout = stage.status()["rollout"]
    assert paired(stage) == {rollout["fromRevision"]: former, rollout["toRevision"]: both - former}
    for service in stage.owned("Service"):
        labels = service["metadata"]["labels"]
        if "covey.dev/whole-revision" in labels:
            leaders = stage.pods(role=labels["covey.dev/role"], revision=labels["covey.dev/revision"], index=0)
            assert published(stage, name_of(service)) == names(leaders)
    stage.change(roles=with_all(pair(image="2"), {"update": {"partition": 0}}))
    rolled(stage)
    assert services(stage) == {"llm-pods"}
    # There were two revisions with Services, each with one for every role.
    made: dict[str, set[str]] = {}
    for event in stage.history("Service"):
        labels = event.object["metadata"]["labels"]
        if event.change == "ADDED" and (whole := labels.get("covey.dev/whole-revision")):
            made.setdefault(whole, set()).add(labels["covey.dev/role"])
    assert list(made.values()) == [{"prefill", "decode"}] * 2


def test_service_when_it_cannot_be_had_is_told_and_holds_nothing_up(stage: Stage) -> None:
    """The name of one is a stranger's, those of revisions are beyond the quota: gangs start and roll all the same."""
    stage.nodes(racks=2, nodes=6)
    stranger = {"metadata": {"name": "llm-prefill-svc"}, "spec": {"ports": [{"port": 80}]}}
    stage.cluster.api("POST", stage.path("Service"), stranger)
    stage.create(*pair(**PORTS, service={}))
    stage.ready(6)
    status, reason, message = stage.condition("Progressing")
    assert (status, reason) == ("False", "NameTaken")
    assert "llm-prefill-svc exists and is not Covey's" in message
    stage.delete("Service", "llm-prefill-svc")
    # Nobody tells of strangers' objects: it is tried again once a minute.
    stage.advance(70)
    assert services(stage) == {"llm-prefill", "llm-prefill-svc", "llm-pods"}
    assert stage.condition("Progressing")[:2] == ("True", "Complete")
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"services": "3"}}}
    stage.cluster.api("POST", stage.path("ResourceQuota"), quota)
    stage.settle()
    assert stage.get("ResourceQuota", "few")["status"]["used"]["services"] == "3"
    stage.change(roles=with_all(pair(image="2", **PORTS, service={}), HALF))
    half_rolled(stage)
    status, reason, message = stage.condition("Progressing")
    assert (status, reason) == ("False", "RequestRefused")
    assert "exceeded quota" in message
    stage.delete("ResourceQuota", "few")
    stage.advance(70)
    assert [len(roles) for roles in paired(stage).values()] == [2, 2]


def test_labels_of_leaderworkerset_come_and_go_on_pods_that_run(stage: Stage) -> None:
    stage.nodes(racks=2, nodes=4)
    stage.create(*pair())
    before = uids(stage.ready(6))

    def selected(selector: str) -> list[Object]:
        """The labels of the pods that a selector finds, at rest."""
        stage.settle()
        items = stage.cluster.api("GET", f"{stage.path('Pod')}?labelSelector={selector}")["items"]
        return [pod["metadata"]["labels"] for pod in items]

    leaders = f"{LWS}/name=llm-prefill,{LWS}/worker-index=0"
    assert not selected(leaders)
    stage.change(compat={"lwsLabels": "Always"})
    keys = {labels[f"{LWS}/group-key"] for labels in selected(leaders)}
    assert len(keys) == len(selected(leaders)) == 2
    for key in keys:
        assert sorted(labels[f"{LWS}/worker-index"] for labels in selected(f"{LWS}/group-key={key}")) == ["0", "1"]
    stage.change(compat={"lwsLabels": None})
    stage.settle()
    assert not any(LWS in key for pod in stage.pods() for key in pod["metadata"]["labels"])
    assert uids(stage.pods()) == before
    # Of revisions that differ in live fields only, the newest is kept.
    assert len(stage.owned("ControllerRevision")) == 1


def test_labels_of_leaderworkerset_when_its_webhook_denies_them_are_told(stage: Stage) -> None:
    """Its pod webhook denies whatever has the label ``name`` and not its annotation ``size``; a policy says the same."""
    stage.nodes(racks=2, nodes=4)
    api = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    name, cluster = stage.namespace, stage.cluster
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
    stage.after(lambda: cluster.api("DELETE", f"{api}ies/{name}"))
    cluster.api("POST", f"{api}ybindings", {"metadata": {"name": name}, "spec": binding})
    stage.after(lambda: cluster.api("DELETE", f"{api}ybindings/{name}"))
    probe = {
        "metadata": {"name": "probe", "labels": {f"{LWS}/name": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }

    def is_in_force() -> bool:
        try:
            cluster.api("POST", f"{stage.path('Pod')}?dryRun=All", probe)
        except ApiException as error:
            return "size annotation" in str(error)
        return False

    # When an API server heeds a policy is told nowhere.
    stage.await_event(is_in_force, "the policy is in force")
    stage.create(*pair(), compat={"lwsLabels": "Always"})
    stage.settle()
    status, reason, message = stage.condition("Admitted")
    assert (status, reason) == ("False", "TemplateRejected")
    assert "size annotation is unexpectedly missing" in message
    stage.change(compat={"lwsLabels": "Never"})
    stage.ready(6)


def test_containers_are_told_the_domain_of_every_level(stage: Stage) -> None:
    stage.nodes(blocks=2, racks=2, nodes=3)
    stage.create(*pair(), topology={"required": "block"})
    pods = stage.ready(6)
    keys = {
        "BLOCK": "cloud.provider.com/topology-block",
        "RACK": "cloud.provider.com/topology-rack",
        "HOST": "kubernetes.io/hostname",
    }
    for pod in pods:
        environment = environment_of(pod)
        told = {tuple(environment[f"COVEY_DOMAIN_{level}"] for level in keys)}
        assert told == stage.domains([pod], *keys.values())
    assert len({environment_of(pod)["COVEY_DOMAIN_BLOCK"] for pod in pods}) == 1
    assert len(set(map(node_of, pods))) == 6


def test_services_when_a_mesh_asks_for_protocols_labels_and_annotations_have_them_until_they_are_taken_back(
    stage: Stage,
) -> None:
    stage.nodes(nodes=1)
    ports = [{"name": "http", "port": 8000, "appProtocol": "kubernetes.io/h2c"}]
    own = {"labels": {"team": "search"}, "annotations": {"networking.istio.io/exportTo": "."}}
    asked = workers("prefill", gpus=1, network={"ports": ports, "metadata": own, "service": {}})
    decode = workers("decode", gpus=1)
    decode["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 29500}]
    stage.create(asked, decode)
    before = uids(stage.ready(2))

    def mesh_fields(name: str) -> tuple[str | None, str | None, str | None]:
        service = stage.get("Service", name)
        metadata, (port,) = service["metadata"], service["spec"]["ports"]
        fields = (metadata["labels"].get("team"), metadata["annotations"].get("networking.istio.io/exportTo"))
        return port.get("appProtocol"), *fields

    names = ("llm-prefill", "llm-prefill-svc")
    assert [mesh_fields(name) for name in names] == [("kubernetes.io/h2c", "search", ".")] * 2
    assert [port["port"] for port in stage.get("Service", "llm-pods")["spec"]["ports"]] == [29500]
    stage.change(roles=[{**asked, "network": {**PORTS, "service": {}}}, decode])
    stage.settle()
    assert [mesh_fields(name) for name in names] == [(None, None, None)] * 2
    assert uids(stage.ready(2)) == before
