"""Interconnects and cliques of nodes: an exclusive one shares a clique with no other, whoever came first."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import product
from random import Random

import pytest
from msgspec.structs import replace

from builders import pods, victims
from builders.members import unit
from builders.requests import GPU, make_node
from builders.victims import objects_of
from covey.admission.growth import Site
from covey.admission.headroom import most_feasible
from covey.admission.native import MemberPod
from covey.admission.preemption import Taking, search
from covey.admission.reservation import choose_arrived
from covey.admission.victims import Candidate, Terms
from covey.api import core
from covey.api.constants import (
    CLAIM_EXCLUSIVE,
    CLAIM_INTERCONNECT,
    GATE_GANG,
    LABEL_CLIQUE,
    LABEL_POD_GROUP,
    LABEL_UNIT,
)
from covey.api.constants import RESOURCE_CHANNEL as CHANNEL
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import EXCLUSIVE_CLIQUE_TAKEN, NO_CLIQUE, shape_of
from covey.placement.model import Gang, Level, Plan, PodRequest, Refusal, ReplicaRequest, RoleRequest, Topology, Verdict
from covey.placement.overlay import overlay
from covey.placement.planner import plan_minimum

TOPOLOGY = Topology("dc", (Level("rack", ("rack",)), Level("host", ("kubernetes.io/hostname",))))


@dataclass(frozen=True)
class Kind:
    """An interconnect, or None of any: who has it, and whether it is exclusive."""

    owner: str = ""
    exclusive: bool = False
    namespace: str = "ns"
    unit: str = "0"


def pod(name: str, kind: Kind, gpus: int = 4) -> core.Pod:
    claim = CLAIM_EXCLUSIVE if kind.exclusive else CLAIM_INTERCONNECT
    overhead = {CHANNEL: 1} if kind.owner else None  # as claims are counted
    spec = {
        "containers": [{"resources": {"requests": {GPU: gpus}}}],
        "overhead": overhead,
        "resourceClaims": ({"name": claim, "resourceClaimTemplateName": "t"},) if kind.owner else None,
    }
    owner = core.OwnerReference(uid=kind.owner or name, controller=True)
    labels = {LABEL_POD_GROUP: "g", LABEL_UNIT: kind.unit}
    return pods.pod(name, namespace=kind.namespace, uid=name, labels=labels, ownerReferences=(owner,), spec=spec)


def gang(name: str, *members: core.Pod, required: str | None = None) -> Gang:
    """One role of one replica with these pods."""
    requests = tuple(
        PodRequest(each.metadata.uid, number, shape_of(each), None, each.metadata)
        for number, each in enumerate(members)
    )
    role = RoleRequest("role", 1, 1, (ReplicaRequest(0, requests),))
    return Gang("ns", name, 0, (role,), topology="dc", required=required, created=name, uid=name)


def cluster(*cliques: str | None, racks: int = 2) -> Inventory:
    """Nodes n0, n1 … with a channel and eight GPUs each, in these cliques, so many in a rack."""
    found = Inventory([TOPOLOGY])
    for number, clique in enumerate(cliques):
        labels = {"rack": f"r{number // racks}"} | ({LABEL_CLIQUE: clique} if clique else {})
        found.set_node(make_node(f"n{number}", labels=labels, extra={CHANNEL: 1}))
    return found


def hold(inventory: Inventory, node: str, one: core.Pod) -> None:
    inventory.hold(one.metadata.uid, node, shape_of(one), one.metadata)


def nodes_of(asked: Gang, inventory: Inventory) -> dict[str, str] | None:
    answer = plan_minimum(asked, inventory)
    return {each.pod: each.node for each in answer.assignments} if isinstance(answer, Plan) else None


A, B = Kind("a"), Kind("b")
ONLY_A, ONLY_B = Kind("a", exclusive=True), Kind("b", exclusive=True)


def test_a_refusal_names_the_cliques_that_are_taken_and_nodes_that_are_in_none() -> None:
    inventory = cluster("c0", "c0", None)
    hold(inventory, "n0", pod("p", ONLY_A))
    answer = plan_minimum(gang("q", pod("q", ONLY_B)), inventory)
    assert isinstance(answer, Refusal)
    assert {(each.cause, each.nodes) for reason in answer.reasons for each in reason.excluded} >= {
        (EXCLUSIVE_CLIQUE_TAKEN, 2),
        (NO_CLIQUE, 1),
    }
    assert nodes_of(gang("b", pod("b", B)), inventory) == {"b": "n2"}


def test_a_claim_of_that_name_is_nothing_without_a_channel_and_none_of_an_ordinary_pod() -> None:
    """Else a pod that takes nothing could close a clique."""
    inventory = cluster("c0", "c0")
    forged = pod("p", ONLY_A)
    without = core.Pod(forged.metadata, core.PodSpec(resource_claims=forged.spec.resource_claims), forged.status)
    hold(inventory, "n0", without)
    assert nodes_of(gang("q", pod("q", ONLY_B)), inventory) is not None
    ordinary = pods.pod("o", uid="o", spec={"resourceClaims": forged.spec.resource_claims, "overhead": {CHANNEL: 1}})
    hold(inventory, "n0", ordinary)
    assert nodes_of(gang("r", pod("r", B)), inventory) == {"r": "n1"}
    assert nodes_of(gang("q", pod("q", ONLY_B)), inventory) is None  # it has a channel all the same


def test_nobody_closes_a_clique_with_a_native_group_of_which_all_who_may_create_pods_can_be_members() -> None:
    """The label of a group is Covey's addition there, and no policy has asked who may set it."""
    meta = replace(pod("p", ONLY_A).metadata, labels=None)
    spec = replace(
        pod("p", ONLY_A).spec,
        scheduling_gates=(core.SchedulingGate(GATE_GANG),),
        scheduling_group={"podGroupName": "g"},
    )
    member, inventory = MemberPod(meta, spec), cluster("c0", "c0")
    assert member.metadata.label(LABEL_POD_GROUP) is not None
    hold(inventory, "n0", member)
    assert nodes_of(gang("r", pod("r", B)), inventory) == {"r": "n1"}
    assert nodes_of(gang("q", pod("q", ONLY_B)), inventory) is None  # it has a channel all the same


