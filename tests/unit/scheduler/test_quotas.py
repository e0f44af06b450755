from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import GATE, cache, drop, member, node, put, queue, root_key
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
        drop(loop.cache, pod)


async def test_a_minimum_over_quota_waits_although_there_are_nodes() -> None:
    loop = Loop(cache(*nodes(4), queue("team", 12), *tree("a"), *tree("b", created="2026-01-02T00:00:00Z")))
    assert await settle(loop) == {"a-decode-0-0": "n0"}
    assert said(loop, "b") == (
        "OverQuota",
        "8 of 12 nvidia.com/gpu of queue team are in use; 4 short; team is in no cohort that it could borrow from",
    )


async def test_a_raised_quota_helps_at_once() -> None:
    loop = Loop(cache(*nodes(4), queue("team", 8), *tree("a"), *tree("b")))
    await settle(loop)
    put(loop.cache, queue("team", 16))
    assert set(await settle(loop)) == {"b-decode-0-0"}


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
    drop(loop.cache, lost)
    put(loop.cache, member("decode", 0, root="a", gates=(GATE,), gpus=8, uid="again"))
    assert await settle(loop) == {}
    assert said(loop, "a")[0] == "OverQuota"


async def test_pods_are_charged_when_their_node_comes_back() -> None:
    groups = [each for each in tree("a") if isinstance(each, core.Group)]
    loop = Loop(cache(*nodes(1), queue("team", 8), *groups, member("decode", 0, root="a", node="gone", gpus=8)))
    assert await settle(loop) == {}
    put(loop.cache, node("gone"))
    for each in tree("b", created="2026-01-02T00:00:00Z"):
        put(loop.cache, each)
    assert await settle(loop) == {}
    assert said(loop, "b")[0] == "OverQuota"


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
