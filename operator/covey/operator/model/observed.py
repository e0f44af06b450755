"""The observed state: one resource's own objects, as the caches have them, sorted by the place they fill.

Objects are found by label and taken for ours by the UID of their controlling owner; what a former resource of the
same name left behind is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.backends import Identity, Owned, Room
from covey.compile import ReplicaKey, pod_budget
from covey.compile.identity import Owner, Slot, group_name, slot_of
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_DISRUPTION_BUDGETS
from covey.model import podstate
from covey.operator.model.accepted import Record
from covey.operator.model.application import Application
from covey.operator.model.avoid_limits import DEFAULT, AvoidLimits
from covey.operator.model.capacity import AutoscalerSettings
from covey.operator.model.claimed import Claimed, RootClaim, find_claimed
from covey.operator.model.eviction import Eviction
from covey.operator.model.node_drain import Notice
from covey.operator.model.objects import ANNOTATION_COMPLETED, ANNOTATION_FAILED, ControllerRevision, StoredScaler
from covey.operator.model.place import Place, Tombstone, current
from covey.placement.cluster.elastic import ElasticDomain

#: Type and name of the budget of a namespace.
SHARED_BUDGET: Final = (POD_DISRUPTION_BUDGETS.type, pod_budget.NAME)


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """A ControllerRevision. ``record`` is None when this release cannot read it.

    ``number`` grows with every spec that is accepted, ``shown`` with templates alone. ``failed``: its rollout was given up for the revision before it. ``completed``: every unit had its minimum Ready
    with it.
    """

    name: str
    number: int
    record: Record | None
    uid: str = ""
    failed: bool = False
    completed: bool = False
    shown: int = 0


@dataclass(frozen=True)
class Observed:
    """A snapshot, taken at ``now``.

    ``pods`` has every incarnation of each place, ``strays`` those that fill none, ``objects`` the Workload, groups
    and Services by type and name.
    """

    pods: Mapping[Slot, tuple[core.Pod, ...]] = field(default_factory=dict)
    strays: tuple[core.Pod, ...] = ()
    objects: Mapping[Identity, Owned] = field(default_factory=dict)
    revisions: tuple[StoredRevision, ...] = ()
    tombstones: Mapping[Slot, Tombstone] = field(default_factory=dict)
    #: UIDs of pods that go because there was to be none in their place.
    retired: frozenset[str] = frozenset()
    #: UIDs of pods whose deletion this process has asked for. In ``pods`` and ``strays`` they are on their way out, even
    #: where the watch does not show it yet: all that look at a snapshot give one answer to what becomes of a pod.
    pending_deletions: frozenset[str] = frozenset()
    #: When it was taken, in seconds since the epoch: the only clock that a plan has.
    now: float = 0.0
    #: The nodes that its pods have, as far as they are known, by name; and those of them that are to be empty.
    nodes: Mapping[str, core.Node] = field(default_factory=dict)
    notices: Mapping[str, Notice] = field(default_factory=dict)
    #: Where one of them is a mere candidate: those of the whole cluster, which successors keep off.
    candidates: tuple[str, ...] = ()
    #: Evictions of its pods that name the operator, by UID of the pod.
    evictions: Mapping[str, Eviction] = field(default_factory=dict)
    #: Nodes of its pods that were deleted, and when, in seconds since the epoch.
    gone: Mapping[str, float] = field(default_factory=dict)
    #: What its namespace has for all resources together.
    shared: Mapping[Identity, Owned] = field(default_factory=dict)
    #: RoleScalers by name.
    scalers: Mapping[str, StoredScaler] = field(default_factory=dict)
    #: The free room of the cluster, where the resource's backend asks for it.
    room: Room | None = None
    #: When nodes are avoided.
    limits: AvoidLimits = DEFAULT
    #: Since when the deadline of a rollout runs, in seconds since the epoch: the operator leads, and nothing has been
    #: on its way out.
    clock_since: float = 0.0
    #: The ResourceQuotas and LimitRanges of its namespace.
    quotas: tuple[core.ResourceQuota, ...] = ()
    ranges: tuple[core.LimitRange, ...] = ()
    #: Pods of other resources there that come before its own, and claims that are still to be made for pods that there
    #: are, by what each is charged (``quota.charge``).
    reserved: Mapping[Any, int] = field(default_factory=dict)
    #: By the name of a ResourceClaimTemplate, the amounts that a claim of it is charged.
    claim_charges: Mapping[str, dict[str, Fraction]] = field(default_factory=dict)
    #: Replicas (unit, role, number) that quotas have no room for, and since when, in seconds since the epoch.
    unfit: Mapping[ReplicaKey, float] = field(default_factory=dict)
    #: Pods of a resource of the same name that is gone. They end, for minutes perhaps, and are published meanwhile.
    former: tuple[core.Pod, ...] = ()
    #: Whether pods with its label have no owner, as orphan deletion leaves them.
    has_orphans: bool = False
    #: The claims that name replicas or units of it.
    claims: tuple[RootClaim, ...] = ()
    #: Whom to ask for nodes; None where nobody is.
    capacity: AutoscalerSettings | None = None
    #: By topology, the domains that may be asked for: those that there are whole are left out.
    elastic: Mapping[str, Sequence[ElasticDomain]] = field(default_factory=dict)
    #: Whether the API server knows InferencePools; None where the operator makes none.
    pools: bool | None = None
    #: Objects that were applied lately.
    applied: Mapping[Identity, Application] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Count pods whose deletion this process has asked for as on their way out."""
        if self.pending_deletions:
            pods = {slot: tuple(map(self._as_it_goes, pods)) for slot, pods in self.pods.items()}
            object.__setattr__(self, "pods", pods)
            object.__setattr__(self, "strays", tuple(map(self._as_it_goes, self.strays)))

    def _as_it_goes(self, pod: core.Pod) -> core.Pod:
        if pod.metadata.uid not in self.pending_deletions or pod.metadata.deletion_timestamp is not None:
            return pod
        metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=rfc3339(self.now))
        return msgspec.structs.replace(pod, metadata=metadata)

    def every_pod(self) -> Iterator[core.Pod]:
        """All pods, strays included."""
        for pods in self.pods.values():
            yield from pods
        yield from self.strays

    @cached_property
    def current(self) -> Mapping[Slot, core.Pod]:
        """The pod that fills each place now; without the places that nobody fills."""
        currents = ((slot, current(pods)) for slot, pods in self.pods.items())
        return {slot: pod for slot, pod in currents if pod is not None}

    @cached_property
    def is_claimed(self) -> bool:
        """Tell whether claims name replicas, or marks of claims are left on pods."""
        return bool(self.claims) or any(map(podstate.claimed_by, self.every_pod()))

    @cached_property
    def claimed_replicas(self) -> Mapping[ReplicaKey, Claimed]:
        """The replicas (unit, role, number) that claims name."""
        return find_claimed(self.claims, self.pods) if self.claims else {}

    def find_roots(self, inference: str, units: Iterable[int]) -> Iterator[tuple[int, Owned]]:
        """The roots of those units that have one and keep it."""
        for unit in units:
            root = self.objects.get((COMPOSITE_POD_GROUPS.type, group_name(inference, unit)))
            if root is not None and root.metadata.deletion_timestamp is None:
                yield unit, root

    def in_unit(self, unit: int) -> Mapping[Slot, core.Pod]:
        """The places of one unit that are filled: found once for all units."""
        return self._current_by_unit.get(unit, {})

    @cached_property
    def _current_by_unit(self) -> Mapping[int, Mapping[Slot, core.Pod]]:
        by_unit: dict[int, dict[Slot, core.Pod]] = {}
        for slot, pod in self.current.items():
            by_unit.setdefault(slot.unit, {})[slot] = pod
        return by_unit

    def place(self, slot: Slot) -> Place:
        """The place of a slot, with all that is known of its pods."""
        if slot not in self._places:
            now = self.current.get(slot)
            others = tuple(pod for pod in self.pods.get(slot, ()) if pod is not now)
            self._places[slot] = Place(slot, now, others, self.tombstones.get(slot), self.retired)
        return self._places[slot]

    @cached_property
    def _places(self) -> dict[Slot, Place]:
        return {}

    def of_unit(self, unit: int) -> Mapping[Identity, Owned]:
        """The objects of one unit, and those that all units share: found once for all units."""
        return {**self._by_unit.get(None, {}), **self._by_unit.get(unit, {})}

    @cached_property
    def _by_unit(self) -> Mapping[int | None, Mapping[Identity, Owned]]:
        by_number: dict[int | None, dict[Identity, Owned]] = {}
        for identity, owned in self.objects.items():
            by_number.setdefault(number(owned.metadata, names.LABEL_UNIT), {})[identity] = owned
        return by_number

    def with_pods(self, pods: Mapping[Slot, core.Pod]) -> Observed:
        """The snapshot with pods that were found in another way, in places where none was seen."""
        return replace(self, pods={**{slot: (pod,) for slot, pod in pods.items()}, **self.pods})

    @property
    def in_force(self) -> StoredRevision | None:
        """The newest ControllerRevision: of the spec that was accepted last."""
        return max(self.revisions, key=lambda stored: stored.number, default=None)


