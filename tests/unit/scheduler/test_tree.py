"""What a tree of groups must look like to be planned."""

from __future__ import annotations

import pytest

from scheduler_builders import group, unit


def test_two_roles_of_one_name_are_said() -> None:
    role = {"covey.dev/role": "decode"}
    groups = [group(name, parent="root", minimum=1, labels=role) for name in ("a", "b")]
    found = unit(group("root", composite=True, minimum=2), groups, [])
    assert found.problem == "groups a and b are both role decode: give each its own name in the label covey.dev/role"


@pytest.mark.parametrize(("one", "other", "number"), [("1", "1", 1), ("first", "second", 0)])
def test_two_replicas_of_one_number_are_said(one: str, other: str, number: int) -> None:
    root = group("root", composite=True, minimum=1)
    groups = [
        group("decode", composite=True, parent="root", minimum=1),
        group("a", parent="decode", minimum=1, labels={"covey.dev/replica": one}),
        group("b", parent="decode", minimum=1, labels={"covey.dev/replica": other}),
    ]
    assert unit(root, groups, []).problem == (
        f"groups a and b are both replica {number} of role decode: give each its own number, from 0, in the label"
        " covey.dev/replica"
    )


def test_pods_of_one_group_are_told_apart_by_their_places() -> None:
    root = group("root", composite=True, minimum=1)
    assert unit(root, [group("decode", parent="root", minimum=2)], []).problem is None
