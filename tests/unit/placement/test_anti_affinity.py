"""Required anti-affinity, from pods as people write them: on the host all of it holds, whoever has the term."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from builders import pods
from builders.requests import TOPOLOGY, make_node
from covey.api import constants, core
from covey.placement.anti_affinity import terms_of
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of, with_terms
from covey.placement.model import Gang, Plan, PodRequest, ReplicaRequest, RoleRequest
from covey.placement.planner import plan_minimum

ZONE = "topology.kubernetes.io/zone"
EVERYWHERE = core.LabelSelector()


def term(key: str = constants.HOSTNAME_LABEL, *, more: dict[str, Any] | None = None, **labels: str) -> core.Affinity:
    """Keep away from pods with these labels."""
    found = core.PodAffinityTerm(
        topology_key=key, label_selector=core.LabelSelector(match_labels=labels), **(more or {})
    )
    return core.Affinity(pod_anti_affinity=core.PodAffinity(required=(found,)))


def pod(name: str, affinity: core.Affinity | None = None, *, namespace: str = "ns", **labels: str) -> core.Pod:
    container = {"resources": {"requests": {"nvidia.com/gpu": "1"}}}
    spec = {"containers": [container], "affinity": affinity}
    return pods.pod(name, namespace=namespace, uid=name, labels=labels, spec=spec)


def gang(*pods: core.Pod, name: str = "g") -> Gang:
    """One role; every pod is a replica."""
    replicas = tuple(
        ReplicaRequest(n, (PodRequest(each.metadata.uid, 0, shape_of(each), None, each.metadata),))
        for n, each in enumerate(pods)
    )
    role = RoleRequest("role", len(pods), len(pods), replicas)
    return Gang(namespace="ns", name=name, unit=0, roles=(role,), topology="dc", created=name, uid=name)


def cluster(nodes: int, held: Iterable[tuple[str, core.Pod]] = ()) -> Inventory:
    """Nodes n0, n1 …, two in a zone; ``held`` says who is where."""
    inventory = Inventory([TOPOLOGY])
    for number in range(nodes):
        inventory.set_node(make_node(f"n{number}", labels={ZONE: f"z{number // 2}"}))
    for name, stranger in held:
        inventory.hold(stranger.metadata.uid, name, shape_of(stranger), stranger.metadata)
    return inventory


def nodes_of(asked: Gang, inventory: Inventory) -> dict[str, str] | None:
    answer = plan_minimum(asked, inventory)
    return {each.pod: each.node for each in answer.assignments} if isinstance(answer, Plan) else None


def apart(one: core.Pod, other: core.Pod) -> bool:
    """A node takes one of the two at most, both as members of one gang and as strangers."""
    together = nodes_of(gang(one, other), cluster(1)) is None
    assert nodes_of(gang(one, other), cluster(2)) is not None
    for first, second in ((one, other), (other, one)):
        assert (nodes_of(gang(second), cluster(1, [("n0", first)])) is None) is together
    return together


#: What the term says beside its selector, the other pod's namespace, and whether it is meant.
NAMESPACES = [
    ({}, "ns", True),
    ({}, "other", False),
    ({"namespaces": ("other",)}, "other", True),
    ({"namespaces": ("other",)}, "ns", False),
    ({"namespace_selector": EVERYWHERE}, "other", True),
    ({"namespace_selector": core.LabelSelector(match_labels={"kubernetes.io/metadata.name": "x"})}, "x", True),
    ({"namespace_selector": core.LabelSelector(match_labels={"kubernetes.io/metadata.name": "x"})}, "ns", False),
    ({"namespaces": ("y",), "namespace_selector": core.LabelSelector(match_labels={"team": "a"})}, "z", True),
]


@pytest.mark.parametrize(("more", "namespace", "meant"), NAMESPACES)
def test_namespaces_are_those_that_kube_scheduler_takes(more: dict[str, Any], namespace: str, *, meant: bool) -> None:
    assert apart(pod("a", term(more=more, app="b")), pod("b", namespace=namespace, app="b")) is meant


def test_label_keys_of_the_pod_itself_become_part_of_its_term() -> None:
    same = term(more={"match_label_keys": ("rev", "none")}, app="a")
    assert apart(pod("a", same, app="a", rev="1"), pod("b", app="a", rev="1"))
    assert not apart(pod("a", same, app="a", rev="1"), pod("b", app="a", rev="2"))
    other = term(more={"mismatch_label_keys": ("rev",)}, app="a")
    assert apart(pod("a", other, app="a", rev="1"), pod("b", app="a", rev="2"))
    assert not apart(pod("a", other, app="a", rev="1"), pod("b", app="a", rev="1"))


def test_a_term_without_a_selector_matches_no_pod_and_an_empty_one_every_pod() -> None:
    null = core.PodAffinityTerm(topology_key=constants.HOSTNAME_LABEL)
    assert terms_of(pod("a", core.Affinity(pod_anti_affinity=core.PodAffinity(required=(null,))))) == ()
    assert apart(pod("a", term()), pod("b"))


def test_a_thousand_labels_of_no_concern_are_one_shape() -> None:
    """Somebody selects one index, nobody the others: two kinds of pods, not a thousand."""
    members = [pod(f"p{n}", app="a", index=str(n)) for n in range(1000)]
    stranger = pod("s", term(index="7"))
    told = with_terms(gang(*members), cluster(2, [("n0", stranger)]).terms)
    shapes = [each.pods[0].shape for each in told.roles[0].replicas]
    assert len(set(shapes)) == 2
    assert [n for n, shape in enumerate(shapes) if shape.matched] == [7]


def test_labels_that_change_on_a_bound_pod_count() -> None:
    asked = gang(pod("a", term(app="b")))
    inventory = cluster(1, [("n0", pod("s", app="b"))])
    assert nodes_of(asked, inventory) is None
    changed = pod("s", app="c")
    inventory.hold("s", "n0", shape_of(changed), changed.metadata)
    assert nodes_of(asked, inventory) is not None
