"""Head-room against the solver: so many fit, and one more does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import event, given

from covey.admission.growth import Site
from covey.admission.headroom import most_feasible
from covey.api import core
from covey.placement.model import Plan, ReplicaRequest, RoleRequest
from covey.placement.planner import plan_minimum, plan_surplus
from oracle import cpsat, instances
from oracle.case import Case

pytestmark = pytest.mark.slow  # hundreds of cases are solved


def at_rest(case: Case) -> Case | None:
    """The case when all has places that finds some; None where not even the minimum does."""
    answer = plan_minimum(case.gang, case.inventory())
    if not isinstance(answer, Plan):
        return None
    middle = case.after(answer.assignments)
    return middle.after(plan_surplus(middle.gang, middle.inventory()).assignments)


def plain(role: RoleRequest) -> bool:
    """Its replicas have all their places or none, and come alone."""
    partly = any(len({pod.node is None for pod in each.pods}) > 1 for each in role.replicas)
    return bool(role.replicas) and not partly and all(each.together is None for each in role.replicas)


def with_more(case: Case, name: str, more: int) -> Case:
    """The case when a role must have so many further replicas, and nothing else is asked for."""
    pods: dict[str, core.Pod] = dict(case.pods)

    def copy(template: ReplicaRequest, number: int) -> ReplicaRequest:
        renamed = []
        for pod in template.pods:
            key = f"further-{number}-{pod.index}"
            renamed.append(replace(pod, key=key, node=None))
            if pod.key in case.pods:
                pods[key] = case.pods[pod.key]
        return ReplicaRequest(1000 + number, tuple(renamed))

    roles = []
    for role in case.gang.roles:
        placed = tuple(each for each in role.replicas if each.placed)
        if role.name == name:
            further = tuple(copy(role.replicas[-1], number) for number in range(more))
            count = len(placed) + more
            roles.append(replace(role, replicas=(*placed, *further), minimum=count, desired=count))
        else:
            roles.append(replace(role, replicas=placed, desired=max(role.minimum, len(placed))))
    return replace(case, gang=replace(case.gang, roles=tuple(roles)), pods=pods)


def free(case: Case) -> Mapping[str, Mapping[str, int]]:
    inventory = case.inventory()
    return {name: dict(inventory.free(name)) for name in inventory.nodes}


@given(instances.cases(instances.SMALL))
def test_so_many_fit_and_no_more(case: Case) -> None:
    settled = at_rest(case)
    if settled is None:
        event("no minimum")
        return
    for role in settled.gang.roles:
        if not all(map(plain, settled.gang.roles)):
            event("not plain")
            continue
        inventory = settled.inventory()
        found = most_feasible(role.name, [Site(settled.gang)], inventory, is_shared=True)
        assert {name: dict(inventory.free(name)) for name in inventory.nodes} == free(settled)
        placed = sum(each.placed for each in role.replicas)
        if found.replicas is None or found.is_floor:
            event("unknown")
            continue
        more = found.replicas - placed
        event(f"{min(more, 3)} more")
        assert cpsat.solve(with_more(settled, role.name, more), surplus=False).feasible is not False
        assert cpsat.solve(with_more(settled, role.name, more + 1), surplus=False).feasible is not True


def test_a_sum_of_seeds_has_answers_of_all_kinds() -> None:
    """The property above is about something: there are roles with room, without, and many of them."""
    counts: Counter[int] = Counter()
    for seed in range(40):
        settled = at_rest(instances.seeded(seed, instances.SMALL))
        for role in settled.gang.roles if settled is not None else ():
            site = Site(settled.gang) if settled is not None else None
            assert site is not None
            found = most_feasible(role.name, [site], settled.inventory() if settled else None, is_shared=True)  # type: ignore[arg-type]
            if found.replicas is not None:
                counts[min(2, found.replicas - sum(each.placed for each in role.replicas))] += 1
    assert min(counts[0], counts[1], counts[2]) >= 3, counts
