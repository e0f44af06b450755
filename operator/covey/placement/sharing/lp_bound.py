"""Joint capacity of many places without the table of their sum, and demands that are shared out by it.

For any weights of the dimensions, places together hold no more than the sum of what each holds at most: one set of
weights under which a need outweighs that sum proves that it does not fit. The best weights are found by cutting planes.
Where none proves it, some mixture of the places' largest vectors reaches the need; as sums of many sets are nearly
convex (Shapley-Folkman), all but a few places can then be given one vector of theirs each.

So a demand whose table would be too large is shared out: half of the children get the vectors that the mixture gives
them, then what is left is mixed again for the other half, and so on; the last few share exactly. A proof that the demand
does not fit is one; that no way was found is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic

import numpy as np

from covey.placement.capacity.frame import Frame, TableEntry
from covey.placement.capacity.tables import KEPT, PASS, Array, Budget, SearchLimit, Table, Vector
from covey.placement.sharing.cost import Chain
from covey.placement.sharing.cover_dp import NO_WAY, Child, ChildShare

#: Rounds after which the weights are good enough.
_ROUNDS: Final = 40
#: How near the best weights must be.
_NEAR: Final = 1e-3
#: Whole numbers that stand for weights, so that proofs are exact.
_EXACT: Final = 1 << 24
_TINY: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Mix:
    """A mixture that reaches ``reach`` times the need: for each sort of place one vector a share, and the shares."""

    reach: float
    #: By share, then by sort of place.
    vectors: tuple[Array, ...]
    shares: tuple[float, ...]


class Hull:
    """Places of several sorts, each given by its table and number; answers one need after another."""

    def __init__(self, sorts: Sequence[tuple[Table, int]], budget: Budget) -> None:
        self.budget = budget
        tops = [table.tops for table, _ in sorts]
        self._sorts = len(sorts)
        #: The largest vectors of all sorts, one sort after another.
        self._rows: Array = np.concatenate(tops).astype(np.int64) if tops else np.zeros((0, 0), dtype=np.int64)
        self._starts = np.cumsum([0, *map(len, tops)])[:-1]
        self._lengths = np.array([len(top) for top in tops], dtype=np.int64)
        self._counts = np.array([count for _, count in sorts], dtype=np.int64)
        #: Vectors chosen under weights that were of use, one of each sort, and their sums.
        self._known: list[tuple[Array, Array]] = []
        budget.spend(PASS + 2 * KEPT * self._rows.size)

    def mix(self, need: Vector) -> Mix | None:
        """A mixture that reaches a need, or None: it is proven that the places do not hold it.

        The reach is within a thousandth of the best.

        Raises:
            SearchLimit: the budget is used up.
        """
        wanted = np.array(need, dtype=np.int64)
        asked = np.flatnonzero(wanted)
        if not len(asked):
            return Mix(1.0, (np.zeros((self._sorts, len(need)), dtype=np.int64),), (1.0,))
        if not self._sorts:
            return None
        scale = wanted[asked].astype(np.float64)
        columns = list(self._known)
        tried = (
            [np.full(len(asked), 1 / len(asked))]
            if columns
            else [*np.eye(len(asked)), np.full(len(asked), 1 / len(asked))]
        )
        reach, shares, weights = 0.0, np.zeros(0), tried[0]
        for _ in range(_ROUNDS):
            for trial in tried:
                rows, total = self._most(trial, asked, scale)
                if float(total[asked] / scale @ trial) < 1 - _TINY and self._is_infeasible(trial, wanted, asked):
                    return None
                columns.append((rows, total))
            gains = np.array([total[asked] / scale for _, total in columns]).T
            self.budget.spend(PASS * 8 * (len(columns) + len(asked)))
            reach, shares, weights = _game(gains)
            rows, total = self._most(weights, asked, scale)
            if float(total[asked] / scale @ weights) - reach <= _NEAR:
                break
            tried = [weights]
        if reach < 1 - _NEAR and self._is_infeasible(weights, wanted, asked):
            return None
        used = [j for j, share in enumerate(shares) if share > _TINY] if reach >= 1 - _NEAR else []
        self._known = [columns[j] for j in used] or self._known
        return Mix(float(reach), tuple(self._rows[columns[j][0]] for j in used), tuple(float(shares[j]) for j in used))

    def _most(self, weights: Array, asked: Array, scale: Array) -> tuple[Array, Array]:
        """The best vector of each sort under weights of what is asked for, and what these are together."""
        self.budget.spend(PASS * 8 + self._rows.size * 4)
        scores = self._rows[:, asked] @ (weights / scale)
        best = np.maximum.reduceat(scores, self._starts)
        winners = np.flatnonzero(scores >= np.repeat(best, self._lengths))
        sorts = np.searchsorted(self._starts, winners, side="right") - 1
        rows = winners[np.unique(sorts, return_index=True)[1]]
        return rows, self._counts @ self._rows[rows]

    def _is_infeasible(self, weights: Array, wanted: Array, asked: Array) -> bool:
        """Tell whether the need weighs more than all places together, computed in whole numbers."""
        exact = np.zeros(len(wanted), dtype=np.int64)
        exact[asked] = np.rint(weights * _EXACT / wanted[asked] * wanted.max())
        best = np.maximum.reduceat(self._rows @ exact, self._starts)
        return int(self._counts @ best) < int(wanted @ exact)


def _game(gains: Array) -> tuple[float, Array, Array]:
    """The value of a matrix game (rows: dimensions, columns: choices), the mixture of columns and the weights of rows.

    The simplex method on "as much weight as possible, no column above one"; Bland's rule, so that it ends.
    """
    rows, columns = gains.shape
    tableau: Any = np.zeros((columns + 1, rows + columns + 1))
    tableau[:columns, :rows] = gains.T
    tableau[:columns, rows : rows + columns] = np.eye(columns)
    tableau[:columns, -1] = 1
    tableau[columns, :rows] = -1
    basis = list(range(rows, rows + columns))
    for _ in range(200):
        entering = next((j for j in range(rows + columns) if tableau[columns, j] < -_TINY), None)
        if entering is None:
            break
        column = tableau[:columns, entering]
        ratios = np.where(column > _TINY, tableau[:columns, -1] / np.where(column > _TINY, column, 1), np.inf)
        leaving = min(
            (i for i in range(columns) if ratios[i] <= ratios.min() + _TINY), key=lambda i: basis[i], default=None
        )
        if leaving is None or not np.isfinite(ratios[leaving]):
            break
        tableau[leaving] /= tableau[leaving, entering]
        for i in range(columns + 1):
            if i != leaving:
                tableau[i] -= tableau[i, entering] * tableau[leaving]
        basis[leaving] = entering
    total = tableau[columns, -1]
    weights = np.zeros(rows)
    for i, variable in enumerate(basis):
        if variable < rows:
            weights[variable] = tableau[i, -1]
    value = 1 / max(total, _TINY)
    return value, np.maximum(tableau[columns, rows : rows + columns], 0) * value, weights * value


#: Children that share the rest exactly, if that is cheap; and the work that it may be.
_LAST: Final = (16, 8, 4, 2, 1)
_LAST_WORK: Final = 20_000_000
#: How much more than the need the children that are used should hold, one try after another.
_SPARE: Final = (1.02, 1.1, 1.3)


class Mixture(Generic[Child]):
    """Children, cheapest first, among which one need after another is to be shared."""

    def __init__(
        self, children: Sequence[tuple[Child, TableEntry]], frame: Frame, budget: Budget, *, groups: bool
    ) -> None:
        """``groups``: what the children offer depends on groups; then proofs alone can be had."""
        self.need: Vector = ()
        self._budget = budget
        self._hull: Hull | None = None
        self._frame = frame
        self._children = [(child, entry, self._table(entry)) for child, entry in children]
        self._groups = groups
        self._found: list[ChildShare[Child]] | None = None

    def _table(self, entry: TableEntry) -> Table:
        table, *others = entry.tables.values()
        for other in others:
            table = self._frame.tables.union(table, other)
        return table

    def reach(self, need: Vector) -> float | None:
        """Compute how many times a need would fit if children could be mixed; None when it is proven not to fit.

        Raises:
            SearchLimit: the budget is used up.
        """
        mix = self._whole(need)
        return None if mix is None else mix.reach

    def find(self, need: Vector, budget: Budget | None = None) -> bool:
        """Look for a way to share a need, which is the need from now on, and tell whether one was found.

        Args:
            need: what is to be shared.
            budget: what it may cost; without one, what is left of the mixture's own.

        Raises:
            SearchLimit: the budget is used up.
        """
        self._budget = budget or self._budget
        self.need, self._found = need, None
        mix = None if self._groups else self._whole(need)
        if mix is None or not mix.shares:
            return False
        count = len(self._children)
        for spare in (*_SPARE, 0.0):
            number = count if not spare else max(1, int(count / mix.reach * spare))
            if number > count:
                continue
            for start in (0, 1):
                self._found = self._share_out(self._children[:number], start)
                if self._found is not None:
                    return True
        return False

    @property
    def masks(self) -> list[int]:
        """Return the empty set of groups when a way was found: no group is hosted here."""
        return [0] if self._found is not None else []

    def price(self, vector: Sequence[int], _mask: int = 0) -> tuple[int, ...]:
        """Return zero for the need that was found: nothing is priced here."""
        return (0 if self._found is not None and tuple(vector) == self.need else NO_WAY,)

    def shares(self, _vector: Sequence[int], _mask: int) -> list[ChildShare[Child]]:
        """Return the way that was found."""
        assert self._found is not None, "nobody asks for what was not found"
        return self._found

    def _whole(self, need: Vector) -> Mix | None:
        if self._hull is None:
            self._hull = self._hull_of(self._children)
        self._hull.budget = self._budget
        return self._hull.mix(need)

    def _hull_of(self, children: Sequence[tuple[Child, TableEntry, Table]]) -> Hull:
        counts = Counter(table.number for _, _, table in children)
        tables = {table.number: table for _, _, table in children}
        ordered = sorted(tables.values(), key=lambda table: table.digest)
        return Hull([(table, counts[table.number]) for table in ordered], self._budget)

    def _share_out(
        self, children: Sequence[tuple[Child, TableEntry, Table]], start: int
    ) -> list[ChildShare[Child]] | None:
        left, rest = list(children), np.array(self.need, dtype=np.int64)
        shares: list[ChildShare[Child]] = []
        while rest.any():
            if len(left) <= _LAST[0]:
                last = self._last(left, rest)
                if last is not None:
                    return None if not last else [*shares, *last]
            mix = self._hull_of(left).mix(tuple(rest.tolist()))
            if mix is None or not mix.shares:
                return None
            given = dict(self._alternate_vectors(left, mix, start))
            for index, vector in given.items():
                taken = np.minimum(vector, rest)
                rest = rest - taken
                if taken.any():
                    shares.append(ChildShare(left[index][0], 0, tuple(taken.tolist())))
            left = [child for index, child in enumerate(left) if index not in given]
        return shares

    def _last(self, left: Sequence[tuple[Child, TableEntry, Table]], rest: Array) -> list[ChildShare[Child]] | None:
        """Share the rest among the last children; empty when they cannot take it, None when that is too much work."""
        need = tuple(rest.tolist())
        try:
            chain = Chain(need, [(child, entry) for child, entry, _ in left], self._frame, Budget(_LAST_WORK))
        except SearchLimit:
            return None if len(left) > _LAST[-1] else []
        return chain.shares(need, 0) if chain.masks else []

    def _alternate_vectors(
        self, left: Sequence[tuple[Child, TableEntry, Table]], mix: Mix, start: int
    ) -> Iterator[tuple[int, Array]]:
        """Every second child of each sort, and its vector: in sum always as near to the mixture as can be."""
        digests = sorted({table.digest for _, _, table in left})
        sort = {digest: index for index, digest in enumerate(digests)}
        ordered = sorted(range(len(left)), key=lambda index: left[index][2].digest)
        vectors, shares = np.stack(mix.vectors), np.array(mix.shares)
        scale = np.maximum(vectors.max(axis=(0, 1)), 1)
        behind = np.zeros(vectors.shape[2])
        for index in ordered[start % max(len(left) - 1, 1) :: 2]:
            options = vectors[:, sort[left[index][2].digest]]
            wanted = behind + shares @ options
            best = int(np.argmin((((wanted - options) / scale) ** 2).sum(axis=1)))
            behind = wanted - options[best]
            yield index, options[best]


__all__ = ["Mixture"]
