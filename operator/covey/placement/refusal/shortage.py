"""Shortages: the first resource that is short of what pods ask for, in the words of a refusal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from covey.api.constants import LABEL_CLIQUE
from covey.placement.cluster.resources import text
from covey.placement.cluster.shape import (
    ANTI_AFFINITY,
    EXCLUSIVE_CLIQUE_TAKEN,
    HOST_PORTS,
    NO_CLIQUE,
)

#: What is said of pods that find room, but not among those who are there.
_KEPT_OFF: Final = {
    HOST_PORTS: "for {} a host port that is asked for is taken on every node there with capacity",
    ANTI_AFFINITY: "pod anti-affinity keeps {} off every node there with capacity",
    EXCLUSIVE_CLIQUE_TAKEN: "an interconnect that shares no clique keeps {} off every node there with capacity",
    NO_CLIQUE: f"for {{}} no node there with capacity has the label {LABEL_CLIQUE}, so none is in a clique",
}


@dataclass(frozen=True, slots=True)
class Shortage:
    """The first resource that is short, what one pod asks of it, and how much is missing in all.

    ``nodes`` counts the pods for which no usable node is left at all, ``pods`` the others that lack anything.
    ``large``: some of them would find no room even on nodes that all other pods have left. ``sure``: that much of the
    one resource on the nodes there is all that is missing, for all pods that were asked for. ``apart``: the number of
    pods that lack nothing but a node that others leave to them; ``cause`` is what keeps the first one off (a host port,
    anti-affinity).
    """

    resource: str | None
    requested: int
    short: int
    nodes: int
    pods: int = 0
    large: bool = False
    sure: bool = False
    apart: int = 0
    cause: str | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Key for comparisons: the smaller shortage is the nearer fix."""
        return (self.nodes + self.apart, self.short)

    def plus(self, other: Shortage) -> Shortage:
        """Return the sum of both; what the other lacks of another resource is not counted, but makes it unsure."""
        if self.resource is None and not self.nodes and not self.apart:
            return replace(other, sure=(self.sure or not self.pods) and other.sure)
        same = other.resource in (self.resource, None)
        return Shortage(
            self.resource,
            self.requested,
            self.short + (other.short if same else 0),
            self.nodes + other.nodes,
            self.pods + other.pods,
            self.large or other.large,
            self.sure and same and not other.nodes and not other.apart and (other.sure or not other.pods),
            self.apart + other.apart,
            self.cause or other.cause,
        )

    def scale(self, times: int, by: int) -> Shortage:
        """Estimate the shortage for more replicas than were tried."""
        return replace(
            self,
            short=self.short * times // by,
            nodes=self.nodes * times // by,
            pods=self.pods * times // by,
            apart=self.apart * times // by,
            sure=False,
        )

    def fix(self, *, whole: bool, one: bool = False) -> str:
        """The nearest fix as the end of a sentence; empty when none can be named.

        Args:
            whole: with it the whole minimum fits, as far as this shortage is concerned.
            one: the sentence is about a single replica, for which what is missing is true whatever else is.
        """
        if self.apart:
            return f"; {_KEPT_OFF[self.cause or ANTI_AFFINITY].format(_pods(self.apart))}"
        amount = f"{text(self.resource, self.short)} {self.resource}" if self.resource is not None else ""
        if self.sure and whole:
            return f"; {text(self.resource or '', self.short)} more {self.resource} there would do"
        if not (whole or one):
            return ""
        if self.nodes:
            many = self.nodes > 1
            return f"; {self.nodes} more usable node{'s are' if many else ' is'} missing there"
        if self.large and self.short == self.pods * self.requested:
            many = self.pods > 1
            worth = "pods' worth" if many else "pod's worth"
            return f"; {self.pods} more {worth} ({amount}) {'are' if many else 'is'} missing there"
        return f"; {amount} {'is' if self.short == 1 else 'are'} missing there" if self.large and amount else ""


def _pods(count: int) -> str:
    return f"{count} pod{'s' * (count > 1)}"
