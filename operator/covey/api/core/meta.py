"""Metadata, conditions, and times as the API writes them: RFC 3339 in UTC, whole seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import Field

from covey.api.model import CelRule, ListMap

#: The first and the last second of the years that are written with four digits: anybody may have written any time.
_FIRST, _LAST = -30_610_224_000.0, 253_402_300_799.0


def rfc3339(seconds: float) -> str:
    """A time given in seconds since the epoch; one outside the years 1000 to 9999 as the nearest of theirs."""
    return datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str | None) -> float | None:
    """Seconds since the epoch of a time; None for none, and for what is no time."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


class Read(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Base of every projection: camel-case keys, unknown fields dropped, immutable.

    One of Covey's own objects is its declaration too: ``covey.api.structs`` makes the model of it, and with that the CRD.
    """

    RULES: ClassVar[tuple[CelRule, ...]] = ()


class OwnerReference(Read, frozen=True):
    """``metav1.OwnerReference``."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    api_version: str = ""


class Meta(Read, frozen=True):
    """``metav1.ObjectMeta``; times are RFC 3339 strings as the API server sends them."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace (empty for cluster-scoped objects) and name."""
        return (self.namespace, self.name)

    def is_before(self, other: Meta) -> bool:
        """Tell whether it is of an earlier state of the same object, as far as versions can be compared.

        They are decimal numbers since Kubernetes 1.35, and were before wherever etcd counts them.
        """
        versions = (self.resource_version, other.resource_version)
        return all(map(str.isdecimal, versions)) and int(versions[0]) < int(versions[1])

    @property
    def controller(self) -> OwnerReference | None:
        """The controlling owner, if there is one."""
        # Every pod of a resource is asked in every pass, on the loop.
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None

    def label(self, name: str) -> str | None:
        """The value of a label; None when it is absent."""
        return self.labels.get(name) if self.labels else None

    def annotation(self, name: str) -> str | None:
        """The value of an annotation; None when it is absent."""
        return self.annotations.get(name) if self.annotations else None


class Condition(Read, frozen=True):
    """``metav1.Condition``, and the conditions of pods and nodes, which have the same keys."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


#: Of one of Covey's own objects.
Conditions = Annotated[tuple[Condition, ...], ListMap(("type",)), Field(max_length=32)]


def condition(conditions: tuple[Condition, ...] | None, kind: str) -> Condition | None:
    """The condition of a type, if it is there."""
    return next((condition for condition in conditions or () if condition.type == kind), None)


def dump_conditions(conditions: tuple[Condition, ...] | None) -> list[dict[str, Any]]:
    """Conditions in the form in which they are written: with every key."""
    unset = {"reason": "", "message": "", "observedGeneration": 0, "lastTransitionTime": None}
    return [unset | msgspec.to_builtins(condition) for condition in conditions or ()]


def stamp_conditions(
    conditions: Iterable[Mapping[str, Any]], before: Mapping[str, Any], generation: int, now: str
) -> list[dict[str, Any]]:
    """Add times and the generation; a condition whose status is the same keeps its time.

    Args:
        conditions: with type, status, reason and message.
        before: the status so far.
        generation: that the conditions were computed from.
        now: RFC 3339.
    """
    listed = [condition for condition in before.get("conditions") or () if isinstance(condition, Mapping)]
    old = {
        (condition.get("type"), condition.get("status")): condition.get("lastTransitionTime") for condition in listed
    }
    return [
        {
            **condition,
            "observedGeneration": generation,
            "lastTransitionTime": old.get((condition["type"], condition["status"])) or now,
        }
        for condition in conditions
    ]
