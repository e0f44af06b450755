from __future__ import annotations

import pytest
from msgspec.structs import replace

from builders.members import GATE, PINNED, RELEASE, START, group, pin_terms, pod
from covey.admission import obstacles
from covey.api import core
from covey.model import podstate

MARK = "scheduling.covey.dev/member"


@pytest.mark.parametrize(
    ("found", "node"),
    [
        (pod(), None),
        (pod(node="n1"), "n1"),
        (pod(node="n1", deleted=True), "n1"),
        (pod(node="n1", phase="Succeeded"), None),
        (pod(node="n1", phase="Failed", deleted=True), None),
        (pod(pin="n1"), None),
        (pod(pin="n1", group="g"), "n1"),
        (pod(pin="n1", gates=(START,), group="g"), "n1"),
        (pod(pin="n1", group="g", annotations={RELEASE: "Timeout"}), "n1"),
        (pod(pin="n1", node="n2"), "n2"),
    ],
)
def test_what_holds_capacity(found: core.Pod, node: str | None) -> None:
    assert podstate.holding(found) == node


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (pod(gates=(GATE,)), None),
        (pod(gates=(START, GATE)), None),
        (pod(gates=(GATE, "example.com/quota")), "example.com/quota"),
        (pod(), "lost its scheduling gate"),
        (pod(gates=(GATE,), pin="n1"), "names a node itself"),
    ],
)
def test_which_pods_must_not_be_planned(found: core.Pod, word: str | None) -> None:
    obstacle = obstacles.obstacle(found)
    assert obstacle is None if word is None else word in (obstacle or "")


def test_a_pod_that_kube_scheduler_would_bind_unasked_is_not_planned() -> None:
    found = pod("p", gates=(GATE,))
    served = obstacles.obstacle(found, ("gangs", "default-scheduler"))
    assert served == "pod p is for scheduler covey-scheduler; served are default-scheduler, gangs (spec.schedulerName)"
    assert obstacles.obstacle(found, ("gangs", "covey-scheduler")) is None
    marked = pod("p", gates=(GATE,), spec={"containers": [{"resources": {"limits": {MARK: "0"}}}]})
    assert MARK in (obstacles.obstacle(found, marked=True) or "")
    assert obstacles.obstacle(marked, marked=True) is None


LEAF = group("g", minimum=1)


@pytest.mark.parametrize(
    ("found", "node", "word"),
    [
        (pod(group="g", pin="n1"), None, None),
        (pod(group="g", pin="n1"), "n1", None),
        (pod(group="g", pin="n1"), "n2", "on node n1, not on n2"),
        (pod(group="g"), None, "has no scheduling gate"),
        (pod(group="g", spec={"affinity": pin_terms("n1")}), "n1", "has no scheduling gate"),
        (pod(group="g", pin="n1", annotations={PINNED: "uid-other"}), "n1", "has no scheduling gate"),
        (pod(group="g", gates=(GATE,)), None, "not been admitted"),
        (pod(group="g", pin="n1", deleted=True), None, "being deleted"),
        (pod(group="g", pin="n1", annotations={RELEASE: "Timeout"}), None, "given up"),
        (pod(group="g", pin="n1", phase="Failed"), None, "ended"),
        (pod(group="g", pin="n1", owner={"uid": "somebody", "controller": True}), None, "not owned"),
        (pod(group="g", pin="n1", owner=None), None, "not owned"),
    ],
)
def test_what_kube_scheduler_may_do_with_members(found: core.Pod, node: str | None, word: str | None) -> None:
    why = obstacles.refusal(found, LEAF, node)
    assert why is None if word is None else word in (why or "")


def test_a_pod_is_planned_only_once_all_its_claims_were_made() -> None:
    """Pinned before, it would wait in kube-scheduler's queue while the rest of its gang is held."""
    claims = [
        {"name": "gpu", "resourceClaimTemplateName": "one"},
        {"name": "nic", "resourceClaimTemplateName": "two"},
        {"name": "shared", "resourceClaimName": "mine"},
    ]
    found = pod(gates=(GATE,), spec={"resourceClaims": claims})
    for made, lacking in ((), "gpu"), (("gpu",), "nic"), (("gpu", "nic"), None):
        statuses = tuple(core.PodClaimStatus(name) for name in made)
        obstacle = obstacles.obstacle(replace(found, status=core.PodStatus(resource_claim_statuses=statuses)))
        assert (obstacle is None) == (lacking is None)
        assert lacking is None or f"claim {lacking} of pod" in (obstacle or "")


def test_a_pod_made_of_another_takes_nothing_from_its_status() -> None:
    """What the kubelet has set aside is dropped where the spec says the same, from that pod alone."""
    running = core.ContainerStatus("engine", resources=core.Resources({"cpu": "2"}))
    small = (core.Container("engine", core.Resources({"cpu": "1"})),)
    large = (core.Container("engine", core.Resources({"cpu": "2"})),)
    found = replace(pod(), spec=core.PodSpec(containers=small), status=core.PodStatus(container_statuses=(running,)))
    other = replace(found, spec=core.PodSpec(containers=large))
    assert other.status.container_statuses is None
    assert found.status.container_statuses == (running,)


def test_only_empty_terms_match_no_node() -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}
    assert "match no node" in (obstacles.obstacle(pod(gates=(GATE,), spec={"affinity": affinity})) or "")
