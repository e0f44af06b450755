"""What the operator wants new pods to keep off, as the scheduler process heeds it."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import cache, node, put, root_key
from covey.admission.levels import avoided_nodes, avoided_now
from covey.api import core
from covey.api.annotations import Avoided, dump_avoided, read
from covey.api.constants import ANNOTATION_AVOID
from covey.placement.model import Level, Topology
from scheduler_loop import Loop, labels, tree

TOPOLOGY = Topology("t", (Level("block", ("block",)), Level("rack", ("rack",))))


def told(root: core.Group, *avoided: Avoided) -> core.Group:
    """The root as the operator has annotated it."""
    annotations = {ANNOTATION_AVOID: dump_avoided(avoided) or ""}
    return msgspec.structs.replace(root, metadata=msgspec.structs.replace(root.metadata, annotations=annotations))


def soon(**place: object) -> Avoided:
    return Avoided(time.time() + 3000.0, "3 failures there", **place)  # type: ignore[arg-type] # one of the two


async def test_a_gang_keeps_off_and_comes_back_when_it_is_told() -> None:
    root, *rest = tree("one")
    assert isinstance(root, core.Group)
    loop = Loop(cache(node("bad"), told(root, soon(node="bad")), *rest))
    assert await loop.turn() == {}
    assert "1 excluded" in loop.admission.decision(root_key("one")).message
    assert loop.admission.decision(root_key("one")).excluded == (), "it is not the status that keeps it"
    put(loop.cache, root)
    assert await loop.turn() == {"one-decode-0-0": "bad"}


async def test_a_domain_is_avoided_with_all_its_nodes() -> None:
    root, *rest = tree("one")
    assert isinstance(root, core.Group)
    racks = {"n1": labels(rack="r1"), "n2": labels(rack="r1"), "n3": labels(rack="r2")}
    domain = {"zone": "z", "block": "b1", "rack": "r1"}
    nodes = [node(name, labels=found) for name, found in racks.items()]
    loop = Loop(cache(*nodes, told(root, soon(domain=domain)), *rest))
    assert await loop.turn() == {"one-decode-0-0": "n3"}


def test_domains_of_another_topology_are_none() -> None:
    found = core.Node(core.Meta(name="n1", labels={"block": "b", "rack": "r"}))
    same = Avoided(0.0, "", domain={"block": "b", "rack": "r"})
    other = Avoided(0.0, "", domain={"rack": "r", "room": "x"})
    assert avoided_nodes([other], TOPOLOGY, [found]) == {}
    assert list(avoided_nodes([same], TOPOLOGY, [found])) == ["n1"]
    assert avoided_nodes([Avoided(0.0, "", domain={"rack": "q"})], TOPOLOGY, [found]) == {}


def test_what_has_run_out_or_was_written_by_another_clock_does_not_hold() -> None:
    root = core.Group(core.Meta(name="one"))
    for until, holds in ((1000.0, False), (1001.0, True), (1000.0 + 86400.0, True), (1001.0 + 86400.0, False)):
        assert bool(avoided_now(told(root, Avoided(until, "r", "n")), 1000.0)) is holds


NONSENSE = [None, "", "{", "{}", "[3]", '[{"node": 3, "until": "2026-01-01T00:00:00Z"}]', "[{}]", "[" * 100_000]


@pytest.mark.parametrize("text", NONSENSE, ids=[repr(each)[:20] for each in NONSENSE])
def test_nonsense_says_nothing(text: str | None) -> None:
    assert read(text) == ()


@given(st.lists(st.builds(Avoided, st.integers(0, 4_000_000_000).map(float), st.text(), st.text(min_size=1))))
def test_what_is_written_is_read(avoided: list[Avoided]) -> None:
    assert list(read(dump_avoided(avoided))) == avoided
