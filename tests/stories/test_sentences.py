"""What people see says what is so and what to do, in the same words wherever they look: manifests that cannot work, and nights."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.manifests import Object, role, template, workers
from cluster.workbench import name_of
from covey.api import core
from covey.manifests.documents import convert
from covey.operator.model.objects import Inference
from covey.ui.leaders import draw_leaders, find_all_absences
from covey.ui.view_state import draw
from covey.watching.presence import Lease
from stage import Stage
from stage.kubelet import crash, stall
from stage.play import INFERENCE, run_covey

GPU = "nvidia.com/gpu"


def plain(text: str) -> str:
    """A text as it is before a terminal breaks its lines."""
    return " ".join(text.split())


def explain(stage: Stage, name: str = "llm") -> str:
    code, output = run_covey(stage, "explain", name, "-n", stage.namespace, "--no-color")
    assert code == 0, output
    # A long name of a node breaks the lines of a tree.
    return plain(output.replace("│", " "))


def page(stage: Stage) -> str:
    """All that the page says in words of the gangs of a story's namespace."""
    kinds = (("Node", core.Node), ("CompositePodGroup", core.Group), ("PodGroup", core.Group), ("Pod", core.Pod))
    record = stage.ground.record.objects
    things = [convert(each, kind) for name, kind in kinds for each in record[name].values() if shown(stage, each)]
    parts = draw([*things, *(convert(each, Inference) for each in stage.all(INFERENCE))])
    told = [each.message for each in parts.waiting.values()] + [each.reason for each in parts.pods.values()]
    for gang in parts.gangs.values():
        told += [gang.reason, *(each.message for each in gang.conditions), *(each.remedy for each in gang.advice)]
    return plain(" ".join(told))


def notices(stage: Stage) -> str:
    """What the page says of who does not look after these gangs."""
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    leases = [convert(each, Lease) for each in stage.cluster.api("GET", path)["items"]]
    stored = [convert(each, Inference) for each in stage.all(INFERENCE)]
    return plain(" ".join(f"{each.meaning} {each.remedy}" for each in find_all_absences(stored, leases, time.time())))


def shown(stage: Stage, thing: Object) -> bool:
    return thing["metadata"].get("namespace", stage.namespace) == stage.namespace


def column(stage: Stage, name: str = "llm") -> str:
    """STATUS of ``kubectl get``."""
    columns = stage.kubectl("get", "dinf", name, "--no-headers").split()
    return columns[1]


def planned(stage: Stage, path: Path, *roles: Object, **spec: Any) -> tuple[int, str]:
    """What ``covey plan --cluster`` says of a resource before there is one."""
    body = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": INFERENCE, "metadata": {"name": "llm"}}
    file = path / "llm.json"
    file.write_text(json.dumps({**body, "spec": {"roles": list(roles), **spec}}))
    code, output = run_covey(stage, "plan", "-f", str(file), "--cluster", "-n", stage.namespace, "--no-color")
    return code, plain(output)


def planned_again(stage: Stage, path: Path, name: str = "llm") -> tuple[int, str]:
    """What ``covey plan --cluster`` says of a resource as it is stored."""
    spec = dict(stage.get(INFERENCE, name)["spec"])
    return planned(stage, path, *spec.pop("roles"), **spec)


def with_container(**fields: Any) -> Object:
    """A role whose container has these fields; None takes one away."""
    made = template(terminationGracePeriodSeconds=0)
    (container,) = made["spec"]["containers"]
    container |= {"resources": {"limits": {GPU: "8"}}} | fields
    made["spec"]["containers"] = [{name: value for name, value in container.items() if value is not None}]
    return role("w", template=made)


def limits(**amounts: str) -> Object:
    return {"limits": amounts}


#: What no node can hold, by what is said of it and what there is instead.
REFUSED = pytest.mark.parametrize(
    ("roles", "spec", "words"),
    [
        ([with_container(resources=limits(**{f"{GPU}s": "1"}))], {}, f"w: no node has {GPU}s; nodes have {GPU}"),
        ([workers("w", gpus=16)], {}, f"w: a pod asks for 16 {GPU}, and the largest node has 8"),
        (
            [workers("p"), workers("w")],
            {"topology": {"required": "host"}},
            f"p and w: the minimum of the unit asks for 16 {GPU} in one host, and the largest has 8",
        ),
        (
            [workers("w", spec={"nodeSelector": {"pool": "gold"}})],
            {},
            "w: no node has the label pool=gold of its node selector; no node has a label pool",
        ),
    ],
    ids=["resource", "size", "host", "selector"],
)


