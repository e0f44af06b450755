"""Plans workloads on facts, by the scheduler itself (``world``), and reports what it decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from msgspec import structs

from covey.admission import gangs, obstacles
from covey.admission.entry import QueueStage
from covey.admission.gangs import UnplannableError
from covey.admission.nodes import Key
from covey.admission.tree import Unit
from covey.admission.victims import root_priority
from covey.admission.volumes import Claim, Volumes, claims_of
from covey.api import core
from covey.api.constants import REASON_OVER_QUOTA
from covey.kube.resources import DISAGGREGATED_INFERENCES
from covey.manifests.errors import InputError
from covey.model import podstate
from covey.placement.choice.outcome import make_plan
from covey.placement.cluster.device_claims import templates_of
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import unmodelled_constraints
from covey.placement.model import Gang, Path, Refusal, Shape, Topology, Verdict
from covey.planning.answer import GangDecision, Teller, reason_reports, topology_report
from covey.planning.changes import ChangeAnswer, plan_changes
from covey.planning.facts import ClusterFacts
from covey.planning.inferences import choose_topologies, default_topology
from covey.planning.report import PlanReport, WorkloadReport
from covey.planning.resource_quotas import QuotaVerdicts, judge_quotas, refuse
from covey.planning.trees import PlannedWorkload
from covey.planning.uncounted import uncounted_remarks
from covey.planning.world import World

#: Units of the cluster that a sentence names.
_NAMED: Final = 4


@dataclass(frozen=True, slots=True)
class Planned:
    """The report, and what pictures are drawn from."""

    report: PlanReport
    workloads: tuple[PlannedWorkload, ...]
    facts: ClusterFacts
    topology: Topology
    #: The scheduler's view of the cluster, as it is afterwards.
    world: World
    #: Of each workload its units' gangs, with the places that they got.
    gangs: tuple[tuple[Gang, ...], ...] = ()

    @property
    def inventory(self) -> Inventory:
        """The nodes, with all that holds some of them afterwards."""
        return self.world.inventory

    def path_of(self, node: str) -> Path:
        """A node's domain path in the report's topology."""
        return self.inventory.path(self.topology.name, node)

    @property
    def notes(self) -> list[str]:
        """Reasons why something has no place, a sentence for each."""
        return list(
            dict.fromkeys(
                f"{workload.namespace}/{workload.name}: {reason.message}"
                for workload in self.report.workloads
                for reason in workload.reasons
            )
        )


def plan_all(workloads: Sequence[PlannedWorkload], facts: ClusterFacts, clock: Callable[[], float]) -> Planned:
    """Plan everything together: by priority, then age; in each priority all minimums before any surplus.

    Args:
        workloads: in document order.
        facts: the cluster.
        clock: seconds, for ``elapsedMs``.

    Raises:
        InputError: a topology is not clear, or a workload asks for something that its topology does not have.
    """
    topologies = choose_topologies(workloads, facts)
    shown = topologies[0] if topologies else default_topology(facts)
    resources = [
        (workload.namespace, workload.units)
        for workload in workloads
        if workload.resource[1] == DISAGGREGATED_INFERENCES.kind
    ]
    created = judge_quotas(resources, facts.resource_quotas, {pod.metadata.uid for pod in facts.pods})
    users = _users_of_lone_claims(facts, workloads)

    def obstacle(pod: core.Pod) -> str | None:
        if missing := next((name for _, name in templates_of(pod)), None):
            return f"ResourceClaimTemplate {missing} is not known: give it beside the nodes"
        return obstacles.obstacle(pod) or _claim_taken(pod, users)

    pairs = [*zip(workloads, topologies, strict=True)]
    world = World(facts, pairs, shown, clock=clock, obstacle=obstacle, refuse=created.refusal)
    facts = replace(facts, nodes=tuple(world.extended(node) for node in facts.nodes))
    members = {pod.metadata.uid for candidate in world.candidates.values() for pod in candidate.pods()}
    members |= {uid for workload in workloads for uid in workload.pods}
    warnings = [*facts.warnings, *_unknown_classes(workloads, facts), *uncounted_remarks(workloads, facts, members)]
    reports, placed, changes = [], [], []
    for workload, topology in pairs:
        mine = [_decision(workload, unit, topology, world) for unit in workload.units]
        teller = Teller(topology, partial(world.inventory.path, topology.name), workload.pods)
        placed.append(tuple(decision.gang for decision in mine))
        for unit, decision in zip(workload.units, mine, strict=True):
            if decision.verdict is Verdict.ADMITTED and (why := _why_surplus_waits(world, unit.key, created)):
                warnings.append(f"{workload.title} unit {decision.gang.unit}: {why}")
        workload_report = _report_workload(
            workload, teller, mine, sum(world.seconds(unit.key) for unit in workload.units)
        )
        if workload.change is not None:
            quotas = [quota for quota in facts.resource_quotas if quota.metadata.namespace == workload.namespace]
            build = partial(_build_gang, workload, topology=topology, world=world, succeeds=True)
            keys = {gang.uid: unit.key for gang, unit in zip(placed[-1], workload.units, strict=True)}
            refuse_beside = partial(_refuse_beside, world, keys)
            answers = [*plan_changes(workload.change, placed[-1], build, world.inventory, refuse_beside, quotas)]
            changes += [answer.report for answer in answers]
            workload_report = _with_changes(workload_report, answers)
        reports.append(workload_report)
    warnings += [*_waiting_remarks(workloads, world), *world.inventory.warnings(shown.name)]
    shown_warnings = dict.fromkeys(
        [*warnings, *_unmodelled_remarks(workloads, world.cache.volumes), *_untried_remarks(workloads)]
    )
    report = PlanReport(tuple(shown_warnings), topology_report(shown), tuple(reports), changes=tuple(changes))
    return Planned(report, tuple(workloads), facts, shown, world, tuple(placed))


def _decision(workload: PlannedWorkload, unit: Unit, topology: Topology, world: World) -> GangDecision:
    """The decision about a unit; of one that cannot be planned the gang as it was asked for."""
    entry = world.entry(unit.key)
    gang = world.gang(unit.key) or _build_gang(workload, entry.unit, topology, world)
    refusal = world.refusal(unit.key)
    if entry.stage not in {QueueStage.NOTHING, QueueStage.SURPLUS}:
        refusal = refusal or refuse("groups do not exist yet")
        return GangDecision(gang, refusal.verdict, reasons=refusal.reasons)
    plan = make_plan(gang, world.inventory, {})
    minimum = frozenset((replica.role, replica.replica) for replica in plan.replicas if replica.minimum)
    return GangDecision(gang, Verdict.ADMITTED, minimum, plan.preferred)


def _build_gang(
    workload: PlannedWorkload, unit: Unit, topology: Topology, world: World, *, succeeds: bool = False
) -> Gang:
    _, _, around = world.queueing.around(unit)
    if succeeds:  # whoever goes for a successor may have its claim
        around = replace(around, obstacle=obstacles.obstacle)
    try:
        return gangs.build_gang(unit, topology, world.shape, around)
    except UnplannableError as error:
        raise InputError(workload.place, error.message, "correct the manifest") from None


def _refuse_beside(world: World, keys: Mapping[str, Key], gang: Gang, shapes: Sequence[Shape]) -> Refusal | None:
    return world.refuse_beside(keys[gang.uid], shapes)


def _why_surplus_waits(world: World, root: Key, created: QuotaVerdicts) -> str:
    """Say why a unit that is admitted has surplus without nodes."""
    entry, refusal = world.entry(root), world.refusal(root)
    if refusal is not None and entry.decision.reason == REASON_OVER_QUOTA:
        return f"surplus has no quota: {refusal.message}"
    if root in created.surplus:
        return f"surplus has no quota: {created.surplus[root]}"
    return f"surplus has no nodes: {refusal.message}" if refusal is not None else ""


def _users_of_lone_claims(facts: ClusterFacts, workloads: Sequence[PlannedWorkload]) -> dict[Claim, core.Pod]:
    """The pod that has each claim of one pod alone (``ReadWriteOncePod``): one that has its node, else the first that names it."""
    alone = {
        volume_claim.metadata.key
        for volume_claim in facts.claims
        if "ReadWriteOncePod" in (volume_claim.spec.access_modes or ())
    }
    if not alone:
        return {}
    placed = (pod for pod in facts.pods if podstate.holding(pod))
    users: dict[Claim, core.Pod] = {}
    for pod in (*placed, *(pod for workload in workloads for pod in workload.pods.values())):
        for claim in alone.intersection(claims_of(pod)):
            users.setdefault(claim, pod)
    return users


def _claim_taken(pod: core.Pod, users: Mapping[Claim, core.Pod]) -> str | None:
    """Say whose a claim is that a pod names too, and that one pod alone may use (``VolumeRestrictions`` of kube-scheduler)."""
    for claim in claims_of(pod) if users else ():
        user = users.get(claim, pod)
        if user.metadata.uid != pod.metadata.uid:
            other = user.metadata.name
            return f"the claim {claim[1]} of pod {pod.metadata.name} is ReadWriteOncePod, and pod {other} has it"
    return None


def _unknown_classes(workloads: Sequence[PlannedWorkload], facts: ClusterFacts) -> Iterator[str]:
    classes = facts.classes()
    for workload in workloads:
        name = workload.priority_class
        if any(root_priority(unit.root, unit.pods, classes) is None for unit in workload.units):
            yield f"{workload.title}: unknown priority class {name}, taken as 0; give it with -f"


def _unmodelled_remarks(workloads: Sequence[PlannedWorkload], volumes: Volumes) -> Iterator[str]:
    for workload in workloads:
        names = {
            name
            for pod in workload.pods.values()
            for name in unmodelled_constraints(pod, volumes_settled=volumes.are_claims_bound(pod))
        }
        if names:
            yield f"{workload.title}: its pods use {', '.join(sorted(names))}, which is not modelled"


def _waiting_remarks(workloads: Sequence[PlannedWorkload], world: World) -> Iterator[str]:
    """Say that units which wait in the cluster get nodes, too, each in its place in the queue."""
    planned = {unit.key for workload in workloads for unit in workload.units}
    others = [f"{root.namespace}/{root.name}" for root in world.placed if root not in planned]
    if others:
        more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
        yield f"{', '.join(others[:_NAMED])}{more} of the cluster wait, too, and get nodes in their place in the queue"


def _untried_remarks(workloads: Sequence[PlannedWorkload]) -> Iterator[str]:
    for workload in workloads:
        for name in dict.fromkeys(name for unit in workload.units for name in unit.untried):
            what = "is part of what comes whole: the level that it prefers is not tried"
            yield f"{workload.title}: group {name} {what}; prefer it on the group above"


def _with_changes(report: WorkloadReport, answers: Sequence[ChangeAnswer]) -> WorkloadReport:
    """The report on a workload, which is no better than the changes of its units."""
    worst = next((answer for answer in answers if answer.report.verdict != Verdict.ADMITTED), None)
    if worst is None or report.verdict != Verdict.ADMITTED:
        return report
    reasons = (reason for answer in answers for reason in reason_reports(answer.report.unit, answer.reasons))
    return structs.replace(report, verdict=worst.report.verdict, reasons=(*report.reasons, *reasons))


def _report_workload(
    workload: PlannedWorkload, teller: Teller, decisions: Sequence[GangDecision], seconds: float
) -> WorkloadReport:
    verdicts = {decision.verdict for decision in decisions}
    verdict = next(
        (verdict for verdict in (Verdict.INFEASIBLE, Verdict.UNKNOWN) if verdict in verdicts),
        Verdict.ADMITTED,
    )
    return WorkloadReport(
        workload.namespace,
        workload.name,
        workload.resource[1],
        workload.made_for,
        verdict.value,
        round(seconds * 1000, 3),
        tuple(teller.unit(decision) for decision in decisions),
        tuple(report for decision in decisions for report in reason_reports(decision.gang.unit, decision.reasons)),
    )
