"""Fields of a spec that Covey's own scheduler alone can honour: the order of starts, roles that are scaled together.

A held start needs places reserved while a gate holds the pod.
"""

from __future__ import annotations

from collections.abc import Iterator

from covey.api.inference import BackendName, DisaggregatedInferenceSpec
from covey.compile.pods import is_held


def refused_starts(spec: DisaggregatedInferenceSpec, scheduler: str) -> Iterator[str]:
    """Yield a refusal of roles that would be held at their start, as this scheduler's gang would never be whole."""
    for role in spec.roles:
        if is_held(role, 1):
            field = "dependsOn" if role.depends_on else f"startup {role.startup}"
            yield (
                f"spec.roles[{role.name}].{field} holds pods after their nodes are reserved, which {scheduler} cannot: "
                "remove it, or use backend Extender"
            )


def refused_vectors(spec: DisaggregatedInferenceSpec, why: str) -> Iterator[str]:
    """Yield a refusal of roles that are scaled together: whether a vector has room is for Covey's own planner to say."""
    names = [role.name for role in spec.roles if role.is_exchanged]
    if names:
        yield (
            f"spec.roles[{names[0]}].scaling.mode Together: {why}, so no vector could be judged before it moves anything: "
            "set it to External, or use backend Extender"
        )
    if spec.scaling is not None:
        yield "spec.scaling is for backend Extender: remove it"


def can_reserve(backend: BackendName) -> bool:
    """Tell whether pods of this backend keep their places while they are held at their start."""
    return backend is BackendName.EXTENDER
