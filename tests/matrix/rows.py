"""Rows of the table: each a scenario that is tried on every backend.

A scenario ends quietly when all is as wanted.  A backend that refuses it raises RefusedError, one that ends elsewhere
DiffersError; both have to be declared beside it, so that a scheduler that changes is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from builders.manifests import Object
from cluster.serving import workers
from matrix.bench import Bench
from matrix.columns import COLUMNS, KUBERNETES_1_35, KUBERNETES_1_36, KUBERNETES_1_37, Column
from matrix.outcome import OK, Outcome
from matrix.upstream import CORES

Play = Callable[[Bench], None]


@dataclass(frozen=True)
class Scenario:
    """One row: what is played, on which backends, and how it ends on those where not all is as wanted."""

    title: str
    play: Play
    otherwise: Mapping[Column, Outcome]
    only: Sequence[Column]

    def expected(self, column: Column) -> Outcome:
        """How it ends on a backend."""
        return self.otherwise.get(column, OK)


#: Of a gang whose replicas each take the fullest rack, one after the other, and go back on none.
NOTHING: Final = "nothing is bound"
NATIVE: Final = (KUBERNETES_1_37, KUBERNETES_1_36, KUBERNETES_1_35)


class Rows(list[Scenario]):
    """The rows of one part of the table."""

    def scenario(
        self, title: str, otherwise: Mapping[Column, Outcome] | None = None, only: Sequence[Column] = COLUMNS
    ) -> Callable[[Play], Play]:
        """Add a row."""

        def add(play: Play) -> Play:
            self.append(Scenario(title, play, otherwise or {}, only))
            return play

        return add


def roles(prefill: int = 2, decode: int = 1, **fields: Any) -> list[Object]:
    """Prefill replicas of two pods, decode replicas of one, the minimum one of each."""
    return [workers("prefill", replicas=prefill, size=2, minReplicas=1, **fields), workers("decode", replicas=decode)]


def busy(name: str, size: int) -> Object:
    """A replica in one rack. Its pods ask for most cores of a node: schedulers that compare racks compare those."""
    made = workers(name, size=size, topology={"required": "rack"})
    for container in made["template"]["spec"]["containers"]:
        container["resources"]["limits"]["cpu"] = CORES
    return made
