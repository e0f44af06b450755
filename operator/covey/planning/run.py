"""Plans workloads on facts, by the scheduler's own code: its trees, its gangs, its planner, its order.

A pass is one of admission, as ``admission.round`` makes it. What is added here: between two units of one resource that
asks for spread the places of the first are counted, groups that do not exist yet are named, and each workload's planning
time is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs

from covey.admission import gangs
from covey.admission.gangs import Surroundings, UnplannableError
from covey.admission.nodes import key_of
from covey.admission.priority import priority_of
from covey.admission.reservation import Kept, claims_room
from covey.admission.round import Outcome, Quota, plan_round
from covey.admission.succession import explain_surplus
from covey.admission.taken_room import counted_shape, hold_all
from covey.admission.tree import Unit
from covey.admission.unit_spread import with_occupied_domains
from covey.admission.victims import Candidate
from covey.admission.volumes import Claim, Volumes, claims_of
from covey.api import core
from covey.kube.resources import DISAGGREGATED_INFERENCES
from covey.manifests.errors import InputError
from covey.model import podstate
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import unmodelled_constraints
from covey.placement.model import Gang, Path, Plan, Refusal, Shape, Topology, Verdict
from covey.planning.answer import GangDecision, Teller, reason_reports, topology_report
from covey.planning.changes import ChangeAnswer, plan_changes
from covey.planning.facts import ClusterFacts, DeviceFacts, with_devices
from covey.planning.inferences import choose_topologies, default_topology
from covey.planning.report import PlanReport, WorkloadReport
from covey.planning.resource_quotas import QuotaVerdicts, judge_quotas, refuse
from covey.planning.tenants import Tenants, uncounted_remarks
from covey.planning.trees import PlannedWorkload


@dataclass(frozen=True, slots=True)
class Contender:
    """One gang, and the number of the workload that it is a unit of."""

    workload: int
    unit: Unit
    gang: Gang


class Pass:
    """A pass over an inventory that nobody else changes; what is placed is held there at once.

    Args:
        inventory: what is free.
        reserved: nodes kept for gangs that wait, see `plan_round`.
        clock: seconds.
        quota: of the contenders; None where nobody has any.
        created: what ResourceQuotas keep from being created.
    """

    def __init__(
        self,
        inventory: Inventory,
        reserved: Sequence[Kept],
        clock: Callable[[], float],
        quota: Quota | None = None,
        created: QuotaVerdicts | None = None,
    ) -> None:
        self._inventory = inventory
        self._created = created or QuotaVerdicts()
        self._quota = quota
        self._reserved = reserved
        self._clock = clock
        #: Planning time by workload.
        self.seconds: dict[int, float] = {}

    def run(self, contenders: Sequence[Contender]) -> list[GangDecision]:
        """Decide about all of them; answers in the order of the arguments."""

        def look(number: int, placed: Sequence[Gang]) -> Gang | Refusal:
            unit = contenders[number].unit
            if (refusal := self._created.refusal(unit)) is not None:
                return refusal
            if unit.absent:
                return refuse(gangs.missing(unit, placed[number]) or "groups do not exist yet")
            return self._with_neighbour_domains(contenders, placed, number)

        def plan_timed(number: int, ask: Callable[[], Plan | Refusal]) -> Plan | Refusal:
            started = self._clock()
            answer = ask()
            workload = contenders[number].workload
            self.seconds[workload] = self.seconds.get(workload, 0.0) + self._clock() - started
            return answer

        outcomes = plan_round(
            [contender.gang for contender in contenders],
            self._inventory,
            reserved=self._reserved,
            look=look,
            around=plan_timed,
            quota=self._quota,
        )
        return [_decision(outcome) for outcome in sorted(outcomes, key=lambda outcome: outcome.number)]

    def _with_neighbour_domains(self, contenders: Sequence[Contender], placed: Sequence[Gang], place: int) -> Gang:
        """Return the gang with the domains in which the other units of its workload lie by now."""
        mine, gang = contenders[place], placed[place]
        others = [
            number
            for number, contender in enumerate(contenders)
            if contender.workload == mine.workload and number != place
        ]
        pods = (pod for n in others for role in placed[n].roles for replica in role.replicas for pod in replica.pods)
        return with_occupied_domains(
            gang,
            self._inventory.topologies[gang.topology],
            (contenders[number].unit for number in others),
            {pod.key: pod.node for pod in pods if pod.node is not None},
            partial(self._inventory.path, gang.topology),
        )


def _decision(outcome: Outcome) -> GangDecision:
    """Return the decision about a gang, which has all its places by now."""
    gang, answer = outcome.gang, outcome.plan
    if isinstance(answer, Refusal):
        return GangDecision(gang, answer.verdict, reasons=answer.reasons)
    minimum = frozenset((replica.role, replica.replica) for replica in answer.replicas if replica.minimum)
    short = outcome.short.reasons[0].message if outcome.short is not None else ""
    return GangDecision(gang, Verdict.ADMITTED, minimum, answer.preferred, short=short)


def _why_surplus_waits(decision: GangDecision, short: str, inventory: Inventory) -> str:
    """Say why a unit that is admitted has surplus without nodes; ``short``: what it lacks of a quota."""
    if short:
        return f"surplus has no quota: {short}"
    refusal = explain_surplus(decision.gang, inventory) if decision.verdict is Verdict.ADMITTED else None
    return (
        f"surplus has no nodes: {'; '.join(reason.message for reason in refusal.reasons)}"
        if refusal is not None
        else ""
    )


@dataclass(frozen=True, slots=True)
class Planned:
    """The report, and what pictures are drawn from."""

    report: PlanReport
    workloads: tuple[PlannedWorkload, ...]
    facts: ClusterFacts
    topology: Topology
    inventory: Inventory
    #: Of each workload its units' gangs, with the places that they got; and what is kept for gangs that wait.
    gangs: tuple[tuple[Gang, ...], ...] = ()
    kept: tuple[Kept, ...] = ()
    #: Quota, as it is charged afterwards; None where nothing is counted.
    tenants: Tenants | None = None

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
    facts = _with_claims(facts, workloads)
    devices = facts.devices or DeviceFacts(facts.nodes, ())
    topologies = choose_topologies(workloads, facts)
    shown = topologies[0] if topologies else default_topology(facts)
    volumes = volumes_of(facts)

    def shape(pod: core.Pod) -> Shape:
        return counted_shape(devices.count(pod), volumes)

    classes = facts.classes()
    users = _users_of_lone_claims(facts, workloads)

    def obstacle(pod: core.Pod) -> str | None:
        return devices.obstacle(pod) or _claim_taken(pod, users)

    def surroundings(workload: PlannedWorkload) -> Surroundings:
        return Surroundings(_priority(workload, classes) or 0, obstacle=obstacle, refused=facts.refused)

    contenders = [
        Contender(
            number,
            unit,
            _gang(workload, unit, topology, shape, surroundings(workload)),
        )
        for number, (workload, topology) in enumerate(zip(workloads, topologies, strict=True))
        for unit in workload.units
    ]
    reserved = tuple(_reserved_nodes(facts, classes, contenders))
    every = [*topologies, shown]
    inventory = Inventory({topology.name: topology for topology in every}.values())
    for node in facts.nodes:
        inventory.set_node(node)
    hold_all(inventory, [*facts.pods, *(pod for workload in workloads for pod in workload.pods.values())], shape)
    tenants = Tenants.of(
        facts, workloads, [Candidate(contender.unit, contender.gang.priority) for contender in contenders], shape
    )
    resources = [
        (workload.namespace, workload.units)
        for workload in workloads
        if workload.resource[1] == DISAGGREGATED_INFERENCES.kind
    ]
    created = judge_quotas(resources, facts.resource_quotas, {pod.metadata.uid for pod in facts.pods})
    pass_ = Pass(inventory, reserved, clock, tenants, created)
    decisions = pass_.run(contenders)
    refuse_beside = tenants.refuse_beside if tenants is not None else lambda _gang, _shapes: None
    warnings = [*facts.warnings, *_unknown_classes(workloads, classes), *uncounted_remarks(workloads, facts)]
    reports, placed, changes = [], [], []
    for number, (workload, topology) in enumerate(zip(workloads, topologies, strict=True)):
        mine = [decisions[place] for place, contender in enumerate(contenders) if contender.workload == number]
        teller = Teller(topology, partial(inventory.path, topology.name), workload.pods)
        placed.append(tuple(decision.gang for decision in mine))
        unfit = {unit.index: created.surplus.get(unit.key, "") for unit in workload.units}
        warnings += [
            f"{workload.title} unit {decision.gang.unit}: {why}"
            for decision in mine
            if (why := _why_surplus_waits(decision, decision.short or unfit[decision.gang.unit], inventory))
        ]
        workload_report = _report_workload(workload, teller, mine, pass_.seconds.get(number, 0.0))
        if workload.change is not None:
            # Whoever goes for a successor may have its claim.
            quotas = [quota for quota in facts.resource_quotas if quota.metadata.namespace == workload.namespace]
            around = replace(surroundings(workload), obstacle=devices.obstacle)
            build = partial(_gang, workload, topology=topology, shape=shape, around=around)
            answers = [*plan_changes(workload.change, placed[number], build, inventory, refuse_beside, quotas)]
            changes += [answer.report for answer in answers]
            workload_report = _with_changes(workload_report, answers)
        reports.append(workload_report)
    warnings += inventory.warnings(shown.name)
    shown_warnings = dict.fromkeys([*warnings, *_unmodelled_remarks(workloads, volumes), *_untried_remarks(workloads)])
    report = PlanReport(tuple(shown_warnings), topology_report(shown), tuple(reports), changes=tuple(changes))
    return Planned(report, tuple(workloads), facts, shown, inventory, tuple(placed), reserved, tenants)


def _with_claims(facts: ClusterFacts, workloads: Sequence[PlannedWorkload]) -> ClusterFacts:
    """The facts with devices counted as the claims of all pods ask for them."""
    pods = [pod for workload in workloads for pod in workload.pods.values() if pod.spec.resource_claims]
    if facts.devices is None or not (pods or any(pod.spec.resource_claims for pod in facts.pods)):
        return facts
    return with_devices(replace(facts, nodes=facts.devices.nodes), facts.devices.things, pods)


def volumes_of(facts: ClusterFacts) -> Volumes:
    """The volumes of the cluster, and what is bound to them."""
    volumes = Volumes()
    for claim in facts.claims:
        volumes.set_claim(claim.metadata.key, claim.spec.volume_name)
    for volume in facts.volumes:
        affinity = volume.spec.node_affinity
        volumes.set_volume(volume.metadata.name, affinity.required if affinity else None)
    return volumes


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


def _gang(
    workload: PlannedWorkload, unit: Unit, topology: Topology, shape: Callable[[core.Pod], Shape], around: Surroundings
) -> Gang:
    try:
        return replace(gangs.build_gang(unit, topology, shape, around), created=workload.created)
    except UnplannableError as error:
        raise InputError(workload.place, error.message, "correct the manifest") from None


def _priority(workload: PlannedWorkload, classes: Mapping[str, core.PriorityClass]) -> int | None:
    """Find the priority of a workload as the scheduler process does (``root_priority``); None where nobody knows it."""
    priority = priority_of(workload.priority, workload.priority_class, classes)
    is_default = not workload.priority_class and not any(known.global_default for known in classes.values())
    if priority is not None and not (is_default and workload.resource[1] == DISAGGREGATED_INFERENCES.kind):
        return priority
    stated = (pod.spec.priority for pod in workload.pods.values())
    return min((value for value in stated if value is not None), default=priority)


def _unknown_classes(workloads: Sequence[PlannedWorkload], classes: Mapping[str, core.PriorityClass]) -> Iterator[str]:
    for workload in workloads:
        name = workload.priority_class
        if _priority(workload, classes) is None:
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


def _untried_remarks(workloads: Sequence[PlannedWorkload]) -> Iterator[str]:
    for workload in workloads:
        for name in dict.fromkeys(name for unit in workload.units for name in unit.untried):
            what = "is part of what comes whole: the level that it prefers is not tried"
            yield f"{workload.title}: group {name} {what}; prefer it on the group above"


def _reserved_nodes(
    facts: ClusterFacts, classes: Mapping[str, core.PriorityClass], contenders: Sequence[Contender]
) -> Iterator[Kept]:
    """Nodes that are kept for gangs of the cluster; none when no cluster was read.

    A unit that is planned here too is known by the gang that is planned.
    """
    planned = {contender.unit.key: contender.gang for contender in contenders}
    for group in facts.groups:
        claim = group.status.claim
        if claim is None or not claim.nodes or not claims_room(group):
            continue
        meta = group.metadata
        priority = priority_of(group.spec.priority, group.spec.priority_class_name, classes) or 0
        owner = Gang(meta.namespace, meta.name, 0, (), priority=priority, created=meta.creation_timestamp, uid=meta.uid)
        yield Kept(planned.get(key_of(group), owner), frozenset(claim.nodes), claim.resource)


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
