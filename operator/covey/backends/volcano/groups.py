"""The one PodGroup of a unit, and what ties a pod to it.

Volcano starts a PodGroup when enough of each role's subgroups (replicas) fit to meet every minimum, and binds the
rest as there is room. Facts: Volcano 1.14.1, ``pkg/scheduler/api/{job_info,sub_job_info}.go``, ``actions/allocate``.

- *No minTaskMember*, nowhere: it counts pods, so that two halves of replicas would do for a whole one. What it says of
  roles of single pods, ``minSubGroups`` says as well.
- *No task-spec on the pods*: it makes Volcano skip, for a worker, the nodes that were too small for its leader.
- *Tiers by number*: a ``highestTierName`` is replaced by the number when Volcano writes the object back.

Sums of what the pods of a minimum ask for, written as Volcano writes them back.

Volcano stores a PodGroup with its status in one piece, and Go's ``resource.Quantity`` has one way to write an amount.
``1000m`` would come back as ``1``, count as edited by somebody, and be applied again for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Role
from covey.compile import Layout, Membership, Owner, Revision, RoleRevision, Scale, Slot
from covey.compile.groups import Anchor, CreationLevel, Object
from covey.compile.identity import group_labels, group_name
from covey.compile.layout import Replicas
from covey.compile.revision import Template
from covey.kube.resources import VOLCANO_POD_GROUPS
from covey.placement.cluster.resources import BYTES, CPU, PODS, pod_requests

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
#: Of an amount in thousandths.
_DECIMAL: Final = ("m", "", "k", "M", "G", "T", "P", "E")


def requests_of(template: Template) -> Mapping[str, int] | None:
    """Compute what a pod takes from its node; None when that cannot be read, which the API server will say better."""
    try:
        pod = msgspec.convert({"metadata": {}, "spec": template["spec"]}, core.Pod, strict=False)
        amounts = pod_requests(pod)
    except (msgspec.ValidationError, ValueError):
        return None
    return {name: amount for name, amount in amounts.items() if name != PODS}


def requests_together(replicas: Iterable[RoleRevision]) -> dict[str, str] | None:
    """Compute what whole replicas ask for together; None when one of them cannot be read."""
    total: dict[str, int] = {}
    alike: dict[tuple[str, int], list[RoleRevision]] = {}
    for replica in replicas:
        alike.setdefault((replica.hash, replica.size), []).append(replica)
    for revision, *others in alike.values():
        leader, worker = (requests_of(revision.template_of(index)) for index in (0, 1))
        if leader is None or worker is None:
            return None
        for requests, pods in ((leader, 1), (worker, revision.size - 1)):
            for name, amount in requests.items():
                total[name] = total.get(name, 0) + amount * pods * (1 + len(others))
    return {name: canonical(name, amount) for name, amount in sorted(total.items()) if amount}


def canonical(resource: str, amount: int) -> str:
    """An amount (milli-units of cpu, else whole units) with the largest suffix that leaves it whole.

    That is Go's ``Quantity.String()``: powers of 1024 for bytes that are one, else powers of 1000.
    """
    if resource in BYTES and amount % 1024 == 0:
        return _with_suffix(amount, 1024, _BINARY)
    return _with_suffix(amount if resource == CPU else amount * 1000, 1000, _DECIMAL)


def _with_suffix(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    if not amount:
        return "0"
    power = 0
    while amount % base == 0 and power + 1 < len(suffixes):
        amount //= base
        power += 1
    return f"{amount}{suffixes[power]}"


#: On a pod: the PodGroup, of its own namespace, that it belongs to.
ANNOTATION_GROUP: Final = "scheduling.k8s.io/group-name"
TYPE: Final = VOLCANO_POD_GROUPS.type

#: ``networkTopology`` of a level.
Constraint = Callable[[str], Mapping[str, Any]]


class UnitCompiler:
    """Builds the PodGroups of one resource.

    Args:
        owner: the resource.
        spec: its spec.
        revision: of roles that have no replicas.
        constraint: how a required level is written.
    """

    def __init__(
        self, owner: Owner, spec: DisaggregatedInferenceSpec, revision: Revision, constraint: Constraint
    ) -> None:
        self._owner = owner
        self._spec = spec
        self._revision = revision
        self._constraint = constraint
        self._scale = Scale.of(spec)

    def levels(self, layout: Layout) -> tuple[CreationLevel, ...]:
        """The PodGroups, and nothing else."""
        return (
            CreationLevel("podgroups", tuple(self._pod_group(unit, roles) for unit, roles in layout.units.items())),
        )

    def membership(self, slot: Slot, revision: RoleRevision) -> Membership:
        """An annotation names the PodGroup; the gate keeps the pod until the operator lets it go."""
        _, group = self.anchor(slot, revision)
        return Membership(spec={"schedulingGates": [{"name": names.GATE_GANG}]}, annotations={ANNOTATION_GROUP: group})

    def anchor(self, slot: Slot, _revision: RoleRevision) -> Anchor:
        """The unit's PodGroup."""
        return TYPE, group_name(self._owner.name, slot.unit)

    def _pod_group(self, unit: int, roles: Mapping[str, Replicas]) -> Object:
        minimum = [replica for role in self._spec.roles for replica in self._minimum(role, roles.get(role.name, {}))]
        spec: Object = {
            "minMember": sum(replica.size for replica in minimum),
            "subGroupPolicy": [
                policy for role in self._spec.roles for policy in self._policies(role, roles.get(role.name, {}))
            ],
        }
        if requests := requests_together(minimum):
            spec["minResources"] = requests
        # The API server fills in a queue of its own, which is nobody's edit.
        if self._spec.queue:
            spec["queue"] = self._spec.queue
        if self._spec.priority_class_name:
            spec["priorityClassName"] = self._spec.priority_class_name
        spec |= self._topology(self._spec.topology.required)
        metadata = self._owner.metadata(group_name(self._owner.name, unit), group_labels(unit))
        return {"apiVersion": VOLCANO_POD_GROUPS.api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}

    def _minimum(self, role: Role, replicas: Replicas) -> Sequence[RoleRevision]:
        return tuple(replicas.values())[: self._scale.roles[role.name].minimum]

    def _policies(self, role: Role, replicas: Replicas) -> Iterator[Object]:
        """Return one policy for the role; while it has replicas of several sizes, one for each size, by revision.

        A role outside the gang (``minReplicas: 0``) has one too: without, each of its pods would be placed on its own.
        """
        sizes: dict[int, list[str]] = {}
        for revision in replicas.values() or (self._revision.roles[role.name],):
            sizes.setdefault(revision.size, []).append(revision.hash)
        minimum = [replica.size for replica in self._minimum(role, replicas)]
        for size, hashes in sizes.items():
            selector: Object = {"matchLabels": {names.LABEL_ROLE: role.name}}
            if len(sizes) > 1:
                selector["matchExpressions"] = [
                    {"key": names.LABEL_REVISION, "operator": "In", "values": sorted(set(hashes))}
                ]
            yield {
                "name": role.name if len(sizes) == 1 else f"{role.name}-{size}",
                "subGroupSize": size,
                "minSubGroups": minimum.count(size),
                "labelSelector": selector,
                # Without a key nothing would be in a subgroup. Volcano takes those of lower number first, and reads
                # the number from the first key.
                "matchLabelKeys": [names.LABEL_REPLICA],
                **self._topology(role.topology.required),
            }

    def _topology(self, level: str | None) -> Object:
        return {"networkTopology": {"mode": "hard", **self._constraint(level)}} if level else {}
