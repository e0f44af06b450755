"""Order of starts: it needs places reserved while a gate holds the pod, which only Covey's scheduler does."""

from __future__ import annotations

from collections.abc import Iterator

from covey.api.inference import Backend, DisaggregatedInferenceSpec
from covey.compile.pods import is_held


def refused_starts(spec: DisaggregatedInferenceSpec, scheduler: str) -> Iterator[str]:
    """Yield a refusal of roles that would be held at their start, as this scheduler's gang would never be whole."""
    for role in spec.roles:
        if is_held(role, 1):
            field = "dependsOn" if role.depends_on else f"startup {role.startup}"
            yield (
                f"spec.roles[{role.name}].{field} holds pods after their places are reserved, which {scheduler} cannot: "
                "remove it, or use backend Extender"
            )


def can_reserve(backend: Backend) -> bool:
    """Tell whether pods of this backend keep their places while they are held at their start."""
    return backend is Backend.EXTENDER
