"""Sharing out in stretches of memory, in few words and with few layers kept: the same as looking at each point."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.placement.capacity.tables import NEVER, Budget, Table, Tables, Vector, _add
from covey.placement.sharing import cover
from covey.placement.sharing.cover import NO_WAY, Cover, Offer, Points

ENOUGH = 1 << 40

#: Prices of two words that may be large, or have nothing in their lowest bits.
price = st.tuples(st.integers(0, 5), st.integers(0, 9), st.sampled_from([0, 20, 40])).map(
    lambda each: (each[0] << each[2], each[1] << 30)
)
needs = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)


@st.composite
def offers_of(draw: st.DrawFn) -> tuple[Vector, list[list[tuple[Vector, tuple[int, int]]]]]:
    need = draw(needs)
    vector = st.tuples(*(st.integers(0, most) for most in need)).filter(any) if any(need) else st.just(need)
    child = st.lists(st.tuples(vector, price), min_size=1, max_size=9)
    return need, draw(st.lists(child, max_size=5))


def made(need: Vector, children: list[list[tuple[Vector, tuple[int, int]]]]) -> Cover[int]:
    offers = [
        Offer(number, {0: (Points([v for v, _ in child], need), np.array([p for _, p in child], dtype=np.int64).T)})
        for number, child in enumerate(children)
    ]
    return Cover(need, offers, words=2)


@given(offers_of(), st.booleans(), st.sampled_from([1, 1 << 15]))
def test_prices_are_the_lowest_however_they_are_worked_out(
    found: tuple[Vector, list[list[tuple[Vector, tuple[int, int]]]]],
    kept: bool,  # noqa: FBT001 - hypothesis gives it
    cells: int,
) -> None:
    need, children = found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover, "_KEPT", 1 << 16 if kept else 0)
        patch.setattr(cover, "_CELLS", cells)
        asked = made(need, children)
        known = dict.fromkeys(product(*(range(most + 1) for most in need)), (NO_WAY, 0))
        known[(0,) * len(need)] = (0, 0)
        for child in children:
            known = {
                vector: min(
                    before,
                    *(
                        (rest[0] + own[0], rest[1] + own[1])
                        for point, own in child
                        if (rest := known[tuple(max(0, a - b) for a, b in zip(vector, point, strict=True))])[0] < NO_WAY
                    ),
                    before,
                )
                for vector, before in known.items()
            }
        for vector, right in known.items():
            if right[0] >= NO_WAY:
                assert asked.price(vector)[0] >= NO_WAY
                continue
            assert asked.price(vector) == right
            shares = asked.shares(vector, 0)
            total = [sum(part) for part in zip(*(share.vector for share in shares), strict=True)] or [0] * len(need)
            assert tuple(total) == vector


tables = st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=30)


def closed(vectors: list[Vector]) -> Table:
    values = np.full((5, 5), NEVER, dtype=np.int32)
    values[0, 0] = 0
    for a, b, c in vectors:
        values[: a + 1, : b + 1] = np.maximum(values[: a + 1, : b + 1], c)
    frame = Tables((12, 12, 12))
    return frame.intern(values)


@given(tables, tables, st.integers(4, 12))
def test_many_points_added_at_once_are_the_same_as_one_by_one(one: list[Vector], other: list[Vector], cap: int) -> None:
    frame = Tables((cap, cap, cap))
    left, right = closed(one), closed(other)
    sums = []
    for few in (0, ENOUGH):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("covey.placement.capacity.tables._FEW_POINTS", few)
            sums.append(_add(left, right, frame.caps, Budget(ENOUGH)))
    assert np.array_equal(sums[0], sums[1])
