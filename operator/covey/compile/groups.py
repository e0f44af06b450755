"""The interface of a backend's groups: objects in levels, and the fields that tie a pod to its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from covey.compile.identity import Slot
from covey.compile.layout import Layout
from covey.compile.revision import RoleRevision

Object = dict[str, Any]
#: The levels of a topology, from broad to narrow, and the keys of the node labels that each may stand in.
Levels = Mapping[str, tuple[str, ...]]
#: Type (``type_of``) and name of an object.
Anchor = tuple[str, str]


def type_of(body: Mapping[str, Any]) -> str:
    """``PodGroup.v1alpha1.scheduling.covey.dev``: kind, version and group of an object, as kubectl takes them."""
    group, _, version = body["apiVersion"].rpartition("/")
    return ".".join(part for part in (body["kind"], version, group) if part)


def identity_of(body: Mapping[str, Any]) -> Anchor:
    """Type and name of an object."""
    return type_of(body), body["metadata"]["name"]


@dataclass(frozen=True, slots=True)
class CreationLevel:
    """Objects that may be created at the same time, all those of earlier levels being there."""

    name: str
    objects: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Membership:
    """Fields by which a pod belongs to its group: labels, annotations, and fields of its spec, among them its gates.

    ``limits`` are resources that its first container has in addition to its own, ``responders`` entries of
    ``spec.evictionResponders`` in addition to those of the template.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    responders: tuple[Object, ...] = ()


class Groups(Protocol):
    """The groups of one resource, as its backend has them."""

    def levels(self, layout: Layout, /) -> tuple[CreationLevel, ...]:
        """The groups, in creation order."""

    def membership(self, slot: Slot, revision: RoleRevision) -> Membership:
        """Fields that tie the pod of a slot to its group; ``revision`` is that of its replica."""

    def anchor(self, slot: Slot, revision: RoleRevision, /) -> Anchor:
        """The object after whose UID the first pod of a slot is named; it is there before the pod is."""
