"""Joint capacity of many places without the table of their sum.

For any weights of the dimensions, places together hold no more than the sum of what each holds at most: one set of
weights under which a need outweighs that sum proves that it does not fit. The best weights are found by cutting planes.
Where none proves it, some mixture of the places' largest vectors reaches the need; as sums of many sets are nearly
convex (Shapley-Folkman), all but a few places can then be given one vector of theirs each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from covey.placement.capacity.tables import KEPT, PASS, Array, Budget, Table, Vector

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
