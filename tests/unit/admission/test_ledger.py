from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import group
from covey.admission.entitlement import (
    PodsTogether,
    QueueError,
    Short,
    describe,
    fit,
    has_right,
    judge_minimum,
    judge_surplus,
    queue_of,
    victims,
)
from covey.admission.ledger import Charge, Ledger, Policy, Pool
from covey.admission.nodes import Key
from covey.api import core
from covey.placement.model import Shape
from oracle import quotas
from oracle.quotas import Taken, Tenant

GPU = "nvidia.com/gpu"
POOL = Pool((), GPU)


def queue(name: str, nominal: Any = 8, **spec: Any) -> core.Queue:
    amounts: dict[str, Any] = {key: spec.pop(key) for key in ("borrow", "lend") if key in spec}
    flavors = spec.pop("flavors", [{"resources": [{"name": GPU, "nominal": nominal, **amounts}]}])
    body: dict[str, Any] = {"metadata": {"name": name}, "spec": {"flavors": flavors, **spec}}
    return msgspec.convert(body, core.Queue)


def policies(*queues: core.Queue) -> dict[str, Policy]:
    return {each.metadata.name: Policy.of(each) for each in queues}


def charge(name: str, unit: str, amount: int, *, replica: int | None = None, priority: int = 0, age: int = 0) -> Charge:
    who = None if replica is None else ("decode", replica)
    key = Key("CompositePodGroup", "ns", unit)
    return Charge(name, key, who, ((POOL, amount),), priority=priority, since=f"{age:06d}")


def gpus(count: int, **selector: str) -> Shape:
    return Shape((("cpu", 100), (GPU, count)), node_selector=tuple(sorted(selector.items())))


def starts(ledger: Ledger, name: str, count: int) -> bool:
    return bool(judge_minimum(ledger, name, [gpus(count)], None, free=False).taken)


# Kueue's published scenarios: https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/ (cohort, borrowingLimit, lendingLimit)
@pytest.mark.parametrize(
    ("team_a", "team_b", "used", "asked", "fits"),
    [
        # "ClusterQueue team-a can only borrow quota that team-b has not used": 9 + 12, team-a may have up to 21.
        ({"nominal": 9}, {"nominal": 12}, {}, 21, True),
        ({"nominal": 9}, {"nominal": 12}, {}, 22, False),
        ({"nominal": 9}, {"nominal": 12}, {"b": 2}, 19, True),
        ({"nominal": 9}, {"nominal": 12}, {"b": 2}, 20, False),
        # borrowingLimit 1: "the ClusterQueue can only admit Workloads that use up to 10".
        ({"nominal": 9, "borrow": 1}, {"nominal": 12}, {}, 10, True),
        ({"nominal": 9, "borrow": 1}, {"nominal": 12}, {}, 11, False),
        # borrowingLimit 0: no borrowing at all.
        ({"nominal": 9, "borrow": 0}, {"nominal": 12}, {}, 10, False),
        # lendingLimit 1 of team-b: team-a may have up to 9 + 1.
        ({"nominal": 9}, {"nominal": 12, "lend": 1}, {}, 10, True),
        ({"nominal": 9}, {"nominal": 12, "lend": 1}, {}, 11, False),
        # The 11 that team-b keeps back do not change what it lends while it uses no more than those.
        ({"nominal": 9}, {"nominal": 12, "lend": 1}, {"b": 11}, 10, True),
        ({"nominal": 9}, {"nominal": 12, "lend": 1}, {"b": 12}, 10, False),
        # "nominal 0 and borrows": batch beside inference.
        ({"nominal": 0}, {"nominal": 12}, {"b": 4}, 8, True),
        ({"nominal": 0}, {"nominal": 12}, {"b": 4}, 9, False),
    ],
)
def test_kueues_published_scenarios(
    team_a: dict[str, int], team_b: dict[str, int], used: dict[str, int], asked: int, *, fits: bool
) -> None:
    both = policies(queue("a", cohort="all", borrowMinimums=True, **team_a), queue("b", cohort="all", **team_b))
    ledger = Ledger(both, [charge(name, "x", amount) for name, amount in used.items()])
    assert starts(ledger, "a", asked) is fits