@REFUSED
def test_gang_that_no_node_can_hold_is_refused_in_the_same_words_everywhere(
    stage: Stage, tmp_path: Path, roles: list[Object], spec: Object, words: str
) -> None:
    stage.nodes(nodes=2)
    stage.create(*roles, **spec)
    assert words in stage.refusal()
    assert column(stage) == "Infeasible"
    assert words in explain(stage)
    assert words in page(stage)
    assert "Nothing has been decided yet" not in explain(stage)
    (note,) = [note for note in stage.event_notes("Infeasible") if note.startswith("unit 0 of llm waits for nodes")]
    assert words in note
    assert f"{words}" in stage.kubectl("describe", "pod", name_of(min(stage.pods(), key=name_of)))
    stage.delete(INFERENCE, "llm")
    stage.settle()
    code, output = planned(stage, tmp_path, *roles, **spec)
    assert code == 3
    assert words in output


def test_level_that_nobody_has_is_refused_with_the_levels_that_nodes_have(stage: Stage, tmp_path: Path) -> None:
    stage.nodes(nodes=1)
    stage.create(workers("w"), topology={"required": "racks"})
    stage.settle()
    words = "use one of zone, block, rack, host"
    status, reason, message = stage.condition("Admitted")
    assert (status, reason) == ("False", "InvalidTopology")
    assert words in message
    assert column(stage) == "InvalidTopology"
    assert words in explain(stage)
    assert words in page(stage)
    code, output = planned(stage, tmp_path, workers("w"), topology={"required": "racks"})
    assert code == 2
    assert words in output


def test_level_of_a_preset_that_the_cluster_lacks_is_refused_with_those_that_it_has(
    stage: Stage, tmp_path: Path
) -> None:
    stage.nodes(nodes=1)
    stage.create(workers("w"), topology={"required": "subblock"})
    stage.settle()
    status, reason, message = stage.condition("Admitted")
    assert (status, reason) == ("False", "InvalidTopology")
    assert all(word in message for word in ("subblock", "zone", "block", "rack", "host")), message
    assert message in explain(stage)
    assert message in page(stage)
    code, output = planned(stage, tmp_path, workers("w"), topology={"required": "subblock"})
    assert code == 2
    assert "use one of zone, block, rack, host" in output


def test_gang_without_a_device_is_admitted_and_says_that_it_has_none(stage: Stage, tmp_path: Path) -> None:
    stage.nodes(nodes=1)
    words = "none of its pods asks for a device, such as nvidia.com/gpu in resources.limits"
    code, output = planned(stage, tmp_path, role("w", template=template()))
    assert code == 0
    assert words in output
    stage.create(role("w"))
    stage.ready(1)
    assert words in stage.condition("Admitted")[2]
    assert words in page(stage)


@pytest.mark.parametrize(
    ("made", "words", "also"),
    [
        (
            role("w", template=template(nodeselector={"a": "b"})),
            "spec.nodeselector: unknown field; did you mean nodeSelector?",
            "nodeselector: unknown field; did you mean nodeSelector?",
        ),
        (
            with_container(resources={"requests": {GPU: "8"}}),
            f"has no limit; devices are given by limits: set limits[{GPU}] as well",
            f"has no limit; devices are given by limits: set limits[{GPU}] as well",
        ),
        (
            with_container(image=None),
            "spec.containers[0].image: is missing; name the image that the container runs",
            "containers[0].image: is missing; name the image that the container runs",
        ),
        (
            with_container(resources=limits(memory="256gb")),
            "spec.containers[0].resources.limits[memory]: '256gb' is not a quantity; write a quantity such as 8, 500m or 1Gi",
            "containers[0].resources.limits[memory]:",
        ),
    ],
    ids=["nodeselector", "requests only", "no image", "quantity"],
)
def test_template_that_makes_no_pod_is_rejected_by_its_field(
    stage: Stage, tmp_path: Path, made: Object, words: str, also: str
) -> None:
    stage.nodes(nodes=1)
    code, output = planned(stage, tmp_path, made)
    assert code == 2
    assert also in output
    stage.create(made)
    stage.settle()
    status, reason, message = stage.condition("Admitted")
    assert (status, reason) == ("False", "TemplateRejected")
    assert words in message
    assert message.endswith("correct its template")
    assert column(stage) == "TemplateRejected"
    assert words in explain(stage)
    assert words in page(stage)


