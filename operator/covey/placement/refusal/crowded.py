"""Reasons for a refusal that was proven by sums, not by tables: roles that ask for too much together, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from covey.placement.cluster import resources
from covey.placement.cluster.domains import DomainNode
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Reason, Refusal, Shape, Verdict, where
from covey.placement.question.demands import Demand, minimum_of
from covey.placement.refusal.reasons import join_names
from covey.placement.refusal.shortage import exclusions


def asked_for(demands: Sequence[Demand]) -> Mapping[str, int]:
    """All that the missing pods of these demands ask for."""
    total: Counter[str] = Counter()
    counts: Counter[int] = Counter()
    shapes: dict[int, Shape] = {}
    for demand in demands:
        for pod in demand.missing:
            counts[id(pod.shape)] += 1
            shapes[id(pod.shape)] = pod.shape
    for number, count in counts.items():
        for name, value in shapes[number].requests:
            total[name] += count * value
    return total


def overdrawn(scope: DomainNode, asked: Mapping[str, int]) -> str | None:
    """The resource of which a domain lacks most for what is asked, as a share of it; None when none is short."""
    short = {name: value - scope.free.get(name, 0) for name, value in asked.items() if value > scope.free.get(name, 0)}
    return min(short, key=lambda name: (-short[name] / asked[name], resources.rank(name)), default=None)


def refuse_crowded(
    gang: Gang,
    inventory: Inventory,
    scope: DomainNode,
    demands: Sequence[Demand],
    room: Callable[[int], int],
) -> Refusal:
    """The refusal of demands that do not fit together into any candidate.

    Args:
        gang: who asks.
        inventory: for the nodes that are out.
        scope: the best candidate.
        demands: what does not fit.
        room: an upper bound on the replicas of a role that fit there next to the others.
    """
    roles = sorted({demand.role for demand in demands})
    names = join_names([gang.roles[role].name for role in roles])
    place = f"{gang.required} {where(scope.path)}" if scope.path else "the cluster"
    asked = asked_for(demands)
    resource = overdrawn(scope, asked)
    last, most = min(((role, room(role)) for role in roles), key=lambda pair: (pair[1], -pair[0]))
    request = gang.roles[last]
    open_ones = [demand for demand in demands if demand.role == last]
    numbers = minimum_of(request)
    done = len(numbers) - sum(demand.replica.replica in numbers for demand in open_ones)
    if resource is not None:
        have = max(scope.free.get(resource, 0), 0)
        message = (
            f"{names} ask{'s' * (len(roles) == 1)} for {resources.text(resource, asked[resource])} {resource} in all, and "
            f"{place}{', the best,' if scope.path else ''} has {resources.text(resource, have)} free"
        )
    else:
        others = join_names([gang.roles[role].name for role in roles if role != last])
        message = (
            f"{names} do not fit together in {place}: beside {others} there is room for at most "
            f"{done + most} of {done + len(open_ones)} replicas of {request.name}"
        )
    shapes = [pod.shape for demand in open_ones for pod in demand.missing]
    levels = [level for level in ((gang.required if request.follow_unit else None), request.required) if level]
    reason = Reason(
        role=request.name,
        scope="unit",
        level=gang.required if scope.path else None,
        best_domain=scope.path,
        required=request.minimum,
        satisfied=min(done + most, max(request.minimum - 1, 0)),
        resource=resource,
        requested=None if resource is None else resources.text(resource, asked[resource]),
        short=None
        if resource is None
        else resources.text(resource, asked[resource] - max(scope.free.get(resource, 0), 0)),
        excluded=exclusions(gang, inventory, shapes, levels),
        message=message,
    )
    return Refusal(Verdict.INFEASIBLE, (reason,))


__all__ = ["asked_for", "overdrawn", "refuse_crowded"]