@pytest.mark.parametrize(
    ("spec", "surplus", "said"),
    [
        (
            {"cohort": "c", "borrow": 32, "borrowMinimums": True},
            False,
            "60 of 64 nvidia.com/gpu of queue search are in use; 4 short; search may borrow 32, its cohort has 4 idle",
        ),
        (
            {"cohort": "c"},
            True,
            "60 of 64 nvidia.com/gpu of queue search are in use; 4 short; search may borrow, its cohort has 4 idle",
        ),
        (
            {"cohort": "c"},
            False,
            "60 of 64 nvidia.com/gpu of queue search are in use; 4 short; minimums of search do not borrow",
        ),
        (
            {},
            True,
            "60 of 64 nvidia.com/gpu of queue search are in use; 4 short; search is in no cohort that it could borrow from",
        ),
    ],
)
def test_a_refusal_names_queue_amount_and_remedy(spec: dict[str, Any], *, surplus: bool, said: str) -> None:
    ledger = Ledger(policies(queue("search", 64, **spec)), [charge("search", "x", 60)])
    verdict = judge_minimum(ledger, "search", [gpus(8)], None, free=False)
    assert verdict.short is not None
    assert describe(ledger, "search", verdict.short, surplus=surplus) == said


FLAVORS = [
    {"nodes": {"product": "h100"}, "resources": [{"name": GPU, "nominal": 4}]},
    {"nodes": {"product": "a100"}, "resources": [{"name": GPU, "nominal": 8}]},
]
H100, A100 = (("product", "h100"),), (("product", "a100"),)


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "h100", "a100"])), max_size=6), st.data())
def test_no_plan_that_is_left_breaks_a_quota(pods: list[tuple[int, str]], data: st.DataObject) -> None:
    """Whatever nodes the planner chooses of those that are open, the quota holds."""
    policy = policies(queue("a", flavors=FLAVORS))["a"]
    groups = [PodsTogether([gpus(count, **({"product": product} if product else {}))]) for count, product in pods]
    room = {pool: grant.nominal for pool, grant in policy.grants.items()}
    verdict = fit(policy, groups, room, free=False)
    used = dict.fromkeys(room, 0)
    for number in verdict.taken:
        count, product = pods[number]
        open_to = [each for each in (H100, A100) if each not in verdict.closed and product in {"", each[0][1]}]
        used[Pool(data.draw(st.sampled_from(open_to)), GPU)] += count
    assert all(amount <= room[pool] for pool, amount in used.items())


NS = {"team": "search"}


