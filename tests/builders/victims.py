"""Units that serve, as the operator makes them, for what may be taken from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from builders.holds import hold_all
from builders.members import group, pod, unit
from covey.admission.ordinary import OrdinaryPod
from covey.admission.taken_room import counted_shape
from covey.admission.victims import Candidate
from covey.api import core
from covey.placement.cluster.inventory import Inventory

NOW = core.seconds("2026-01-02T00:00:00Z") or 0.0
INFERENCE = "inference.covey.dev/v1alpha1"


Roles = Mapping[str, tuple[int, Sequence[Sequence[str | None]]]]


def serving(name: str, roles: Roles, *, priority: int = 0, **more: Any) -> Candidate:
    """A unit on nodes, of a priority; ``more`` is as of `objects_of`."""
    return Candidate(unit(*objects_of(name, roles, **more)), priority)


def objects_of(
    name: str,
    roles: Roles,
    *,
    gpus: int = 8,
    served: float | Mapping[tuple[str, int], float] = 3600.0,
    unready: Sequence[tuple[str, int]] = (),
    draining: Sequence[tuple[str, int]] = (),
    inference: str = "",
    foreign: bool = False,
    **root: Any,
) -> tuple[core.Group, list[core.Group], list[core.Pod]]:
    """The root, the other groups, and the pods of a unit on nodes.

    Args:
        name: of its root.
        roles: for each its minimum, and for each replica the nodes of its pods; None where a pod has none yet.
        gpus: that each pod has.
        served: seconds for which all of it, or each replica by role and number, has been Ready or, if it is not, bound.
        unready: replicas that are not Ready.
        draining: replicas that leave.
        inference: the DisaggregatedInference; one of the same name without it.
        foreign: whether somebody else than Covey's operator has made it.
        root: more of the root's spec.
    """
    owner = {
        "apiVersion": "apps/v1" if foreign else INFERENCE,
        "kind": "Deployment" if foreign else "DisaggregatedInference",
        "name": inference or name,
        "uid": f"uid-{inference or name}",
        "controller": True,
    }
    top = group(
        name,
        composite=True,
        minimum=len(roles),
        labels={"covey.dev/inference": inference or name, "covey.dev/unit": "0"},
        owner=owner,
        workloadRef={"workloadName": inference or name},
        **root,
    )
    groups: list[core.Group] = []
    pods: list[core.Pod] = []
    for role, (minimum, replicas) in roles.items():
        marks = {"covey.dev/role": role}
        head = f"{name}-{role}"
        groups.append(group(head, composite=True, parent=name, minimum=minimum, labels=marks, owner=owner))
        for number, nodes in enumerate(replicas):
            leaf = f"{head}-{number}"
            own = marks | {"covey.dev/replica": str(number)}
            groups.append(group(leaf, parent=head, minimum=len(nodes), labels=own, owner=owner))
            seconds = served if isinstance(served, float) else served.get((role, number), 3600.0)
            ready = (role, number) not in unready
            stamp = core.rfc3339(NOW - seconds)
            for index, node in enumerate(nodes):
                pods.append(
                    pod(
                        f"{leaf}-{index}",
                        group=leaf,
                        role=role,
                        replica=number,
                        index=index,
                        node=node,
                        gpus=gpus,
                        owner=owner,
                        annotations={"scheduling.covey.dev/drain-until": stamp} if (role, number) in draining else {},
                        conditions=[
                            {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp},
                            {"type": "Ready", "status": str(ready), "lastTransitionTime": stamp},
                        ]
                        if node is not None
                        else [],
                    )
                )
    return top, groups, pods


def ordinary(
    name: str,
    node: str | None,
    *,
    gpus: int = 8,
    cpu: str = "100m",
    priority: int = 0,
    served: float = 3600.0,
    owner: str = "ReplicaSet",
    of: str = "",
    spec: Mapping[str, Any] | None = None,
    **meta: Any,
) -> core.Pod:
    """A pod of no gang; ``of``: its controller, one of its own without it."""
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": of or name, "uid": f"uid-{of or name}"}
    amounts = {"cpu": cpu} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    stamp = core.rfc3339(NOW - served)
    metadata = {"name": name, "namespace": "ns", "uid": f"pod-{name}", **meta}
    if owner:
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    return msgspec.convert(
        {
            "metadata": metadata,
            "spec": {
                "nodeName": node,
                "priority": priority,
                "containers": [{"name": "main", "resources": {"requests": amounts}}],
                **(spec or {}),
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp}],
            },
        },
        core.Pod,
    )


def hold(inventory: Inventory, *candidates: Candidate | OrdinaryPod) -> Inventory:
    """Let units, and ordinary pods, hold what they are bound to."""
    for each in candidates:
        hold_all(inventory, each.pods(), counted_shape)
    return inventory
