from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import GATE, cache, drop, group, member, node, put, queue, role_groups, root_key
from covey.admission.queue import Entry
from covey.admission.quota import Pool
from covey.admission.tree import Key
from covey.api import core
from covey.scheduler import admission
from scheduler_loop import Loop, tree


def namespace(**labels: str) -> core.Namespace:
    return core.Namespace(core.Meta(name="ns", labels=labels))


def nodes(count: int, **more: Any) -> list[core.Node]:
    return [node(f"n{number}", **more) for number in range(count)]


def said(loop: Loop, name: str) -> tuple[str | None, str]:
    decision = loop.admission.decision(root_key(name))
    return decision.reason, decision.message


async def settle(loop: Loop) -> dict[str, str]:
    """Turns until nothing more is given; what was given is bound."""
    given: dict[str, str] = {}
    while found := await loop.turn():
        given |= found
        for name, place in found.items():
            pod = loop.cache.pods.store["ns", name]
            spec = msgspec.structs.replace(pod.spec, node_name=place, scheduling_gates=())
            put(loop.cache, msgspec.structs.replace(pod, spec=spec))
    return given


def end(loop: Loop, name: str) -> None:
    for pod in [each for each in loop.cache.pods.store.values() if each.metadata.name.startswith(f"{name}-")]:
        put_away(loop, pod)


def put_away(loop: Loop, pod: core.Pod) -> None:
    del loop.cache.pods.store[pod.metadata.key]
    loop.cache._drop_pod(pod)


async def test_a_minimum_over_quota_waits_although_there_are_nodes() -> None:
    loop = Loop(cache(*nodes(4), queue("team", 12), *tree("a"), *tree("b", created="2026-01-02T00:00:00Z")))
    assert await settle(loop) == {"a-decode-0-0": "n0"}
    assert said(loop, "b") == (
        "OverQuota",
        "8 of 12 nvidia.com/gpu of queue team are in use; 4 short; team is in no cohort that it could borrow from",
    )


async def test_it_sleeps_until_quota_changes_and_no_node_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(cache(*nodes(4), queue("team", 12), *tree("a"), *tree("b")))
    await settle(loop)
    judged: list[str] = []
    real = loop.admission._quotas.judge

    def judge(entry: Entry) -> Any:
        judged.append(entry.unit.key.name)
        return real(entry)

    monkeypatch.setattr(loop.admission._quotas, "judge", judge)
    put(loop.cache, member("decode", 0, name="stranger", node="n3", root="x"))
    put_away(loop, loop.cache.pods.store["ns", "stranger"])
    assert await loop.turn() == {}
    assert judged == []
    end(loop, "a")
    assert set(await settle(loop)) == {"b-decode-0-0"}


async def test_a_raised_quota_helps_at_once() -> None:
    loop = Loop(cache(*nodes(4), queue("team", 8), *tree("a"), *tree("b")))
    await settle(loop)
    put(loop.cache, queue("team", 16))
    assert set(await settle(loop)) == {"b-decode-0-0"}


async def test_surplus_takes_what_quota_has_room_for() -> None:
    loop = Loop(cache(*nodes(4), queue("team", 24), *tree("a", replicas=4)))
    assert len(await settle(loop)) == 3
    assert said(loop, "a")[0] == "OverQuota"


async def test_surplus_borrows_and_minimums_do_not() -> None:
    both = (queue("team", 8, cohort="c", borrow=8), queue("idle", 16, cohort="c", namespaces={}))
    loop = Loop(cache(*nodes(4), *both, *tree("a", replicas=4), *tree("b", created="2026-01-02T00:00:00Z")))
    assert set(await settle(loop)) == {"a-decode-0-0", "a-decode-1-0"}
    loop.admission._books._retell_quota(root_key("b"))
    assert said(loop, "b") == (
        "OverQuota",
        "16 of 8 nvidia.com/gpu of queue team are in use; 8 short; minimums of team do not borrow",
    )


async def test_without_queues_nothing_is_counted() -> None:
    loop = Loop(cache(*nodes(4), *tree("a", replicas=2), *tree("b", queue="none")))
    assert set(await settle(loop)) == {"a-decode-0-0", "a-decode-1-0"}
    assert said(loop, "b")[0] == "QueueNotFound"


async def test_who_is_selected_by_no_queue_is_free_of_quota() -> None:
    other = queue("team", 0, namespaces={"selector": {"matchLabels": {"team": "other"}}})
    loop = Loop(cache(*nodes(2), namespace(team="mine"), other, *tree("a")))
    assert set(await settle(loop)) == {"a-decode-0-0"}
    put(loop.cache, namespace(team="other"))
    put(loop.cache, tree("b")[0])
    for each in tree("b")[1:]:
        put(loop.cache, each)
    assert await settle(loop) == {}
    assert said(loop, "b")[0] == "OverQuota"


async def test_several_queues_are_refused_by_name() -> None:
    loop = Loop(cache(*nodes(2), queue("one"), queue("two"), *tree("a"), *tree("b", queue="two")))
    assert set(await settle(loop)) == {"b-decode-0-0"}
    assert said(loop, "a") == ("QueueAmbiguous", "queues one, two all select namespace ns: name one in spec.queue")


