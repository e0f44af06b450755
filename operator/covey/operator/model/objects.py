"""Read projections of what only the operator watches, and the table of the kinds it owns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from covey.api import core
from covey.api.inference import BackendName
from covey.backends import BACKENDS
from covey.backends.seam import OwnedMeta
from covey.kube import resources
from covey.kube.resources import Resource
from covey.operator.model.capacity import ASK_KINDS

CONTROLLER_REVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")


def group_kinds(enabled: Iterable[BackendName]) -> tuple[Resource, ...]:
    """Kinds of the groups of these backends. A cluster need not serve those that nobody there uses."""
    names = frozenset(enabled)
    return tuple(dict.fromkeys(kind for backend in BACKENDS if backend.name in names for kind in backend.kinds()))


#: What the operator applies for every resource, whatever its backend.
COMMON_KINDS: Final = (resources.SERVICES, resources.POD_DISRUPTION_BUDGETS)

OTHER_KINDS: Final = (
    resources.INFERENCE_POOLS,
    resources.COMPUTE_DOMAINS,
    resources.ROLE_SCALERS,
    CONTROLLER_REVISIONS,
)

#: Every kind that the operator writes besides pods, by its type.
BY_TYPE: Final = {
    resource.type: resource for resource in (*group_kinds(BackendName), *COMMON_KINDS, *ASK_KINDS, *OTHER_KINDS)
}

#: On what the operator applies: a digest of it. A field that is no longer wanted is found by it, which a comparison
#: of the wanted fields alone would miss.
ANNOTATION_APPLIED: Final = "covey.dev/applied"

#: On a ControllerRevision: its rollout did not end in time, and the revision before it is in force again. It is not
#: tried once more before another one was asked for.
ANNOTATION_FAILED: Final = "covey.dev/failed"
#: On a ControllerRevision that is left: every unit had its minimum Ready with it, so it is worth going back to.
ANNOTATION_COMPLETED: Final = "covey.dev/completed"
#: On a ControllerRevision: the number by which people know its templates. ``revision`` grows with each scaling as well;
#: records of former releases, and restored ones, have that number alone.
ANNOTATION_NUMBER: Final = "covey.dev/revision-number"


#: Characters of a spec, as JSON. Decoded and validated it takes up to seventy times as much, in each of eight workers;
#: what ``kubectl apply`` remembers of an object is at most half of this.
MAX_SPEC: Final = 512 * 1024
#: Digits of a number of 64 bits.
_DIGITS: Final = 19
_NOTHING: Final = msgspec.Raw(b"null")
_TOO_LARGE: Final = f"it has {{:,}} characters as JSON; at most {MAX_SPEC:,} are read"


class Inference(core.Read, frozen=True):
    """A DisaggregatedInference as stored; ``covey.api`` gives its spec meaning.

    ``unreadable`` says why there is no spec, where it could not be decoded.
    """

    metadata: core.Meta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)
    unreadable: str = ""


class InferenceText(core.Read, frozen=True):
    """A DisaggregatedInference as the cache keeps it: its spec and status are JSON text, decoded pass by pass.

    A spec of 1.4 MB takes 30 MiB once it is decoded, and anybody who may create one may create twenty.
    """

    metadata: core.Meta
    spec: msgspec.Raw = _NOTHING
    status: msgspec.Raw = _NOTHING

    def __post_init__(self) -> None:
        # As decoded they keep the whole answer of the API server that they stand in.
        for field in ("spec", "status"):
            msgspec.structs.force_setattr(self, field, getattr(self, field).copy())

    def read(self) -> Inference:
        """Decode it; ``unreadable`` says why the spec cannot be decoded."""
        size = len(bytes(self.spec).decode(errors="replace"))
        spec, problem = _decode(self.spec) if size <= MAX_SPEC else ({}, _TOO_LARGE.format(size))
        status, _ = _decode(self.status)
        return Inference(self.metadata, spec, status, unreadable=problem and f"spec: {problem}")


class StoredScaler(core.Read, frozen=True):
    """The number of replicas of one role, as stored."""

    metadata: OwnedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def replicas(self) -> int:
        """Replicas that are asked for, over all units."""
        return int(self.spec.get("replicas", 0))


def _decode(text: msgspec.Raw) -> tuple[dict[str, Any], str]:
    """Decode a JSON object; the text says why there is none."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any] | None) or {}, ""
    except msgspec.MsgspecError as error:
        return {}, str(error)
    except RecursionError:
        return {}, "it is nested too deeply; at most some 900 levels can be read"


class ControllerRevision(core.Read, frozen=True):
    """``apps/v1`` ControllerRevision: ``data`` never changes, the one with the greatest ``revision`` is in force."""

    metadata: OwnedMeta
    revision: int = 0
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def shown_number(self) -> int:
        """The number by which people know its templates."""
        number = self.metadata.annotation(ANNOTATION_NUMBER) or ""
        return int(number) if number.isdecimal() and len(number) < _DIGITS else self.revision
