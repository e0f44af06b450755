"""Read projections of what only the operator watches, and the table of the kinds it owns."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from covey.api import core
from covey.kube import resources
from covey.kube.resources import Resource

CONTROLLER_REVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")

#: Kinds that the operator applies, in the order in which they are created.
APPLIED: Final = (
    resources.WORKLOADS,
    resources.COMPOSITE_POD_GROUPS,
    resources.POD_GROUPS,
    resources.SERVICES,
)
BY_KIND: Final = {resource.kind: resource for resource in (*APPLIED, CONTROLLER_REVISIONS)}

#: On what the operator applies: a digest of it. A field that is no longer wanted is found by it, which a comparison
#: of the wanted fields alone would miss.
ANNOTATION_APPLIED: Final = "covey.dev/applied"

#: On a ControllerRevision: a change of rolled fields came while pods of it had their nodes, and has to wait. So it stays
#: held when all of them are lost.
ANNOTATION_HELD: Final = "covey.dev/held"


class FieldManager(core.Read, frozen=True):
    """``metav1.ManagedFieldsEntry`` without the fields: who wrote, and how (``Apply`` or ``Update``)."""

    manager: str = ""
    operation: str = ""


class OwnedMeta(core.Meta, frozen=True):
    """Metadata of what the operator applies, with who manages its fields."""

    managed_fields: tuple[FieldManager, ...] = ()


class Inference(core.Read, frozen=True):
    """A DisaggregatedInference as stored; ``covey.api`` gives its spec meaning."""

    metadata: core.Meta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class Owned(core.Read, frozen=True):
    """A Workload, group or Service: the spec as stored, to be compared, and the status of a group."""

    metadata: OwnedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: core.GroupStatus = core.GroupStatus()


class ControllerRevision(core.Read, frozen=True):
    """``apps/v1`` ControllerRevision: ``data`` never changes, the one with the greatest ``revision`` is in force."""

    metadata: OwnedMeta
    revision: int = 0
    data: dict[str, Any] = msgspec.field(default_factory=dict)
