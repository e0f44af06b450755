"""Names, labels and owners of everything below a DisaggregatedInference.

Names are computed here and never taken apart again: what an object *is* stands in its labels and its owner's UID.
The one exception is a pod's host name, which nobody can edit: ``slot_of`` reads what ``hostname`` wrote.
Group names are label values too (``scheduling.covey.dev/pod-group``), hence at most 63 characters; a longer one keeps
its numbers, gives up the end of the resource's name and carries a hash of the whole.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from covey.api import constants as names

#: Longest label value, and longest DNS label (RFC 1123).
LABEL_LENGTH = 63
_HASH_LENGTH = 8
_ENDS_IN_NUMBER = re.compile(r"-\d+$")
#: Unit, role, replica and index: a number has no dash, so there is one way to read it, whatever the role is called.
_HOSTNAME = re.compile(r"(?P<unit>\d+)-(?P<role>.+)-(?P<replica>\d+)-(?P<index>\d+)", re.ASCII)


#: Names that are kept once they have been made or read: a pass asks for those of its resource again and again.
_NAMES: Final = 2**15


class Slot(NamedTuple):
    """The place of one pod in its resource. Incarnations come and go; the slot, and its hostname, stay."""

    unit: int
    role: str
    replica: int
    index: int  # type: ignore[assignment] # a tuple's own method of that name, which nobody calls


#: A replica of a resource, by unit, role and number: ``slot[:3]`` of each of its pods.
ReplicaKey = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Owner:
    """The DisaggregatedInference that owns every object below it, directly."""

    namespace: str
    name: str
    uid: str

    def reference(self) -> dict[str, Any]:
        """The controller reference that every object carries: one delete removes all."""
        return {
            "apiVersion": names.INFERENCE_API,
            "kind": "DisaggregatedInference",
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def metadata(self, name: str, labels: dict[str, str]) -> dict[str, Any]:
        """``metadata`` of an object of this resource."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": {names.LABEL_INFERENCE: self.name, **labels},
            "ownerReferences": [self.reference()],
        }


def short_hash(text: str, length: int = _HASH_LENGTH) -> str:
    """The first hexadecimal digits of a SHA-256: for telling names apart, not for secrecy."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def fit_label(head: str, *tail: object) -> str:
    """``head-tail…``, cut within ``head`` and marked with a hash where it exceeds 63 characters."""
    name = "-".join((head, *map(str, tail)))
    if len(name) <= LABEL_LENGTH:
        return name
    end = "-".join((short_hash(name), *map(str, tail)))
    return f"{head[: LABEL_LENGTH - len(end) - 1].rstrip('-.')}-{end}"


@lru_cache(_NAMES)
def group_name(inference: str, unit: int, role: str | None = None, replica: int | None = None) -> str:
    """The name of a unit's root, of a role's group, or of a replica's group.

    A role called ``prefill-0`` would give its group the name of the first replica of ``prefill``; a dot, which no
    role's name may hold, keeps them apart.
    """
    if role is not None and replica is None and _ENDS_IN_NUMBER.search(role):
        role = f"{role}.role"
    return fit_label(inference, *(part for part in (unit, role, replica) if part is not None))


def hostname(slot: Slot) -> str:
    """The first label of a pod's address, the same for every incarnation."""
    return f"{slot.unit}-{slot.role}-{slot.replica}-{slot.index}"


@lru_cache(_NAMES)
def slot_of(name: str | None) -> Slot | None:
    """The place whose host name this is; None when it is none of ours."""
    match = _HOSTNAME.fullmatch(name or "")
    if match is None:
        return None
    slot = Slot(int(match["unit"]), match["role"], int(match["replica"]), int(match["index"]))
    return slot if hostname(slot) == name else None


def pod_name(inference: str, slot: Slot, predecessor: str) -> str:
    """Name of a pod, always the same for one predecessor: a restarted operator finds it, no later incarnation has it.

    Args:
        inference: name of the resource.
        slot: the pod's place.
        predecessor: UID of the pod that it succeeds; of its group, when it is the first.
    """
    return f"{inference}-{hostname(slot)}-{short_hash(predecessor, 6)}"


def service_name(inference: str, *parts: object, marked: bool = False) -> str:
    """The name of a Service; that of a role is the role's headless one.

    It is a DNS label (RFC 1035): no dots, and a letter first. ``marked`` makes it another one.
    """
    plain = inference.replace(".", "-")
    head = plain if plain == inference else f"{plain}-{short_hash(inference, 4)}"
    mark = (short_hash("-".join(map(str, parts)), 4),) if marked else ()
    return fit_label(head if head[0].isalpha() else f"s-{head}", *parts, *mark)


def scaler_name(inference: str, role: str) -> str:
    """The RoleScaler of a role. A dot, which neither name may hold, keeps ``a-b`` + ``c`` and ``a`` + ``b-c`` apart."""
    return f"{inference}{'.' if '-' in role else '-'}{role}"


def group_labels(unit: int, role: str | None = None, replica: int | None = None) -> dict[str, str]:
    """The labels of a group: one for each ancestor that it has."""
    labels = {names.LABEL_UNIT: str(unit)}
    if role is not None:
        labels[names.LABEL_ROLE] = role
    if replica is not None:
        labels[names.LABEL_REPLICA] = str(replica)
    return labels
