"""Random trees of groups, four levels deep: from API objects through the translation to the plan, against a solver."""

from __future__ import annotations

import os

from oracle import trees
from oracle.trees import Branch, Wood, feasible, violations

#: Trees that are judged; ``COVEY_TREES`` asks for that many.
COUNT = int(os.environ.get("COVEY_TREES", "160"))


def test_random_trees_get_the_right_verdict_and_a_plan_that_keeps_every_level() -> None:
    found = {seed: trees.judge(seed) for seed in range(COUNT)}
    wrong = [f"seed {seed}: {text}" for seed, one in found.items() for text in one.complaints]
    assert not wrong, "\n".join(wrong)
    seen = trees.tally(found)
    assert min(seen["Admitted"], seen["Infeasible"], seen["waits"]) >= COUNT / 10, seen
    assert seen["Unknown"] <= COUNT / 20, seen
    assert sum(one.feasible is None for one in found.values()) <= COUNT / 20


def tree(*, rack: bool) -> Wood:
    """Two leaves of two pods under a group, on three racks of three nodes."""
    leaves = [Branch(name, 2, gpus=8, pods=[f"{name}.0", f"{name}.1"]) for name in ("a", "b")]
    group = Branch("g", 2, "rack" if rack else None, children=leaves)
    nodes = tuple(
        trees.node(f"r{number // 3}-n{number}", {"zone": "z", "block": "b", "rack": f"r{number // 3}"})
        for number in range(9)
    )
    return Wood(Branch("t", 1, children=[group]), nodes, {}, {})


def test_the_solver_knows_levels_of_inner_groups() -> None:
    assert feasible(tree(rack=False)) is True
    assert feasible(tree(rack=True)) is False


def test_the_checker_finds_what_is_wrong() -> None:
    loose, tight = tree(rack=False), tree(rack=True)
    apart = {"a.0": "r0-n0", "a.1": "r0-n1", "b.0": "r1-n3", "b.1": "r1-n4"}
    assert violations(loose, apart, admitted=True) == []
    assert any("g is not in one rack" in text for text in violations(tight, apart, admitted=True))
    half = {"a.0": "r0-n0", "a.1": "r0-n1", "b.0": "r0-n2"}
    assert "b is placed without its minimum" in violations(loose, half, admitted=True)
    assert "r0-n0 is over-committed" in violations(loose, apart | {"a.1": "r0-n0"}, admitted=True)
    assert violations(loose, apart, admitted=False)
