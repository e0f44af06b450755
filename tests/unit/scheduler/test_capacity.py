from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from covey.scheduler.capacity import Capacity
from scheduler_builders import GATE, START, cache, drop, node, pin_terms, pod, put

GPU = "nvidia.com/gpu"


def free(capacity: Capacity, name: str = "n1") -> int:
    return capacity.room.free(name)[GPU]


def test_room_counts_from_the_decision_until_the_pod_is_gone() -> None:
    made = cache(node("n1"))
    gated = pod("p", group="g", gates=(GATE,), gpus=3)
    put(made, gated)
    assert free(made.capacity) == 8
    made.assume(gated, "n1")
    assert free(made.capacity) == 5
    put(made, pod("p", group="g", gates=(GATE,), gpus=3, labels={"touched": "1"}))  # an older event than the patch
    assert free(made.capacity) == 5
    put(made, pod("p", group="g", pin="n1", gpus=3))
    assert made.capacity.assumed == {}
    assert free(made.capacity) == 5
    put(made, pod("p", group="g", pin="n1", node="n1", gpus=3))
    assert free(made.capacity) == 5
    assert made.capacity.reserved == {}
    put(made, pod("p", group="g", pin="n1", node="n1", gpus=3, deleted=True))
    assert free(made.capacity) == 5
    drop(made, made.pods.store["ns", "p"])
    assert free(made.capacity) == 8


def test_a_decision_that_is_taken_back_gives_its_room_back() -> None:
    made = cache(node("n1"))
    gated = pod("p", group="g", gates=(GATE,))
    put(made, gated)
    made.assume(gated, "n1")
    made.unassume("uid-p")
    assert free(made.capacity) == 8
    assert made.capacity.reserved == {}


def test_a_decision_that_the_watch_confirmed_is_not_taken_back() -> None:
    made = cache(node("n1"))
    gated = pod("p", group="g", gates=(GATE,))
    put(made, gated)
    made.assume(gated, "n1")
    put(made, pod("p", group="g", pin="n1"))
    made.unassume("uid-p")
    assert free(made.capacity) == 7


def test_a_vanished_pod_takes_its_decision_along() -> None:
    made = cache(node("n1"))
    gated = pod("p", group="g", gates=(GATE,))
    put(made, gated)
    made.assume(gated, "n1")
    drop(made, gated)
    made.unassume("uid-p")
    assert free(made.capacity) == 8
    assert made.capacity.assumed == {}


def test_a_successor_of_the_same_name_is_another_pod() -> None:
    made = cache(node("n1"), pod("p", node="n1", uid="old", gpus=8))
    put(made, pod("p", uid="new", gpus=8))
    assert free(made.capacity) == 8
    assert made.index.pod("old") is None


def test_every_owner_holds_and_the_ended_do_not() -> None:
    made = cache(
        node("n1"),
        pod("bound", node="n1", gpus=1),
        pod("daemon", gpus=2, spec={"affinity": pin_terms("n1")}),
        pod("done", node="n1", gpus=4, phase="Succeeded"),
    )
    assert free(made.capacity) == 5


def test_only_members_reserve_against_strangers() -> None:
    made = cache(node("n1"), pod("daemon", gpus=4, spec={"affinity": pin_terms("n1")}))
    assert made.capacity.reserved_away(pod("stranger", gpus=8), "n1") is None
    put(made, pod("m", group="g", pin="n1", gpus=1, gates=(START,)))
    assert made.capacity.reserved_away(pod("stranger", gpus=8), "n1") == f"{GPU} is reserved for admitted gangs"
    assert made.capacity.reserved_away(pod("small", gpus=3), "n1") is None


def test_what_no_reservation_asks_for_is_not_kept() -> None:
    made = cache(node("n1"), pod("m", group="g", pin="n1", gpus=0))
    assert made.capacity.reserved_away(pod("stranger", gpus=9), "n1") is None


def test_reserved_host_ports_are_kept() -> None:
    ports = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    made = cache(node("n1"), pod("m", group="g", pin="n1", spec=ports))
    assert made.capacity.reserved_away(pod("stranger", spec=ports), "n1") is not None
    assert made.capacity.reserved_away(pod("stranger"), "n1") is None


def test_a_place_is_judged_without_the_one_who_holds_it() -> None:
    mine = pod("m", group="g", pin="n1", gpus=8)
    made = cache(node("n1"), mine)
    assert made.capacity.refusal_in_place(mine, "n1") is None
    thief = pod("thief", node="n1", gpus=1)
    put(made, thief)
    assert made.capacity.refusal_in_place(mine, "n1") == f"insufficient {GPU}"
    assert made.capacity.refusal_in_place(mine, "n1", [thief]) is None
    assert free(made.capacity) == -1


def test_the_planner_sees_a_world_that_stands_still() -> None:
    made = cache(node("n1"))
    with made.capacity.planning() as inventory:
        put(made, pod("p", node="n1", gpus=8))
        put(made, node("n2"))
        assert inventory.free("n1")[GPU] == 8
        assert "n2" not in inventory.nodes
        assert free(made.capacity) == 0
    with made.capacity.planning() as inventory:
        assert inventory.free("n1")[GPU] == 0
        assert "n2" in inventory.nodes


names = st.sampled_from(["a", "b", "c"])
places = st.sampled_from(["n1", "n2"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("gated"), names, places),
        st.tuples(st.just("assume"), names, places),
        st.tuples(st.just("unassume"), names, places),
        st.tuples(st.just("pinned"), names, places),
        st.tuples(st.just("bound"), names, places),
        st.tuples(st.just("ended"), names, places),
        st.tuples(st.just("gone"), names, places),
        st.tuples(st.just("node gone"), names, places),
        st.tuples(st.just("node back"), names, places),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(history=steps)
def test_both_views_agree_with_a_fresh_start_whatever_happened(history: list[tuple[str, str, str]]) -> None:
    made = cache(node("n1"), node("n2"))
    for what, name, place in history:
        known = made.pods.store.get(("ns", name))
        match what:
            case "gated":
                put(made, pod(name, group="g", gates=(GATE,)))
            case "assume" if known is not None and known.spec.scheduling_gates:
                made.assume(known, place)
            case "unassume":
                made.unassume(f"uid-{name}")
            case "pinned":
                put(made, pod(name, group="g", pin=place))
            case "bound":
                put(made, pod(name, group="g", pin=place, node=place))
            case "ended":
                put(made, pod(name, group="g", node=place, phase="Failed"))
            case "gone" if known is not None:
                drop(made, known)
            case "node gone" if ("", place) in made.nodes.store:
                drop(made, made.nodes.store["", place])
            case "node back":
                put(made, node(place))
    fresh = cache(*made.nodes.store.values(), *made.pods.store.values())
    for uid, place in made.capacity.assumed.items():
        found = made.index.pod(uid)
        assert found is not None
        fresh.assume(found, place)
    for name in ("n1", "n2"):
        assert dict(made.capacity.room.free(name)) == dict(fresh.capacity.room.free(name))
        with made.capacity.planning() as inventory:
            assert dict(inventory.free(name)) == dict(fresh.capacity.room.free(name))
    assert made.capacity.reserved == fresh.capacity.reserved
