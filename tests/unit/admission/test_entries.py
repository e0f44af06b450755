from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from builders.members import GATE, cache, group, member, node, role_groups, root_key, unit
from covey.admission import queue
from covey.admission.gangs import Surroundings, UnplannableError
from covey.admission.levels import count_units_by_domain
from covey.admission.queue import SETTLE, Entry, Want, assess
from covey.admission.status import Decision
from covey.admission.tree import Unit
from covey.api import core
from covey.kube.clock import SYSTEM, Clock
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Level, Reason, Refusal, Topology, Verdict
from covey.scheduler.reservations import Reservations

TOPOLOGY = Topology("t", (Level("block", ("block",)), Level("rack", ("rack",))))


def tree(*pods: core.Pod, name: str = "root", replicas: int = 2, **fields: Any) -> Unit:
    root = group(name, composite=True, minimum=1, desired=1, **fields)
    return unit(root, role_groups("decode", replicas=replicas, minimum=1, size=1, root=name), pods)


def entry(found: Unit, before: Entry | None = None, now: float = 0.0, **around: object) -> Entry:
    surroundings = Surroundings(**around)  # type: ignore[arg-type]
    return assess(found, TOPOLOGY, surroundings, shape_of, before, Decision(), now)


def gated(replica: int, root: str = "root") -> core.Pod:
    return member("decode", replica, gates=(GATE,), root=root)


def test_a_minimum_waits_a_moment_for_the_rest() -> None:
    found = tree(gated(0))
    first = entry(found)
    assert first.want is Want.SETTLED
    assert first.settling(SETTLE / 2)
    later = entry(found, first, SETTLE)
    assert later.want is Want.MINIMUM
    assert not later.settling(SETTLE)
    assert entry(tree(gated(0), gated(1))).want is Want.MINIMUM


def test_a_replacement_waits_for_nobody() -> None:
    root = group("root", composite=True, minimum=2, desired=2)
    groups = [*role_groups("a", replicas=2, minimum=1, size=1), *role_groups("b", replicas=1, minimum=1, size=1)]
    found = unit(root, groups, [member("a", 0, gates=(GATE,)), member("b", 0, node="n1")])
    assert entry(found).want is Want.MINIMUM


def test_what_is_missing_is_the_reason() -> None:
    lacking = entry(tree())
    assert lacking.want is Want.PODS
    assert lacking.decision.reason == "Waiting"
    refused = assess(
        tree(gated(0)), UnplannableError("InvalidTopology", "which?"), Surroundings(), shape_of, None, Decision(), 0.0
    )
    assert (refused.want, refused.decision.reason, refused.decision.message) == (Want.PODS, "InvalidTopology", "which?")


def test_surplus_only_beside_a_bound_minimum() -> None:
    assert entry(tree(member("decode", 0, pin="n1"), gated(1))).want is Want.NOTHING
    assert entry(tree(member("decode", 0, node="n1"), gated(1))).want is Want.SURPLUS
    assert entry(tree(member("decode", 0, node="n1"))).want is Want.NOTHING


def refusal(path: tuple[str | None, ...] = ("b1",), verdict: Verdict = Verdict.INFEASIBLE) -> Refusal:
    reason = Reason("decode", "unit", "block", path, 1, 0, "gpu", "8", "4", (), "no room")
    return Refusal(verdict, (reason,))


def test_refusals_become_reasons() -> None:
    found = entry(tree(gated(0), gated(1)))
    refused = queue.refusal(found, refusal())
    assert refused.refused
    assert (refused.decision.reason, refused.decision.message) == ("Infeasible", "no room")
    assert not refused.settling(0.0)
    assert queue.refusal(found, refusal(verdict=Verdict.UNKNOWN)).decision.reason == "SearchLimit"


def test_exclusions_run_out() -> None:
    nodes = [
        core.ExcludedNode(node=name, reason="x", until=core.rfc3339(until)) for name, until in (("a", 10), ("b", 20))
    ]
    assert [each.node for each in queue.excluded_now(nodes, 15.0, 60.0)] == ["b"]
    assert queue.excluded_now(nodes, -100.0, 60.0) == ()  # by a clock that was set back since