def test_field_that_nobody_knows_is_refused_with_the_one_that_is_meant(stage: Stage, tmp_path: Path) -> None:
    code, output = planned(stage, tmp_path, {**workers("w"), "min_replicas": 1})
    assert code == 2
    assert "spec.roles[0].min_replicas: unknown field; did you mean minReplicas?" in output
    file = tmp_path / "llm.json"
    with pytest.raises(RuntimeError, match=r'unknown field "spec\.roles\[0\]\.min_replicas"'):
        stage.kubectl("apply", "-f", str(file))
    assert not stage.all(INFERENCE)


# Nights


def test_image_that_cannot_be_pulled_is_told_by_pod_and_container(stage: Stage, tmp_path: Path) -> None:
    stage.nodes(nodes=1)
    stage.create(workers("w"))
    [pod] = stage.ready(1)
    stall(stage, pod, "ImagePullBackOff")
    stage.settle()
    words = f"container engine waits: ImagePullBackOff of {pod['spec']['containers'][0]['image']}"
    assert f"pod {name_of(pod)}: {words}" in stage.condition("Ready")[2]
    assert column(stage) == "Degraded", "it has served"
    assert words in stage.kubectl("get", "dinf", "llm", "-o", "wide")
    assert words in explain(stage)
    assert "Correct the image's name, or give the pods the pull secret" in explain(stage)
    assert words in page(stage)
    assert "Correct the image's name, or give the pods the pull secret" in page(stage)
    assert planned_again(stage, tmp_path)[0] == 0, "it has its nodes"


def test_container_that_is_killed_for_its_memory_is_told_with_exit_code_and_restarts(
    stage: Stage, tmp_path: Path
) -> None:
    stage.nodes(nodes=2)
    stage.create(workers("w", replicas=2, minReplicas=1, restart={"policy": "None"}))
    [pod, _] = sorted(stage.ready(2), key=name_of)
    crash(stage, pod, exitCode=137, reason="OOMKilled")
    stage.settle()
    words = "container engine waits: CrashLoopBackOff, ended with exit code 137 (OOMKilled)"
    assert column(stage) == "CrashLoopBackOff"
    assert stage.condition("Ready")[2].startswith(f"pod {name_of(pod)}: {words}")
    said = explain(stage)
    assert f"{words}, restarted 5 times" in said
    assert f"{words}, restarted 5 times" in page(stage)
    assert "137 with OOMKilled is the memory limit" in said
    assert "137 with OOMKilled is the memory limit" in page(stage)
    assert planned_again(stage, tmp_path)[0] == 0, "it has its nodes"
    assert "nodes" not in said.partition(words)[0], "before any advice about capacity"


def lease(stage: Stage, name: str, *, ago: float) -> None:
    """Have a lease that a process renewed for the last time so many seconds ago."""
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    renewed = core.rfc3339(time.time() - ago).replace("Z", ".000000Z")
    spec = {"holderIdentity": f"{name}-1", "leaseDurationSeconds": 15, "acquireTime": renewed, "renewTime": renewed}
    stage.cluster.api("POST", path, {"metadata": {"name": name}, "spec": spec})
    stage.after(lambda: stage.cluster.delete(f"{path}/{name}"))


def test_resource_while_no_operator_runs_says_that_nobody_looks_at_it(stage: Stage, tmp_path: Path) -> None:
    stage.nodes(nodes=1)
    lease(stage, "covey-operator", ago=300)
    with stage.away("operator"):
        stage.create(workers("w"))
        assert "no operator has looked at it yet" in explain(stage)
        assert "no operator has looked at it yet" in page(stage)
        for said in (explain(stage), notices(stage), planned_again(stage, tmp_path)[1]):
            assert "lease default/covey-operator of covey-operator-1 was renewed 3" in said
            assert "kubectl get deployment,pods -n default" in said
    stage.ready(1)
    assert "no operator has looked" not in explain(stage)