async def test_units_of_a_deleted_queue_stay_and_say_so() -> None:
    loop = Loop(cache(*nodes(2), queue("team"), *tree("a", queue="team")))
    await settle(loop)
    assert said(loop, "a") == (None, "")
    drop(loop.cache, queue("team"))
    assert await settle(loop) == {}
    assert loop.cache.pods.store["ns", "a-decode-0-0"].spec.node_name
    assert said(loop, "a")[0] == "QueueNotFound"
    put(loop.cache, queue("team"))
    await settle(loop)
    assert said(loop, "a") == (None, "")


async def test_a_quota_below_its_use_evicts_nobody() -> None:
    loop = Loop(cache(*nodes(2), queue("team", 16), *tree("a", replicas=2)))
    await settle(loop)
    put(loop.cache, queue("team", 4))
    await settle(loop)
    assert loop.writer.released == []
    lost = loop.cache.pods.store["ns", "a-decode-0-0"]
    put_away(loop, lost)
    put(loop.cache, member("decode", 0, root="a", gates=(GATE,), gpus=8, uid="again"))
    assert await settle(loop) == {}
    assert said(loop, "a")[0] == "OverQuota"


async def test_nodes_of_a_flavor_without_quota_are_closed() -> None:
    flavors = [
        {"nodes": {"product": "h100"}, "resources": [{"name": "nvidia.com/gpu", "nominal": 4}]},
        {"nodes": {"product": "a100"}, "resources": [{"name": "nvidia.com/gpu", "nominal": 8}]},
    ]
    h100, a100 = node("n1", labels={"product": "h100"}), node("n2", labels={"product": "a100"})
    loop = Loop(cache(h100, queue("team", flavors=flavors), *tree("a")))
    assert await settle(loop) == {}
    assert "1 over the quota of the queue" in said(loop, "a")[1]
    put(loop.cache, a100)
    assert await settle(loop) == {"a-decode-0-0": "n2"}
    loop.cache.nodes.store["", "n2"] = again = node("n2", labels={"product": "none"})
    loop.cache._on_node("MODIFIED", again, a100)
    await settle(loop)
    assert loop.admission._quotas.ledger.of(root_key("a")) == ()


async def test_pods_are_charged_when_their_node_comes_back() -> None:
    groups = [each for each in tree("a") if isinstance(each, core.Group)]
    loop = Loop(cache(*nodes(1), queue("team", 8), *groups, member("decode", 0, root="a", node="gone", gpus=8)))
    assert await settle(loop) == {}
    put(loop.cache, node("gone"))
    for each in tree("b", created="2026-01-02T00:00:00Z"):
        put(loop.cache, each)
    assert await settle(loop) == {}
    assert said(loop, "b")[0] == "OverQuota"


async def test_priority_decides_inside_a_queue_and_the_share_between_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = (
        queue("one", 0, cohort="c", borrowMinimums=True),
        queue("two", 8, cohort="c", borrowMinimums=True),
        queue("idle", 16, cohort="c", namespaces={}),
    )
    loop = Loop(
        cache(
            *nodes(3),
            *queues,
            *tree("high", queue="one", priority=1000),
            *tree("low", queue="two"),
            *tree("more", queue="two", created="2026-01-02T00:00:00Z"),
        )
    )
    order: list[str] = []
    real = loop.admission._commits.admit

    def note(root: Key, *rest: Any) -> None:
        order.append(root.name)
        real(root, *rest)

    monkeypatch.setattr(loop.admission._commits, "admit", note)
    await settle(loop)
    assert order == ["low", "high", "more"]


async def test_surplus_that_borrows_is_shared_in_turns() -> None:
    queues = (
        queue("one", 8, cohort="c"),
        queue("two", 8, cohort="c"),
        queue("idle", 32, cohort="c", namespaces={}),
    )
    loop = Loop(cache(*nodes(6), *queues, *tree("a", queue="one", replicas=6), *tree("b", queue="two", replicas=6)))
    given = await settle(loop)
    assert len(given) == 6
    assert sum(name.startswith("a-") for name in given) == 3


async def test_a_plan_is_dropped_when_its_quota_went_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(cache(*nodes(2), queue("team", 8), *tree("a")))
    real: Any = vars(admission)["plan_minimum"]

    def slow(gang: Any, inventory: Any, **more: Any) -> Any:
        put(loop.cache, queue("team", 4))
        return real(gang, inventory, **more)

    monkeypatch.setattr(admission, "plan_minimum", slow)
    assert await loop.turn() == {}
    assert said(loop, "a")[0] == "OverQuota"


async def test_nothing_is_kept_for_a_gang_over_quota() -> None:
    loop = Loop(cache(*nodes(1), queue("team", 8), *tree("a"), *tree("b")), reserve_after=0.0)
    await settle(loop)
    assert said(loop, "b")[0] == "OverQuota"
    assert loop.admission.decision(root_key("b")).claim is None


UNITS = st.lists(
    st.tuples(
        st.sampled_from(["one", "two", None]), st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 2, 4, 8])
    ),
    min_size=1,
    max_size=8,
)


