"""Services, the addresses through them, and LeaderWorkerSet's labels."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest
import yaml

from builders.inferences import FORMER, inference, role, template
from covey.api.inference import DisaggregatedInference
from covey.compile import Layout, Revision, Slot, Tree, compile_inference
from covey.compile.network import NetworkCompiler

PORTS: dict[str, Any] = {"ports": [{"name": "http", "port": 8000}]}
OWN = {"subdomain": "UniquePerReplica"}


def services(tree: Tree) -> dict[str, dict[str, Any]]:
    return {body["metadata"]["name"]: body for body in (*tree.levels[-1].objects, *tree.published)}


def values(tree: Tree, slot: Slot) -> dict[str, str]:
    (container,) = tree.pods.build(slot, "uid")["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def test_each_replica_has_a_headless_service_of_its_own() -> None:
    resource = inference(role("prefill", replicas=2, size=2, network={**OWN, **PORTS}), role("decode"), replicas=2)
    tree = compile_inference(resource)
    found = services(tree)
    assert list(found) == ["llama-pods", *(f"llama-{unit}-prefill-{replica}" for unit in (0, 1) for replica in (0, 1))]
    body = found["llama-1-prefill-0"]
    assert body["spec"] == yaml.safe_load("""
      clusterIP: None
      publishNotReadyAddresses: true
      selector:
        {covey.dev/inference: llama, covey.dev/role: prefill, covey.dev/unit: "1", covey.dev/replica: "0",
         covey.dev/address: "true"}
      ports: [{name: http, port: 8000, targetPort: 8000, protocol: TCP}]
    """)
    pod = tree.pods.build(Slot(1, "prefill", 0, 1), "uid")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("1-prefill-0-1", "llama-1-prefill-0")
    told = values(tree, Slot(1, "prefill", 0, 1))
    assert told["LWS_LEADER_ADDRESS"] == told["COVEY_LEADER_ADDRESS"] == "1-prefill-0-0.llama-1-prefill-0.ml"
    assert told["COVEY_ROLE_DECODE_ADDRESS"] == "1-decode-0-0.llama-pods.ml"
    # The other role is told the address that the replica has.
    assert values(tree, Slot(1, "decode", 0, 0))["COVEY_ROLE_PREFILL_ADDRESS"] == told["LWS_LEADER_ADDRESS"]


def test_both_kinds_of_subdomain_stand_side_by_side_while_one_takes_the_others_place() -> None:
    before = replace(Revision.of(inference(role("prefill")).spec).roles["prefill"], gathered=False)
    resource = inference(role("prefill", replicas=2, network=OWN))
    after = Revision.of(resource.spec).roles["prefill"]
    tree = compile_inference(resource, layout=Layout({0: {"prefill": {0: before, 3: after}}}))
    assert list(services(tree)) == ["llama-prefill", "llama-0-prefill-3"]
    subdomains = [tree.pods.build(slot, "uid")["spec"]["subdomain"] for slot in tree.slots]
    assert subdomains == ["llama-prefill", "llama-0-prefill-3"]
    old, new = (values(tree, slot)["LWS_LEADER_ADDRESS"] for slot in tree.slots)
    assert (old, new) == ("0-prefill-0-0.llama-prefill.ml", "0-prefill-3-0.llama-0-prefill-3.ml")


def test_the_names_of_services_are_never_those_of_another_role() -> None:
    network = {**OWN, **PORTS, "service": {}}
    others = [role(name, network=PORTS) for name in ("0-prefill-0", "prefill-svc", "pods")]
    tree = compile_inference(inference(role("prefill", network=network), role("decode"), *others))
    assert len(services(tree)) == 6
    pods = [tree.pods.build(slot, "uid") for slot in tree.slots]
    assert {pod["spec"]["subdomain"] for pod in pods} < services(tree).keys()
    assert len({pod["spec"]["subdomain"] for pod in pods}) == 5


@pytest.mark.parametrize(("asked", "selected"), [({}, {"covey.dev/index": "0"}), ({"endpoints": "All"}, {})])
def test_a_service_with_a_cluster_ip_publishes_ready_pods_that_take_requests(
    asked: dict[str, str], selected: dict[str, str]
) -> None:
    tree = compile_inference(inference(role("prefill", size=2, network={**PORTS, "service": asked})))
    assert list(services(tree)) == ["llama-prefill", "llama-prefill-svc"]
    assert services(tree)["llama-prefill-svc"]["spec"] == {
        "type": "ClusterIP",
        "selector": {
            "covey.dev/inference": "llama",
            "covey.dev/role": "prefill",
            "covey.dev/address": "true",
            "covey.dev/endpoint": "true",
            **selected,
        },
        "ports": [{"name": "http", "port": 8000, "targetPort": 8000, "protocol": "TCP"}],
    }


def test_a_service_of_one_revision() -> None:
    resource = inference(role("prefill", network=PORTS), role("decode"))
    tree = compile_inference(resource)
    body = NetworkCompiler(tree.owner, resource.spec).of_revision("prefill", "of-role", "of-all")
    assert body["metadata"]["name"] == "llama-prefill-of-all"
    assert body["metadata"]["labels"] == {
        "covey.dev/inference": "llama",
        "covey.dev/role": "prefill",
        "covey.dev/revision": "of-role",
        "covey.dev/whole-revision": "of-all",
    }
    assert body["spec"]["selector"]["covey.dev/revision"] == "of-role"
    assert body["spec"]["clusterIP"] == "None"
    assert "publishNotReadyAddresses" not in body["spec"]


def test_existing_resources_keep_their_revision() -> None:
    """The hash of a resource that says nothing of its network is what the release before computed."""
    of_then = {"template": template(containers=[FORMER])}
    plain = inference(role("prefill", size=2, **of_then), role("decode", **of_then))
    assert Revision.of(plain.spec).hash == "e6bd0af1ff"
    network = {"subdomain": "Shared", **PORTS}
    shared = inference(role("prefill", size=2, network=network, **of_then), role("decode", **of_then))
    assert Revision.of(shared.spec) == Revision.of(plain.spec)


def test_roles_without_ports_share_one_headless_service() -> None:
    tree = compile_inference(inference(role("prefill", network=PORTS), role("decode"), role("router")))
    assert list(services(tree)) == ["llama-pods", "llama-prefill"]
    assert services(tree)["llama-pods"]["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"covey.dev/inference": "llama", "covey.dev/address": "true"},
    }
    subdomains = {slot.role: tree.pods.build(slot, "uid")["spec"]["subdomain"] for slot in tree.slots}
    assert subdomains == {"prefill": "llama-prefill", "decode": "llama-pods", "router": "llama-pods"}


def test_a_role_that_is_given_ports_later_keeps_its_addresses_and_gets_a_service() -> None:
    before = Revision.of(inference(role("decode")).spec)
    after = inference(role("decode", network=PORTS))
    revision = Revision.of(after.spec).known_as([before])
    tree = compile_inference(after, revision=revision)
    assert list(services(tree)) == ["llama-pods", "llama-decode"]
    assert tree.pods.build(Slot(0, "decode", 0, 0), "uid")["spec"]["subdomain"] == "llama-pods"


def test_the_members_service_has_the_ports_that_containers_of_its_pods_name() -> None:
    def listening(name: str, *ports: object) -> dict[str, Any]:
        return role(name, template=template(containers=[{"name": "engine", "image": "x", "ports": list(ports)}]))

    rpc = {"containerPort": 29500, "name": "rpc"}
    listens = [listening("prefill", rpc, {"containerPort": 5000, "protocol": "UDP"}), listening("decode", rpc, rpc)]
    wrong = listening(
        "router", "8000", {"containerPort": "http"}, {"containerPort": 0}, {"containerPort": 1, "protocol": "X"}
    )
    with_own = {**listening("proxy", {"containerPort": 80}), "network": PORTS}
    body = services(compile_inference(inference(*listens, wrong, with_own)))["llama-pods"]
    assert [(each["name"], each["port"], each["protocol"]) for each in body["spec"]["ports"]] == [
        ("udp-5000", 5000, "UDP"),
        ("tcp-29500", 29500, "TCP"),
    ]
    none = services(compile_inference(inference(role("prefill"))))["llama-pods"]
    assert "ports" not in none["spec"]


def test_services_of_a_role_have_its_protocols_labels_and_annotations() -> None:
    own = {"labels": {"team": "search"}, "annotations": {"networking.istio.io/exportTo": "."}}
    ports = [{"name": "http", "port": 8000, "appProtocol": "kubernetes.io/h2c"}, {"name": "rpc", "port": 9000}]
    network = {"ports": ports, "metadata": own, "service": {}}
    resource = inference(role("prefill", network=network), role("decode", network=PORTS))
    tree = compile_inference(resource)
    found = services(tree)
    bodies = [found["llama-prefill"], found["llama-prefill-svc"]]
    for body in (*bodies, NetworkCompiler(tree.owner, resource.spec).of_revision("prefill", "of-role", "of-all")):
        assert [each.get("appProtocol") for each in body["spec"]["ports"]] == ["kubernetes.io/h2c", None]
        assert body["metadata"]["labels"]["team"] == "search"
        assert body["metadata"]["annotations"] == own["annotations"]
    assert found["llama-decode"]["metadata"].keys() == {"name", "namespace", "labels", "ownerReferences"}


def labelled(resource: DisaggregatedInference, slot: Slot) -> dict[str, str]:
    labels = compile_inference(resource).pods.build(slot, "uid")["metadata"]["labels"]
    return {key.partition("/")[2]: value for key, value in labels.items() if key.startswith("leaderworkerset")}


def test_labels_of_leaderworkerset_are_set_on_request_only() -> None:
    slot = Slot(1, "prefill", 1, 2)
    roles = (role("prefill", replicas=2, size=3), role("decode"))
    assert labelled(inference(*roles), slot) == {}
    assert labelled(inference(*roles, compat={"lwsLabels": "Never"}), slot) == {}
    resource = inference(*roles, compat={"lwsLabels": "Always"})
    assert labelled(resource, slot) == {
        "name": "llama-prefill",
        "group-index": "1",
        "worker-index": "2",
        "group-key": hashlib.sha1(b"ml/llama-1-prefill-1", usedforsecurity=False).hexdigest(),
        "template-revision-hash": Revision.of(resource.spec).roles["prefill"].hash,
    }
    assert labelled(resource, Slot(1, "prefill", 1, 0))["group-key"] == labelled(resource, slot)["group-key"]
    assert Revision.of(resource.spec) == Revision.of(inference(*roles).spec)
    alone = inference(roles[0], compat={"lwsLabels": "Always"})
    assert labelled(alone, slot)["name"] == "llama"
