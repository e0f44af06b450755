"""The random cases cover what they should."""

from __future__ import annotations

from collections import Counter

import pytest

from oracle import facts, instances

pytestmark = pytest.mark.slow  # hundreds of cases are drawn and solved


def test_the_cases_are_varied() -> None:
    seen: Counter[str] = Counter()
    for seed in range(200):
        case = instances.seeded(seed, instances.SMALL)
        gang, pods = case.gang, facts.pods_of(case.gang.roles)
        replicas = [replica for role in gang.roles for replica in role.replicas]
        seen[f"{len(facts.kinds_of(case))} shapes"] += 1
        seen[f"{len(case.topology.levels)} levels"] += 1
        seen["bound"] += any(pod.node for pod in pods)
        seen["partly bound"] += any(any(pod.node for pod in one.pods) and not one.placed for one in replicas)
        seen["preferred"] += bool(gang.preferred or any(role.preferred for role in gang.roles))
        seen["minimum 0"] += any(role.minimum == 0 for role in gang.roles)
        seen["surplus"] += any(role.minimum < role.desired for role in gang.roles)
        seen["proximity"] += bool(gang.proximity)
        seen["spread"] += gang.spread is not None
        seen["together"] += any(replica.together for replica in replicas)
        seen["ports"] += any(pod.shape.host_ports for pod in pods)
        seen["exclusive"] += any(pod.shape.anti_affinity for pod in pods)
        bodies = [case.body(pod).pod for pod in pods]
        held = [hold.pod for hold in case.holds if hold.pod and hold.key not in case.pods]
        seen["keeps off strangers"] += any(facts.repels(one, other) for one in bodies for other in held)
        seen["kept off by strangers"] += any(facts.repels(other, one) for one in bodies for other in held)
        seen["kept off a kind of nodes"] += any(
            facts.kept_away(case, node, case.body(pod)) for pod in pods[:3] for node in case.node
        )
        seen["keeps off mates without terms"] += any(
            facts.repels(one, other) and not facts.terms(other) for one in bodies for other in bodies
        )
        seen["own domain and spread"] += gang.spread is not None and not all(role.follow_unit for role in gang.roles)
        seen["leader"] += any(one.pods[0].shape != one.pods[-1].shape for one in replicas)
        seen["own domain"] += any(not role.follow_unit for role in gang.roles)
        seen["excluded"] += bool(gang.excluded_nodes)
    assert {f"{count} shapes" for count in (1, 2, 3, 4)} | {f"{count} levels" for count in (1, 2, 3, 4)} <= set(seen)
    few = {f"{count} shapes" for count in range(5, 20)}  # labels make more kinds of one template
    assert {name for name, count in seen.items() if count < 3} <= few, seen
