"""Who places the pods, and which objects that scheduler needs.

A backend turns a resource into its tree. Today there is one, ``extender``; a spec that asks for another is refused
before it gets here (``covey.api.support``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from covey.api.inference import Backend as BackendName
from covey.api.inference import DisaggregatedInference
from covey.backends.extender import Extender
from covey.compile import Layout, Revision, Tree

__all__ = ["Backend", "backend_of", "is_supported"]


class Backend(Protocol):
    """What the operator asks of a scheduler's backend."""

    @property
    def name(self) -> BackendName:
        """Its name in ``spec.backend``."""

    def tree(
        self,
        inference: DisaggregatedInference,
        *,
        layout: Layout | None = None,
        revision: Revision | None = None,
        levels: Sequence[str] | None = None,
    ) -> Tree:
        """The objects of a resource, in creation order; arguments as of ``compile_inference``."""


_BACKENDS: dict[BackendName, Backend] = {backend.name: backend for backend in (Extender(),)}


def is_supported(inference: DisaggregatedInference) -> bool:
    """Whether this release has the resource's backend."""
    return inference.spec.effective_backend in _BACKENDS


def backend_of(inference: DisaggregatedInference) -> Backend:
    """The backend of a resource.

    Raises:
        KeyError: when this release has none of that name.
    """
    return _BACKENDS[inference.spec.effective_backend]