def test_resource_while_no_scheduler_process_runs_says_so(stage: Stage, tmp_path: Path) -> None:
    stage.nodes(nodes=1)
    lease(stage, "covey-planner", ago=300)
    with stage.away("scheduler"):
        stage.create(workers("w"))
        stage.settle()
        words = "the scheduler process has not looked at it yet; if this stays, see whether covey scheduler runs"
        assert stage.condition("Admitted") == ("False", "Waiting", words)
        assert column(stage) == "Waiting"
        assert words in explain(stage)
        assert words in page(stage)
        assert words in run_covey(stage, "rollout", "status", "llm", "-n", stage.namespace)[1]
        for said in (explain(stage), notices(stage), planned_again(stage, tmp_path)[1]):
            assert "lease default/covey-planner of covey-planner-1 was renewed 3" in said
            assert "kubectl get deployment,pods -n default" in said
    stage.ready(1)


def test_page_says_who_leads_and_since_when(stage: Stage) -> None:
    lease(stage, "covey-operator", ago=1)
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/covey-operator"
    stored = convert(stage.cluster.api("GET", path), Lease)
    [leader] = draw_leaders([stored], time.time())
    assert (leader.process, leader.holder, leader.since) == ("operator", "covey-operator-1", stored.spec.renew_time)
    assert not draw_leaders([stored], time.time() + 60), "whose lease has run out does not lead"


def test_gang_that_a_quota_refuses_names_it_everywhere(stage: Stage, tmp_path: Path) -> None:
    stage.nodes(nodes=2)
    stage.quota("gpus", **{f"requests.{GPU}": 8})
    stage.create(workers("w", replicas=2, minReplicas=2))
    stage.settle()
    words = f"quota {stage.namespace}/gpus: requests.{GPU} 16 needed, 8 left"
    assert words in stage.condition("Admitted")[2]
    assert column(stage) == "QuotaExceeded"
    said = explain(stage)
    assert words in said
    assert words in page(stage)
    assert "Raise the quota that the message names" in said
    assert "Nothing has been decided yet" not in said
    assert "has not looked at it" not in said
    code, output = planned_again(stage, tmp_path)
    assert code == 3
    assert words in output


def test_gang_that_has_lost_a_node_without_another_says_what_it_lacks(stage: Stage, tmp_path: Path) -> None:
    [node] = stage.nodes(nodes=1)
    stage.create(workers("w"))
    stage.ready(1)
    stage.fail_nodes([node])
    stage.settle()
    assert column(stage) == "Degraded"
    message = stage.condition("Admitted")[2]
    assert "1 node is out: 1 not ready" in message
    assert message in explain(stage)
    assert message in page(stage)
    code, output = planned_again(stage, tmp_path)
    assert code == 3
    assert message in output


def surplus_in_a_full_block(stage: Stage) -> None:
    stage.nodes(nodes=1)
    stage.create(workers("w", replicas=2, minReplicas=1))


def surplus_over_a_quota(stage: Stage) -> None:
    stage.nodes(nodes=2)
    stage.quota("gpus", **{f"requests.{GPU}": 8})
    stage.create(workers("w", replicas=2, minReplicas=1))


def a_rollout_that_fits_nowhere(stage: Stage) -> None:
    stage.nodes(nodes=1)
    stage.create(workers("w"))
    stage.ready(1)
    stage.change(roles=[workers("w", spec={"nodeSelector": {"pool": "gold"}})])


def a_rollout_over_a_quota(stage: Stage) -> None:
    stage.nodes(nodes=2)
    stage.quota("gpus", **{f"requests.{GPU}": 8})
    stage.create(workers("w"))
    stage.ready(1)
    stage.change(roles=[workers("w", spec={"terminationGracePeriodSeconds": 3})])


def a_unit_beside_one_that_serves(stage: Stage) -> None:
    stage.nodes(nodes=3)
    stage.create(workers("w", replicas=2, minReplicas=2), replicas=2)


