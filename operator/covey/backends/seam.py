"""Protocol between the operator and its backends. The operator knows none of a backend's kinds, fields and gates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from covey.api import core
from covey.api.inference import BackendName, DisaggregatedInference, DisaggregatedInferenceSpec
from covey.backends.hypernodes import HyperNodes
from covey.compile import Layout, Levels, Revision, Slot, Tree
from covey.kube.resources import Resource
from covey.placement.model import Topology

#: Type (``compile.type_of``) and name of an object of one resource.
Identity = tuple[str, str]


class FieldManager(core.Read, frozen=True):
    """``metav1.ManagedFieldsEntry`` without the fields: who wrote, how (``Apply`` or ``Update``), and what but the object."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""


class OwnedMeta(core.Meta, frozen=True):
    """Metadata of what the operator applies, with who manages its fields."""

    managed_fields: tuple[FieldManager, ...] = ()


class OwnedStatus(core.GroupStatus, frozen=True):
    """The status of a group; ``phase`` is Volcano's."""

    phase: str = ""


class Owned(core.Read, frozen=True):
    """An object that the operator applies: the spec as stored, to be compared, and the status of a group."""

    metadata: OwnedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: OwnedStatus = OwnedStatus()


@dataclass(frozen=True, slots=True)
class FieldProbe:
    """A dry run that shows whether the API server keeps a field: a gated one is dropped silently.

    ``body`` is created without its namespace, which the operator knows; ``path`` leads to what must come back.
    """

    name: str
    resource: Resource
    body: Mapping[str, Any]
    path: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Capabilities of the cluster.

    ``unserved``: kinds that the API server does not know. ``kept``: names of the probes whose field came back.
    ``unprobed``: by name, why a probe has no answer; what it asks for counts as missing.
    """

    unserved: frozenset[Resource] = frozenset()
    kept: frozenset[str] = frozenset()
    unprobed: Mapping[str, str] = field(default_factory=dict)
    #: Backends that the operator was started with.
    enabled: frozenset[BackendName] = frozenset(BackendName)
    #: Volcano's domains; None where nobody has looked, as where objects are only printed.
    hyper_nodes: HyperNodes | None = None
    #: The operator makes ComputeDomains.
    compute_domains: bool = True
    #: The preset that the labels of nodes show; None where they show none, or nobody has looked.
    detected: Topology | None = None
    #: The operator answers Evictions of pods that name it.
    evictions: bool = False

    def serves(self, *kinds: Resource) -> bool:
        """Tell whether the API server knows all of these."""
        return self.unserved.isdisjoint(kinds)


class Room(Protocol):
    """The free room of the cluster, as one snapshot of its nodes and pods."""

    def lacks(self, inference: DisaggregatedInference, replicas: Sequence[ReplicaProgress]) -> str | None:
        """Return why these replicas of one unit do not fit together now, in a sentence; None when they do.

        What fits counts as taken from then on.
        """

    def domain_labels(self, slot: Slot) -> Mapping[str, str]:
        """Node labels of the domain that was found for a pod, where a level is required."""


@dataclass(frozen=True, slots=True)
class UnitReport:
    """Report of the scheduler on one unit.

    ``uid`` and ``created`` (RFC 3339) are those of its root. ``admitted`` and ``topology`` are conditions, None while
    nothing has been said; ``path`` is the finest domain that holds all its pods. ``movable``: what could be placed if
    it were given up, ``Role`` (the roles that have too few replicas) or ``Unit``; empty where nothing is known.
    ``surplus``: why more than its minimum has no places, in the scheduler's words; empty where nothing is known.
    """

    uid: str
    created: str
    admitted: core.Condition | None = None
    topology: core.Condition | None = None
    path: tuple[str | None, ...] = ()
    movable: str = ""
    surplus: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """Progress of one replica, for deciding who may be ungated: pods that are there, and all that there shall be.

    ``pods`` are the live ones among them.
    """

    slots: tuple[Slot, ...]
    in_minimum: bool
    is_complete: bool
    is_let_go: bool
    is_bound: bool
    pods: tuple[core.Pod, ...] = ()

    @property
    def role(self) -> str:
        """Its role."""
        return self.slots[0].role


@dataclass(frozen=True, slots=True)
class Release:
    """Places whose pods the operator lets go now, and, by unit, why it keeps others (the condition ``Admitted``).

    ``confined``: node labels that pods select from then on, so that they go where there is room for all. ``withheld``:
    places whose pods are not created yet. A scheduler that takes a group for gated as soon as one of its pods is cannot
    have them waiting there. ``faults``: by unit, what is wrong with it although it may run (the condition
    ``Degraded``). ``again``: seconds after which time alone can change the answer.
    """

    slots: tuple[Slot, ...] = ()
    waits: Mapping[int, core.Condition] = field(default_factory=dict)
    confined: Mapping[Slot, Mapping[str, str]] = field(default_factory=dict)
    withheld: frozenset[Slot] = frozenset()
    faults: Mapping[int, core.Condition] = field(default_factory=dict)
    again: float | None = None


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """Facts by which a backend decides which pods to let go.

    Args:
        inference: the resource, with the spec that is kept up.
        units: the replicas of each unit.
        objects: what there is of its groups.
        room: the free room, where the backend asks for it.
        now: seconds since the epoch.
    """

    inference: DisaggregatedInference
    units: Mapping[int, Sequence[ReplicaProgress]]
    objects: Mapping[Identity, Owned]
    room: Room | None = None
    now: float = 0.0

    def has_minimum(self, unit: int) -> bool:
        """Tell whether the minimum of a unit is bound: the operator has said which replicas it is."""
        return all(replica.is_bound for replica in self.units[unit] if replica.in_minimum)


class Backend(Protocol):
    """A scheduler, and the objects that it needs, in one form of its API."""

    @property
    def name(self) -> BackendName:
        """Its name in ``spec.backend``."""

    @property
    def dialect(self) -> str:
        """Form of its API, where one name has several; recorded, and empty where there is one only."""

    @property
    def silence(self) -> str:
        """Sentence about a unit of which the scheduler has said nothing yet, which says where to look."""

    @property
    def needs_room(self) -> bool:
        """Tell whether pods are let go by the free room of the cluster: the operator then watches nodes and pods."""

    @property
    def has_fixed_levels(self) -> bool:
        """Tell whether the groups have the label keys of their levels in fields that nobody may change."""

    def kinds(self) -> tuple[Resource, ...]:
        """Kinds of its groups, in the order in which they are created; one cluster need not serve them all."""

    def probes(self) -> tuple[FieldProbe, ...]:
        """Return the dry runs that must be tried before ``absent`` and ``refusals`` can answer."""

    def absent(self, cluster: Cluster, /) -> str | None:
        """Return why this cluster cannot do it at all, in a sentence that says what to do; None when it can."""

    def refusals(self, spec: DisaggregatedInferenceSpec, levels: Levels | None, cluster: Cluster, /) -> tuple[str, ...]:
        """Report what it cannot carry of a spec: one sentence each, which names the field and says what to do.

        Args:
            spec: what is wanted; the levels that it names exist.
            levels: those of the topology in use; None where none was chosen.
            cluster: what the cluster has.
        """

    def compile(
        self,
        inference: DisaggregatedInference,
        *,
        layout: Layout | None = None,
        revision: Revision | None = None,
        levels: Levels | None = None,
    ) -> Tree:
        """The objects of a resource, in creation order; arguments as of ``compile_inference``.

        What ties a pod to its group (``membership``) and the object that it is named after (``anchor``) come with the
        tree.
        """

    def read_back(self, inference: str, unit: int, objects: Mapping[Identity, Owned], /) -> UnitReport | None:
        """Return what the scheduler says of a unit of the resource with this name; None where it has no root.

        ``objects`` are those of the unit and those that all units share; others may be among them.
        """

    def in_use(self, objects: Mapping[Identity, Owned], pods: Iterable[core.Pod], /) -> frozenset[Identity]:
        """Groups that some pod or group refers to: they stay while it does, wanted or not."""

    def is_fixed(self, stored: Owned, wanted: Mapping[str, Any], /) -> bool:
        """Tell whether the API server would refuse the change: the object then has to be deleted and created again."""

    def fixed_fields(self, body: Mapping[str, Any], /) -> str:
        """Compute a digest of the fields of a group that nobody may change, as Covey writes them.

        The digest is empty where there are none.

        It stands on the object (``names.ANNOTATION_FIXED``): what differs of the stored fields without its being
        another one was written by others, or filled in.
        """

    def release(self, progress: ReleaseFacts, /) -> Release:
        """Decide which pods the operator lets go now; none where the scheduler does that itself."""
