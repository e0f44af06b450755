"""What one gang changes about the inventory that all gangs share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from covey.placement.capacity.frame import TableEntry
from covey.placement.capacity.tables import (
    Vector,
)
from covey.placement.model import Path


@dataclass(frozen=True, slots=True)
class Counted:
    """The pods that the children of a domain hold together; None when a mandatory part does not fit.

    ``alike`` is the same for domains alike (None: nobody knows), ``work`` what it was to work it out from nothing.
    """

    total: TableEntry | None
    alike: int | None
    work: int


@dataclass(frozen=True, slots=True)
class View:
    """Changes that one gang makes to the inventory. Paths are those of the structure's topology.

    ``closed`` says which streams (bits) a domain is closed to, ``closed_nodes`` which a node; ``mandatory`` which pods
    (by stream) must be placed inside a domain before anything else; ``anchors`` which domain a group lies in already;
    ``limits`` the most of each of the structure's limits in a domain.
    """

    closed: Mapping[Path, int] = field(default_factory=dict)
    closed_nodes: Mapping[str, tuple[Path, int]] = field(default_factory=dict)
    mandatory: Mapping[Path, Vector] = field(default_factory=dict)
    anchors: Mapping[int, Path] = field(default_factory=dict)
    limits: Mapping[Path, tuple[int, ...]] = field(default_factory=dict)
    touched: frozenset[Path] = field(init=False)
    anchored: int = field(init=False)
    #: What was worked out for this view alone.
    totals: dict[Path, Counted] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        nodes = (path for path, _ in self.closed_nodes.values())
        paths = (*self.closed, *nodes, *self.mandatory, *self.anchors.values(), *self.limits)
        touched = frozenset(path[:end] for path in paths for end in range(len(path) + 1))
        object.__setattr__(self, "touched", touched)
        object.__setattr__(self, "anchored", sum(1 << group for group in self.anchors))

    @property
    def plain(self) -> bool:
        """Tell whether the gang changes nothing."""
        return not self.touched and not self.anchored

    def off(self, path: Path) -> int:
        """The streams that a domain is closed to, by itself or by one above it."""
        bits = 0
        if self.closed:
            for end in range(len(path) + 1):
                bits |= self.closed.get(path[:end], 0)
        return bits


NO_VIEW = View()
