"""The environment that start scripts of inference engines read.

``LWS_LEADER_ADDRESS``, ``LWS_GROUP_SIZE`` and ``LWS_WORKER_INDEX`` are LeaderWorkerSet's contract
(``pkg/utils/pod/pod_utils.go``): in every container and init container, first and in this order, because
``$(NAME)`` expands only what stands before it; a variable of the same name that the user set gives way.
``COVEY_*`` says the same and what LeaderWorkerSet has no word for: the unit, the other roles, the revision, the domain
reached. ``TPU_*``, which LeaderWorkerSet sets for ``google.com/tpu``, is left to the device's own software.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from covey.api import constants as names
from covey.compile.identity import Slot

Variable = dict[str, Any]

#: Levels that the shipped topology presets know; their variables are there (perhaps empty) whatever is asked for.
STANDARD_LEVELS = ("region", "zone", "block", "subblock", "rack", "host")


@dataclass(frozen=True, slots=True)
class Peer:
    """A role of a unit, as the environment of every container of the unit describes it.

    ``address`` is the leader's address in the role's replica of the lowest number that there was when the pod was
    created, ``size`` the pods of that replica; a rollout of that role alone may leave nobody there. ``service`` is the
    address of the role's Service with a cluster IP, which never changes, and is there where ``network.service`` asks
    for it. The number of replicas is left out: a number in the environment of a process stays as it was, and pods
    of one replica that were made at different times would have different ones.
    """

    address: str
    service: str
    size: int


def variable_name(name: str) -> str:
    """A role's or level's name in capitals, as part of a variable's name."""
    return "".join(character if character.isalnum() else "_" for character in name).upper()


def pod_environment(
    slot: Slot, size: int, leader: str, peers: Mapping[str, Peer], levels: Iterable[str], *, lws: bool
) -> list[Variable]:
    """The variables of one pod, in order.

    Args:
        slot: the pod's place.
        size: pods in its replica.
        leader: address of its replica's pod 0.
        peers: every role of the unit, itself included.
        levels: topology levels whose domain is known once the pod is pinned.
        lws: whether LeaderWorkerSet's variables are set.
    """
    pairs: list[tuple[str, object]] = []
    if lws:
        pairs += [("LWS_LEADER_ADDRESS", leader), ("LWS_GROUP_SIZE", size), ("LWS_WORKER_INDEX", slot.index)]
    pairs += [
        ("COVEY_UNIT", slot.unit),
        ("COVEY_ROLE", slot.role),
        ("COVEY_REPLICA", slot.replica),
        ("COVEY_INDEX", slot.index),
        ("COVEY_SIZE", size),
        ("COVEY_LEADER_ADDRESS", leader),
    ]
    for role, peer in peers.items():
        prefix = f"COVEY_ROLE_{variable_name(role)}"
        pairs += [(f"{prefix}_ADDRESS", peer.address), (f"{prefix}_SERVICE", peer.service)]
        pairs.append((f"{prefix}_SIZE", peer.size))
    variables: list[Variable] = [{"name": name, "value": str(value)} for name, value in pairs]
    # Written later: the revision with an update in place, the domains with the pin.
    variables.append(_field("COVEY_REVISION", f"labels['{names.LABEL_REVISION}']"))
    return variables + [
        _field(f"COVEY_DOMAIN_{variable_name(level)}", f"annotations['{names.TOPOLOGY_PREFIX}{level}']")
        for level in levels
    ]


def _field(name: str, path: str) -> Variable:
    """A variable with what a field of the pod's metadata says when the container starts; empty without it."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{path}"}}}


def with_environment(container: Mapping[str, Any], ours: Sequence[Variable], taken: frozenset[str]) -> dict[str, Any]:
    """A container whose environment begins with ours; its own variables in ``taken`` are left out."""
    own = [variable for variable in container.get("env") or () if variable.get("name") not in taken]
    return {**container, "env": [*ours, *own]}
