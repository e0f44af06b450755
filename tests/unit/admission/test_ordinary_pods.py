"""Ordinary pods that give way: which may, what they cost beside replicas, and how refused evictions are remembered."""

from __future__ import annotations

from typing import Any

import pytest

from builders.requests import TOPOLOGY, make_gang, make_node, make_role, make_shape
from builders.victims import NOW, hold, ordinary, serving
from covey.admission.ordinary import MOST, OrdinaryPod, find_ordinary, is_evictable
from covey.admission.pardon import still_needed
from covey.admission.preemption import Taking, search
from covey.admission.reservation import count_taken
from covey.admission.victims import Candidate, Terms
from covey.api import core
from covey.api.annotations import LEFT_ALONE, read_refused, write_refused
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Verdict

TERMS = Terms(NOW)


def nodes(count: int, *, cpu: int = 64_000) -> Inventory:
    inventory = Inventory([TOPOLOGY])
    for number in range(count):
        labels = {"zone": "z", "block": "b", "rack": "r0"}
        inventory.set_node(make_node(f"n{number}", 8, labels=labels, extra={"cpu": f"{cpu}m"}))
    return inventory


def wants(replicas: int, *, gpus: int = 8, cpu: int = 100, priority: int = 10) -> Gang:
    return make_gang(make_role("decode", replicas, shape=make_shape(gpus, extra={"cpu": cpu})), priority=priority)


def taken(inventory: Inventory, gang: Gang, *candidates: Candidate | OrdinaryPod, terms: Terms = TERMS) -> Any:
    """The steps that are taken, as people write them; or the verdict where nobody gives way."""
    units = [each for each in candidates if isinstance(each, Candidate)]
    pods = [each for each in candidates if isinstance(each, OrdinaryPod)]
    found = search(gang, hold(inventory, *candidates), units, terms, ordinary=pods)
    return {step.text for step in found.steps} if isinstance(found, Taking) else found.verdict


@pytest.mark.parametrize(
    ("state", "may_go"),
    [
        ({}, True),
        ({"owner": ""}, True),
        ({"node": None}, False),
        ({"owner": "DaemonSet"}, False),
        ({"owner": "Node"}, False),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, False),
        ({"deletionTimestamp": "2026-01-02T00:00:00Z"}, False),
        ({"labels": {"scheduling.covey.dev/pod-group": "g"}}, False),  # whoever only says so is nobody to evict either
        ({"labels": {"covey.dev/inference": "llama"}}, False),  # of another backend
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, False),
        ({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, False),
        ({"spec": {"priorityClassName": "system-node-critical"}}, False),
        ({"spec": {"priorityClassName": "batch"}}, True),
    ],
)
def test_pods_that_may_be_evicted(state: dict[str, Any], may_go: bool) -> None:  # noqa: FBT001 - a table
    assert is_evictable(ordinary("web", state.pop("node", "n0"), **state)) is may_go


def test_a_pod_that_has_ended_holds_nothing_to_evict() -> None:
    pod = ordinary("web", "n0")
    ended = core.Pod(pod.metadata, pod.spec, core.PodStatus("Succeeded"))
    assert not is_evictable(ended)


def test_siblings_of_a_pod_that_was_refused_are_left_alone() -> None:
    pods = [ordinary("a", "n0", of="web"), ordinary("b", "n1", of="web"), ordinary("c", "n2", of="batch")]
    assert {each.pod.metadata.name for each in find_ordinary(pods, 10, {"pod-a"})} == {"c"}


def test_so_many_pods_are_looked_at_and_no_more() -> None:
    pods = [ordinary(f"p{number}", "n0", priority=number % 2) for number in range(MOST + 10)]
    found = find_ordinary(pods, 10)
    assert len(found) == MOST
    assert sum(each.priority == 0 for each in found) == (MOST + 10) // 2


def test_pods_without_what_the_gang_lacks_stay() -> None:
    """kueue#10497: those beside the devices take only processor time, of which there is enough."""
    web, agent = OrdinaryPod(ordinary("web", "n0")), OrdinaryPod(ordinary("agent", "n0", gpus=0))
    assert taken(nodes(1), wants(1), web, agent) == {"pod ns/web"}


def test_pods_that_take_processor_time_go_where_that_is_lacking() -> None:
    agents = [OrdinaryPod(ordinary(f"agent{number}", "n0", gpus=0, cpu="4")) for number in range(2)]
    found = taken(nodes(1, cpu=8_000), wants(1, cpu=4_000), *agents)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("served", "longest", "goes"), [(599.0, 1800.0, False), (601.0, 1800.0, True), (5.0, 0.0, True)]
)
def test_a_pod_that_has_hardly_begun_is_spared(served: float, longest: float, goes: bool) -> None:  # noqa: FBT001
    pod = OrdinaryPod(ordinary("web", "n0", served=served))
    found = taken(nodes(1), wants(1), pod, terms=Terms(NOW, longest))
    assert found == ({"pod ns/web"} if goes else Verdict.INFEASIBLE)


def test_a_pod_that_a_claim_names_is_not_taken_again() -> None:
    pod = OrdinaryPod(ordinary("web", "n0"))
    assert taken(nodes(1), wants(1), pod, terms=Terms(NOW, claimed={"pod-web"})) is Verdict.INFEASIBLE


def test_a_claim_names_pods_by_their_uids() -> None:
    pod = OrdinaryPod(ordinary("web", "n0"))
    found = search(wants(1), hold(nodes(1), pod), (), TERMS, ordinary=[pod])
    assert isinstance(found, Taking)
    assert found.sentence == "takes pod ns/web: 8 nvidia.com/gpu in host z/b/r0/n0"
    assert [step.victim() for step in found.steps] == [core.Victim("Pod", "ns", "web", 0, pods=("pod-web",))]


def test_others_are_pardoned_before_a_pod_that_ends_already() -> None:
    pods = [OrdinaryPod(ordinary(name, node)) for name, node in (("a", "n0"), ("b", "n1"))]
    victims = [core.Victim("Pod", "ns", name, 0, pods=(f"pod-{name}",)) for name in ("a", "b")]
    for ending, left in (("pod-a", "a"), ("pod-b", "b")):
        standing = still_needed(wants(1), hold(nodes(2), *pods), victims, ending={ending})
        assert [each.name for each in standing.needed] == [left]


def test_a_pod_named_like_a_resource_is_none_of_its_replicas() -> None:
    root = serving("web", {"decode": (1, [["n0"], ["n1"]])}).unit.root
    assert count_taken([core.Victim("Pod", "ns", "web", 0, pods=("pod-web",))], root) == {}


def test_refused_evictions_are_remembered_for_a_while() -> None:
    text = write_refused({"a": NOW + 100.0, "b": NOW + LEFT_ALONE})
    assert read_refused(text, NOW) == {"a": NOW + 100.0, "b": NOW + LEFT_ALONE}
    assert read_refused(text, NOW + 150.0) == {"b": NOW + LEFT_ALONE}
    assert read_refused(text, NOW - LEFT_ALONE) == {}, "another clock has written it"


@pytest.mark.parametrize("text", [None, "", "[]", "{", '{"a": 1}', '{"a": "soon"}'])
def test_a_text_that_says_nothing_leaves_nobody_alone(text: str | None) -> None:
    assert read_refused(text, NOW) == {}
