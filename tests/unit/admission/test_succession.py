"""Which replicas go for others of their unit, held against all sets that could."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.gangs import RACK, at, gang_of, nodes_in
from builders.members import node
from covey.admission.succession import (
    OTHERS_PLACED,
    STAYS,
    Ending,
    Succession,
    explain_surplus,
    find_succession,
)
from covey.api import core
from covey.api.succession import Predecessors, SuccessionQuestion, Successor
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang


def nodes_of(*gpus: int) -> Inventory:
    """Nodes with so many devices each, all in one rack."""
    names = {f"n{number}": count for number, count in enumerate(gpus)}
    return nodes_in(dict.fromkeys(names, "r0"), names)


def placed(role: str, replica: int, place: int, gpus: int = 8) -> core.Pod:
    return at(role, replica, f"n{place}", gpus=gpus)


def waiting(role: str, replica: int, gpus: int = 8) -> core.Pod:
    return at(role, replica, None, gpus=gpus)


def after(role: str, *replicas: int) -> tuple[Successor, ...]:
    return tuple(Successor(role, replica, f"uid-{role}-{replica}") for replica in replicas)


def ask(
    gang: Gang,
    inventory: Inventory,
    *sets: tuple[Successor, ...],
    ending: Ending | None = None,
    **predecessors: Predecessors,
) -> Succession:
    """The answer, which leaves no trace; all others that have places stay."""
    told = {}
    for role, found in predecessors.items():
        (request,) = [each for each in gang.roles if each.name == role]
        held = ending.own if ending is not None else frozenset()
        there = {each.replica for each in request.replicas if each.placed and held.isdisjoint(p.key for p in each.pods)}
        given = {name: tuple(n for n in getattr(found, name) if n in there) for name in ("idle", "serving")}
        told[role] = replace(found, **given, stay=tuple(sorted(there.difference(found.idle, found.serving))))
    before = {name: dict(inventory.free(name)) for name in inventory.nodes}
    found = find_succession(gang, SuccessionQuestion(sets, told), inventory, ending)
    assert {name: dict(inventory.free(name)) for name in inventory.nodes} == before
    return found


def victims(found: Succession) -> list[set[tuple[str, int]]]:
    return [{(role, each.replica) for role, each in proof.victims} for proof in found.proofs]


FOUR = [placed("prefill", n, n) for n in range(4)]
TWO = [placed("decode", n, 4 + n) for n in range(2)]
MOST = Predecessors(serving=(3, 2, 1, 0), most=3)


def test_a_set_takes_one_of_each_role_and_is_proven_as_a_whole() -> None:
    inventory = nodes_of(*[8] * 6)
    gang = gang_of(inventory, *FOUR, *TWO, waiting("prefill", 4), waiting("decode", 2))
    both = (*after("prefill", 4), *after("decode", 2))
    most = Predecessors(serving=(1, 0), most=1)
    assert victims(ask(gang, inventory, both, prefill=MOST, decode=most)) == [{("prefill", 3), ("decode", 1)}]
    # Of a set of which only one role could have its places nothing goes.
    inventory = nodes_of(*[8] * 6)
    gang = gang_of(inventory, *FOUR, *TWO, waiting("prefill", 4), waiting("decode", 2, gpus=16))
    (proof,) = ask(gang, inventory, both, prefill=MOST, decode=most).proofs
    assert (proof.victims, proof.reason) == ((), "Infeasible")
    assert "decode" in proof.message


def test_surplus_when_another_domain_would_hold_all_of_its_unit_says_so() -> None:
    inventory = nodes_of(*[8] * 6)
    for number in range(8):
        inventory.set_node(node(f"m{number}", gpus=8, labels={RACK: "r1"}))
    gang = replace(gang_of(inventory, *FOUR, *TWO, waiting("prefill", 4)), required="rack")
    refusal = explain_surplus(gang, inventory)
    assert refusal is not None
    assert "r1 would hold all of the unit" in refusal.message
    assert "covey plan --cluster --defrag --for ns/root has the moves" in refusal.message


def test_where_the_operator_knows_of_others_than_have_their_places_it_is_asked_again() -> None:
    """It has seen a pod go that is still here, and would give up another one for the same successor."""
    inventory = nodes_of(*[8] * 6)
    gang = gang_of(inventory, *FOUR, *TWO, waiting("prefill", 4))
    question = SuccessionQuestion((after("prefill", 4),), {"prefill": Predecessors(serving=(2, 1, 0), most=2)})
    (proof,) = find_succession(gang, question, inventory).proofs
    assert (proof.victims, proof.reason, proof.message) == ((), "Waiting", OTHERS_PLACED)


def test_those_that_may_go_together_when_the_first_in_order_do_not_do_are_others() -> None:
    """Two on one node make room there; the first two in order lie on different ones."""
    inventory = nodes_of(8, 12)
    pods = [placed("prefill", 0, 1, 1), placed("prefill", 1, 1, 1), placed("prefill", 2, 0, 1)]
    gang = gang_of(inventory, *pods, placed("decode", 0, 0, 0), waiting("prefill", 8, 12))
    found = ask(gang, inventory, after("prefill", 8), prefill=Predecessors(serving=(2, 1, 0), most=2))
    assert victims(found) == [{("prefill", 0), ("prefill", 1)}]


places = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 8)), min_size=1, max_size=6)


@given(places, st.integers(1, 12), st.integers(0, 6), st.data())
@settings(max_examples=150, deadline=None)
def test_something_goes_exactly_where_some_set_would_do_and_no_replica_of_it_is_needless(
    found: list[tuple[int, int]], gpus: int, most: int, data: st.DataObject
) -> None:
    room = [8, 8, 8, 12, 4]
    pods: list[core.Pod] = []
    for place, count in found:
        if room[place] >= count:
            room[place] -= count
            pods.append(placed("prefill", len(pods), place, count))
    numbers = list(range(len(pods)))
    idle = data.draw(st.sets(st.sampled_from(numbers))) if numbers else set()
    inventory = nodes_of(8, 8, 8, 12, 4)
    gang = gang_of(inventory, *pods, placed("decode", 0, 0, 0), waiting("prefill", 8, gpus))
    told = Predecessors(tuple(sorted(idle)), tuple(n for n in reversed(numbers) if n not in idle), most)
    (proof,) = ask(gang, inventory, after("prefill", 8), prefill=told).proofs

    held = {n: (int((pod.spec.node_name or "n0")[1:]), pod) for n, pod in enumerate(pods)}
    asks = {n: int(pod.spec.containers[0].resources.requests["nvidia.com/gpu"]) for n, (_, pod) in held.items()}

    def fits(gone: set[int]) -> bool:
        free = list(room)
        for n in gone:
            free[held[n][0]] += asks[n]
        return max(free) >= gpus

    def may_go(gone: tuple[int, ...]) -> bool:
        return sum(n not in idle for n in gone) <= most

    sets = [set(gone) for k in range(len(numbers) + 1) for gone in combinations(numbers, k) if may_go(gone)]
    gone = {each.replica for _, each in proof.victims}
    if any(map(fits, sets)):
        assert proof.reason == ""
        assert fits(gone)
        assert may_go(tuple(gone))
        assert not any(fits(gone - {n}) for n in gone)
        assert (len(gone) == 1) == (not fits(set()) and any(fits({n}) for n in numbers if may_go((n,))))
    else:
        assert proof.reason == "Infeasible"
        assert not gone


def test_what_needs_more_than_may_go_costs_nothing() -> None:
    inventory = nodes_of(*[8] * 6)
    two = [waiting("prefill", 4, gpus=8)]
    gang = gang_of(inventory, *FOUR, *TWO, *two)
    (proof,) = ask(gang, inventory, after("prefill", 4), prefill=Predecessors(serving=(3, 2, 1, 0), most=0)).proofs
    assert proof.victims == ()
    assert proof.message.startswith(STAYS)
