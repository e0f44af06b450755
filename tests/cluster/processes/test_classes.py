"""One story of each class on the stock kube-scheduler of a plain control plane, with real processes."""

from __future__ import annotations

import pytest

from builders.manifests import Object
from cluster.conftest import AddNodes
from cluster.serving import BLOCK, RACK, Serving, check_history, fewest_serving, replicas, serving, workers
from cluster.workbench import label, uids
from localcluster import eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

ROLES = (
    workers("prefill", replicas=2, size=2, minReplicas=2, topology={"required": "rack"}),
    workers("decode", topology={"required": "rack"}),
)


def test_gangs_when_there_is_room_for_one_are_bound_whole_or_not_at_all(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=3, nodes=2)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*ROLES, topology={"required": "block"})
        pods = serving.await_ready(5)
        serving.create(*ROLES, name="more", topology={"required": "block"})
        message = serving.await_condition("Admitted", "False", "Infeasible", "more")
        recording.check()
        assert check_history(recording.events, *ROLES) == 5
    assert "nvidia.com/gpu" in message
    assert not serving.bound(inference="more")
    assert len(serving.domains(pods, BLOCK)) == 1
    assert all(len(serving.domains(members, BLOCK, RACK)) == 1 for members in replicas(pods).values())


def test_replica_when_it_loses_a_pod_is_built_anew_whole_and_alone(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=3, nodes=2)
    serving.create(*ROLES, topology={"required": "block"})
    before = serving.await_ready(5)
    lost = serving.pods(role="prefill", replica=0)
    serving.delete("Pod", lost[0]["metadata"]["name"])
    eventually(lambda: not uids(lost) & uids(serving.pods()), describe="both of its pods are given up")
    assert uids(serving.await_ready(5)) & uids(before) == uids(before) - uids(lost)


def test_role_when_its_template_changes_is_rolled_and_serves_meanwhile(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=4, nodes=2)
    serving.create(*ROLES, topology={"required": "block"})
    before = serving.await_ready(5)
    changed: list[Object] = [dict(role) for role in ROLES]
    changed[0]["template"] = {"spec": ROLES[0]["template"]["spec"] | {"terminationGracePeriodSeconds": 1}}
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": changed})
        eventually(
            lambda: not uids(before) & uids(serving.pods(role="prefill")), 180, lambda: f"rolled; {serving.states()}"
        )
        after = serving.await_ready(5)
        serving.await_condition("Progressing", "True", "Complete")
        recording.check()
        assert fewest_serving(before, recording.events, "prefill", 2) == 2
    assert {label(pod, "role") for pod in after if uids([pod]) & uids(before)} == {"decode"}


def test_node_when_it_is_drained_has_its_replica_built_elsewhere_first(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=4, nodes=2)
    serving.create(*ROLES, topology={"required": "block"})
    before = serving.await_ready(5)
    victim = serving.pods(role="prefill", replica=0)
    with serving.cluster.record(serving.path("Pod")) as recording:
        # It waits on the budget meanwhile.
        serving.kubectl("drain", node_of(victim[0]), "--ignore-daemonsets")
        after = serving.await_ready(5)
        assert fewest_serving(before, recording.events, "prefill", 2) == 2
    assert uids(after) & uids(before) == uids(before) - uids(victim)
    assert node_of(victim[0]) not in {node_of(pod) for pod in after}


def test_gang_when_a_quota_is_short_has_no_pod_until_all_of_it_fits(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=3, nodes=2)
    path = serving.path("ResourceQuota")
    serving.cluster.api("POST", path, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "3"}}})
    eventually(lambda: serving.get("ResourceQuota", "few").get("status", {}).get("hard"), describe="it is in force")
    serving.create(*ROLES, topology={"required": "block"})
    assert "few" in serving.await_condition("Admitted", "False", "QuotaExceeded")
    assert not serving.pods()
    serving.cluster.api("PATCH", serving.path("ResourceQuota", "few"), {"spec": {"hard": {"pods": "5"}}})
    serving.await_ready(5)
