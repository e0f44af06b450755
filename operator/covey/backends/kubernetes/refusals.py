"""Refusals of what the groups of Kubernetes 1.37 cannot carry: a sentence each, with the field and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Role
from covey.backends.kubernetes import shared
from covey.compile import Levels

_EXTENDER = "or use backend Extender"
#: Their priorities are above 1e9, which groups do not take.
_SYSTEM = ("system-cluster-critical", "system-node-critical")


def refusals_of(spec: DisaggregatedInferenceSpec, levels: Levels | None) -> Iterator[str]:
    """All that is refused of a spec. The tree is three levels deep, of the four that a Workload may have."""
    yield from shared.refused_fields(spec, levels)
    if spec.priority_class_name in _SYSTEM:
        yield (
            f"spec.priorityClassName {spec.priority_class_name} has a priority above 1000000000, which Kubernetes' groups "
            f"do not take: use a PriorityClass of your own, {_EXTENDER}"
        )
    gang = [role for role in spec.roles if role.min_replicas]
    yield from _too_many("of several pods", [role for role in gang if role.size > 1])
    yield from _too_many("of single pods", [role for role in gang if role.size == 1])
    for role in spec.roles:
        yield from shared.refused_single_pods(role, spec, levels)
        yield from _strays(role, spec)


def _too_many(what: str, roles: list[Role]) -> Iterator[str]:
    if len(roles) > shared.MOST_TEMPLATES:
        yield (
            f"spec.roles: {len(roles)} roles of the gang have replicas {what}, but a list of templates in a Workload "
            f"takes {shared.MOST_TEMPLATES}: join some of them, {_EXTENDER}"
        )


def _strays(role: Role, spec: DisaggregatedInferenceSpec) -> Iterator[str]:
    """The unit's level holds for the whole tree of its gang, and for nothing else."""
    unit, path = spec.topology.required, f"spec.roles[{role.name}]"
    if unit is None:
        return
    if role.min_replicas and not role.topology.follow_unit:
        yield (
            f"{path}.topology.followUnit is false, but kube-scheduler confines every role of the gang to the unit's "
            f"{unit}: set minReplicas 0, which takes the role out of the gang, {_EXTENDER}"
        )
    if not role.min_replicas and role.topology.follow_unit:
        yield (
            f"{path} has minReplicas 0 and stands outside the unit's group, where kube-scheduler cannot confine it to "
            f"the unit's {unit}: set topology.followUnit false or minReplicas 1, {_EXTENDER}"
        )
