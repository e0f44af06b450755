"""Report of ``covey plan``: the stable JSON shape (docs/reference/plan.schema.json), as frozen values.

The names here are the names there; every other form of output is drawn from this report, so no form knows more
than another.
"""

from __future__ import annotations

from typing import Final

import msgspec

#: Nodes that a sentence names.
_NAMED: Final = 8


class CamelStruct(msgspec.Struct, rename="camel", frozen=True):
    """Base: camel-case keys, every field always present."""


class TopologyLevelReport(CamelStruct, frozen=True):
    """A level of the topology and the label keys that give its value."""

    name: str
    keys: tuple[str, ...]


class TopologyReport(CamelStruct, frozen=True):
    """The topology of the placements, broad to narrow."""

    name: str
    levels: tuple[TopologyLevelReport, ...]


class DomainReport(CamelStruct, frozen=True):
    """A domain of a level; ``path`` runs from the broadest level down, null where a level is missing."""

    level: str
    domain: str | None
    path: tuple[str | None, ...]


class PodReport(CamelStruct, frozen=True):
    """A pod and its node. Pods that do not exist yet have no suffix in their name."""

    index: int
    name: str
    node: str


class InstanceReport(CamelStruct, frozen=True):
    """One replica that has all its places."""

    replica: int
    minimum: bool
    placement: tuple[DomainReport, ...]
    pods: tuple[PodReport, ...]


class PlannedRoleReport(CamelStruct, frozen=True):
    """A role of a unit; ``admitted`` counts whole replicas."""

    name: str
    replicas: int
    min_replicas: int
    admitted: int
    instances: tuple[InstanceReport, ...]


class PreferenceReport(CamelStruct, frozen=True):
    """A preference, reached or not: ``reached`` is the finest level that holds."""

    scope: str
    level: str
    achieved: bool
    reached: str | None


class PlannedUnitReport(CamelStruct, frozen=True):
    """One serving unit: one gang."""

    index: int
    admitted: bool
    placement: tuple[DomainReport, ...]
    roles: tuple[PlannedRoleReport, ...]
    preferred: tuple[PreferenceReport, ...]


class ExclusionReport(CamelStruct, frozen=True):
    """Nodes left out for one cause."""

    cause: str
    nodes: int


class ReasonReport(CamelStruct, frozen=True):
    """Reason why a unit has no place."""

    unit: int
    role: str
    scope: str
    level: str | None
    best_domain: tuple[str | None, ...]
    required: int
    satisfied: int
    resource: str | None
    requested: str | None
    short: str | None
    excluded: tuple[ExclusionReport, ...]
    message: str


class WorkloadReport(CamelStruct, frozen=True):
    """One workload: all its units.

    A ready tree has the ``kind`` and the name of its root group, and names the ``workload`` that the root refers to.
    """

    namespace: str
    name: str
    kind: str
    workload: str | None
    verdict: str
    elapsed_ms: float
    units: tuple[PlannedUnitReport, ...]
    reasons: tuple[ReasonReport, ...]


class AddedReport(CamelStruct, frozen=True):
    """Nodes of one ``--add-nodes``, and those with a pod now; ``domain`` is the new one of ``level``, if any."""

    template: str
    level: str | None
    domain: str | None
    nodes: tuple[str, ...]
    used: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The outcome for these nodes."""
        where = f" in the new {self.level} {self.domain}" if self.level else ""
        copies = f"{len(self.nodes):,} copies of {self.template}{where}"
        if not self.used:
            return f"none of {copies} is used"
        more = f" and {len(self.used) - _NAMED:,} more" if len(self.used) > _NAMED else ""
        return f"{len(self.used):,} of {copies} used: {', '.join(self.used[:_NAMED])}{more}"


class VictimReport(CamelStruct, frozen=True):
    """A replica, all of a unit, or an ordinary pod, that would give way; ``pods`` is how many it has."""

    kind: str
    namespace: str
    name: str
    unit: int
    role: str
    replica: int | None
    priority: int
    pods: int


class PreemptionReport(CamelStruct, frozen=True):
    """The victims of a unit whose minimum has no place, and the nodes that it would have then.

    ``verdict`` is Preempting, or Reclaiming where it takes back quota; or, where nobody would give way, Admitted (the minimum fits once the pods that leave are
    gone), Infeasible or Unknown.
    """

    namespace: str
    name: str
    unit: int
    verdict: str
    victims: tuple[VictimReport, ...]
    nodes: tuple[str, ...]
    path: tuple[str | None, ...]
    message: str
    unproven: bool = False


class SuccessorReport(CamelStruct, frozen=True):
    """A replica of the new revision, and the nodes that its pods would have."""

    role: str
    replica: int
    pods: tuple[PodReport, ...]


class LeavingReport(CamelStruct, frozen=True):
    """A replica of an old revision that goes before its successor has places."""

    role: str
    replica: int


class ChangeReport(CamelStruct, frozen=True):
    """The first step of a rollout, in a unit that runs with another revision than its manifest asks for.

    ``verdict`` is Admitted (``successors`` would have places, once what is ``leaving`` is gone), Infeasible (none would
    have any, so that the rollout would hold) or Unknown. ``roles`` are those that change.
    """

    namespace: str
    name: str
    unit: int
    verdict: str
    roles: tuple[str, ...]
    successors: tuple[SuccessorReport, ...]
    leaving: tuple[LeavingReport, ...]
    message: str


class MoveReport(CamelStruct, frozen=True):
    """A replica that would move, with the nodes of its pods before and after; its successor comes first."""

    namespace: str
    name: str
    unit: int
    role: str
    replica: int
    surplus: bool
    together: bool
    source: tuple[str, ...]
    target: tuple[str, ...]


class ConsolidationReport(CamelStruct, frozen=True):
    """Moves, in their order, after which a gang starts (``goal`` is its name) or domains are free; nothing moves by itself.

    ``verdict`` is Admitted (after these moves, if any), Infeasible (proven: no moves help) or Unknown (none were found).
    ``least``: it is proven that no fewer moves do. ``domains`` are free then; ``nodes`` are those of the gang.
    """

    goal: str
    verdict: str
    moves: tuple[MoveReport, ...]
    domains: tuple[tuple[str | None, ...], ...]
    nodes: tuple[str, ...]
    least: bool
    message: str


class PlanReport(CamelStruct, frozen=True):
    """Everything ``covey plan`` says."""

    warnings: tuple[str, ...]
    topology: TopologyReport
    workloads: tuple[WorkloadReport, ...]
    added_nodes: tuple[AddedReport, ...] = ()
    preemptions: tuple[PreemptionReport, ...] = ()
    consolidation: ConsolidationReport | None = None
    changes: tuple[ChangeReport, ...] = ()

    @property
    def status(self) -> int:
        """Exit status of ``covey plan``: 0 all is placed, 3 something is infeasible, else 4 something is unknown.

        Of a consolidation it is the answer to that alone.
        """
        asked = self.consolidation
        verdicts = {asked.verdict} if asked is not None else {workload.verdict for workload in self.workloads}
        if "Infeasible" in verdicts:
            return 3
        return 4 if "Unknown" in verdicts else 0
