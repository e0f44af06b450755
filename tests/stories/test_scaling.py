"""Units and replicas come and go, by the spec or from outside through a RoleScaler; what serves stays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from builders.manifests import Object, role, template
from cluster.workbench import OWNED, hostnames, is_gated, is_ready, label, name_of, uid_of, uids
from scheduler_trees import node_of
from stage import Stage
from stage.play import INFERENCE

EXTERNAL = {"scaling": {"mode": "External"}}


def fixed(prefill: int = 2, decode: int = 2, **fields: Any) -> list[Object]:
    """Roles whose numbers of replicas the spec says."""
    return [role("prefill", replicas=prefill, size=2), role("decode", replicas=decode, **fields)]


def external(**prefill: Any) -> list[Object]:
    """Roles of which one is scaled from outside."""
    return [role("prefill", **{"replicas": 2, "size": 2, **EXTERNAL, **prefill}), role("decode")]


def scale(stage: Stage, replicas: int, name: str = "llm-prefill", kind: str = "rscale") -> str:
    """Scale with kubectl; returns what it prints, errors too."""
    arguments = ("scale", kind, name, "--namespace", stage.namespace, f"--replicas={replicas}")
    return stage.cluster.kubectl(*arguments, check=False)


def scaler(stage: Stage, **status: Any) -> Object:
    """The RoleScaler at rest, whose status says so of its present generation."""
    stage.settle()
    found = stage.get("RoleScaler", "llm-prefill")
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    assert status.items() <= found["status"].items()
    return found


def by_unit(stage: Stage) -> dict[str, int]:
    """Replicas of prefill, by unit."""
    return dict(Counter(label(pod, "unit") for pod in stage.pods(role="prefill", index=0)))


@pytest.fixture(autouse=True)
def node(stage: Stage) -> str:
    """Room for everything: these pods ask for nothing."""
    [name] = stage.nodes()
    return name


def test_resource_when_it_grows_leaves_what_runs_alone(stage: Stage) -> None:
    stage.create()
    before = uids(stage.ready(6))
    stage.change(roles=fixed(prefill=3, decode=4))
    assert before <= uids(stage.ready(10))
    assert stage.get("CompositePodGroup", "llm-0-prefill")["spec"]["desiredGroupCount"] == 3
    assert stage.get("PodGroup", "llm-0-decode")["spec"]["desiredCount"] == 4
    assert stage.event_notes("ScaledUp")


def test_resource_when_it_shrinks_gives_up_what_does_not_serve(stage: Stage) -> None:
    stage.create(*fixed(prefill=3, decode=3))
    for pod in stage.ready(9):
        if label(pod, "replica") == "0":
            stage.patch_status("Pod", name_of(pod), {"conditions": [{"type": "Ready", "status": "False"}]})
    stage.settle()
    stage.change(roles=fixed(prefill=2, decode=1))
    kept = stage.ready(5)
    assert {label(pod, "replica") for pod in kept} <= {"1", "2"}
    assert {name_of(group) for group in stage.owned("PodGroup")} == {
        *(f"llm-0-prefill-{number}" for number in (1, 2)),
        "llm-0-decode",
    }
    assert stage.event_notes("ScaledDown")
    stage.change(roles=fixed(prefill=3, decode=2))
    assert {"0-decode-0-0", "0-prefill-0-0", "0-prefill-0-1"} <= set(hostnames(stage.ready(8)))


def test_units_when_they_are_scaled_with_kubectl_come_and_go_from_the_end(stage: Stage) -> None:
    stage.create()
    first = uids(stage.ready(6))
    scale(stage, 3, "llm", "dinf")
    stage.ready(18)
    assert {label(group, "unit") for group in stage.owned("CompositePodGroup")} == {"0", "1", "2"}
    scale(stage, 1, "llm", "dinf")
    assert uids(stage.ready(6)) == first
    assert {label(group, "unit") for group in stage.owned("CompositePodGroup")} == {"0"}


def test_resource_when_it_is_suspended_gives_everything_up_and_comes_back(stage: Stage) -> None:
    stage.create()
    stage.ready(6)
    stage.change(suspend=True)
    stage.settle()
    assert not stage.pods()
    assert not any(map(stage.owned, OWNED))
    assert stage.condition("Admitted")[:2] == ("False", "Suspended")
    stage.change(suspend=False)
    stage.ready(6)
    assert stage.condition("Admitted")[:2] == ("True", "Admitted")


def test_pods_that_wait_take_a_new_template_at_once(stage: Stage) -> None:
    stage.create()
    with stage.away("scheduler"):
        stage.settle()
        assert all(map(is_gated, stage.pods()))
        changed = {"containers": [{"name": "engine", "image": "registry.test/engine:2"}]}
        stage.change(roles=fixed(template=template(**changed)))
        stage.settle()
        images = {(label(pod, "role"), pod["spec"]["containers"][0]["image"][-1]) for pod in stage.pods()}
        assert images == {("prefill", "1"), ("decode", "2")}
    stage.ready(6)
    assert len(stage.owned("ControllerRevision")) == 2


def test_pod_when_it_serves_by_the_time_its_template_changes_is_not_given_up_as_one_that_waits(stage: Stage) -> None:
    """A replica is deleted only as it was seen: without an answer, nothing but the news tells that it serves."""
    first, second = (template(nodeSelector={"pool": "a"}, terminationGracePeriodSeconds=end) for end in (0, 1))
    stage.create(role("decode", template=first))
    stage.settle()
    with stage.late("operator", "pods"):
        stage.nodes(labels={"pool": "a"})
        stage.settle(ahead=1)
        [pod] = stage.pods()
        assert is_ready(pod)
        stage.change(roles=[role("decode", template=second)])
        stage.settle(ahead=1)
        assert uids(stage.pods()) == {uid_of(pod)}
    [successor] = stage.ready(1)
    assert uid_of(successor) != uid_of(pod)
    assert stage.order(
        ("Pod", lambda event: uid_of(event.object) == uid_of(successor) and is_ready(event.object)),
        ("Pod", lambda event: uid_of(event.object) == uid_of(pod) and "deletionTimestamp" in event.object["metadata"]),
    )


def test_role_when_it_is_scaled_from_outside_is_spread_over_all_units(stage: Stage) -> None:
    stage.create(*external(), replicas=2)
    before = uids(stage.ready(10))
    found = scaler(stage, replicas=4)
    assert found["spec"] == {"replicas": 4, "minReplicas": 2}
    assert found["metadata"]["ownerReferences"][0]["uid"] == uid_of(stage.get(INFERENCE, "llm"))
    assert "llm-prefill" in stage.kubectl("get", "rscale")
    scale(stage, 7)
    assert before <= uids(stage.ready(16))
    assert by_unit(stage) == {"0": 4, "1": 3}
    selector = scaler(stage, replicas=7)["status"]["selector"]
    found = stage.cluster.api("GET", f"{stage.path('Pod')}?labelSelector={selector}")["items"]
    assert Counter(label(pod, "index") for pod in found) == {"0": 7}
    scale(stage, 3)
    stage.ready(8)
    assert by_unit(stage) == {"0": 2, "1": 1}


def test_role_scaler_when_it_asks_for_less_than_the_minimum_is_refused_with_a_sentence(stage: Stage) -> None:
    stage.create(*external(), replicas=3)
    scaler(stage, replicas=6)
    answer = scale(stage, 2)
    assert (
        "2 replicas are fewer than the 3 that the role needs over all units (minReplicas of the role times units): "
        "ask for at least so many"
    ) in answer
    assert scaler(stage)["spec"]["replicas"] == 6
    scale(stage, 3)
    stage.ready(9)
    # More units raise the floor: the value stays, and is told about.
    scale(stage, 4, "llm", "dinf")
    stage.ready(12)
    found = scaler(stage, replicas=4)
    assert found["spec"] == {"replicas": 3, "minReplicas": 4}
    [limited] = found["status"]["conditions"]
    assert (limited["type"], limited["status"], limited["reason"]) == ("ScalingLimited", "True", "TooFewReplicas")


def test_scale_subresources_before_the_first_pod_have_what_an_autoscaler_needs(stage: Stage) -> None:
    stage.quota("no-pods", pods=0)
    stage.create(*external(), replicas=2)
    stage.settle()
    assert not stage.pods()
    for kind, name, replicas in ((INFERENCE, "llm", 2), ("RoleScaler", "llm-prefill", 0)):
        status = stage.cluster.api("GET", f"{stage.path(kind, name)}/scale")["status"]
        assert status["replicas"] == replicas
        assert status["selector"]


def test_value_of_a_role_scaler_survives_edits_and_the_operators_absence(stage: Stage) -> None:
    stage.create(*external(), replicas=2)
    stage.ready(10)
    scale(stage, 5)
    before = uids(stage.ready(12))
    stage.change(roles=external(replicas=9))
    stage.change(replicas=3)
    stage.ready(13)
    assert by_unit(stage) == {"0": 2, "1": 2, "2": 1}
    assert scaler(stage)["spec"]["replicas"] == 5
    with stage.away("operator"):
        scale(stage, 8)
    stage.ready(19)
    assert by_unit(stage) == {"0": 3, "1": 3, "2": 2}
    found = scaler(stage, replicas=8)
    managers = [each["manager"] for each in found["metadata"]["managedFields"] if "f:replicas" in _spec(each)]
    assert managers == ["kubectl"]
    assert before & uids(stage.pods())


def _spec(entry: Object) -> Object:
    return dict(entry["fieldsV1"].get("f:spec", {})) if entry.get("subresource") != "status" else {}


def test_role_when_it_is_scaled_from_outside_from_now_on_or_no_longer_keeps_its_pods(stage: Stage) -> None:
    stage.create(role("prefill", replicas=2), role("decode"), replicas=2)
    before = uids(stage.ready(6))
    stage.change(roles=[role("prefill", replicas=1, **EXTERNAL), role("decode")])
    assert scaler(stage, replicas=4)["spec"]["replicas"] == 4
    assert uids(stage.pods()) == before
    scale(stage, 6)
    stage.ready(8)
    stage.change(roles=[role("prefill", replicas=1), role("decode")])
    stage.ready(4)
    assert not stage.all("RoleScaler")


def test_units_when_they_go_to_zero_come_back_to_their_place(stage: Stage) -> None:
    stage.create(*external(), replicas=2)
    stage.ready(10)
    scale(stage, 5)
    stage.ready(12)
    created = stage.get("Workload", "llm")
    scale(stage, 0, "llm", "dinf")
    stage.settle()
    assert not stage.pods()
    assert not stage.owned("PodGroup")
    assert not stage.owned("CompositePodGroup")
    # The age of the Workload is the place in the queue.
    assert uid_of(stage.get("Workload", "llm")) == uid_of(created)
    assert scaler(stage, replicas=0)["spec"] == {"replicas": 5, "minReplicas": 0}
    scale(stage, 2, "llm", "dinf")
    stage.ready(12)
    assert uid_of(stage.get("Workload", "llm")) == uid_of(created)


def test_role_scaler_when_it_is_somebody_elses_is_not_adopted(stage: Stage) -> None:
    body = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": "RoleScaler", "metadata": {"name": "llm-prefill"}}
    stage.cluster.api("POST", stage.path("RoleScaler"), {**body, "spec": {"replicas": 7}})
    stage.create(*external())
    stage.ready(5)
    status, reason, message = stage.condition("Progressing")
    assert (status, reason) == ("False", "NameTaken")
    assert message.startswith("RoleScaler llm-prefill exists and is not Covey's")
    assert "ownerReferences" not in stage.get("RoleScaler", "llm-prefill")["metadata"]
    stage.delete("RoleScaler", "llm-prefill")
    # It had no label, so that it is gone is found out at the next try.
    stage.advance(60)
    scaler(stage, replicas=2)
    assert stage.condition("Progressing")[:2] == ("True", "Complete")


def test_role_scaler_when_people_take_it_or_its_label_away_comes_back(stage: Stage) -> None:
    stage.create(*external())
    stage.ready(5)
    scale(stage, 3)
    before = uids(stage.ready(7))
    stage.delete("RoleScaler", "llm-prefill")
    assert scaler(stage, replicas=3)["spec"]["replicas"] == 3
    stage.patch("RoleScaler", "llm-prefill", {"metadata": {"labels": {"covey.dev/inference": None}}})
    assert scaler(stage)["metadata"]["labels"]["covey.dev/inference"] == "llm"
    assert uids(stage.pods()) == before
    stage.delete(INFERENCE, "llm")
    stage.settle()
    assert not stage.all("RoleScaler")


def test_leader_of_a_unit_is_one_pod_at_any_moment(stage: Stage) -> None:
    stage.create(role("router", minReplicas=0), role("prefill", replicas=2, size=2), role("decode"), replicas=2)
    stage.ready(12)
    leaders = [pod for pod in stage.pods() if stands(pod)]
    assert hostnames(leaders) == ["0-prefill-0-0", "1-prefill-0-0"]
    selector = stage.status()["selector"]
    found = stage.cluster.api("GET", f"{stage.path('Pod')}?labelSelector={selector}")["items"]
    assert uids(found) == uids(leaders)
    # Its replica is lost, and nobody places the next: the label moves.
    with stage.away("scheduler"):
        stage.delete("Pod", name_of(next(pod for pod in leaders if label(pod, "unit") == "0")))
        stage.settle()
        assert hostnames(filter(stands, stage.pods())) == ["0-prefill-1-0", "1-prefill-0-0"]
        assert [node_of(pod) for pod in stage.pods(unit=0, role="prefill", replica=0)] == ["", ""]
    stage.ready(12)
    assert hostnames(filter(stands, stage.pods())) == ["0-prefill-0-0", "1-prefill-0-0"]
    scale(stage, 1, "llm", "dinf")
    stage.ready(6)
    assert hostnames(filter(stands, stage.pods())) == ["0-prefill-0-0"]
    standing: dict[str, Object] = {}
    for event in stage.history("Pod"):
        standing.pop(uid_of(event.object), None)
        if event.change != "DELETED" and stands(event.object):
            standing[uid_of(event.object)] = event.object
        units = [label(pod, "unit") for pod in standing.values()]
        assert len(set(units)) == len(units), "two pods stand for one unit"


def stands(pod: Object) -> bool:
    """Tell whether a pod stands for its unit."""
    metadata = pod["metadata"]
    return "covey.dev/unit-leader" in metadata.get("labels", {}) and "deletionTimestamp" not in metadata
