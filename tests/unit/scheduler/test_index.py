from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders.members import GATE, START, cache, drop, group, member, pod, put, role_groups, root_key
from covey.admission.tree import Unit, minimum_replicas
from covey.api import core

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


def test_listeners_hear_of_the_unit_that_changed() -> None:
    from covey.scheduler.cache import Listener  # noqa: PLC0415 - beside its only use

    made = cache(*GROUPS)
    heard: list[object] = []
    statuses: list[object] = []
    made.subscribe(Listener(unit=heard.append, status=statuses.append))
    put(made, PODS[0])
    assert heard == [root_key("root")]
    put(made, pod("stranger"))
    assert heard == [root_key("root")]
    made._on_group("MODIFIED", ROOT, ROOT)
    assert statuses == [root_key("root")]
    assert heard == [root_key("root")]


def test_foreign_pods_and_groups_are_no_members() -> None:
    stranger = {"uid": "somebody", "controller": True}
    made = cache(*GROUPS, *PODS[1:])
    put(made, member("prefill", 0, 0, size=2, owner=stranger))
    put(made, group("extra", parent="root", minimum=1, owner=stranger | {"kind": "Thing", "name": "x"}))
    unit = made.index.unit(root_key("root"))
    assert unit is not None
    assert [role.name for role in unit.roles] == ["decode", "prefill"]
    assert [p.metadata.name for p in unit.roles[1].replicas[0].pods] == ["root-prefill-0-1"]


def test_one_pod_stands_for_a_place_the_bound_one() -> None:
    made = cache(*GROUPS, member("decode", 0, name="new"), member("decode", 0, name="old", node="n1"))
    unit = made.index.unit(root_key("root"))
    assert unit is not None
    assert [p.metadata.name for p in unit.roles[0].replicas[0].pods] == ["old"]


def test_the_minimum_is_what_is_placed_then_the_lowest_numbers() -> None:
    made = cache(
        *GROUPS, *PODS[:4], member("decode", 0), member("decode", 1), member("decode", 2, pin="n1", gates=(START,))
    )
    unit = made.index.unit(root_key("root"))
    assert unit is not None
    placed = minimum_replicas(unit.roles[0], lambda found: found.spec.affinity is not None)
    assert [replica.number for replica in placed] == [2, 0]


def test_a_pod_group_alone_is_a_unit_of_one_role() -> None:
    lone = group("lone", minimum=2, desired=3)
    made = cache(lone, *(pod(f"p{n}", group="lone", gates=(GATE,)) for n in range(3)))
    unit = made.index.unit(root_key("lone", composite=False))
    assert unit is not None
    assert [(role.name, role.minimum, role.desired, len(role.replicas)) for role in unit.roles] == [("lone", 2, 3, 3)]
    assert unit.minimum_met(lambda _pod: True)


def test_a_leaf_that_wants_one_domain_is_one_replica() -> None:
    rack = {"topology": [{"level": "rack", "mode": "Required", "scope": "Group"}]}
    root = group("root", composite=True, minimum=1)
    leaf = group("leaf", parent="root", minimum=2, constraints=rack)
    made = cache(root, leaf, pod("a", group="leaf"), pod("b", group="leaf"))
    unit = made.index.unit(root_key("root"))
    assert unit is not None
    assert [(r.size, len(r.pods)) for r in unit.roles[0].replicas] == [(2, 2)]
    assert unit.roles[0].minimum == 1


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


def test_a_podgroup_and_a_composite_of_one_name_are_two_units() -> None:
    made = cache(
        group("twin", minimum=1),
        group("twin", composite=True, minimum=1, desired=1),
        *role_groups("decode", replicas=1, minimum=1, size=1, root="twin"),
        pod("lonely", group="twin"),
        member("decode", 0, root="twin"),
    )
    one, other = (made.index.unit(root_key("twin", composite=composite)) for composite in (False, True))
    assert one is not None
    assert other is not None
    assert [each.metadata.name for each in one.pods()] == ["lonely"]
    assert [each.metadata.name for each in other.pods()] == ["twin-decode-0-0"]
    assert set(made.index.roots()) == {one.key, other.key}
    drop(made, group("twin", minimum=1))
    assert made.index.unit(one.key) is None
    assert made.index.unit(other.key) is not None


def test_pods_that_drain_or_are_deleted_are_known_until_they_stay_or_are_gone() -> None:
    drains = pod("drains", annotations={"covey.dev/draining-since": "2026-01-01T00:00:00Z"})
    made = cache(pod("stays"), drains, pod("deleted", deleted=True))
    assert sorted(each.metadata.name for each in made.index.ending()) == ["deleted", "drains"]
    put(made, pod("drains"))
    drop(made, pod("deleted", deleted=True))
    assert not list(made.index.ending())
