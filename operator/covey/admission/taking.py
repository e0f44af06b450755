"""Rules of a search for victims, and its answers: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from covey.admission.victims import Candidate, Offer, Rule, Step, Terms, offer_of
from covey.placement.cluster import resources
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Domain, Path, Verdict


class Cost(NamedTuple):
    """The cost of what is taken; the lowest is the best.

    ``rank``: the highest priority that is touched. Then whole units; replicas and ordinary pods beside them; devices (of
    the one resource by which the search measures); and devices times minutes of service, as far as they count.
    """

    rank: int
    units: int
    replicas: int
    devices: int
    device_minutes: int


def cost_of(steps: Iterable[Step], rank: Callable[[Step], int], longest: float) -> Cost:
    """The cost of some steps; minutes of service count up to ``longest`` seconds."""
    found = list(steps)
    counts, units = [step.count for step in found], sum(step.kind == "Unit" for step in found)
    minutes = (count * int(min(step.served, longest) // 60) for step, count in zip(found, counts, strict=True))
    return Cost(max(map(rank, found), default=0), units, len(found) - units, sum(counts), sum(minutes))


@dataclass(frozen=True, slots=True)
class Taking:
    """Steps without which a gang's minimum has its room.

    ``nodes`` are those that it would lie on, ``domain`` the narrowest that holds them; ``unproven``: of some step, or of
    a lower priority, it is not known that it does not do; ``verb`` begins its sentence.
    """

    steps: tuple[Step, ...]
    nodes: tuple[str, ...]
    domain: Domain | None
    cost: Cost
    plans: int
    unproven: bool = False
    verb: str = "takes"

    @property
    def path(self) -> Path:
        """The path of the domain."""
        return self.domain.path if self.domain is not None else ()

    @property
    def sentence(self) -> str:
        """A sentence for people."""
        return sentence(self.steps, self.domain, self.verb)


@dataclass(frozen=True, slots=True)
class Nobody:
    """Nobody gives way: the minimum fits (``ADMITTED``), nothing that may be taken helps, or the search met its limit.

    ``is_too_large``: what would have to go is more than a claim can name.
    """

    verdict: Verdict
    plans: int = 0
    is_too_large: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """The units that may be taken, and at which rank: lower ranks go first, whatever else that costs."""

    may_take: Rule
    rank: Callable[[Candidate], int] = lambda candidate: candidate.priority
    may_take_step: Callable[[Step], bool] = lambda _step: True
    #: The steps of an eligible unit.
    offer: Callable[[Candidate, Inventory, Terms], Offer] = offer_of


def sentence(steps: Sequence[Step], domain: Domain | None = None, verb: str = "takes") -> str:
    """A sentence of what is taken, and of what that frees: ``takes decode/3 of dev/chat-0 and all of dev/batch-1: 24 nvidia.com/gpu``."""
    freed: Counter[str] = Counter()
    for step in steps:
        freed.update(dict(step.devices))
    names = [step.text for step in steps]
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1] if names else "")))
    amounts = ", ".join(
        f"{amount} {name}" for name, amount in sorted(freed.items(), key=lambda each: resources.rank(each[0]))
    )
    named = "/".join(value for value in (domain.path if domain is not None else ()) if value is not None)
    place = f" in {domain.level} {named}" if domain is not None and named else ""
    return f"{verb} {listed}: {amounts or 'capacity'}{place}"


__all__ = ["Cost", "Nobody", "Rules", "Taking", "cost_of", "sentence"]
