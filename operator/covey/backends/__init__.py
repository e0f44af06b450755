"""Backends: schedulers that place the pods, and the objects that each needs, one module for each behind one seam."""

from __future__ import annotations

from typing import Final

from covey.api.inference import BackendName
from covey.backends.extender import Extender
from covey.backends.hypernodes import HyperNodes
from covey.backends.kubernetes import Embedded, Flat, Hierarchical
from covey.backends.kubernetes.shared import COMPOSITE_POD_GROUPS, COMPOSITE_POD_GROUPS_1_38
from covey.backends.seam import (
    Backend,
    Cluster,
    FieldProbe,
    Identity,
    Owned,
    Release,
    ReleaseFacts,
    ReplicaProgress,
    Room,
    UnitReport,
)
from covey.backends.volcano import Volcano

__all__ = [
    "BACKENDS",
    "SUPERSEDED",
    "Backend",
    "Cluster",
    "FieldProbe",
    "HyperNodes",
    "Identity",
    "Owned",
    "Release",
    "ReleaseFacts",
    "ReplicaProgress",
    "Room",
    "UnitReport",
    "choose",
    "find",
    "newest",
    "within",
]

#: Of several dialects of one name the newest first.
BACKENDS: Final[tuple[Backend, ...]] = (
    Extender(),
    *map(Hierarchical.of, Hierarchical.dialects),
    *map(Flat, Flat.dialects),
    Embedded(),
    Volcano(),
)


#: Kinds whose objects are there once more in a later version, where a cluster serves that.
SUPERSEDED: Final = {COMPOSITE_POD_GROUPS: COMPOSITE_POD_GROUPS_1_38}


def find(name: BackendName, dialect: str) -> Backend | None:
    """Return the backend that was recorded; None when this release does not have it."""
    return next((backend for backend in BACKENDS if (backend.name, backend.dialect) == (name, dialect)), None)


def choose(name: BackendName, cluster: Cluster) -> Backend | None:
    """Return the newest dialect that a cluster supports; None when it supports none, of which ``newest`` says why."""
    return next((backend for backend in BACKENDS if backend.name is name and backend.absent(cluster) is None), None)


def newest(name: BackendName) -> Backend | None:
    """Return the newest dialect of a backend; None when this release has none."""
    return next((backend for backend in BACKENDS if backend.name is name), None)


def within(backend: Backend, cluster: Cluster) -> Backend:
    """A backend as it is in one cluster.

    Volcano writes levels as the tiers of the HyperNodes that there are, pods of ``Extender`` name who answers their
    Evictions where these are served, and ``Kubernetes`` has its groups in the version that is served.
    """
    return backend.within(cluster) if isinstance(backend, Extender | Hierarchical | Volcano) else backend
