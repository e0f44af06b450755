"""Who places the pods, and which objects that scheduler needs: one module for each backend behind one seam.

Today there is one, ``extender``; a spec that asks for another is refused before it gets here (``covey.api.support``).
"""

from __future__ import annotations

from typing import Final

from covey.api.inference import Backend as BackendName
from covey.api.inference import DisaggregatedInference
from covey.backends.extender import Extender
from covey.backends.seam import Backend, Cluster, Identity, Owned, ReplicaProgress, UnitReport

__all__ = [
    "BACKENDS",
    "Backend",
    "Cluster",
    "Identity",
    "Owned",
    "ReplicaProgress",
    "UnitReport",
    "backend_of",
    "is_supported",
]

BACKENDS: Final[dict[BackendName, Backend]] = {backend.name: backend for backend in (Extender(),)}


def is_supported(inference: DisaggregatedInference) -> bool:
    """Whether this release has the resource's backend."""
    return inference.spec.effective_backend in BACKENDS


def backend_of(inference: DisaggregatedInference) -> Backend:
    """The backend of a resource.

    Raises:
        KeyError: when this release has none of that name.
    """
    return BACKENDS[inference.spec.effective_backend]