def may_share(placed: list[tuple[str, Kind]], clique_of: dict[str, str | None]) -> bool:
    """The rule as people read it, over all pairs."""
    joined = [(clique_of[node], kind) for node, kind in placed if kind.owner]
    return all(clique is not None or not kind.exclusive for clique, kind in joined) and not any(
        one[0] is not None
        and one[0] == other[0]
        and (one[1].owner, one[1].unit) != (other[1].owner, other[1].unit)
        and (one[1].exclusive or other[1].exclusive)
        for one in joined
        for other in joined
    )


class Machine:
    """A small cluster in which units come and go, beside the plainest model of it."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.cliques = [self.draw.choice(("c0", "c1", "c2", None)) for _ in range(5)]
        self.inventory = cluster(*self.cliques)
        self.clique_of = {f"n{number}": clique for number, clique in enumerate(self.cliques)}
        self.held: dict[str, tuple[str, core.Pod, Kind, int]] = {}
        self.count = 0

    def come(self) -> None:
        """Plan one more unit, and compare with every layout there is."""
        draw, self.count = self.draw, self.count + 1
        kind = Kind(draw.choice("abcd"), exclusive=draw.random() < 0.5, unit=str(draw.randrange(2)))
        kinds = [kind] * draw.randint(1, 2) + [Kind()] * draw.randint(0, 1)
        members = [pod(f"p{self.count}-{n}", each, draw.choice((2, 4, 8))) for n, each in enumerate(kinds)]
        required = draw.choice((None, "rack"))
        sizes = [dict(shape_of(each).requests)[GPU] for each in members]
        found = nodes_of(gang(f"p{self.count}", *members, required=required), self.inventory)
        every = product(self.clique_of, repeat=len(members))
        fitting = [nodes for nodes in every if self.fits(list(zip(nodes, kinds, sizes, strict=True)), required)]
        if found is None:
            assert not fitting, f"{fitting[0]} fits"
            return
        nodes = tuple(found[each.metadata.uid] for each in members)
        assert nodes in fitting
        for node, each, own, size in zip(nodes, members, kinds, sizes, strict=True):
            self.held[each.metadata.uid] = (node, each, own, size)
            hold(self.inventory, node, each)

    def fits(self, new: list[tuple[str, Kind, int]], required: str | None) -> bool:
        if required and len({int(node[1:]) // 2 for node, _, _ in new}) > 1:
            return False
        everything = [*((node, kind, size) for node, _, kind, size in self.held.values()), *new]
        for name in self.clique_of:
            here = [(kind, size) for node, kind, size in everything if node == name]
            if sum(size for _, size in here) > 8 or sum(bool(kind.owner) for kind, _ in here) > 1:
                return False
        return may_share([(node, kind) for node, kind, _ in everything], self.clique_of)

    def go(self) -> None:
        """Let a pod go."""
        if self.held:
            key = self.draw.choice(sorted(self.held))
            del self.held[key]
            self.inventory.release(key)

    def restart(self) -> None:
        """Begin with an empty inventory, and read the pods in another order; nodes may come after them."""
        self.inventory = Inventory([TOPOLOGY]) if self.draw.random() < 0.5 else cluster(*self.cliques)
        for key in self.draw.sample(sorted(self.held), len(self.held)):
            hold(self.inventory, self.held[key][0], self.held[key][1])
        for node in cluster(*self.cliques).nodes.values():
            self.inventory.set_node(node.node)


@pytest.mark.parametrize("seed", range(60))
def test_places_are_those_that_trying_all_layouts_finds(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(12):
        machine.draw.choice((machine.come, machine.come, machine.come, machine.go, machine.restart))()


def serves(name: str, kind: Kind, *nodes: str) -> Candidate:
    """A unit with one replica, its minimum, that has a pod on each of these nodes."""
    root, groups, members = objects_of(name, {"decode": (1, [nodes])}, gpus=4)
    spec = pod("p", kind).spec
    joined = [
        replace(each, spec=replace(each.spec, overhead=spec.overhead, resource_claims=spec.resource_claims))
        for each in members
    ]
    return Candidate(unit(root, groups, joined), 0)


#: Who comes with a higher priority, and what gives way: there is room for it in both cliques but for the interconnects.
COMERS = [
    (Kind(), Verdict.ADMITTED),
    (B, {"all of ns/small-0"}),
    (ONLY_B, {"all of ns/small-0"}),
]


@pytest.mark.parametrize(("comes", "taken"), COMERS)
def test_a_whole_unit_gives_way_where_only_its_clique_is_wanted(comes: Kind, taken: object) -> None:
    """The cheaper one, and nothing else in its clique."""
    there = [
        serves("large-0", ONLY_A, "n0", "n1"),
        serves("small-0", ONLY_A, "n3"),
        serves("plain-0", Kind(), "n4"),
    ]
    inventory = victims.hold(cluster("c0", "c0", "c0", "c1", "c1", "c1", racks=3), *there)
    asked = dataclasses.replace(gang("q", pod("q", comes)), priority=10)
    found = search(asked, inventory, there, Terms(victims.NOW))
    assert ({step.text for step in found.steps} if isinstance(found, Taking) else found.verdict) == taken


def test_of_nodes_that_came_an_exclusive_unit_keeps_none_that_it_cannot_use_and_all_of_a_clique() -> None:
    """None of a clique that is taken or of no clique; of another one none that was there before."""
    inventory = cluster("c0", "c0", None, "c1", "c1", "c1")
    hold(inventory, "n0", pod("p", A))
    came = dict.fromkeys(("n1", "n2", "n3", "n4"), True)
    assert choose_arrived(gang("q", pod("q", ONLY_B)), inventory, came)[1] == ["n3", "n4"]
    assert choose_arrived(gang("q", pod("q", B)), inventory, came)[1] == ["n1"]
    hold(inventory, "n5", pod("r", ONLY_A))
    assert choose_arrived(gang("q", pod("q", B)), inventory, dict.fromkeys(("n3", "n1"), True))[1] == ["n1"]


def test_head_room_of_an_exclusive_unit_lies_in_its_own_cliques() -> None:
    """Each of two units has one of three nodes of its clique; the model of a further replica is of one of them."""
    inventory = cluster("c0", "c0", "c0", "c1", "c1", "c1", "c2")
    sites = []
    for number, node in enumerate(("n0", "n3")):
        one = pod(f"p{number}", Kind("a", exclusive=True, unit=str(number)))
        hold(inventory, node, one)
        placed = PodRequest(one.metadata.uid, 0, shape_of(one), node, one.metadata)
        role = RoleRequest("role", 1, 1, (ReplicaRequest(0, (placed,)),))
        sites.append(Site(Gang("ns", f"g{number}", number, (role,), topology="dc", uid=f"g{number}")))
    assert most_feasible("role", sites, inventory, is_shared=False).replicas == 3 * 2
    assert most_feasible("role", sites, inventory, is_shared=True).replicas == 7


@pytest.mark.parametrize("seed", range(25))
def test_who_gives_way_is_enough_and_nobody_for_nothing(seed: int) -> None:
    draw = Random(seed)
    inventory = cluster(*(draw.choice(("c0", "c1", "c2")) for _ in range(6)))
    free = draw.sample(range(6), 5)
    there = [
        serves(f"u{number}-0", draw.choice((Kind(), A, ONLY_A)), *(f"n{node}" for node in nodes))
        for number, nodes in enumerate((free[:2], free[2:3], free[3:4], free[4:]))
    ]
    victims.hold(inventory, *there)
    kind = draw.choice((B, ONLY_B))
    asked = dataclasses.replace(gang("q", pod("q0", kind), pod("q1", kind)), priority=10)
    found = search(asked, inventory, there, Terms(victims.NOW))

    def fits_without(*gone: Candidate) -> bool:
        with overlay(inventory) as changes:
            changes.remove(each.metadata.uid for unit in gone for each in unit.pods())
            return nodes_of(asked, inventory) is not None

    if not isinstance(found, Taking):
        assert found.verdict is (Verdict.ADMITTED if fits_without() else Verdict.INFEASIBLE)
        assert found.verdict is Verdict.ADMITTED or not fits_without(*there)
        return
    taken = {step.unit for step in found.steps}
    gone = [each for each in there if each.key in taken]
    assert fits_without(*gone)
    assert not any(fits_without(*(each for each in gone if each is not spared)) for spared in gone)
