"""First-fit in declared order: what every live scheduler comes down to. It measures how hard the cases are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from covey.placement.model import Path, ReplicaRequest, RoleRequest
from oracle import facts
from oracle.case import Case
from oracle.checker import violations


def place(case: Case) -> Mapping[str, str] | None:
    """Places for the minimum, each replica in the first domain where it fits; None when that leads nowhere."""
    for unit in _domains(case, case.gang.required, case.node):
        layout: dict[str, str] | None = {}
        for role in case.gang.roles:
            for replica in facts.minimum_of(role):
                if layout is not None and not replica.placed:
                    layout = _replica(case, layout, role, replica, unit if role.follow_unit else list(case.node))
        if layout is not None and not violations(case, layout, "minimum"):
            return layout
    return None


def _domains(case: Case, level: str | None, nodes: Iterable[str]) -> list[list[str]]:
    if level is None:
        return [list(nodes)]
    found: dict[Path | None, list[str]] = defaultdict(list)
    for name in nodes:
        own = facts.domain(facts.path_of(case.topology, case.node[name]), case.topology.depth(level))
        found[own].append(name)
    found.pop(None, None)
    return list(found.values())


def _replica(
    case: Case, layout: dict[str, str], role: RoleRequest, replica: ReplicaRequest, nodes: list[str]
) -> dict[str, str] | None:
    for domain in _domains(case, role.required, nodes):
        grown: dict[str, str] | None = dict(layout)
        for pod in replica.pods:
            if grown is not None and pod.node is None:
                now = case.placed(grown)
                node = next((name for name in domain if facts.room(now, name, now.body(pod))), None)
                grown = None if node is None else {**grown, pod.key: node}
        if grown is not None:
            return grown
    return None
