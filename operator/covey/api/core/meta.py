"""Metadata, and conditions."""

from __future__ import annotations

import msgspec


class Read(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Base of every projection: camel-case keys, unknown fields dropped, immutable."""


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
        """It is of an earlier state of the same object, as far as versions can be compared.

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


def condition(conditions: tuple[Condition, ...] | None, kind: str) -> Condition | None:
    """The condition of a type, if it is there."""
    return next((found for found in conditions or () if found.type == kind), None)
