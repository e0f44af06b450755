"""Keys in turns by share, for example by namespace: a share with many keys makes no other share wait."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Rounds(Generic[K]):
    """An ordered set. Shares come one after another, a key of each; those of one share in the order in which they came.

    Args:
        share_of: whose a key is.
    """

    def __init__(self, share_of: Callable[[K], Hashable]) -> None:
        self._share_of = share_of
        self._lines: OrderedDict[Hashable, OrderedDict[K, None]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: K) -> None:
        """Put a key at the end of its share's line, unless it is in it."""
        line = self._lines.setdefault(self._share_of(key), OrderedDict())
        self._count += key not in line
        line.setdefault(key)

    def first(self) -> K:
        """The key whose turn it is.

        Raises:
            KeyError: there is none.
        """
        return self._head(next(iter(self._lines), None))

    def of_longest(self) -> K:
        """The first key of the share that has most.

        Raises:
            KeyError: there is none.
        """
        return self._head(max(self._lines, key=lambda share: len(self._lines[share]), default=None))

    def discard(self, key: K) -> None:
        """Take a key out, if it is there; the others of its share wait for their next turn."""
        share = self._share_of(key)
        line = self._lines.get(share)
        if line is None or key not in line:
            return
        del line[key]
        self._count -= 1
        if line:
            self._lines.move_to_end(share)
        else:
            del self._lines[share]

    def _head(self, share: Hashable) -> K:
        return next(iter(self._lines[share]))
