from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from builders.members import cache, drop, group, member, pod, put, role_groups, root_key
from builders.steps import count_steps
from covey.admission.tree import Unit
from covey.api import core
from covey.scheduler.cache import Cache

ROOT = group("root", composite=True, minimum=2, desired=2, labels={"covey.dev/unit": "3"})
GROUPS = [
    ROOT,
    *role_groups("prefill", replicas=2, minimum=1, size=2),
    *role_groups("decode", replicas=3, minimum=2, size=1),
]
PODS = [member("prefill", replica, index, size=2) for replica in range(2) for index in range(2)] + [
    member("decode", replica) for replica in range(3)
]


def outline(unit: Unit) -> object:
    return [
        (
            role.name,
            role.minimum,
            role.desired,
            [(r.number, r.size, [p.metadata.name for p in r.pods]) for r in role.replicas],
        )
        for role in unit.roles
    ]


EXPECTED = [
    ("decode", 2, 3, [(n, 1, [f"root-decode-{n}-0"]) for n in range(3)]),
    ("prefill", 1, 2, [(n, 2, [f"root-prefill-{n}-0", f"root-prefill-{n}-1"]) for n in range(2)]),
]


@given(order=st.permutations([*GROUPS, *PODS]))
def test_the_order_of_events_does_not_matter(order: list[core.Group | core.Pod]) -> None:
    made = cache(*order)
    unit = made.index.unit(root_key("root"))
    assert unit is not None
    assert unit.index == 3
    assert outline(unit) == EXPECTED
    assert made.index.roots() == [root_key("root")]
    assert {g.metadata.name for g in made.index.groups(root_key("root"))} == {g.metadata.name for g in GROUPS}


@given(order=st.permutations([*GROUPS, *PODS]))
def test_everything_can_go_again(order: list[core.Group | core.Pod]) -> None:
    made = cache(*GROUPS, *PODS)
    made.index.unit(root_key("root"))
    for each in order:
        drop(made, each)
    assert made.index.unit(root_key("root")) is None
    assert not made.index.roots()
    assert not list(made.index.pods())


def test_what_covey_does_not_plan_is_said() -> None:
    near = {"proximity": [{"roles": ["a", "b"], "level": "rack"}]}
    root = group("root", composite=True, minimum=1, constraints=near)
    made = cache(root, group("a", parent="root", minimum=1), group("b", parent="root", minimum=1))
    unit = made.index.unit(root_key("root"))
    assert unit is not None
    assert "minGroupCount is 1" in (unit.problem or "")
    chain = [group(name, composite=True, parent=above, minimum=1) for above, name in ("ra", "ab", "bc", "cd")]
    deep = cache(group("r", composite=True, minimum=1), *chain).index.unit(root_key("r"))
    assert deep is not None
    assert deep.problem == "group c has children below the level 4, where a tree ends"


def problem_of(made: Cache, name: str, *, composite: bool = True) -> str:
    """What is wrong with a unit; empty where there is none."""
    unit = made.index.unit(root_key(name, composite=composite))
    return unit.problem or "" if unit is not None else ""


def test_group_when_it_is_a_level_too_deep_has_its_root_looked_at_whatever_comes_first() -> None:
    chain = [group("r", composite=True, minimum=1)]
    chain += [group(name, composite=True, parent=above, minimum=1) for above, name in ("ra", "ab", "bc")]
    for last in (group("d", composite=True, parent="c", minimum=1), group("d", parent="c", minimum=1)):
        made = cache(*chain)
        assert not problem_of(made, "r")
        put(made, last)
        assert problem_of(made, "r") == "group c has children below the level 4, where a tree ends"
        drop(made, last)
        assert not problem_of(made, "r")


CIRCLE = [group(name, composite=True, parent=above, minimum=1) for above, name in ("ca", "ab", "bc")]
BELOW = [group("leaf", parent="b", minimum=1), group("alone", composite=True, parent="alone", minimum=1)]


@given(order=st.permutations([*CIRCLE, *BELOW]))
def test_groups_when_their_parents_are_a_circle_are_units_that_say_so(order: list[core.Group]) -> None:
    made = cache(*order)
    for name, circle in (
        ("a", "a → c → b → a"),
        ("b", "b → a → c → b"),
        ("c", "c → b → a → c"),
        ("alone", "alone → alone"),
    ):
        assert f"lead to no root, but in a circle ({circle})" in problem_of(made, name)
    assert "(b → a → c → b)" in problem_of(made, "leaf", composite=False)
    assert {key.name for key in made.index.roots()} == {"a", "b", "c", "leaf", "alone"}
    assert {each.metadata.name for each in made.index.groups(root_key("a"))} == {"a"}


@given(order=st.permutations([*CIRCLE, *BELOW]))
def test_groups_when_a_circle_is_broken_are_a_tree_again(order: list[core.Group]) -> None:
    made = cache(*order)
    drop(made, CIRCLE[0])
    assert {key.name for key in made.index.roots()} == {"alone"}
    put(made, group("a", composite=True, minimum=1))
    assert {key.name for key in made.index.roots()} == {"a", "alone"}
    assert not problem_of(made, "a")
    assert {each.metadata.name for each in made.index.groups(root_key("a"))} == {"a", "b", "c", "leaf"}


def test_circle_when_it_is_long_costs_no_more_for_each_group() -> None:
    def steps(count: int) -> int:
        names = [f"g{number}" for number in range(count)]
        made = cache(
            *(group(name, composite=True, parent=above, minimum=1) for above, name in pairwise([names[-1], *names]))
        )
        assert len(made.index.roots()) == count
        again = group("g0", composite=True, parent=names[-1], minimum=1, labels={"note": "new"})
        return count_steps(lambda: [put(made, again, again), *map(made.index.unit, made.index.roots())])

    steps(10)
    few, many = steps(10), steps(40)
    assert many <= 6 * few, f"{few} steps for 10, {many} for 40"


def test_a_workload_orders_the_roles_of_the_units_that_refer_to_it() -> None:
    reference = {"workloadName": "w", "templateName": "unit"}
    made = cache(group("root", composite=True, minimum=2, workloadRef=reference), group("alone", minimum=1))
    named = [
        group(f"root-{role}", minimum=1, parent="root", workloadRef=reference | {"templateName": role})
        for role in ("decode", "prefill")
    ]
    for each in named:
        put(made, each)

    def roles() -> list[str]:
        unit = made.index.unit(root_key("root"))
        assert unit is not None
        return [role.group.metadata.name for role in unit.roles]

    alone = made.index.unit(root_key("alone", composite=False))
    assert roles() == ["root-decode", "root-prefill"]
    assert made.index.set_declared(("ns", "w"), {"unit": 0, "prefill": 1, "decode": 2}) == {root_key("root")}
    assert roles() == ["root-prefill", "root-decode"]
    assert made.index.unit(root_key("alone", composite=False)) is alone
    assert made.index.set_declared(("ns", "w"), {}) == {root_key("root")}
    assert roles() == ["root-decode", "root-prefill"]


def test_pods_that_drain_or_are_deleted_are_known_until_they_stay_or_are_gone() -> None:
    drains = pod("drains", annotations={"scheduling.covey.dev/drain-until": "2026-01-01T00:00:00Z"})
    made = cache(pod("stays"), drains, pod("deleted", deleted=True))
    assert sorted(each.metadata.name for each in made.index.ending()) == ["deleted", "drains"]
    put(made, pod("drains"))
    drop(made, pod("deleted", deleted=True))
    assert not list(made.index.ending())
