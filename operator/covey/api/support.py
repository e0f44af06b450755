"""Faults of a spec that the API server cannot refuse by rules of its own: fields that this version does not honour, circles."""

from covey.api.inference import Backend, DisaggregatedInferenceSpec


def in_circles(spec: DisaggregatedInferenceSpec) -> list[str]:
    """Roles that depend on themselves in the end, in their order. CEL sees only those that name themselves."""
    after = {role.name: {dependency.role for dependency in role.depends_on} for role in spec.roles}

    def reachable_from(name: str) -> set[str]:
        found, edge = set[str](), after[name]
        while edge:
            found |= edge
            edge = set().union(*(after.get(each, set()) for each in edge)) - found
        return found

    return [name for name in after if name in reachable_from(name)]


def unsupported_fields(spec: DisaggregatedInferenceSpec) -> list[str]:
    """One sentence for every field set that this version does not honour; empty when there is none.

    A field that is set to what happens anyway (``startup: Parallel``) is not refused.
    """
    if spec.queue is None or spec.backend is Backend.VOLCANO:
        return []
    remedy = "use backend Volcano, which has queues, or remove it"
    return [f"spec.queue with spec.backend {spec.backend} is not supported yet: {remedy}"]
