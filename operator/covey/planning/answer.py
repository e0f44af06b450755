"""Report of gangs and their plans.

Placements are reported from the nodes that pods end up on, not from what the planner says about them: whatever is
printed can be checked against the nodes' labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from covey.api import core
from covey.placement.model import Gang, Path, PreferenceOutcome, Reason, ReplicaRequest, RoleRequest, Topology, Verdict
from covey.planning.report import (
    DomainReport,
    ExclusionReport,
    InstanceReport,
    PlannedRoleReport,
    PlannedUnitReport,
    PodReport,
    PreferenceReport,
    ReasonReport,
    TopologyLevelReport,
    TopologyReport,
)


@dataclass(frozen=True, slots=True)
class GangDecision:
    """The verdict on one gang, whose pods are assigned nodes, and which replicas count as the minimum.

    ``short``: why there is no quota for all of its surplus.
    """

    gang: Gang
    verdict: Verdict
    minimum: frozenset[tuple[str, int]] = frozenset()
    preferred: tuple[PreferenceOutcome, ...] = ()
    reasons: tuple[Reason, ...] = ()
    short: str = ""


@dataclass(frozen=True, slots=True)
class Teller:
    """Reports on decisions in one topology. ``path_of`` gives a node's domain path, ``pods`` the pods by key."""

    topology: Topology
    path_of: Callable[[str], Path]
    pods: Mapping[str, core.Pod]

    def unit(self, decision: GangDecision) -> PlannedUnitReport:
        """Report on a unit; one without its minimum has no instances, whatever of it is placed already."""
        gang = decision.gang
        admitted = decision.verdict is Verdict.ADMITTED
        roles = tuple(self._role(role, decision, admitted=admitted) for role in gang.roles)
        following = {role.name for role in gang.roles if role.follow_unit}
        nodes = [
            pod.node for role in roles if role.name in following for instance in role.instances for pod in instance.pods
        ]
        preferred = tuple(
            PreferenceReport(preference.scope, preference.level, preference.achieved, preference.reached)
            for preference in decision.preferred
        )
        return PlannedUnitReport(gang.unit, admitted, self.shared_domains(nodes), roles, preferred if admitted else ())

    def shared_domains(self, nodes: Iterable[str]) -> tuple[DomainReport, ...]:
        """At each level the domain that holds all these nodes; levels without one are left out."""
        paths = [self.path_of(node) for node in dict.fromkeys(nodes)]
        if not paths:
            return ()
        reports = []
        for depth, level in enumerate(self.topology.levels):
            domains = {path[: depth + 1] for path in paths}
            path = next(iter(domains))
            if len(domains) == 1 and len(path) > depth and path[depth] is not None:
                reports.append(DomainReport(level.name, path[depth], path))
        return tuple(reports)

    def _role(self, role: RoleRequest, decision: GangDecision, *, admitted: bool) -> PlannedRoleReport:
        instances = []
        for replica in role.replicas if admitted else ():
            placed = self._placed_pods(replica)
            if placed is not None:
                minimum = (role.name, replica.replica) in decision.minimum
                where = self.shared_domains(pod.node for pod in placed)
                instances.append(InstanceReport(replica.replica, minimum, where, placed))
        return PlannedRoleReport(role.name, role.desired, role.minimum, len(instances), tuple(instances))

    def _placed_pods(self, replica: ReplicaRequest) -> tuple[PodReport, ...] | None:
        placed = []
        for pod in replica.pods:
            if pod.node is None:
                return None
            placed.append(PodReport(pod.index, self.pods[pod.key].metadata.name, pod.node))
        return tuple(placed)


def topology_report(topology: Topology) -> TopologyReport:
    """The topology as it is printed."""
    return TopologyReport(
        topology.name, tuple(TopologyLevelReport(level.name, level.keys) for level in topology.levels)
    )


def reason_reports(unit: int, reasons: Sequence[Reason]) -> tuple[ReasonReport, ...]:
    """Reasons of one unit."""
    return tuple(
        ReasonReport(
            unit,
            reason.role,
            reason.scope,
            reason.level,
            reason.best_domain,
            reason.required,
            reason.satisfied,
            reason.resource,
            reason.requested,
            reason.short,
            tuple(ExclusionReport(excluded.cause, excluded.nodes) for excluded in reason.excluded),
            reason.message,
        )
        for reason in reasons
    )