def test_siblings_occupy_their_domains_decided_ones_too() -> None:
    paths = {"n1": ("b1", "r1"), "n2": ("b2", "r1")}
    units = [
        tree(member("decode", 0, node="n1"), member("decode", 1, pin="n1")),
        tree(gated(0, "other"), name="other"),
        tree(gated(0, "idle"), name="idle"),
    ]
    found = count_units_by_domain(units, {"uid-other-decode-0-0": "n2"}, lambda node: paths[node], 1)
    assert found == {("b1",): 1, ("b2",): 1}


def test_a_role_that_does_not_follow_occupies_nothing() -> None:
    root = group("root", composite=True, minimum=2, desired=2)
    [router] = role_groups("router", replicas=1, minimum=1, size=1)
    spec = msgspec.structs.replace(router.spec, scheduling_constraints=core.SchedulingConstraints(follow_unit=False))
    groups = [*role_groups("decode", replicas=1, minimum=1, size=1), msgspec.structs.replace(router, spec=spec)]
    found = unit(root, groups, [member("decode", 0, node="n1"), member("router", 0, node="n2")])
    assert count_units_by_domain([found], {}, lambda node: (node,), 1) == {("n1",): 1}


def waiting(name: str, since: str, priority: int = 0, created: str = "2026-01-01T00:00:00Z") -> Entry:
    condition = {"type": "Admitted", "status": "False", "lastTransitionTime": since}
    found = tree(gated(0, name), gated(1, name), name=name, status={"conditions": [condition]}, created=created)
    return queue.refusal(entry(found, priority=priority), refusal())


async def test_a_reservation_keeps_out_who_comes_later() -> None:
    made = cache(node("n1", labels={"block": "b1"}), node("n2", labels={"block": "b2"}))
    reservations = Reservations(made, reserve_after=600.0, clock=SYSTEM)
    old = waiting("old", "2026-01-01T00:30:00Z", created="2026-01-01T00:10:00Z")
    kept = core.Claim(path=("b1",), since="2026-01-01T01:00:00Z", level="block", nodes=("n1",))
    old = replace(old, decision=replace(old.decision, claim=kept))
    assert not reservations.file(root_key("old"), old)

    assert old.gang is not None

    def out(other: Entry, *, surplus: bool = False) -> frozenset[str]:
        assert other.gang is not None
        return reservations.confine(other.gang, surplus=surplus)[1]

    later = waiting("later", "2026-01-01T00:59:00Z", created="2026-01-01T00:59:00Z")
    earlier = waiting("earlier", "2026-01-01T00:05:00Z", created="2026-01-01T00:05:00Z")
    urgent = waiting("urgent", "2026-01-01T00:59:00Z", priority=5, created="2026-01-01T00:59:00Z")
    assert out(later) == {old.gang.uid}
    assert out(earlier) == frozenset()
    assert out(earlier, surplus=True) == {old.gang.uid}
    assert out(urgent) == frozenset()
    assert out(old) == frozenset()
    running = entry(tree(member("decode", 0, node="n1", root="run"), gated(1, "run"), name="run", created="2026-01-02"))
    assert out(running) == frozenset()
    assert reservations.file(root_key("old"), replace(old, want=Want.NOTHING))
    assert later.gang is not None
    assert reservations.confine(later.gang, surplus=False) == (later.gang, frozenset())


def test_only_who_has_waited_long_enough_gets_a_domain_of_its_own() -> None:
    now = core.seconds("2026-01-01T01:00:00Z") or 0.0
    reservations = Reservations(cache(), reserve_after=600.0, clock=Clock(wall=lambda: now))
    assert not reservations.due(waiting("young", "2026-01-01T00:55:00Z"))
    assert reservations.due(waiting("old", "2026-01-01T00:30:00Z"))
