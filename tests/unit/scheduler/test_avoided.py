"""What the operator wants new pods to keep off, as the scheduler process heeds it."""

from __future__ import annotations

import time

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from builders.members import cache, node
from covey.admission.avoided_nodes import avoided_now
from covey.api import core
from covey.api.annotations import Avoided, dump_avoided, read
from covey.api.constants import ANNOTATION_AVOID
from scheduler_loop import Loop, labels, tree


def told(root: core.Group, *avoided: Avoided) -> core.Group:
    """The root as the operator has annotated it."""
    annotations = {ANNOTATION_AVOID: dump_avoided(avoided) or ""}
    return msgspec.structs.replace(root, metadata=msgspec.structs.replace(root.metadata, annotations=annotations))


def soon(**place: object) -> Avoided:
    return Avoided(time.time() + 3000.0, "3 failures there", **place)  # type: ignore[arg-type] # one of the two


async def test_a_domain_is_avoided_with_all_its_nodes() -> None:
    root, *rest = tree("one")
    assert isinstance(root, core.Group)
    racks = {"n1": labels(rack="r1"), "n2": labels(rack="r1"), "n3": labels(rack="r2")}
    domain = {"zone": "z", "block": "b1", "rack": "r1"}
    nodes = [node(name, labels=found) for name, found in racks.items()]
    loop = Loop(cache(*nodes, told(root, soon(domain=domain)), *rest))
    assert await loop.turn() == {"one-decode-0-0": "n3"}


def test_what_has_run_out_or_was_written_by_another_clock_does_not_hold() -> None:
    root = core.Group(core.Meta(name="one"))
    for until, holds in ((1000.0, False), (1001.0, True), (1000.0 + 86400.0, True), (1001.0 + 86400.0, False)):
        assert bool(avoided_now(told(root, Avoided(until, "r", "n")), 1000.0)) is holds


@given(st.lists(st.builds(Avoided, st.integers(0, 4_000_000_000).map(float), st.text(), st.text(min_size=1))))
def test_what_is_written_is_read(avoided: list[Avoided]) -> None:
    assert list(read(dump_avoided(avoided))) == avoided