@given(UNITS, st.integers(0, 24), st.integers(0, 24), st.none() | st.integers(0, 8), st.booleans())
async def test_charges_never_pass_the_quota(
    units: list[tuple[str | None, int, int, int]],
    first: int,
    second: int,
    borrow: int | None,
    minimums: bool,  # noqa: FBT001 - hypothesis gives them by position
) -> None:
    """C1, at every decision; and whoever is in no queue is not held up."""
    most: dict[str, Any] = {} if borrow is None else {"borrow": borrow}
    made = cache(
        *nodes(4),
        namespace(),
        queue("one", first, cohort="c", borrowMinimums=minimums, namespaces={"selector": {}}, **most),
        queue("two", second, cohort="c", namespaces={"selector": {}}),
    )
    for number, (name, replicas, minimum, gpus) in enumerate(units):
        least = min(minimum, replicas)
        named = {"queue": name} if name else {}
        for each in tree(f"u{number}", replicas=replicas, minimum=least, gpus=gpus, **named):
            put(made, each)
    loop = Loop(made)

    def used(name: str) -> int:
        charged = [n for n, unit in enumerate(units) if unit[0] == name]
        pods = loop.cache.pods.store.values()
        return sum(
            units[n][3]
            for n in charged
            for pod in pods
            if pod.metadata.name.startswith(f"u{n}-")
            and (pod.spec.node_name or pod.metadata.uid in loop.cache.capacity.assumed)
        )

    real = loop.admission._commits.admit

    def check(*decision: Any) -> None:
        assert used("one") + used("two") <= first + second
        assert borrow is None or used("one") <= first + borrow
        real(*decision)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.admission._commits, "admit", check)
        await settle(loop)
    for number, (name, *_) in enumerate(units):
        assert name is not None or said(loop, f"u{number}")[0] == "QueueAmbiguous"


async def test_replicas_of_several_pods_are_charged_whole() -> None:
    root = group("root", composite=True, minimum=1, desired=1)
    groups = role_groups("decode", replicas=2, minimum=1, size=2)
    pods = [member("decode", number, index, size=2, gates=(GATE,), gpus=4) for number in (0, 1) for index in (0, 1)]
    loop = Loop(cache(*nodes(2), queue("team", 15), root, *groups, *pods))
    assert len(await settle(loop)) == 2
    assert loop.admission._quotas.ledger.use_of("team", Pool((), "nvidia.com/gpu")) == 8


async def test_a_claim_learns_who_gives_way_and_that_it_is_enough() -> None:
    queues = (queue("a", 8, cohort="c"), queue("b", 8, cohort="c"))
    loop = Loop(cache(*nodes(4), *queues, *tree("theirs", queue="b", replicas=3)))
    assert len(await settle(loop)) == 2
    for each in tree("mine", queue="a"):
        put(loop.cache, each)
    assert await settle(loop) == {}
    assert said(loop, "mine")[0] == "OverQuota"
    quotas = loop.admission._quotas
    [right] = quotas.rights(loop.admission._books.shelf.entries[root_key("mine")])
    assert [(each.unit.name, each.member) for each in right.find_order()] == [("theirs", ("decode", 1))]
    assert not right.judge(()).taken
    gone = loop.cache.pods.store["ns", "theirs-decode-1-0"].metadata.uid
    assert replace(right, charge_of={gone: right.find_order()[0]}).judge([gone]).taken == {0}
    assert not list(quotas.rights(loop.admission._books.shelf.entries[root_key("theirs")]))
    put_away(loop, loop.cache.pods.store["ns", "theirs-decode-1-0"])
    assert set(await settle(loop)) == {"mine-decode-0-0"}


@pytest.mark.parametrize("name", ["no-such", "others"])
async def test_no_name_sets_the_quota_free_of_what_has_its_places(name: str) -> None:
    others = queue("others", 8, namespaces={"selector": {"matchLabels": {"team": "others"}}})
    loop = Loop(cache(*nodes(2), queue("team", 8), others, *tree("a"), *tree("b", created="2026-01-02T00:00:00Z")))
    assert set(await settle(loop)) == {"a-decode-0-0"}
    put(loop.cache, tree("a", queue=name)[0])
    assert await settle(loop) == {}
    assert said(loop, "a")[0] in {"QueueNotFound", "QueueDenied"}
    assert said(loop, "b")[0] == "OverQuota"
    end(loop, "a")
    assert set(await settle(loop)) == {"b-decode-0-0"}


async def test_pods_whose_groups_are_gone_are_charged_until_they_end_themselves() -> None:
    loop = Loop(cache(*nodes(2), queue("team", 8), *tree("a"), *tree("b", created="2026-01-02T00:00:00Z")))
    assert set(await settle(loop)) == {"a-decode-0-0"}
    for each in tree("a"):
        if isinstance(each, core.Group):
            drop(loop.cache, each)
    assert await settle(loop) == {}
    put(loop.cache, queue("team", 9))
    assert await settle(loop) == {}
    end(loop, "a")
    assert set(await settle(loop)) == {"b-decode-0-0"}
    assert root_key("a") not in loop.admission._quotas._pods
