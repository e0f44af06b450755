"""Read projections of what only the operator watches, and the table of the kinds it owns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from covey.api import core
from covey.api.inference import Backend
from covey.backends import BACKENDS
from covey.backends.seam import OwnedMeta
from covey.kube import resources
from covey.kube.resources import Resource

CONTROLLER_REVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")


def group_kinds(enabled: Iterable[Backend]) -> tuple[Resource, ...]:
    """Kinds of the groups of these backends. A cluster need not serve those that nobody there uses."""
    names = frozenset(enabled)
    return tuple(dict.fromkeys(kind for backend in BACKENDS if backend.name in names for kind in backend.kinds()))


#: What the operator applies for every resource, whatever its backend.
COMMON_KINDS: Final = (resources.SERVICES, resources.POD_DISRUPTION_BUDGETS)

#: Every kind that the operator writes besides pods, by its type.
BY_TYPE: Final = {
    resource.type: resource
    for resource in (*group_kinds(Backend), *COMMON_KINDS, resources.ROLE_SCALERS, CONTROLLER_REVISIONS)
}

#: On what the operator applies: a digest of it. A field that is no longer wanted is found by it, which a comparison
#: of the wanted fields alone would miss.
ANNOTATION_APPLIED: Final = "covey.dev/applied"

#: On a ControllerRevision: its rollout did not end in time, and the revision before it is in force again. It is not
#: tried once more before another one was asked for.
ANNOTATION_FAILED: Final = "covey.dev/failed"


class Inference(core.Read, frozen=True):
    """A DisaggregatedInference as stored; ``covey.api`` gives its spec meaning."""

    metadata: core.Meta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class RoleScaler(core.Read, frozen=True):
    """The number of replicas of one role, as stored."""

    metadata: core.Meta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def replicas(self) -> int:
        """What is asked for, over all units."""
        return int(self.spec.get("replicas", 0))


class ControllerRevision(core.Read, frozen=True):
    """``apps/v1`` ControllerRevision: ``data`` never changes, the one with the greatest ``revision`` is in force."""

    metadata: OwnedMeta
    revision: int = 0
    data: dict[str, Any] = msgspec.field(default_factory=dict)
