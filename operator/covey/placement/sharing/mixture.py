"""Sharing out a demand whose table would be too large, by mixtures (``lp_bound``).

Half of the children get the vectors that the mixture gives them, then what is left is mixed again for the other half,
and so on; the last few share exactly. A proof that the demand does not fit is one; that no way was found is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Generic

import numpy as np

from covey.placement.capacity.frame import Frame, TableEntry
from covey.placement.capacity.tables import Array, Budget, SearchLimit, Table, Vector
from covey.placement.sharing.chain import Chain
from covey.placement.sharing.cover_dp import NO_WAY, Child, ChildShare
from covey.placement.sharing.lp_bound import Hull, Mix

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
