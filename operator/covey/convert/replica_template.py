"""A replica of several kinds of pods, as Covey can have it: equal pods, or one leader and equal workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from covey.convert.fields import ConversionError
from covey.convert.templates import Template


@dataclass(frozen=True, slots=True)
class PodPart:
    """Equal pods of a replica: what the source calls them, how many, and their template."""

    name: str
    count: int
    template: Template


@dataclass(frozen=True, slots=True)
class ReplicaTemplate:
    """Replica fields of a role; ``leader`` names the part that has become pod 0, if there is one."""

    size: int
    template: Template
    leader_template: Template | None = None
    leader: str = ""

    def fields(self) -> dict[str, Any]:
        """The fields of a role that has such replicas."""
        return {"size": self.size, "template": self.template, "leaderTemplate": self.leader_template}


def leader_and_workers(size: int, leader: Template | None, worker: Template) -> ReplicaTemplate:
    """A leader and ``size - 1`` workers; without a template of its own the leader is a worker."""
    return ReplicaTemplate(size, worker, leader if leader != worker else None)


def replica_of(path: str, parts: Sequence[PodPart]) -> ReplicaTemplate:
    """Put the parts of a replica together.

    Args:
        path: where they stand in the source.
        parts: in the order of the source; those of no pods are left out.

    Raises:
        ConversionError: they are of more kinds than a leader and workers.
    """
    parts = [part for part in parts if part.count]
    if not parts:
        raise ConversionError(path, "has no pods", "give it some, or remove it")
    size = sum(part.count for part in parts)
    if all(part.template == parts[0].template for part in parts):
        return ReplicaTemplate(size, parts[0].template)
    single = next((part for part in parts if part.count == 1), None)
    others = [part for part in parts if part is not single]
    if single is None or any(part.template != others[0].template for part in others):
        what = f"has pods of {len(parts)} kinds ({', '.join(part.name for part in parts)}) in one replica"
        instead = "a replica of Covey is one leader and equal workers: make the others roles of their own"
        raise ConversionError(path, what, instead)
    return ReplicaTemplate(size, others[0].template, single.template, single.name)
