"""The fate of one replica after failures of its pods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from covey.compile import Slot
from covey.compile.past import NO_PAST, Past


@dataclass(frozen=True, slots=True)
class Fate:
    """Decisions of the restart policy about a replica.

    ``whole``: a pod that is lost takes the others with it. ``broken``: it is given up now, whatever its pods say.
    ``failed``: UIDs of live pods that have failed. ``kept``: places where nothing is replaced for now. ``pasts``: what
    the successors of failed pods carry; ``least`` what any new pod of it carries at least.
    """

    whole: bool = False
    broken: bool = False
    failed: Collection[str] = ()
    kept: Collection[Slot] = ()
    pasts: Mapping[Slot, Past] = field(default_factory=dict)
    least: Past = NO_PAST


NO_FATE = Fate()
