"""One thing to be planned: the units of a DisaggregatedInference, or one ready tree of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import INFERENCE_API
from covey.manifests.errors import Place


@dataclass(frozen=True, slots=True)
class Mention:
    """A level (or raw label key) that a workload names, and where; a preferred one must lie ``within`` a required."""

    place: Place
    level: str = ""
    key: str = ""
    within: str | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Units that are planned and reported together.

    ``created`` orders workloads of one priority: a creation time, else a stand-in that follows all times, in document
    order. ``pods`` are all pods of the units by UID, placed or not.
    """

    place: Place
    namespace: str
    name: str
    created: str
    units: tuple[Unit, ...]
    pods: Mapping[str, core.Pod]
    topology_name: str | None
    mentions: tuple[Mention, ...]
    priority_class: str | None = None
    priority: int | None = None
    warnings: tuple[str, ...] = ()
    #: What the API server knows it as: API version and kind.
    resource: tuple[str, str] = (INFERENCE_API, "DisaggregatedInference")
    #: Roles whose number of replicas is a sum over all units, as an autoscaler sets it.
    summed: frozenset[str] = frozenset()
    #: The Workload that the root of a ready tree refers to.
    made_for: str | None = None

    @property
    def title(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


def age(timestamp: str, number: int) -> str:
    """Return a key that sorts by age.

    ``~`` comes after every digit, so workloads that do not exist yet follow those that do.
    """
    return timestamp or f"~{number:06d}"