@pytest.mark.parametrize(
    ("named", "queues", "found"),
    [
        (None, [], None),
        (None, [queue("other", namespaces={"selector": {"matchLabels": {"team": "x"}}})], None),
        (None, [queue("nobody"), queue("one", namespaces={"selector": {}})], "one"),
        ("one", [queue("one", namespaces={"selector": {}}), queue("two", namespaces={"selector": {}})], "one"),
        (None, [queue("one", namespaces={"selector": {}}), queue("two", namespaces={"selector": {}})], "QueueAmbiguous"),
        ("gone", [], "QueueNotFound"),
        ("one", [queue("one")], "QueueDenied"),
        ("one", [queue("one", namespaces={})], "QueueDenied"),
        ("one", [queue("one", namespaces={"selector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["search"]}]}})], "one"),
        ("one", [queue("one", namespaces={"selector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}})], "QueueDenied"),
    ],
)  # fmt: skip
def test_which_queue_a_root_uses(named: str | None, queues: Sequence[core.Queue], found: str | None) -> None:
    root = group("root", composite=True)
    root = msgspec.structs.replace(root, spec=msgspec.structs.replace(root.spec, queue=named))
    if found is None or found in {each.metadata.name for each in queues}:
        assert queue_of(root, NS, policies(*queues)) == found
    else:
        with pytest.raises(QueueError) as caught:
            queue_of(root, NS, policies(*queues))
        assert caught.value.reason == found


def amounts(found: Sequence[Charge]) -> list[tuple[str | None, dict[str, int], dict[str, int]]]:
    def names(each: Sequence[tuple[Pool, int]]) -> dict[str, int]:
        return {pool.flavor[0][1] if pool.flavor else "": amount for pool, amount in each}

    return [
        (each.member and f"{each.member[0]}/{each.member[1]}", names(each.amounts), names(each.spare)) for each in found
    ]


#: What gives way, in order, until the minimum starts; None where it has no right, or all that may go is not enough.
Given = list[str] | None
BORROWS: Any = {"borrowMinimums": True}


# The scenarios of Kueue's tests of preemption in a cohort, for minimums and surplus. Running: queue, unit, surplus replica
# or none, amount.
@pytest.mark.parametrize(
    ("cohort", "running", "asked", "given"),
    [
        pytest.param(
            {"a": {"nominal": 6}, "b": {"nominal": 6}},
            ["b x - 6", "b x 1 3", "b x 2 3"],
            ("a", 3),
            ["b x 2"],
            id="reclaim from a borrower no more than is needed",
        ),
        pytest.param(
            {"a": {"nominal": 6}, "b": {"nominal": 6}},
            ["b x - 6", "b x 1 3", "b x 2 3"],
            ("a", 7),
            None,
            id="what would borrow itself reclaims nothing",
        ),
        pytest.param(
            {"a": {"nominal": 6}, "b": {"nominal": 6}},
            ["a y - 3", "a y 1 3", "b x - 3", "b x 1 3"],
            ("a", 3),
            ["a y 1"],
            id="never within the nominal of others: its own surplus first",
        ),
        pytest.param(
            {"a": {"nominal": 4}, "b": {"nominal": 4}, "d": {"nominal": 4, "lend": 0}},
            ["b x - 4", "b x 1 4", "d z - 4"],
            ("a", 4),
            ["b x 1"],
            id="what is not lent is nobody's to reclaim",
        ),
        pytest.param(
            {"a": {"nominal": 6}, "b": {"nominal": 0, **BORROWS}},
            ["b x - 4", "b x 1 2"],
            ("a", 2),
            ["b x 1"],
            id="surplus before the unit that has borrowed it all",
        ),
        pytest.param(
            {"a": {"nominal": 6}, "b": {"nominal": 0, **BORROWS}},
            ["b x - 4", "b x 1 2"],
            ("a", 4),
            ["b x 1", "b x -"],
            id="the unit goes last, and whole",
        ),
        pytest.param(
            {"a": {"nominal": 6}, "b": {"nominal": 2}, "d": {"nominal": 4}},
            ["b x - 2", "b x 1 3", "d z - 4", "d z 1 3"],
            ("a", 3),
            ["b x 1"],
            id="of two borrowers the one with the larger share gives",
        ),
        pytest.param(
            {"a": {"nominal": 9}, "b": {"nominal": 4}, "d": {"nominal": 4}},
            ["b x - 4", "b x 1 2", "b x 2 2", "b x 3 2", "d z - 4", "d z 1 3"],
            ("a", 9),
            ["b x 3", "b x 2", "d z 1", "b x 1"],
            id="the share is compared again after each",
        ),
        pytest.param(
            {"a": {"nominal": 8}, "b": {"nominal": 4, "weight": 4}, "d": {"nominal": 4}},
            ["b x - 4", "b x 1 2", "b x 2 2", "d z - 4", "d z 1 2", "d z 2 2"],
            ("a", 4),
            ["d z 2", "d z 1"],
            id="a larger weight gives less",
        ),
        pytest.param(
            {"a": {"nominal": 4}, "b": {"nominal": 4}, "d": {"nominal": 4}},
            ["b x - 4", "b x 1 2", "d z - 4", "d z 1 2"],
            ("a", 4),
            ["b x 1", "d z 1"],
            id="several borrowers together",
        ),
        pytest.param(
            {"a": {"nominal": 8, "borrow": 0}, "b": {"nominal": 0}},
            ["b x 1 4", "b x 2 4"],
            ("a", 8),
            ["b x 2", "b x 1"],
            id="a limit to borrow does not bind what is within nominal",
        ),
        pytest.param(
            {"a": {"nominal": 4}, "b": {"nominal": 8}},
            ["a y - 4", "b x - 8"],
            ("a", 4),
            None,
            id="its own minimums of the same priority do not give way",
        ),
    ],
)
def test_reclaim_in_a_cohort(cohort: dict[str, Any], running: list[str], asked: tuple[str, int], given: Given) -> None:
    rules = policies(*(queue(name, cohort="c", **fields) for name, fields in cohort.items()))
    names: dict[Charge, str] = {}
    for age, each in enumerate(running):
        name, unit, replica, amount = each.split()
        number = None if replica == "-" else int(replica)
        names[charge(name, unit, int(amount), replica=number, age=age)] = each.rpartition(" ")[0]
    ledger, (name, amount) = Ledger(rules, names), asked
    mine = charge(name, "new", amount)
    assert not starts(ledger, name, amount)
    gone: list[Charge] = []
    for each in victims(ledger, mine) if has_right(ledger, mine) else ():
        if not starts(Ledger(rules, names.keys() - gone), name, amount):
            gone.append(each)
    fits = starts(Ledger(rules, names.keys() - gone), name, amount)
    assert ([names[each] for each in gone] if fits else None) == given
    assert names.keys() - gone >= {
        each for each in names if not ledger.split(each.queue, mine if each.queue == name else None)[each]
    }


TENANTS = st.dictionaries(
    st.sampled_from(["a", "b", "d"]),
    st.builds(
        Tenant,
        nominal=st.integers(0, 12),
        borrow=st.none() | st.integers(0, 8),
        lend=st.none() | st.integers(0, 12),
        weight=st.integers(1, 3),
        borrow_minimums=st.booleans(),
    ),
    min_size=1,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["minimum", "surplus", "end", "shrink", "reclaim"]),
        st.integers(0, 10**6),
        st.integers(1, 8),
        st.integers(0, 3),
    ),
    max_size=40,
)


def as_policies(tenants: Mapping[str, Tenant]) -> dict[str, Policy]:
    found: dict[str, Policy] = {}
    for name, each in tenants.items():
        stated: dict[str, Any] = {"cohort": "c", "weight": each.weight, "borrowMinimums": each.borrow_minimums}
        stated |= {"borrow": each.borrow} if each.borrow is not None else {}
        stated |= {"lend": min(each.lend, each.nominal)} if each.lend is not None else {}
        found |= policies(queue(name, each.nominal, **stated))
    return found


def as_charge(each: Taken) -> Charge:
    return charge(each.queue, each.unit, each.amount, replica=each.replica, priority=each.priority, age=each.age)


class World:
    """The product beside the reference model; ``check`` compares them, and looks at the laws."""

    def __init__(self, tenants: dict[str, Tenant]) -> None:
        self.tenants = tenants
        self.taken: list[Taken] = []
        self.number = 0
        self.excused = False

    @property
    def ledger(self) -> Ledger:
        shuffled = [as_charge(each) for each in self.taken]
        random.Random(self.number).shuffle(shuffled)
        return Ledger(as_policies(self.tenants), shuffled)

    def check(self) -> None:
        ledger = self.ledger
        for name, tenant in self.tenants.items():
            inside = {as_charge(each) for each in quotas.within(tenant, self.taken, name)}
            # C5: the order of reading changes nothing, and the split is the reference's.
            assert {each for each, over in ledger.split(name).items() if not over} == inside
            minimums_of = (each for each in ledger.charges_of(name) if each.member is None)
            assert {each for each in minimums_of if ledger.is_within_nominal(each)} <= inside
            assert all(ledger.is_within_nominal(each) for each in inside if each.member is None)
            for minimums in (True, False):
                kept = sum(e.amounts[0][1] for e in inside if not minimums or e.member is None)
                assert ledger.nominal_left(name, minimums=minimums) == {POOL: tenant.nominal - kept}
            assert float(ledger.share(name)) == pytest.approx(quotas.share(self.tenants, self.taken, name))
            if not self.excused:
                most = None if tenant.borrow is None else tenant.nominal + tenant.borrow
                assert most is None or quotas.used(self.taken, name) <= most  # C1
        if not self.excused:
            assert sum(each.amount for each in self.taken) <= sum(each.nominal for each in self.tenants.values())  # C1
        borrowed = sum(ledger.excess_of(name, POOL) for name in self.tenants)
        lent = sum(ledger.lent(name, POOL) for name in self.tenants)
        assert lent == borrowed or self.excused

    def take(self, step: str, pick: int, amount: int, priority: int) -> None:
        names = sorted(self.tenants)
        name = names[pick % len(names)]
        self.number += 1
        new = Taken(name, f"u{self.number}", None, amount, priority, self.number)
        if step == "minimum":
            asked = starts(self.ledger, name, amount)
            assert asked == quotas.may_start(self.tenants, self.taken, name, amount)
            self.taken += [new] if asked else []
        elif step == "surplus" and (units := [each for each in self.taken if each.queue == name]):
            asked = bool(
                judge_surplus(self.ledger, name, {0: ("decode", PodsTogether([gpus(amount)]))}, free=False).taken
            )
            assert asked == (amount <= quotas.room(self.tenants, self.taken, name))
            more = new._replace(unit=units[0].unit, replica=self.number)
            self.taken += [more] if asked else []
        elif step == "end" and self.taken:
            gone = self.taken[pick % len(self.taken)]
            self.taken = [each for each in self.taken if each.unit != gone.unit]
        elif step == "shrink":
            before = list(self.taken)
            self.tenants[name] = Tenant(amount, borrow_minimums=self.tenants[name].borrow_minimums)
            assert before == self.taken  # C6
            self.excused = True
        elif step == "reclaim":
            self.reclaim(new)

    def reclaim(self, new: Taken) -> None:
        ledger = self.ledger
        verdict = judge_minimum(ledger, new.queue, [gpus(new.amount)], None, free=False)
        assert has_right(ledger, as_charge(new)) == verdict.right
        if not verdict.right:
            return
        order = list(victims(ledger, as_charge(new)))
        allowed = [each for each in self.taken if quotas.must_give_way(self.tenants, self.taken, new, each)]
        assert {as_charge(each) for each in allowed} == set(
            order
        )  # C2: nothing within nominal, and all that is borrowed
        assert [each.member is None for each in order] == sorted(each.member is None for each in order)  # C4
        gone: set[Charge] = set()
        for each in order:
            if starts(
                Ledger(ledger.policies, [e for e in map(as_charge, self.taken) if e not in gone]), new.queue, new.amount
            ):
                break
            gone.add(each)
        self.taken = [each for each in self.taken if as_charge(each) not in gone]
        fits = starts(self.ledger, new.queue, new.amount)
        # C3: what others have borrowed is enough for whoever has a right, but for minimums of its own queue.
        own = any(each.queue == new.queue and each.replica is None for each in self.taken)
        assert fits or own or self.excused
        if fits:
            self.taken.append(new)
            assert as_charge(new) in {each for each, over in self.ledger.split(new.queue).items() if not over} or own


@given(TENANTS, STEPS)
def test_the_laws_of_quota(tenants: dict[str, Tenant], steps: list[tuple[str, int, int, int]]) -> None:
    world = World(dict(tenants))
    for step in steps:
        world.take(*step)
        world.check()


@given(TENANTS, STEPS)
def test_queues_that_reclaim_from_each_other_come_to_rest(
    tenants: dict[str, Tenant], steps: list[tuple[str, int, int, int]]
) -> None:
    """C7: with fixed objects what was reclaimed asks in vain, or takes what nobody has to give back twice."""
    world = World(dict(tenants))
    for step in steps:
        world.take(*step)
    waiting = [Taken(name, f"w{name}", None, 2, 0, 10**6) for name in world.tenants]
    for _ in range(3):
        for new in waiting:
            if all(each.unit != new.unit for each in world.taken):
                world.reclaim(new)
    settled = list(world.taken)
    for new in waiting:
        if all(each.unit != new.unit for each in world.taken):
            world.reclaim(new)
    assert settled == world.taken


CPU = Pool((), "cpu")


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(-1, 2), st.integers(0, 4), st.integers(0, 4)), max_size=40),
    st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_what_is_left_is_reckoned_by_blocks_as_one_by_one(
    steps: list[tuple[int, int, int, int]], nominal: tuple[int, int]
) -> None:
    """Units come, change and go; blocks are of one and two charges here, so that all that is skipped is tried."""
    stated = [{"name": name, "nominal": amount} for name, amount in zip((GPU, "cpu"), nominal, strict=True)]
    with mock.patch("covey.admission.ledger._MOST", 2):
        ledger = Ledger(policies(queue("a", flavors=[{"resources": stated}])))
        for number, replica, gpu, cpu in steps:
            made = charge("a", f"u{number}", 0, replica=None if replica < 0 else replica, age=number)
            amounts = tuple((pool, amount) for pool, amount in ((POOL, gpu), (CPU, 1000 * cpu)) if amount)
            kept = tuple(each for each in ledger.of(made.unit) if each.member != made.member)
            ledger.enter(made.unit, (*kept, replace(made, amounts=amounts)) if amounts else kept)
            ledger = ledger.copy()
            split = ledger.split("a")
            for minimums in (True, False):
                inside = [each for each, over in split.items() if not over and (each.member is None or not minimums)]
                used = Counter({POOL: 0, CPU: 0})
                for each in inside:
                    used.update(dict(each.amounts))
                left = {POOL: nominal[0] - used[POOL], CPU: 1000 * nominal[1] - used[CPU]}
                assert ledger.nominal_left("a", minimums=minimums) == left
            for each, over in split.items():
                assert each.member is not None or ledger.is_within_nominal(each) == (not over)


def test_pods_that_choose_their_nodes_count_there_alone() -> None:
    ledger = Ledger(policies(queue("a", flavors=FLAVORS)))
    mixed = [gpus(4, product="h100"), gpus(8, product="a100"), Shape((("cpu", 100),))]
    assert judge_minimum(ledger, "a", mixed, None, free=False).closed == frozenset()
    more = [gpus(4, product="h100"), gpus(1, product="h100")]
    assert judge_minimum(ledger, "a", more, None, free=False).short == Short(Pool(H100, GPU), 1)
