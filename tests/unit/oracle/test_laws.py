"""Laws that hold whatever the answer is: what must not matter does not, and more room never harms."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.api import core
from covey.placement.model import Path, Plan, Verdict
from covey.placement.planner import plan_minimum, plan_surplus
from oracle import instances
from oracle.case import Case
from oracle.checker import Score, score
from oracle.judge import exact

T = TypeVar("T")
Outcome = tuple[Verdict, Score | None]


def outcome(case: Case) -> Outcome:
    """The verdict, and how good the whole plan is."""
    answer = plan_minimum(case.gang, case.inventory())
    if not isinstance(answer, Plan):
        return answer.verdict, None
    middle = case.after(answer.assignments)
    growth = plan_surplus(middle.gang, middle.inventory())
    return answer.verdict, score(case, middle.after(growth.assignments))


def shuffled(items: tuple[T, ...], seed: int) -> tuple[T, ...]:
    found = list(items)
    random.Random(seed).shuffle(found)
    return tuple(found)


def nodes_permuted(case: Case, seed: int) -> Case:
    return replace(case, nodes=shuffled(case.nodes, seed), holds=shuffled(case.holds, seed))


def roles_permuted(case: Case, seed: int) -> Case:
    return replace(case, gang=replace(case.gang, roles=shuffled(case.gang.roles, seed)))


def replicas_renumbered(case: Case, _: int) -> Case:
    """Other keys and numbers for the same replicas: only their order among each other stays."""
    roles = tuple(
        replace(role, replicas=tuple(replace(one, replica=10 + 2 * one.replica) for one in role.replicas))
        for role in case.gang.roles
    )
    return replace(case, gang=replace(case.gang, roles=roles))


def labels_renamed(case: Case, _: int) -> Case:
    """Every value of a topology label has another name (the hosts' names stay: they are the nodes')."""
    own = [level for level in case.topology.levels if level.name != "host"]
    keys = {key for level in own for key in level.keys}

    def other(value: str) -> str:
        return f"x-{value[::-1]}"

    def node_of(node: core.Node) -> core.Node:
        labels = {key: other(value) if key in keys else value for key, value in (node.metadata.labels or {}).items()}
        return core.Node(core.Meta(name=node.metadata.name, labels=labels), node.spec, node.status)

    def path_of(path: Path) -> Path:
        return tuple(value and other(value) if depth < len(own) else value for depth, value in enumerate(path))

    gang = case.gang
    if gang.spread is not None:
        occupied = {path_of(path): count for path, count in gang.spread.occupied.items()}
        gang = replace(gang, spread=replace(gang.spread, occupied=occupied))
    return replace(case, gang=gang, nodes=tuple(map(node_of, case.nodes)))


@pytest.mark.parametrize("change", [nodes_permuted, roles_permuted, replicas_renumbered, labels_renamed])
@settings(settings.get_profile("storm"))
@given(case=instances.cases(instances.SMALL), seed=st.integers(0, 9))
def test_what_must_not_matter(change: Callable[[Case, int], Case], case: Case, seed: int) -> None:
    verdict, before = outcome(case)
    changed, after = outcome(change(case, seed))
    if exact(case):
        assert changed == verdict
        assert (before and (before.preferred, before.fill)) == (after and (after.preferred, after.fill))
    else:  # beyond the promise the search may end elsewhere, but proofs must not contradict each other
        assert {verdict, changed} != {Verdict.ADMITTED, Verdict.INFEASIBLE}


def roomier(case: Case) -> Iterator[Case]:
    """The case with one more node like each of a few, and with strangers gone."""
    for node in case.nodes[:3]:
        labels = dict(node.metadata.labels or {})
        metadata = core.Meta(name="another", labels=labels | {"kubernetes.io/hostname": "another"})
        yield replace(case, nodes=(*case.nodes, core.Node(metadata, node.spec, node.status)))
    members = {pod.key for role in case.gang.roles for replica in role.replicas for pod in replica.pods}
    for hold in case.holds[:3]:
        if hold.key not in members:
            yield replace(case, holds=tuple(kept for kept in case.holds if kept != hold))


@settings(settings.get_profile("storm"))
@given(case=instances.cases(instances.SMALL))
def test_more_room_never_makes_a_gang_infeasible(case: Case) -> None:
    if outcome(case)[0] is Verdict.ADMITTED:
        for more in roomier(case):
            allowed = {Verdict.ADMITTED} if exact(case) else {Verdict.ADMITTED, Verdict.UNKNOWN}
            assert plan_minimum(more.gang, more.inventory()).verdict in allowed


@settings(settings.get_profile("storm"))
@given(case=instances.cases(instances.SMALL))
def test_the_same_question_has_the_same_answer(case: Case) -> None:
    inventory = case.inventory()
    free = {node: dict(inventory.free(node)) for node in case.node}
    first = plan_minimum(case.gang, inventory)
    assert first == plan_minimum(case.gang, inventory)
    assert first == plan_minimum(case.gang, nodes_permuted(case, 1).inventory())
    assert {node: dict(inventory.free(node)) for node in case.node} == free  # planning changes nothing
    if isinstance(first, Plan):
        middle = case.after(first.assignments)
        after = plan_surplus(middle.gang, middle.inventory())
        assert after == plan_surplus(middle.gang, nodes_permuted(middle, 1).inventory())


@settings(settings.get_profile("storm"))
@given(case=instances.cases(instances.SMALL))
def test_an_inventory_kept_up_to_date_is_as_good_as_a_new_one(case: Case) -> None:
    inventory = case.inventory()
    for node in case.nodes:
        inventory.remove_node(node.metadata.name)
        inventory.set_node(core.Node(node.metadata, core.NodeSpec(unschedulable=True), node.status))
    for hold in case.holds:
        inventory.hold(hold.key, case.nodes[0].metadata.name, hold.shape)
        inventory.release(hold.key)
    plan_minimum(case.gang, inventory)  # whatever it remembers from here must not last
    for hold in case.holds:
        inventory.hold(hold.key, hold.node, hold.shape, hold.pod.metadata if hold.pod else None)
    for node in reversed(case.nodes):
        inventory.set_node(node)
        inventory.set_node(node)
    assert plan_minimum(case.gang, inventory) == plan_minimum(case.gang, case.inventory())
