"""Groups and pods that another controller than Covey's operator writes, and what tenants write on pods."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from builders.manifests import Object
from cluster.workbench import name_of, uid_of
from covey.api import constants
from denial import MARK, WORDS, Policy
from localcluster import request
from scheduler_trees import GATE, GROUP, REQUIRED, SCHEDULER, START_GATE, Role, node_of, pin_of, resources
from stage import Stage
from stage.play import RACK, ROOT, Trees, replace_released
from stage.record import states

LABEL = "scheduling.covey.dev/pod-group"
PINNED = constants.ANNOTATION_PINNED
STARTED = (GATE, START_GATE)
VOLUMES = "/api/v1/persistentvolumes"
#: A pod's wish about nodes as users write it: all that a pin has to keep.
EXPRESSION = {"key": "kubernetes.io/hostname", "operator": "Exists"}
FIELD = {"key": "metadata.name", "operator": "NotIn", "values": ["elsewhere"]}
PREFERRED = {
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [EXPRESSION]}}]
}
FORMS: tuple[Object, ...] = (
    {},
    {
        "podAntiAffinity": {
            REQUIRED: [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"no": "body"}}}]
        }
    },
    {"nodeAffinity": {}},
    {"nodeAffinity": PREFERRED},
    {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [EXPRESSION]}]}}},
    {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [FIELD]}]}}},
    {
        "nodeAffinity": PREFERRED
        | {
            REQUIRED: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [EXPRESSION]},
                    {"matchExpressions": [EXPRESSION], "matchFields": [FIELD]},
                ]
            }
        }
    },
    {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, {"matchExpressions": [EXPRESSION]}]}}},
)


def group(bench: Trees, owner: Object, name: str, policy: Object, parent: str = "", level: str = "") -> None:
    """A group: a leaf where its policy counts pods."""
    spec: Object = {"schedulingPolicy": policy, "desiredCount": 2}
    leaf = "basic" in policy or "minCount" in policy["gang"]
    kind, plural = ("PodGroup", "podgroups") if leaf else ("CompositePodGroup", "compositepodgroups")
    if not leaf:
        del spec["desiredCount"]
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if level:
        spec["schedulingConstraints"] = {"topology": [{"level": level, "mode": "Required"}]}
    metadata = {"name": name, "ownerReferences": [owner]}
    body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    bench.cluster.api("POST", GROUP.format(bench.namespace, plural), body)


def member(stage: Stage, owner: Object, leaf: str, number: int) -> None:
    """A gated pod of a leaf, without a label of the operator's."""
    metadata = {"name": f"{leaf}-{number}", "labels": {LABEL: leaf, "app": "stranger"}, "ownerReferences": [owner]}
    spec = {
        "schedulerName": SCHEDULER,
        "schedulingGates": [{"name": GATE}],
        "containers": [resources(8)],
        "terminationGracePeriodSeconds": 0,
    }
    stage.cluster.api("POST", stage.path("Pod"), {"metadata": metadata, "spec": spec})


