"""Plans workloads on facts, by the scheduler's own code: its trees, its gangs, its planner, its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from covey.admission import gangs, podstate
from covey.admission.gangs import Surroundings, UnplannableError
from covey.admission.resized import counted_spec
from covey.admission.tree import Unit, key_of
from covey.admission.volumes import Volumes
from covey.api import core
from covey.api.constants import ADMITTED
from covey.cli.errors import InputError
from covey.cli.planning.answer import Decision, Teller, reason_reports, topology_report
from covey.cli.planning.facts import Facts
from covey.cli.planning.passes import Contender, Pass
from covey.cli.planning.report import Report, WorkloadReport
from covey.cli.planning.topologies import choose_topologies, default_topology
from covey.cli.planning.workload import Workload
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of, unmodelled
from covey.placement.model import Gang, Path, Shape, Topology, Verdict

#: Priorities that every cluster has.
_SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(frozen=True, slots=True)
class Planned:
    """The report, and what pictures are drawn from."""

    report: Report
    workloads: tuple[Workload, ...]
    facts: Facts
    topology: Topology
    inventory: Inventory

    def path_of(self, node: str) -> Path:
        """A node's domain path in the report's topology."""
        return self.inventory.path(self.topology.name, node)

    @property
    def notes(self) -> list[str]:
        """Why something has no place, a sentence for each."""
        return list(
            dict.fromkeys(
                f"{workload.namespace}/{workload.name}: {reason.message}"
                for workload in self.report.workloads
                for reason in workload.reasons
            )
        )


def plan_all(workloads: Sequence[Workload], facts: Facts, clock: Callable[[], float]) -> Planned:
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
    inventory = Inventory({topology.name: topology for topology in [*topologies, shown]}.values())
    for node in facts.nodes:
        inventory.set_node(node)
    volumes = _volumes(facts)

    def shape(pod: core.Pod) -> Shape:
        return _shape(pod, volumes)

    _hold(inventory, [*facts.pods, *(pod for workload in workloads for pod in workload.pods.values())], shape)
    classes = {each.metadata.name: each for each in facts.priority_classes}
    contenders = [
        Contender(number, unit, _gang(workload, unit, topology, shape, _priority(workload, classes)))
        for number, (workload, topology) in enumerate(zip(workloads, topologies, strict=True))
        for unit in workload.units
    ]
    pass_ = Pass(inventory, _reserved(facts, classes, contenders), clock)
    decisions = pass_.run(contenders)
    reports = []
    for number, (workload, topology) in enumerate(zip(workloads, topologies, strict=True)):
        mine = [decisions[place] for place, each in enumerate(contenders) if each.workload == number]
        teller = Teller(topology, partial(inventory.path, topology.name), workload.pods)
        reports.append(_told(workload, teller, mine, pass_.seconds.get(number, 0.0)))
    warnings = [*facts.warnings, *_unknown_classes(workloads, classes), *inventory.warnings(shown.name)]
    every = dict.fromkeys([*warnings, *_unmodelled(workloads, volumes)])
    report = Report(tuple(every), topology_report(shown), tuple(reports))
    return Planned(report, tuple(workloads), facts, shown, inventory)


def _volumes(facts: Facts) -> Volumes:
    """The volumes of the cluster, and what is bound to them."""
    volumes = Volumes()
    for claim in facts.claims:
        volumes.set_claim(claim.metadata.key, claim.spec.volume_name)
    for volume in facts.volumes:
        affinity = volume.spec.node_affinity
        volumes.set_volume(volume.metadata.name, affinity.required if affinity else None)
    return volumes


def _shape(pod: core.Pod, volumes: Volumes) -> Shape:
    """A pod's shape with all that counts: resizes under way, and where its volumes are."""
    spec = volumes.confined(pod, counted_spec(pod))
    return shape_of(pod if spec is pod.spec else msgspec.structs.replace(pod, spec=spec))


def _hold(inventory: Inventory, pods: Sequence[core.Pod], shape: Callable[[core.Pod], Shape]) -> None:
    """Count what bound and pinned pods hold; a pod that is in two inputs holds once."""
    for pod in pods:
        node = podstate.holding(pod)
        if node is not None:
            inventory.hold(pod.metadata.uid, node, shape(pod), pod.metadata)


def _gang(
    workload: Workload, unit: Unit, topology: Topology, shape: Callable[[core.Pod], Shape], priority: int
) -> Gang:
    try:
        return gangs.build_gang(unit, topology, shape, Surroundings(priority, workload.created))
    except UnplannableError as error:
        raise InputError(workload.place, error.message, "correct the manifest") from None


def _priority(workload: Workload, classes: Mapping[str, core.PriorityClass]) -> int:
    """As written, else the class's, else the global default, else 0."""
    if workload.priority is not None:
        return workload.priority
    name = workload.priority_class
    if not name:
        return next((each.value for each in classes.values() if each.global_default), 0)
    return classes[name].value if name in classes else _SYSTEM_CLASSES.get(name, 0)


def _unknown_classes(workloads: Sequence[Workload], classes: Mapping[str, core.PriorityClass]) -> Iterator[str]:
    for workload in workloads:
        name = workload.priority_class
        if name and workload.priority is None and name not in classes and name not in _SYSTEM_CLASSES:
            yield f"{workload.title}: unknown priority class {name}, taken as 0; give it with -f"


def _unmodelled(workloads: Sequence[Workload], volumes: Volumes) -> Iterator[str]:
    for workload in workloads:
        names = {
            name for pod in workload.pods.values() for name in unmodelled(pod, volumes_settled=volumes.settled(pod))
        }
        if names:
            yield f"{workload.title}: its pods use {', '.join(sorted(names))}, which is not modelled"


def _reserved(
    facts: Facts, classes: Mapping[str, core.PriorityClass], contenders: Sequence[Contender]
) -> list[tuple[Path, Gang]]:
    """Domains that waiting gangs of the cluster keep; none when no cluster was read.

    A unit that is planned here too is known by the gang that is planned.
    """
    planned = {each.unit.key: each.gang for each in contenders}
    found: list[tuple[Path, Gang]] = []
    for group in facts.groups:
        admitted = core.condition(group.status.conditions, ADMITTED)
        if group.status.reservation is None or (admitted is not None and admitted.status == "True"):
            continue
        meta, cls = group.metadata, classes.get(group.spec.priority_class_name or "")
        priority = group.spec.priority if group.spec.priority is not None else cls.value if cls else 0
        owner = Gang(meta.namespace, meta.name, 0, (), priority=priority, created=meta.creation_timestamp, uid=meta.uid)
        found.append((group.status.reservation.path, planned.get(key_of(group), owner)))
    return found


def _told(workload: Workload, teller: Teller, decisions: Sequence[Decision], seconds: float) -> WorkloadReport:
    verdicts = {decision.verdict for decision in decisions}
    verdict = next(
        (each for each in (Verdict.INFEASIBLE, Verdict.UNKNOWN) if each in verdicts),
        Verdict.ADMITTED,
    )
    return WorkloadReport(
        workload.namespace,
        workload.name,
        verdict.value,
        round(seconds * 1000, 3),
        tuple(teller.unit(decision) for decision in decisions),
        tuple(report for decision in decisions for report in reason_reports(decision.gang.unit, decision.reasons)),
    )
