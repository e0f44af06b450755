"""What the operator asks of a backend. It knows none of a backend's kinds, fields and gates itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from covey.api import core
from covey.api.inference import Backend as BackendName
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.compile import Layout, Revision, Slot, Tree
from covey.kube.resources import Resource

#: Kind and name of an object of one resource.
Identity = tuple[str, str]


class FieldManager(core.Read, frozen=True):
    """``metav1.ManagedFieldsEntry`` without the fields: who wrote, and how (``Apply`` or ``Update``)."""

    manager: str = ""
    operation: str = ""


class OwnedMeta(core.Meta, frozen=True):
    """Metadata of what the operator applies, with who manages its fields."""

    managed_fields: tuple[FieldManager, ...] = ()


class Owned(core.Read, frozen=True):
    """An object that the operator applies: the spec as stored, to be compared, and the status of a group."""

    metadata: OwnedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: core.GroupStatus = core.GroupStatus()


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the cluster has. ``unserved``: kinds that the API server does not know."""

    unserved: frozenset[Resource] = frozenset()


@dataclass(frozen=True, slots=True)
class UnitReport:
    """What the scheduler says of one unit.

    ``uid`` and ``created`` (RFC 3339) are those of its root. ``admitted`` and ``topology`` are conditions, None while
    nothing has been said; ``path`` is the finest domain that holds all its pods.
    """

    uid: str
    created: str
    admitted: core.Condition | None = None
    topology: core.Condition | None = None
    path: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """How far one replica has come, for who may be ungated: pods that are there, and all that there shall be."""

    slots: tuple[Slot, ...]
    in_minimum: bool
    is_complete: bool
    is_bound: bool


class Backend(Protocol):
    """A scheduler, and the objects that it needs."""

    @property
    def name(self) -> BackendName:
        """Its name in ``spec.backend``."""

    def kinds(self) -> tuple[Resource, ...]:
        """Kinds of its groups, in the order in which they are created; one cluster need not serve them all."""

    def refusals(self, spec: DisaggregatedInferenceSpec, cluster: Cluster) -> tuple[str, ...]:
        """What it cannot carry of a spec, or not in this cluster: one sentence each, which says what to do."""

    def compile(
        self,
        inference: DisaggregatedInference,
        *,
        layout: Layout | None = None,
        revision: Revision | None = None,
        levels: Sequence[str] | None = None,
    ) -> Tree:
        """The objects of a resource, in creation order; arguments as of ``compile_inference``.

        What ties a pod to its group (``membership``) and after whom it is named (``anchor``) comes with the tree.
        """

    def read_back(self, inference: str, unit: int, objects: Mapping[Identity, Owned]) -> UnitReport | None:
        """What the scheduler says of a unit of the resource with this name; None where it has no root."""

    def in_use(self, objects: Mapping[Identity, Owned], pods: Iterable[core.Pod]) -> frozenset[Identity]:
        """Groups that some pod or group refers to: they stay while it does, wanted or not."""

    def release(self, units: Mapping[int, Sequence[ReplicaProgress]]) -> tuple[Slot, ...]:
        """Places whose pods the operator lets go now, of the replicas of each unit; none where the scheduler does."""