def named(node: str) -> Object:
    """Node affinity as a DaemonSet's pods have it."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}


def test_pods_of_a_basic_group_without_a_tree_go_one_by_one(stage: Stage, bench: Trees) -> None:
    stage.nodes(nodes=1)
    owner = bench.workload("lone")
    group(bench, owner, "lone", {"basic": {}})
    for number in range(2):
        member(stage, owner, "lone", number)
    stage.settle()
    [pod] = stage.bound()
    assert pin_of(pod) == node_of(pod)
    status = stage.get("PodGroup", "lone")["status"]
    assert (status["admitted"], status["scheduled"]) == (1, 1)
    stage.nodes(nodes=2)
    stage.ready(2)


def test_tree_with_an_inner_level_and_some_of_several_groups_keeps_both_now_and_later(
    stage: Stage, bench: Trees
) -> None:
    stage.nodes(racks=2, nodes=5)
    owner = bench.workload("tree")
    group(bench, owner, "tree", {"gang": {"minGroupCount": 1}})
    group(bench, owner, "decode", {"gang": {"minGroupCount": 2}}, "tree", "rack")
    for leaf in ("d0", "d1", "d2"):
        group(bench, owner, leaf, {"gang": {"minCount": 2}}, "decode")
        for number in range(3):
            member(stage, owner, leaf, number)
    stage.settle()
    places = {name_of(pod): node_of(pod) for pod in stage.bound()}
    assert len(places) == 5
    racks = stage.domains(stage.bound(), RACK)
    assert len(racks) == 1
    whole = [leaf for leaf in ("d0", "d1", "d2") if sum(name.startswith(leaf) for name in places) >= 2]
    assert len(whole) == 2, "two of the groups are the minimum, and of the third nothing comes without its own"
    assert stage.condition("Admitted", "tree", of=ROOT)[0] == "True"
    stage.delete("Pod", next(name for name in sorted(places) if name.startswith(whole[0])), grace=0)
    member(stage, owner, whole[0], 7)
    stage.settle()
    assert len(stage.bound()) == 5
    assert stage.domains(stage.bound(), RACK) == racks


def test_pin_keeps_every_form_of_affinity_that_a_pod_may_have(stage: Stage, bench: Trees) -> None:
    stage.nodes(nodes=2)
    roles = [Role(f"r{number}", gpus=1, spec={"affinity": form}) for number, form in enumerate(FORMS)]
    bench.unit("forms", *roles)
    for pod in stage.ready(len(FORMS)):
        assert pin_of(pod) == node_of(pod)
        assert "managedFields" not in pod["metadata"], "they would be most of what is stored and watched"


def test_pod_when_it_names_a_node_itself_is_left_alone_with_its_gate(stage: Stage, bench: Trees) -> None:
    [name] = stage.nodes()
    bench.unit("own", Role("decode", spec={"affinity": named(name)}))
    assert "names a node itself" in stage.refusal("own", "Waiting", of=ROOT)


@pytest.mark.parametrize("which", [0, 3])
def test_gang_with_a_disk_of_a_node_is_planned_there(stage: Stage, bench: Trees, which: int) -> None:
    names = stage.nodes(nodes=4)
    disk, terms = f"disk-{stage.namespace}", {"storageClassName": "", "accessModes": ["ReadWriteOnce"]}
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [names[which]]}
    spec = terms | {
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/nowhere"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
        "claimRef": {"kind": "PersistentVolumeClaim", "name": "disk", "namespace": stage.namespace},
    }
    claims = f"/api/v1/namespaces/{stage.namespace}/persistentvolumeclaims"
    wanted = terms | {"volumeName": disk, "resources": {"requests": {"storage": "1Gi"}}}
    for path, name, body in ((VOLUMES, disk, spec), (claims, "disk", wanted)):
        stage.cluster.api("POST", path, {"metadata": {"name": name}, "spec": body})
        gone = f"{path}/{name}"
        stage.after(lambda gone=gone: stage.cluster.delete(gone))
    stage.await_event(
        lambda: stage.cluster.api("GET", f"{claims}/disk")["status"]["phase"] == "Bound", "the claim is bound"
    )
    volumes = {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]}
    bench.unit("tied", Role("decode", spec=volumes))
    [pod] = stage.ready(1)
    assert node_of(pod) == names[which]
    assert stage.never("Pod", lambda pod: constants.ANNOTATION_RELEASE in pod["metadata"].get("annotations", {}))


def test_gang_when_pods_repel_it_by_what_covey_does_not_model_goes_elsewhere_and_excludes_the_node(
    stage: Stage, bench: Trees
) -> None:
    """The planner knows nothing of it, and takes the fuller node first."""
    names = stage.nodes(racks=2, nodes=1)
    body = {
        "metadata": {"name": "hermit", "labels": {"app": "hermit"}},
        "spec": {"containers": [resources(1)], "nodeName": names[0]},
    }
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "hermit"}}}
    repelled = {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}
    tree = bench.unit("picky", Role("decode", gpus=1, spec=repelled), pods=False)
    stage.cluster.api("POST", stage.path("Pod"), body)
    stage.settle()
    tree.create()
    assert replace_released(stage, tree) == ["Unschedulable"]
    [pod] = stage.bound(inference="picky")
    assert node_of(pod) == names[1]
    assert [each["node"] for each in stage.get(ROOT, "picky")["status"]["excludedNodes"]] == [names[0]]


def test_pins_around_which_nothing_can_be_planned_are_given_up(stage: Stage, bench: Trees) -> None:
    names = stage.nodes(racks=2, nodes=2)
    tree = bench.unit("stuck", Role("decode", size=2, gates=STARTED, required="rack"))
    stage.settle()
    lost = str(pin_of(stage.pods()[0]))
    stage.delete_nodes(lost)
    assert replace_released(stage, tree) == ["NodeLost", "Conflict"]
    rack = names.index(lost) // 2
    assert {pin_of(pod) for pod in stage.pods()} == set(names[2:] if rack == 0 else names[:2])


def pin(stage: Stage, pod: Object, node: str) -> None:
    """Pin a pod as the scheduler process does, under its account: a plan of another writer, or of another time."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    term = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    patch = [
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE},
        {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": {REQUIRED: term}}},
        {"op": "add", "path": "/metadata/annotations", "value": {PINNED: uid_of(pod)}},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    with stage.cluster.service_account_client("covey-system", "covey-scheduler") as client:
        request(client, "PATCH", stage.path("Pod", name_of(pod)), patch)


def test_gang_when_it_is_pinned_across_two_racks_is_planned_again_in_one(stage: Stage, bench: Trees) -> None:
    names = stage.nodes(racks=2, nodes=2)
    with stage.away("scheduler", "kube-scheduler"):
        tree = bench.unit("torn", Role("decode", replicas=2, minimum=2), required="rack")
        for pod, node in zip(tree.pods(), (names[0], names[2]), strict=True):
            pin(stage, pod, node)
    assert replace_released(stage, tree) == ["Conflict", "Conflict"]
    assert len(stage.domains(stage.ready(2), RACK)) == 1
    for _, pods in states(stage.history("Pod")):
        assert len(stage.domains((pod for pod in pods.values() if node_of(pod)), RACK)) <= 1


@pytest.mark.parametrize(
    ("labelled", "owned", "gated", "marked"),
    [
        pytest.param(False, False, False, False, id="a stranger, as of a DaemonSet"),
        pytest.param(True, False, False, True, id="with the gang's label, and a mark copied from elsewhere"),
        pytest.param(True, True, True, False, id="with the gang's label and another owner, gated"),
    ],
)
def test_pod_when_it_only_names_a_node_holds_nothing_there(
    stage: Stage,
    bench: Trees,
    labelled: bool,  # noqa: FBT001 - a case
    owned: bool,  # noqa: FBT001 - a case
    gated: bool,  # noqa: FBT001 - a case
    marked: bool,  # noqa: FBT001 - a case
) -> None:
    """It asks for all of the node, and waits for a scheduler that never comes."""
    [node] = stage.nodes()
    metadata: Object = {"name": "forged", "labels": {LABEL: "real-decode"} if labelled else {}}
    if owned:
        metadata["ownerReferences"] = [bench.workload("somebody")]
    if marked:
        metadata["annotations"] = {PINNED: "5c2f2a7e-0000-4000-8000-000000000000"}
    spec: dict[str, Any] = {"schedulerName": "nobody", "affinity": named(node), "containers": [resources(8)]}
    spec["schedulingGates"] = [{"name": GATE}] if gated else []
    stage.claim_nodes()
    stage.cluster.api("POST", stage.path("Pod"), {"metadata": metadata, "spec": spec})
    stage.settle()
    bench.unit("real", Role("decode"))
    [pod] = stage.ready(1, inference="real")
    assert node_of(pod) == node
    assert pod["metadata"]["annotations"][PINNED] == uid_of(pod)


def test_member_when_it_pins_itself_is_not_bound_and_skips_nothing(stage: Stage, bench: Trees) -> None:
    [node] = stage.nodes()
    [pod] = bench.unit("sly", Role("decode", spec={"affinity": named(node)}, gates=())).pods()
    stage.settle()
    message = stage.get("Pod", name_of(pod))["status"]["conditions"][0]["message"]
    assert "has no scheduling gate" in message
    assert (
        f"{name_of(pod)} lost its scheduling gate without a decision" in stage.condition("Admitted", "sly", of=ROOT)[2]
    )
    # Nor by a call that says that it comes from kube-scheduler.
    body = {"PodName": name_of(pod), "PodNamespace": stage.namespace, "PodUID": uid_of(pod), "Node": node}
    call = urllib.request.Request(f"http://{stage.ground.extender}/barrier/bind", json.dumps(body).encode())
    with urllib.request.urlopen(call) as answer:
        assert "has no scheduling gate" in json.load(answer)["Error"]
    # The node is free for who waits his turn.
    bench.unit("honest", Role("decode"))
    stage.ready(1, inference="honest")
    assert not stage.bound(inference="sly")


def test_group_when_it_is_deleted_by_hand_gives_its_pins_room_back(stage: Stage, bench: Trees) -> None:
    stage.nodes()
    bench.unit("first", Role("decode", gates=STARTED))
    bench.unit("second", Role("decode"))
    assert "8 more nvidia.com/gpu" in stage.refusal("second", of=ROOT)
    stage.delete("PodGroup", "first-decode")
    stage.ready(1, inference="second")


def test_pin_when_a_policy_denies_it_floods_nobody_and_keeps_nobodys_room(stage: Stage, bench: Trees) -> None:
    """Nobody serves the profile of these pods, so whoever is pinned waits."""
    stage.nodes(nodes=2)
    stage.restart(scheduler={"scheduler_names": (SCHEDULER, "nobody")})
    policy = Policy(bench)
    stage.after(policy.remove)
    policy.install()
    role = Role("decode", replicas=2, minimum=2, spec={"schedulerName": "nobody"})
    tree = bench.unit("denied", role, timeout=300, pods=False)
    marked = tree.manifests[1]
    marked["metadata"]["labels"][MARK] = ""
    tree.create()
    stage.settle()
    assert len([pod for pod in stage.pods() if pin_of(pod)]) == 1, "the mate waits"
    message = stage.condition("Admitted", "denied", of=ROOT)[2]
    assert WORDS in message
    assert f"the API server denied the pin of pod {marked['metadata']['name']} to node" in message
    before = len(stage.writes("scheduler", "patch", "pods"))
    stage.advance(120)
    assert len(stage.writes("scheduler", "patch", "pods")) - before <= 20
    # After the gang's time-out its room is given back, for good.
    stage.advance(300)
    assert replace_released(stage, tree) == ["Timeout"]
    other = bench.unit("other", Role("decode", replicas=2, minimum=2))
    stage.ready(2, inference="other")
    stage.refusal("denied", "PinDenied", of=ROOT)
    # Once the policy is gone the gang comes by itself.
    for pod in other.pods():
        stage.delete("Pod", name_of(pod), grace=0)
    policy.remove()
    stage.await_event(lambda: not policy.denies(), "the policy holds no longer")
    stage.advance(120)
    assert all(map(pin_of, stage.pods(inference="denied")))


@pytest.mark.parametrize("at", [1, 3])
def test_scheduler_when_it_dies_as_it_gives_pins_up_has_the_rest_given_up_by_its_successor(
    stage: Stage, bench: Trees, at: int
) -> None:
    """Nobody serves the profile of these pods, so their time runs out."""
    stage.nodes(nodes=2)
    stage.restart(scheduler={"scheduler_names": (SCHEDULER, "nobody")})
    tree = bench.unit("undo", Role("decode", size=4, gpus=4, spec={"schedulerName": "nobody"}), timeout=300)
    stage.advance(200)
    assert all(map(pin_of, stage.pods()))
    death = stage.kill("scheduler", at)
    stage.advance(120)
    assert death.at is not None
    assert set(replace_released(stage, tree)) <= {"Timeout", "Conflict"}
    assert len([pod for pod in stage.pods() if pin_of(pod)]) == 4, "it was planned again, whole"
    assert {uid_of(pod) for pod in stage.pods()}.isdisjoint(
        uid_of(event.object) for event in stage.history("Pod") if event.change == "DELETED"
    )
