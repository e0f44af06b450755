"""Queues, and the labels of the namespaces that they select."""

from __future__ import annotations

from covey.api.core.meta import Condition, Meta, Read
from covey.api.core.pod import LabelSelector


class Namespace(Read, frozen=True):
    """A Namespace, of which only the labels are read."""

    metadata: Meta


class QueueNamespaces(Read, frozen=True):
    """The namespaces that may use a queue; without a selector none may."""

    selector: LabelSelector | None = None


class QueueResource(Read, frozen=True):
    """One resource of a flavor, in quantities."""

    name: str
    nominal: str | int = 0
    borrow: str | int | None = None
    lend: str | int | None = None


class QueueFlavor(Read, frozen=True):
    """Nodes of one kind, by labels, and what is counted there."""

    nodes: dict[str, str] | None = None
    resources: tuple[QueueResource, ...] = ()


class QueueSpec(Read, frozen=True):
    """The quota of a tenant."""

    namespaces: QueueNamespaces | None = None
    cohort: str | None = None
    weight: int = 1
    flavors: tuple[QueueFlavor, ...] = ()
    borrow_minimums: bool = False


class QueueUsage(Read, frozen=True):
    """The use of one resource."""

    name: str
    nominal: str | int = 0
    used: str | int = 0
    borrowed: str | int = 0
    lent: str | int = 0
    waiting: str | int = 0


class QueueStatus(Read, frozen=True):
    """The use of a queue."""

    observed_generation: int | None = None
    resources: tuple[QueueUsage, ...] | None = None
    summary: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None


class Queue(Read, frozen=True):
    """A Queue of ``scheduling.covey.dev``."""

    metadata: Meta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
