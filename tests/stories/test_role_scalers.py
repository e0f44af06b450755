"""Scaling from outside: units through the resource, replicas of a role through its RoleScaler."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from builders.manifests import Object, role
from cluster.workbench import label, name_of, uid_of, uids
from stage import Stage
from stage.play import INFERENCE
from stage.record import states

EXTERNAL = {"scaling": {"mode": "External"}}
QUOTA = {"metadata": {"name": "no-pods"}, "spec": {"hard": {"pods": "0"}}}


def roles(**prefill: Any) -> list[Object]:
    """A role of two pods that is scaled from outside, and one that is not."""
    return [role("prefill", **{"replicas": 2, "size": 2, **EXTERNAL, **prefill}), role("decode")]


def scale(stage: Stage, replicas: int, name: str = "rscale/llm-prefill") -> None:
    stage.kubectl("scale", name, f"--replicas={replicas}")


def scaler(stage: Stage) -> Object:
    """The RoleScaler at rest, whose status is of its present generation."""
    stage.settle()
    found = stage.get("RoleScaler", "llm-prefill")
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    return found


def by_unit(stage: Stage) -> dict[str, int]:
    """Replicas of the role in each unit, at rest."""
    stage.settle()
    return dict(Counter(label(pod, "unit") for pod in stage.pods(role="prefill", index=0)))


def selected(stage: Stage, selector: str) -> list[Object]:
    """Live pods that a selector of a status finds."""
    pods = stage.cluster.api("GET", f"{stage.path('Pod')}?labelSelector={selector}")["items"]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def test_role_when_it_is_scaled_spreads_over_all_units(stage: Stage) -> None:
    stage.create(*roles(), replicas=2)
    found = scaler(stage)
    assert found["status"]["replicas"] == 4
    assert found["spec"] == {"replicas": 4, "minReplicas": 2}
    assert found["metadata"]["ownerReferences"][0]["uid"] == uid_of(stage.get(INFERENCE, "llm"))
    assert "llm-prefill" in stage.kubectl("get", "rscale")
    before = uids(stage.pods())
    assert len(stage.pods(role="prefill")) == 8
    scale(stage, 7)
    assert by_unit(stage) == {"0": 4, "1": 3}
    assert before <= uids(stage.pods())
    status = scaler(stage)["status"]
    assert status["replicas"] == 7
    leaders = selected(stage, status["selector"])
    assert len(leaders) == 7
    assert {label(pod, "index") for pod in leaders} == {"0"}
    scale(stage, 3)
    assert by_unit(stage) == {"0": 2, "1": 1}
    assert len(stage.pods(role="prefill")) == 6


def test_scale_when_it_is_below_the_minimum_is_refused_with_a_sentence(stage: Stage) -> None:
    stage.create(*roles(), replicas=3)
    assert scaler(stage)["status"]["replicas"] == 6
    refusal = (
        r"2 replicas are fewer than the 3 that the role needs over all units \(minReplicas of the role times units\): "
        "ask for at least so many"
    )
    with pytest.raises(RuntimeError, match=refusal):
        scale(stage, 2)
    assert scaler(stage)["spec"]["replicas"] == 6
    scale(stage, 3)
    stage.settle()
    assert len(stage.pods(role="prefill")) == 6


def test_scale_when_more_units_raise_the_minimum_stays_and_is_told_about(stage: Stage) -> None:
    stage.create(*roles(replicas=1), replicas=3)
    assert scaler(stage)["spec"]["replicas"] == 3
    scale(stage, 4, "dinf/llm")
    found = scaler(stage)
    assert found["spec"] == {"replicas": 3, "minReplicas": 4}
    assert found["status"]["replicas"] == 4
    assert [condition["type"] for condition in found["status"]["conditions"]] == ["ScalingLimited"]
    assert stage.condition("ScalingLimited", "llm-prefill", of="RoleScaler")[:2] == ("True", "TooFewReplicas")
    assert len(stage.pods(role="prefill")) == 8


@pytest.mark.parametrize(("kind", "name", "replicas"), [(INFERENCE, "llm", 2), ("RoleScaler", "llm-prefill", 0)])
def test_scale_before_the_first_pod_has_what_an_autoscaler_needs(
    stage: Stage, kind: str, name: str, replicas: int
) -> None:
    stage.cluster.api("POST", stage.path("ResourceQuota"), QUOTA)
    stage.settle()
    stage.create(*roles(), replicas=2)
    stage.settle()
    status = stage.cluster.api("GET", f"{stage.path(kind, name)}/scale")["status"]
    assert status["replicas"] == replicas
    assert status["selector"]
    assert not stage.pods()


def test_scale_when_the_spec_is_edited_or_the_operator_is_away_keeps_its_value(stage: Stage) -> None:
    stage.create(*roles(), replicas=2)
    stage.settle()
    scale(stage, 5)
    stage.settle()
    before = uids(stage.pods(role="prefill"))
    assert len(before) == 10
    stage.change(roles=roles(replicas=9))
    stage.change(replicas=3)
    assert by_unit(stage) == {"0": 2, "1": 2, "2": 1}
    assert len(stage.pods(role="decode")) == 3
    assert scaler(stage)["spec"]["replicas"] == 5
    with stage.away("operator"):
        scale(stage, 8)
    assert by_unit(stage) == {"0": 3, "1": 3, "2": 2}
    found = scaler(stage)
    assert found["spec"]["replicas"] == 8
    owners = [
        entry["manager"]
        for entry in found["metadata"]["managedFields"]
        if entry.get("subresource") != "status" and "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    ]
    assert owners == ["kubectl"]
    assert before & uids(stage.pods())


def test_mode_when_it_changes_between_static_and_external_is_live(stage: Stage) -> None:
    stage.create(role("prefill", replicas=2), role("decode"), replicas=2)
    stage.settle()
    before = uids(stage.pods())
    assert len(before) == 6
    stage.change(roles=[role("prefill", replicas=1, **EXTERNAL), role("decode")])
    found = scaler(stage)
    assert found["spec"]["replicas"] == found["status"]["replicas"] == 4
    assert uids(stage.pods()) == before
    scale(stage, 6)
    stage.settle()
    assert len(stage.pods(role="prefill")) == 6
    stage.change(roles=[role("prefill", replicas=1), role("decode")])
    stage.settle()
    assert len(stage.pods(role="prefill")) == 2
    assert not stage.all("RoleScaler")


def test_units_when_they_go_to_zero_and_come_back_keep_their_place_and_scale(stage: Stage) -> None:
    stage.create(*roles(), replicas=2)
    stage.settle()
    scale(stage, 5)
    stage.settle()
    assert len(stage.pods(role="prefill")) == 10
    # The age of the Workload is the place in the queue.
    place = uid_of(stage.get("Workload", "llm"))
    scale(stage, 0, "dinf/llm")
    found = scaler(stage)
    assert not [item for kind in ("Pod", "PodGroup", "CompositePodGroup") for item in stage.owned(kind)]
    assert found["status"]["replicas"] == 0
    assert found["spec"] == {"replicas": 5, "minReplicas": 0}
    assert uid_of(stage.get("Workload", "llm")) == place
    scale(stage, 2, "dinf/llm")
    stage.settle()
    assert len(stage.pods(role="prefill")) == 10
    assert uid_of(stage.get("Workload", "llm")) == place


def test_scaler_of_somebody_else_when_it_has_the_name_is_not_adopted(stage: Stage) -> None:
    body = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": "RoleScaler", "metadata": {"name": "llm-prefill"}}
    stage.cluster.api("POST", stage.path("RoleScaler"), {**body, "spec": {"replicas": 7}})
    stage.create(*roles())
    stage.settle()
    status, reason, message = stage.condition("Progressing")
    assert (status, reason) == ("False", "NameTaken")
    assert message.startswith("RoleScaler llm-prefill exists and is not Covey's")
    assert len(stage.pods(role="prefill")) == 4
    assert "ownerReferences" not in stage.get("RoleScaler", "llm-prefill")["metadata"]
    stage.delete("RoleScaler", "llm-prefill")
    # Nobody tells of strangers' objects: it is tried again once a minute.
    stage.advance(70)
    assert scaler(stage)["status"]["replicas"] == 2
    assert stage.condition("Progressing")[:2] == ("True", "Waiting")


def test_scaler_when_people_take_it_or_its_label_away_comes_back_as_it_was(stage: Stage) -> None:
    stage.create(*roles())
    stage.settle()
    scale(stage, 3)
    stage.settle()
    before = uids(stage.pods(role="prefill"))
    assert len(before) == 6
    stage.delete("RoleScaler", "llm-prefill")
    found = scaler(stage)
    assert found["spec"]["replicas"] == found["status"]["replicas"] == 3
    stage.patch("RoleScaler", "llm-prefill", {"metadata": {"labels": {"covey.dev/inference": None}}})
    assert scaler(stage)["metadata"]["labels"]["covey.dev/inference"] == "llm"
    assert uids(stage.pods(role="prefill")) == before
    stage.delete(INFERENCE, "llm")
    stage.settle()
    assert not stage.all("RoleScaler")


def leaders(stage: Stage) -> list[str]:
    """The places of the live pods that the resource's own selector finds, at rest."""
    stage.settle()
    return sorted(pod["spec"]["hostname"] for pod in selected(stage, stage.status()["selector"]))


def test_one_pod_stands_for_each_unit_whatever_is_lost(stage: Stage) -> None:
    stage.nodes()
    stage.create(role("router", minReplicas=0), role("prefill", replicas=2, size=2), role("decode"), replicas=2)
    stage.ready(12)
    assert leaders(stage) == ["0-prefill-0-0", "1-prefill-0-0"]
    with stage.away("scheduler"):
        [first] = stage.pods(role="prefill", unit=0, replica=0, index=0)
        stage.delete("Pod", name_of(first))
        # Its successor has no place yet: the other replica stands for the unit.
        assert leaders(stage) == ["0-prefill-1-0", "1-prefill-0-0"]
    stage.ready(12)
    assert leaders(stage) == ["0-prefill-0-0", "1-prefill-0-0"]
    scale(stage, 1, "dinf/llm")
    stage.ready(6)
    assert leaders(stage) == ["0-prefill-0-0"]
    for _, pods in states(stage.history("Pod")):
        units = [
            label(pod, "unit")
            for pod in pods.values()
            if "covey.dev/unit-leader" in pod["metadata"]["labels"] and "deletionTimestamp" not in pod["metadata"]
        ]
        assert len(set(units)) == len(units), "two pods stand for one unit"
