"""Pods: identity, environment, and what is Covey's own in them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import yaml

from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.backends.extender import Extender
from covey.compile import Layout, Revision, RoleRevision, Slot, compile_inference
from covey.compile.restarts import NO_PAST, Past


def numbered(resource: DisaggregatedInference, numbers: dict[int, dict[str, tuple[int, ...]]]) -> Layout:
    return Layout.of(numbers, Revision.of(resource.spec))


FIRST = Slot(0, "prefill", 0, 0)
WORKER = Slot(0, "prefill", 0, 1)


def prefill(**fields: Any) -> dict[str, Any]:
    return role("prefill", **{"size": 2, **fields})


def env_of(container: dict[str, Any]) -> list[str]:
    return [variable["name"] for variable in container["env"]]


def values_of(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}


def test_the_address_of_a_role_is_one_of_a_replica_that_there_is() -> None:
    resource = inference(prefill(), role("decode", replicas=0, minReplicas=0))
    tree = compile_inference(resource, layout=numbered(resource, {2: {"prefill": (3, 5), "decode": ()}}))
    (container,) = tree.pods.build(Slot(2, "prefill", 5, 0), "uid")["spec"]["containers"]
    assert values_of(container)["COVEY_ROLE_PREFILL_ADDRESS"] == "2-prefill-3-0.llama-pods.ml"
    assert values_of(container)["COVEY_ROLE_DECODE_ADDRESS"] == "2-decode-0-0.llama-pods.ml"


def test_the_first_container_marks_a_member_by_a_limit_that_asks_for_nothing() -> None:
    template_of = template()
    own = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    template_of["spec"]["containers"] = [
        {"name": "engine", "image": "e", "resources": own},
        {"name": "b", "image": "b"},
    ]
    tree = compile_inference(inference(prefill(template=template_of)))
    first, second = tree.pods.build(WORKER, "uid")["spec"]["containers"]
    assert first["resources"] == {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi", names.RESOURCE_MEMBER: "0"}}
    assert "resources" not in second


def test_identity() -> None:
    tree = compile_inference(inference(prefill()))
    pod = tree.pods.build(WORKER, "uid-of-group")
    assert pod["metadata"]["labels"] == {
        "covey.dev/inference": "llama",
        "covey.dev/unit": "0",
        "covey.dev/role": "prefill",
        "covey.dev/replica": "0",
        "covey.dev/index": "1",
        "covey.dev/revision": tree.revision.roles["prefill"].hash,
        "covey.dev/pairing": tree.revision.hash,
        "covey.dev/address": "true",
        "covey.dev/endpoint": "true",
        "covey.dev/gang": "true",
        "scheduling.covey.dev/pod-group": "llama-0-prefill-0",
    }
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "uid-llama"
    assert pod["spec"]["hostname"] == "0-prefill-0-1"
    assert pod["spec"]["subdomain"] == "llama-pods"
    assert pod["spec"]["schedulingGates"] == [{"name": names.GATE_GANG}]
    assert pod["spec"]["schedulerName"] == "covey-scheduler"


def test_lws_contract_comes_first_in_every_container() -> None:
    own = [{"name": "LWS_GROUP_SIZE", "value": "99"}, {"name": "ARGS", "value": "$(LWS_LEADER_ADDRESS):5000"}]
    pod_template = template(
        containers=[{"name": "engine", "image": "e", "env": own}, {"name": "sidecar", "image": "s"}],
        initContainers=[{"name": "fetch", "image": "f", "env": [{"name": "COVEY_ROLE", "value": "mine"}]}],
    )
    pod = compile_inference(inference(prefill(template=pod_template))).pods.build(WORKER, "uid")
    for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
        assert env_of(container)[:3] == ["LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"]
        assert values_of(container)["LWS_LEADER_ADDRESS"] == "0-prefill-0-0.llama-pods.ml"
        assert values_of(container)["LWS_GROUP_SIZE"] == "2"
        assert values_of(container)["LWS_WORKER_INDEX"] == "1"
        assert values_of(container)["COVEY_ROLE"] == "prefill"
        assert len(env_of(container)) == len(set(env_of(container)))
    assert pod["spec"]["containers"][0]["env"][-1] == own[1]


def test_covey_environment() -> None:
    tree = compile_inference(
        inference(prefill(replicas=2), role("kv-router", replicas=3), replicas=2), levels={"rack": ("x/rack",)}
    )
    (container,) = tree.pods.build(Slot(1, "prefill", 1, 1), "uid")["spec"]["containers"]
    assert {key: value for key, value in values_of(container).items() if key.startswith("COVEY_")} == {
        "COVEY_UNIT": "1",
        "COVEY_ROLE": "prefill",
        "COVEY_REPLICA": "1",
        "COVEY_INDEX": "1",
        "COVEY_SIZE": "2",
        "COVEY_LEADER_ADDRESS": "1-prefill-1-0.llama-pods.ml",
        "COVEY_ROLE_PREFILL_ADDRESS": "1-prefill-0-0.llama-pods.ml",
        "COVEY_ROLE_PREFILL_SERVICE": "llama-prefill-svc.ml",
        "COVEY_ROLE_PREFILL_SIZE": "2",
        "COVEY_ROLE_KV_ROUTER_ADDRESS": "1-kv-router-0-0.llama-pods.ml",
        "COVEY_ROLE_KV_ROUTER_SERVICE": "llama-kv-router-svc.ml",
        "COVEY_ROLE_KV_ROUTER_SIZE": "1",
    }
    # What may change once the pod is there.
    assert container["env"][-2:] == yaml.safe_load("""
    - name: COVEY_REVISION
      valueFrom: {fieldRef: {fieldPath: "metadata.labels['covey.dev/revision']"}}
    - name: COVEY_DOMAIN_RACK
      valueFrom: {fieldRef: {fieldPath: "metadata.annotations['topology.covey.dev/rack']"}}
    """)


def test_leader_template_is_the_leaders_alone() -> None:
    leader = template(nodeSelector={"kind": "leader"})
    pods = compile_inference(inference(prefill(leaderTemplate=leader))).pods
    assert pods.build(FIRST, "uid")["spec"]["nodeSelector"] == {"kind": "leader"}
    assert "nodeSelector" not in pods.build(WORKER, "uid")["spec"]


def test_covey_labels_win_over_the_templates() -> None:
    metadata = {"labels": {"app": "vllm", "covey.dev/unit": "7"}, "annotations": {"note": "kept"}}
    pod = compile_inference(inference(prefill(template={**template(), "metadata": metadata}))).pods.build(FIRST, "uid")
    assert pod["metadata"]["labels"]["app"] == "vllm"
    assert pod["metadata"]["labels"]["covey.dev/unit"] == "0"
    assert pod["metadata"]["annotations"] == {"note": "kept"}


def test_bodies_do_not_share_what_one_of_them_could_change() -> None:
    pods = compile_inference(inference(prefill())).pods
    one, other = pods.build(FIRST, "uid"), pods.build(FIRST, "uid")
    one["metadata"]["labels"]["x"] = "y"
    one["spec"]["containers"][0]["env"].clear()
    assert "x" not in other["metadata"]["labels"]
    assert other["spec"]["containers"][0]["env"]


@pytest.mark.parametrize(
    "change",
    [
        {"size": 3},
        {"template": template(nodeSelector={"a": "b"})},
        {"leaderTemplate": template()},
        {"network": {"subdomain": "UniquePerReplica"}},
    ],
)
def test_rolled_fields_change_the_revision_of_their_role_only(change: dict[str, Any]) -> None:
    before = Revision.of(inference(prefill(), role("router")).spec)
    after = Revision.of(inference({**prefill(), **change}, role("router")).spec)
    assert before.hash != after.hash
    assert before.roles["prefill"].hash != after.roles["prefill"].hash
    assert before.roles["router"].hash == after.roles["router"].hash


def test_hash_ignores_order_of_keys_and_written_defaults() -> None:
    container = {"name": "engine", "image": "e", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    orders = itertools.permutations(container.items())
    plain = {"spec": {"containers": [container]}}
    roles = [{"name": "r", "template": {"spec": {"containers": [dict(order)]}}} for order in orders]
    roles.append({"name": "r", "size": 1, "replicas": 1, "template": plain})
    assert len({Revision.of(inference(each).spec).hash for each in roles}) == 1


def test_null_means_absent() -> None:
    generated = {"metadata": {"creationTimestamp": None}, **template()}
    plain = {"metadata": {}, **template()}
    hashes = {Revision.of(inference(prefill(template=each)).spec).hash for each in (generated, plain)}
    assert len(hashes) == 1


def test_revisions_are_compared_by_content_not_by_hash() -> None:
    spec = inference(prefill(leaderTemplate=template(nodeSelector={"a": "b"})), role("router")).spec
    now = Revision.of(spec)
    before = now.with_hashes({"prefill": "of-another-release", "router": "likewise"}, "whole")
    assert before.is_same(now)
    assert now.known_as([before]) == before
    changed = Revision.of(inference(prefill(), role("router")).spec)
    assert not changed.is_same(before)
    known = changed.known_as([before])
    # What has not changed keeps its name.
    assert known.roles["router"].hash == "likewise"
    assert known.roles["prefill"].hash == changed.roles["prefill"].hash
    assert known.hash not in {before.hash, changed.hash}


def test_every_rolled_field_takes_part_in_the_comparison() -> None:
    base = Revision.of(inference(prefill()).spec)
    own = {"subdomain": "UniquePerReplica"}
    for change in ({"size": 3}, {"template": template(a=1)}, {"leaderTemplate": template()}, {"network": own}):
        assert not Revision.of(inference({**prefill(), **change}).spec).is_same(base)
    assert not Revision.of(inference(prefill(), compat={"lws": False}).spec).is_same(base)


def test_replicas_of_two_revisions_stand_side_by_side() -> None:
    resource = inference(prefill(replicas=2, template=template(nodeSelector={"gen": "2"})))
    new = Revision.of(resource.spec).roles["prefill"]
    old = RoleRevision("old", {"size": 3, "template": template(nodeSelector={"gen": "1"})}, {"lws": False})
    tree = compile_inference(resource, layout=Layout({0: {"prefill": {0: old, 1: new}}}))
    assert [(slot.replica, slot.index) for slot in tree.slots] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    one, other = (tree.pods.build(Slot(0, "prefill", replica, 0), "uid") for replica in (0, 1))
    assert [pod["spec"]["nodeSelector"]["gen"] for pod in (one, other)] == ["1", "2"]
    assert [pod["metadata"]["labels"][names.LABEL_REVISION] for pod in (one, other)] == ["old", new.hash]
    assert [env_of(pod["spec"]["containers"][0])[0] for pod in (one, other)] == ["COVEY_UNIT", "LWS_LEADER_ADDRESS"]
    assert [group["spec"]["desiredCount"] for group in tree.levels[3].objects] == [3, 2]


def test_what_is_told_is_read() -> None:
    past = Past(7, 2, 1_767_225_600.0, 1)
    assert Past.read(past.annotations()) == past


@pytest.mark.parametrize("text", ["", "-1", "1e9", "many", "9" * 5000])
def test_what_is_no_count_is_none(text: str) -> None:
    assert Past.read({"covey.dev/restarts": text}) == NO_PAST


def test_members_when_evictions_are_answered_name_the_operator_beside_responders_of_the_template() -> None:
    ours = {"name": "inference.covey.dev/gang", "priority": 10_000}
    own = [{"name": f"example.com/{number}", "priority": 20_000} for number in range(10)]
    for given, wanted in ([], [ours]), (own[:1], [own[0], ours]), ([ours | {"priority": 1}], [ours | {"priority": 1}]):
        resource = inference(prefill(template=template(evictionResponders=given)))
        pod = Extender(evictions=True).compile(resource).pods.build(FIRST, "uid")
        assert pod["spec"]["evictionResponders"] == wanted
    # Kubernetes takes ten.
    resource = inference(prefill(template=template(evictionResponders=own)))
    assert Extender(evictions=True).compile(resource).pods.build(FIRST, "uid")["spec"]["evictionResponders"] == own


def test_members_when_evictions_are_not_answered_name_nobody_and_have_the_same_revision() -> None:
    resource = inference(prefill())
    pods = [Extender(evictions=each).compile(resource).pods.build(FIRST, "uid") for each in (False, True)]
    assert "evictionResponders" not in pods[0]["spec"]
    assert pods[0]["metadata"] == pods[1]["metadata"]
