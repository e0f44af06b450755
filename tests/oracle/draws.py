"""Choices of a random case: from a seed, or from hypothesis, which then shrinks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Draw(Protocol):
    """A source of choices."""

    def integer(self, low: int, high: int) -> int:
        """Between low and high, both included."""

    def pick(self, options: Sequence[T]) -> T:
        """One of these."""

    def chance(self, percent: int) -> bool:
        """True this often; the smallest choice is False."""


@dataclass(frozen=True)
class Seeded:
    """Choices from a seed: the same for ever on every machine."""

    source: random.Random

    def integer(self, low: int, high: int) -> int:
        return self.source.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.source.randrange(len(options))]

    def chance(self, percent: int) -> bool:
        return self.source.randrange(100) < percent


@dataclass(frozen=True)
class Drawn:
    """Choices from hypothesis."""

    draw: st.DrawFn

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) >= 100 - percent
