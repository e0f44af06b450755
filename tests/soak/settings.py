"""The resources of a soak, and between what their numbers go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from localcluster import Nodes

Spec = dict[str, Any]
NAMESPACES: Final = ("soak", "other", "third")
#: 40 nodes with 320 GPUs; the largest numbers of all resources together ask for a little more than that.
NODES: Final = Nodes(blocks=2, racks=4, nodes=5, gpus=8)

#: PriorityClasses by name: three priorities, and one of them also for those that take no room from others.
CLASSES: Final[Mapping[str, int]] = {"low": 10, "middle": 100, "patient": 100, "high": 1000}
PATIENT: Final = "patient"
#: The Queue of each namespace: GPUs by right. Together more than there are, so that nodes run short, too.
NOMINAL: Final[Mapping[str, int]] = {"soak": 208, "other": 144, "third": 64}
#: GPUs that each may borrow at most.
BORROW: Final[Mapping[str, int]] = {"soak": 64, "other": 64, "third": 48}
COHORT: Final = "soak"
#: Claims that the scheduler process may make in a minute.
PER_MINUTE: Final = 20


def wait_and_run(delay: int, run: int) -> Spec:
    """``spec.preemption``: seconds of waiting before room is taken, and of service before it is given."""
    return {"delaySeconds": delay, "minRunSeconds": run}


@dataclass(frozen=True)
class Kind:
    """One resource: its spec at the beginning, and the least and the most of its units and of each role's replicas."""

    namespace: str
    name: str
    spec: Mapping[str, Any]
    units: tuple[int, int]
    roles: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def _role(name: str, *, gpus: int, replicas: int = 1, grace: int = 0, **fields: Any) -> Spec:
    limits = {"cpu": "100m"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "engine", "image": "registry.test/engine:1", "resources": {"limits": limits}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": grace}
    # So that everything comes to rest in time, however often it has failed.
    restart = {"backoff": {"baseSeconds": 1, "maxSeconds": 5}}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, "restart": restart, **fields}


def _kind(namespace: str, name: str, units: tuple[int, int], **roles: Any) -> Kind:
    topology, priority = roles.pop("topology", {}), roles.pop("priority", "middle")
    spec: Spec = {"replicas": units[0], "roles": [], "topology": topology, "proximity": roles.pop("proximity", [])}
    spec |= {"priorityClassName": priority, "preemption": roles.pop("preemption", wait_and_run(2, 5))}
    ranges = {}
    for part, (least, most, fields) in roles.items():
        spec["roles"].append(_role(part, replicas=least, **fields))
        ranges[part] = (least, most)
    return Kind(namespace, name, spec, units, ranges)


_RACK: Final = {"required": "rack"}
_NEAR: Final = [{"roles": ["prefill", "decode"], "level": "rack", "mode": "Required"}]
KINDS: Final = (
    _kind(
        "soak",
        "wide",
        (1, 3),
        priority="low",
        preemption=wait_and_run(1, 0),
        prefill=(1, 3, {"gpus": 4, "drainSeconds": 2, "update": {"inPlace": "IfPossible"}}),
        decode=(1, 3, {"gpus": 4, "drainSeconds": 5}),
    ),
    _kind(
        "soak",
        "deep",
        (1, 2),
        topology={"required": "block"},
        prefill=(1, 2, {"gpus": 4, "size": 2, "topology": _RACK}),
        decode=(1, 3, {"gpus": 4, "grace": 30}),
    ),
    _kind(
        "soak",
        "huge",
        (1, 1),
        priority="high",
        preemption=wait_and_run(1, 20),
        decode=(1, 2, {"gpus": 8, "size": 4, "topology": _RACK}),
        prefill=(1, 3, {"gpus": 2}),
    ),
    _kind(
        "soak",
        "order",
        (1, 2),
        priority=PATIENT,
        prefill=(1, 2, {"gpus": 2}),
        decode=(
            1,
            2,
            {
                "gpus": 2,
                "size": 3,
                "startup": "LeaderReady",
                "dependsOn": [{"role": "prefill", "condition": "Ready"}],
            },
        ),
    ),
    _kind(
        "soak",
        "mixed",
        (1, 2),
        proximity=_NEAR,
        router=(1, 4, {"gpus": 0, "minReplicas": 0, "update": {"maxSurge": 0, "maxUnavailable": 1}}),
        prefill=(
            2,
            6,
            {
                "gpus": 1,
                "minReplicas": 2,
                "update": {"maxSurge": "50%", "maxUnavailable": "25%", "inPlace": "IfPossible"},
            },
        ),
        decode=(1, 4, {"gpus": 1, "size": 2, "update": {"maxSurge": 2}}),
    ),
    _kind(
        "soak",
        "elastic",
        (1, 2),
        prefill=(1, 2, {"gpus": 1}),
        decode=(1, 1, {"gpus": 1, "size": 2, "scaling": {"mode": "External"}}),
    ),
    # A namesake elsewhere.
    _kind("other", "deep", (1, 2), prefill=(1, 2, {"gpus": 2, "size": 2}), decode=(1, 3, {"gpus": 2})),
    # What is mostly surplus, and borrowed.
    _kind(
        "third",
        "spare",
        (1, 2),
        priority="low",
        preemption=wait_and_run(1, 0),
        decode=(1, 12, {"gpus": 4, "minReplicas": 1, "drainSeconds": 1}),
    ),
)