def a_minimum_over_a_quota(stage: Stage) -> None:
    stage.nodes(nodes=2)
    stage.quota("gpus", **{f"requests.{GPU}": 8})
    stage.create(workers("w", replicas=2, minReplicas=2))


def a_lost_replica_without_another_node(stage: Stage) -> None:
    [node, _] = stage.nodes(nodes=2)
    stage.create(workers("w", replicas=2, minReplicas=1))
    stage.ready(2)
    stage.fail_nodes([node])


@pytest.mark.parametrize(
    ("begin", "words", "code"),
    [
        (surplus_in_a_full_block, "w: capacity for 1 of 2 replicas in the cluster, all of it; 1 more pod's worth", 0),
        (surplus_over_a_quota, f"requests.{GPU} 8 needed, 0 left", 0),
        (a_rollout_that_fits_nowhere, "w: no node has the label pool=gold of its node selector", 3),
        (a_rollout_over_a_quota, f"requests.{GPU} 8 needed, 0 left", 3),
        (a_unit_beside_one_that_serves, "w: capacity for 1 of 2 replicas in the cluster, all of it; 8 more", 3),
        (a_minimum_over_a_quota, f"requests.{GPU} 16 needed, 8 left", 3),
        (a_lost_replica_without_another_node, "1 node is out: 1 not ready", 0),
    ],
)
def test_replicas_that_have_no_nodes_say_why_in_the_same_words_everywhere(
    stage: Stage, tmp_path: Path, begin: Callable[[Stage], None], words: str, code: int
) -> None:
    begin(stage)
    stage.settle()
    status = stage.status()
    surfaces = {
        "Ready": stage.condition("Ready")[2],
        "Progressing": stage.condition("Progressing")[2],
        "kubectl get": status["summary"]["reason"],
        "units": " ".join(unit["message"] for unit in status["unitStatuses"]),
        "explain": explain(stage),
        "page": page(stage),
        "rollout status": plain(run_covey(stage, "rollout", "status", "llm", "-n", stage.namespace)[1]),
        "plan": planned_again(stage, tmp_path)[1],
    }
    if "rollout" in status:
        # The unit serves as before.
        surfaces["units"] = status["rollout"]["hold"]["message"]
    assert [name for name, said in surfaces.items() if words not in said] == []
    assert planned_again(stage, tmp_path)[0] == code
    assert "Nothing has been decided yet" not in surfaces["explain"]
    assert "has not looked at it" not in surfaces["explain"]


def test_replica_that_cannot_leave_its_node_says_why_its_successor_has_no_nodes_everywhere(stage: Stage) -> None:
    [node] = stage.nodes(nodes=1)
    stage.create(workers("w"))
    stage.ready(1)
    stage.cordon(node)
    stage.settle()
    words = "there is no capacity for a successor (w: capacity for 1 of 2 replicas in the cluster, all of it"
    assert words in stage.condition("EvacuationBlocked")[2]
    assert words in explain(stage)
    assert words in page(stage)
    assert any(words in note for note in stage.event_notes("EvacuationBlocked"))


def test_surplus_that_is_refused_says_so_by_one_event_on_one_pod_of_each_role(stage: Stage) -> None:
    stage.nodes(nodes=2)
    stage.create(workers("p", replicas=3, minReplicas=1), workers("d", replicas=3, minReplicas=1))
    stage.settle()
    stage.advance(600)
    stage.settle()
    notes = [note for note in stage.event_notes("Infeasible") if "beyond the minimum" in note]
    assert sorted(note.partition(":")[0] for note in notes) == [
        "replicas of d beyond the minimum of unit 0 of llm wait for nodes",
        "replicas of p beyond the minimum of unit 0 of llm wait for nodes",
    ]


def test_gang_that_is_placed_at_once_has_no_events_on_its_pods(stage: Stage) -> None:
    stage.nodes(nodes=2)
    stage.create(workers("w", replicas=2))
    pods = {name_of(pod) for pod in stage.ready(2)}
    events = [event.object for event in stage.history("Event") if event.change == "ADDED"]
    ours = [event for event in events if event["regarding"]["name"] in pods]
    assert {event["reason"] for event in ours} <= {"Scheduled"}, "which is kube-scheduler's"
