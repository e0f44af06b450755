from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import cache, drop, member, node, put, queue, root_key
from covey.api import core
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


async def test_pods_are_charged_when_their_node_comes_back() -> None:
    groups = [each for each in tree("a") if isinstance(each, core.Group)]
    loop = Loop(cache(*nodes(1), queue("team", 8), *groups, member("decode", 0, root="a", node="gone", gpus=8)))
    assert await settle(loop) == {}
    put(loop.cache, node("gone"))
    for each in tree("b", created="2026-01-02T00:00:00Z"):
        put(loop.cache, each)
    assert await settle(loop) == {}
    assert said(loop, "b")[0] == "OverQuota"


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
