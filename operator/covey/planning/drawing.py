"""A plan as a floor: its pods in colour, everybody else's in grey.

Capacity of every node and what is taken of it, counted as the planner counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from covey.api import core
from covey.model import podstate
from covey.picture.floor import DomainMark, Floor, NodeUsage, Spot, build_floor
from covey.placement.cluster import resources
from covey.placement.cluster.node_filters import state_cause
from covey.placement.model import Path
from covey.planning.report import PlanReport
from covey.planning.run import Planned


def survey(
    nodes: Iterable[core.Node],
    pods: Iterable[core.Pod],
    path_of: Callable[[str], Path],
    leave_out: Collection[str] = (),
) -> list[NodeUsage]:
    """The nodes with their capacity and what pods hold of it.

    Args:
        nodes: all nodes.
        pods: all pods; those without a place hold nothing.
        path_of: a node's domain path.
        leave_out: UIDs of pods that are drawn apart.
    """
    used: dict[str, dict[str, int]] = {}
    for pod in pods:
        node = podstate.holding(pod)
        if node is None or pod.metadata.uid in leave_out:
            continue
        amounts = used.setdefault(node, {})
        for name, amount in resources.pod_requests(pod).items():
            amounts[name] = amounts.get(name, 0) + amount
    return [
        NodeUsage(
            node.metadata.name,
            path_of(node.metadata.name),
            resources.amounts(node.status.allocatable),
            used.get(node.metadata.name, {}),
            state_cause(node),
            node.metadata.labels or {},
        )
        for node in nodes
    ]


def floor_of(planned: Planned) -> Floor:
    """The picture of a plan; where nothing is placed it shows the domains that came nearest."""
    report = planned.report
    ours = {pod.metadata.uid: pod for workload in planned.workloads for pod in workload.pods.values()}
    by_name = {(pod.metadata.namespace, pod.metadata.name): pod for pod in ours.values()}
    spots = [
        Spot(
            f"{workload.namespace}/{workload.name}",
            unit.index,
            role.name,
            instance.replica,
            pod.index,
            pod.name,
            pod.node,
            resources.pod_requests(by_name[workload.namespace, pod.name]),
        )
        for workload in report.workloads
        for unit in workload.units
        for role in unit.roles
        for instance in role.instances
        for pod in instance.pods
    ]
    drawn = {by_name[spot.workload.partition("/")[0], spot.pod].metadata.uid for spot in spots}
    roles = [
        (f"{workload.namespace}/{workload.name}", role.name)
        for workload in report.workloads
        for unit in workload.units[:1]
        for role in unit.roles
    ]
    return build_floor(
        planned.topology,
        survey(planned.facts.nodes, planned.facts.pods, planned.path_of, drawn),
        spots,
        title=", ".join(f"{workload.namespace}/{workload.name}" for workload in report.workloads),
        wanted=[resources.pod_requests(pod) for pod in ours.values()],
        roles=roles,
        marks=marks_of(report),
    )


def marks_of(report: PlanReport) -> dict[Path, DomainMark]:
    """The finest domain that holds each unit, and the best one of each refusal."""
    marks = {}
    for workload in report.workloads:
        for unit in workload.units:
            for finest in [domain for domain in unit.placement if domain.level != "host"][-1:]:
                marks[finest.path] = DomainMark.CHOSEN
    for workload in report.workloads:
        marks |= {reason.best_domain: DomainMark.NEAREST for reason in workload.reasons}
    return marks
