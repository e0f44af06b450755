"""Actions of a plan: values that say what to do, and to which incarnation of an object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from covey.api import core
from covey.compile.identity import Slot
from covey.compile.pods import UNTOLD, PodFactory, Told
from covey.operator.model.objects import StoredScaler

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Annotate:
    """Set annotations of this incarnation of a pod or of another object; None removes one.

    What must not be forgotten when something is given up is written so, before anything is.
    """

    type: str
    name: str
    uid: str
    annotations: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Relabel:
    """Set labels and annotations of a pod; None removes one."""

    pod: core.Pod
    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpdateInPlace:
    """Give the containers of a pod other images (by name), so that it is one of another revision (its hash).

    ``at``: when that was decided, in seconds since the epoch.
    """

    pod: core.Pod
    images: Mapping[str, str]
    revision: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Drain:
    """Mark a pod as draining since a time (seconds since the epoch): it gets no more requests, and goes by ``until``.

    ``claimed_by``: the UID of the root that it gives way to; empty where it goes for another reason. ``withdrawn``: labels
    that it loses besides.
    """

    pod: core.Pod
    since: float
    until: float
    claimed_by: str = ""
    withdrawn: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Serve:
    """Set the readiness gate ``covey.dev/serving`` of a pod."""

    pod: core.Pod
    serving: bool


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete this incarnation. ``why`` is for the log."""

    pod: core.Pod
    why: str


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete this incarnation of a Workload, group, Service or ControllerRevision; ``type`` is as of ``type_of``."""

    type: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Mark a ControllerRevision as one whose rollout has failed, or was completed once, or take the marks away."""

    name: str
    uid: str
    failed: bool
    completed: bool = False


@dataclass(frozen=True, slots=True)
class PutScaler:
    """Create a RoleScaler where ``stored`` is None, else change it by ``patch``; write ``status`` if not empty."""

    name: str
    body: Object
    stored: StoredScaler | None
    patch: Object
    status: Object


class Precedence(IntEnum):
    """The order of creations (``replicas.creation_order``): pods of a lower one are there before others are tried."""

    RUNNING_MINIMUM = 0
    MINIMUM = 1
    REPLACEMENT = 2
    SURPLUS = 3
    SURGE = 4


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the pod of a place.

    ``predecessor`` is the UID of the pod before it, None when there was none (then its group's UID names it).
    ``replaces`` says that it takes the place of a pod that was lost; otherwise the resource grows.
    """

    slot: Slot
    predecessor: str | None = None
    told: Told = UNTOLD
    replaces: bool = False
    precedence: Precedence = Precedence.SURPLUS


@dataclass(frozen=True, slots=True)
class Ungate:
    """Lift a gate of Covey's from this pod, which may go to nodes with these labels only."""

    pod: core.Pod
    gate: str
    confined: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a person would ask about: an Event on the resource."""

    reason: str
    message: str
    action: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Actions:
    """All that has to be done, in the order of the fields.

    Within one field, and within one level of ``apply``, order does not matter; every field and every level is finished
    before the next begins, and of ``create`` every precedence. What gives something up comes first: an object that
    cannot be applied must not keep a resource from being suspended or made smaller.
    """

    annotate: tuple[Annotate, ...] = ()
    relabel: tuple[Relabel, ...] = ()
    #: Labels by which routers pair pods, turn by turn: some pairing stays whole at every moment.
    pair: tuple[tuple[Relabel, ...], ...] = ()
    #: Labels by which the namespace's budget selects pods that run already: a few at a time.
    protect: tuple[Relabel, ...] = ()
    drain: tuple[Drain, ...] = ()
    serve: tuple[Serve, ...] = ()
    delete_pods: tuple[DeletePod, ...] = ()
    delete_objects: tuple[DeleteObject, ...] = ()
    mark: tuple[Mark, ...] = ()
    store: Object | None = None
    scalers: tuple[PutScaler, ...] = ()
    apply: tuple[tuple[Object, ...], ...] = ()
    #: Services that no pod waits for: what is wrong with one of them keeps nothing else from being done.
    publish: tuple[Object, ...] = ()
    in_place: tuple[UpdateInPlace, ...] = ()
    create: tuple[CreatePod, ...] = ()
    ungate: tuple[Ungate, ...] = ()
    #: Requests for nodes, after their PodTemplates, and an InferencePool: nothing waits for them.
    ask: tuple[tuple[Object, ...], ...] = ()
    #: Builds the pods of ``create``.
    factory: PodFactory | None = None
    notes: tuple[Note, ...] = ()

    def counts(self) -> dict[str, int]:
        """Count what is written, by kind, without kinds of which nothing is; notes on pods for this program alone are left out."""
        counts = {
            "relabel": len(self.relabel) + len(self.protect) + sum(map(len, self.pair)),
            "drain": len(self.drain) + len(self.mark),
            "serve": len(self.serve),
            "delete": len(self.delete_pods) + len(self.delete_objects),
            "store": self.store is not None,
            "scale": len(self.scalers),
            "apply": sum(map(len, (*self.apply, *self.ask))) + len(self.publish),
            "in_place": len(self.in_place),
            "create": len(self.create),
            "ungate": len(self.ungate),
        }
        return {kind: int(count) for kind, count in counts.items() if count}

    def __bool__(self) -> bool:
        """Tell whether there is anything to do besides ``annotate``, ``protect`` and ``ask``: these change nothing that runs."""
        fields = (self.mark, self.store, self.relabel, self.delete_pods, self.delete_objects, self.create, self.ungate)
        return any((*fields, self.pair, self.scalers, self.drain, self.serve, self.publish, self.in_place)) or any(
            self.apply
        )