def is_ours(metadata: core.Meta, owner: Owner) -> bool:
    """Tell whether the controlling owner is this very resource."""
    controller = metadata.controller
    return controller is not None and controller.uid == owner.uid


def is_former(metadata: core.Meta, owner: Owner) -> bool:
    """Tell whether the controlling owner is a resource of the same name that was there before."""
    controller = metadata.controller
    named = controller is not None and (controller.kind, controller.name) == ("DisaggregatedInference", owner.name)
    return named and not is_ours(metadata, owner)


def is_shared(kind: str, metadata: core.Meta) -> bool:
    """Tell whether Covey makes this object for all resources of a namespace together, and nobody owns it."""
    is_ownerless = metadata.label(names.LABEL_MANAGED_BY) == names.MANAGED_BY and metadata.controller is None
    return is_ownerless and (kind, metadata.name) == SHARED_BUDGET


def place_pods(pods: Iterable[core.Pod]) -> tuple[dict[Slot, tuple[core.Pod, ...]], tuple[core.Pod, ...]]:
    """Sort pods by their place, and apart from them those without one.

    The host name says which place a pod fills. Labels say the same and may have been edited.
    """
    placed: dict[Slot, list[core.Pod]] = {}
    strays: list[core.Pod] = []
    for pod in pods:
        slot = slot_of(pod.spec.hostname)
        (strays if slot is None else placed.setdefault(slot, [])).append(pod)
    return {slot: tuple(pods) for slot, pods in placed.items()}, tuple(strays)


def number(metadata: core.Meta, label: str) -> int | None:
    """The number in a label; None where it has none."""
    value = metadata.label(label)
    return int(value) if value is not None and value.isdecimal() else None


def read_revisions(
    stored: Iterable[ControllerRevision], read: Callable[[ControllerRevision], Record | None]
) -> tuple[StoredRevision, ...]:
    """The ControllerRevisions of a resource, those that cannot be read included."""
    return tuple(
        StoredRevision(
            item.metadata.name,
            item.revision,
            read(item),
            item.metadata.uid,
            item.metadata.annotation(ANNOTATION_FAILED) is not None,
            item.metadata.annotation(ANNOTATION_COMPLETED) is not None,
            item.shown_number,
        )
        for item in stored
    )
