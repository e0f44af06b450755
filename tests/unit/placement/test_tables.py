"""Tables against plain sets of vectors."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from covey.placement.capacity.tables import NEVER, Budget, Table, Tables, Vector
from covey.placement.sharing.cover_dp import NO_WAY, ChildOffer, Cover, Points, clip

ENOUGH = 1 << 40


def closed(vectors: set[Vector]) -> set[Vector]:
    """All vectors below some vector."""
    return {small for vector in vectors for small in product(*(range(n + 1) for n in vector))}


def table_of(tables: Tables, vectors: set[Vector]) -> Table:
    below = closed(vectors)
    shape = [max(v[axis] for v in below) + 1 for axis in range(len(tables.caps) - 1)]
    values = np.full(shape, NEVER, dtype=np.int32)
    for vector in below:
        values[vector[:-1]] = max(values[vector[:-1]], vector[-1])
    return tables.intern(values)


def vectors_of(table: Table) -> set[Vector]:
    return {v for v in product(*(range(n + 1) for n in table.extent)) if table.holds(v)}


dimensions = st.integers(1, 3)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Vector, set[Vector], set[Vector]]:
    size = draw(dimensions)
    caps = tuple(draw(st.lists(st.integers(1, 4), min_size=size, max_size=size)))
    vectors = st.sets(st.tuples(*(st.integers(0, cap) for cap in caps)), min_size=1, max_size=4)
    return caps, draw(vectors), draw(vectors)


@given(pairs())
def test_a_sum_is_every_vector_with_every_other_cut_at_the_caps(case: tuple[Vector, set[Vector], set[Vector]]) -> None:
    caps, one, other = case
    tables = Tables(caps)
    total = tables.add(table_of(tables, one), table_of(tables, other), Budget(ENOUGH))
    expected = {
        tuple(min(a + b, cap) for a, b, cap in zip(v, w, caps, strict=True)) for v in closed(one) for w in closed(other)
    }
    assert vectors_of(total) == closed(expected)


@given(pairs())
def test_union_minus_and_without(case: tuple[Vector, set[Vector], set[Vector]]) -> None:
    caps, one, other = case
    tables = Tables(caps)
    table = table_of(tables, one)
    assert vectors_of(tables.union(table, table_of(tables, other))) == closed(one | other)
    taken = min(other)
    rest = tables.minus(table, taken)
    left = {tuple(a - b for a, b in zip(v, taken, strict=True)) for v in closed(one)}
    expected = {v for v in left if min(v) >= 0}
    assert (set() if rest is None else vectors_of(rest)) == expected
    assert vectors_of(tables.without(table, [0])) == {v for v in closed(one) if v[0] == 0}
    last = len(caps) - 1
    assert vectors_of(tables.without(table, [last])) == {v for v in closed(one) if v[last] == 0}


@given(pairs())
def test_equal_sets_are_one_table_and_points_are_the_maximal_vectors(
    case: tuple[Vector, set[Vector], set[Vector]],
) -> None:
    caps, one, _ = case
    tables = Tables(caps)
    assert table_of(tables, one) is table_of(tables, closed(one))
    below = closed(one)
    maximal = {v for v in below if not any(w != v and all(a <= b for a, b in zip(v, w, strict=True)) for w in below)}
    assert set(table_of(tables, one).points) == maximal


@given(
    st.lists(
        st.tuples(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3), st.integers(0, 9)),
        max_size=4,
    )
)
def test_a_cover_is_the_cheapest_way_to_share_out(children: list[tuple[set[Vector], int]]) -> None:
    need = (3, 3)
    offers = []
    for index, (vectors, price) in enumerate(children):
        points = Points(clip(sorted(vectors), need), need)
        offers.append(ChildOffer(index, {0: (points, np.full((1, len(points.rows)), price))}))
    cover = Cover(need, offers)
    for wanted in product(range(4), range(4)):
        best = NO_WAY
        for parts in product(*([(0, 0), *sorted(vectors)] for vectors, _ in children)):
            covered = all(sum(part[axis] for part in parts) >= wanted[axis] for axis in range(2))
            if covered:
                best = min(best, sum(price for part, (_, price) in zip(parts, children, strict=True) if any(part)))
        assert min(cover.price(wanted)[0], NO_WAY) == best
        if best < NO_WAY:
            shares = cover.shares(wanted, 0)
            assert tuple(map(sum, zip((0, 0), *(share.vector for share in shares), strict=True))) == wanted
            assert sum(children[share.child][1] for share in shares) == best
            assert all(share.vector in closed(children[share.child][0]) for share in shares)
