from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import GATE, PINNED, START, cache, drop, group, node, pin_terms, pod, put
from covey.api import core
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.capacity import Capacity

GPU = "nvidia.com/gpu"
LEAF = group("g", minimum=1)
OTHER = {"kind": "Thing", "name": "other", "uid": "other", "controller": True}


def free(capacity: Capacity, name: str = "n1") -> int:
    return capacity.room.free(name)[GPU]


def test_room_counts_from_the_decision_until_the_pod_is_gone() -> None:
    made = cache(node("n1"), LEAF)
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


def decided() -> Cache:
    """A cache with a gated pod for which a node was decided."""
    gated = pod("p", group="g", gates=(GATE,))
    made = cache(node("n1"), LEAF, gated)
    made.assume(gated, "n1")
    return made


def test_a_decision_that_is_taken_back_gives_its_room_back() -> None:
    made = decided()
    made.unassume("uid-p")
    assert free(made.capacity) == 8
    assert made.capacity.reserved == {}


def test_a_decision_that_the_watch_confirmed_is_not_taken_back() -> None:
    made = decided()
    put(made, pod("p", group="g", pin="n1"))
    made.unassume("uid-p")
    assert free(made.capacity) == 7


def test_a_vanished_pod_takes_its_decision_along() -> None:
    made = decided()
    drop(made, made.pods.store["ns", "p"])
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
    assert free(made.capacity) == 7  # a DaemonSet's pod holds nothing before it is bound


def test_only_members_reserve_against_strangers() -> None:
    made = cache(node("n1"), LEAF, pod("other", node="n1", gpus=4))
    assert made.capacity.reserved_away(pod("stranger", gpus=8), "n1") is None
    put(made, pod("m", group="g", pin="n1", gpus=1, gates=(START,)))
    assert made.capacity.reserved_away(pod("stranger", gpus=8), "n1") == f"{GPU} is reserved for admitted gangs"
    assert made.capacity.reserved_away(pod("small", gpus=3), "n1") is None


def test_what_no_reservation_asks_for_is_not_kept() -> None:
    made = cache(node("n1"), LEAF, pod("m", group="g", pin="n1", gpus=0))
    assert made.capacity.reserved_away(pod("stranger", gpus=9), "n1") is None


def test_reserved_host_ports_are_kept() -> None:
    ports = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    made = cache(node("n1"), LEAF, pod("m", group="g", pin="n1", spec=ports))
    assert made.capacity.reserved_away(pod("stranger", spec=ports), "n1") is not None
    assert made.capacity.reserved_away(pod("stranger"), "n1") is None


def test_a_place_is_judged_without_the_one_who_holds_it() -> None:
    mine = pod("m", group="g", pin="n1", gpus=8)
    made = cache(node("n1"), LEAF, mine)
    assert made.capacity.refusal_in_place(mine, "n1") is None
    thief = pod("thief", node="n1", gpus=1)
    put(made, thief)
    assert made.capacity.refusal_in_place(mine, "n1") == f"insufficient {GPU}"
    before = made.capacity.room.nodes["n1"].version
    assert made.capacity.refusal_in_place(mine, "n1", [thief]) is None
    assert free(made.capacity) == -1
    assert made.capacity.room.nodes["n1"].version == before  # an answer changes nothing, so no plan is outdated by it


def test_host_ports_and_neighbours_of_the_absent_do_not_count() -> None:
    ports = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    mine, other = pod("m", group="g", pin="n1", spec=ports), pod("other", node="n1", spec=ports)
    made = cache(node("n1"), LEAF, mine, other)
    assert made.capacity.refusal_in_place(mine, "n1") == "host port"
    assert made.capacity.refusal_in_place(mine, "n1", [other]) is None


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
        st.tuples(st.just("forged"), names, places),
        st.tuples(st.just("bound"), names, places),
        st.tuples(st.just("ended"), names, places),
        st.tuples(st.just("gone"), names, places),
        st.tuples(st.just("node gone"), names, places),
        st.tuples(st.just("node back"), names, places),
        st.tuples(st.just("group gone"), names, places),
        st.tuples(st.just("group back"), names, places),
        st.tuples(st.just("group of another"), names, places),
    ),
    max_size=40,
)


@given(history=steps)
def test_both_views_agree_with_a_fresh_start_whatever_happened(history: list[tuple[str, str, str]]) -> None:
    made = cache(node("n1"), node("n2"), LEAF)
    leaf: core.Group | None = LEAF
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
            case "forged":
                put(made, pod(name, group="g", spec={"affinity": pin_terms(place)}))
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
            case "group gone" if leaf is not None:
                drop(made, leaf)
                leaf = None
            case "group back" | "group of another":
                wanted = LEAF if what == "group back" else group("g", minimum=1, owner=OTHER)
                put(made, wanted, leaf)
                leaf = wanted
    fresh = cache(*made.nodes.store.values(), *([leaf] if leaf else []), *made.pods.store.values())
    for uid, place in made.capacity.assumed.items():
        found = made.index.pod(uid)
        assert found is not None
        fresh.assume(found, place)
    for name in ("n1", "n2"):
        assert dict(made.capacity.room.free(name)) == dict(fresh.capacity.room.free(name))
        with made.capacity.planning() as inventory:
            assert dict(inventory.free(name)) == dict(fresh.capacity.room.free(name))
    assert made.capacity.reserved == fresh.capacity.reserved


@pytest.mark.parametrize("groups_last", [False, True])
def test_a_pin_counts_as_soon_as_its_group_is_known(groups_last: bool) -> None:  # noqa: FBT001 - a case
    objects = [LEAF, pod("p", group="g", pin="n1", gpus=8)]
    made = cache(node("n1"), *(reversed(objects) if groups_last else objects))
    assert free(made.capacity) == 0
    assert set(made.capacity.reserved) == {"n1"}


def test_a_group_that_is_gone_gives_its_pins_room_back_and_one_that_returns_takes_it() -> None:
    made = cache(node("n1"), LEAF, pod("p", group="g", pin="n1", gpus=8), pod("bound", group="g", node="n1", gpus=0))
    told: list[str] = []
    pods: list[str] = []
    made.subscribe(Listener(room=told.append, pod=lambda found: pods.append(found.metadata.name)))
    drop(made, LEAF)
    assert (free(made.capacity), made.capacity.reserved, told, pods) == (8, {}, ["n1"], ["p"])
    put(made, LEAF)
    assert (free(made.capacity), set(made.capacity.reserved)) == (0, {"n1"})


def test_a_group_of_another_owner_has_no_pins() -> None:
    made = cache(node("n1"), LEAF, pod("p", group="g", pin="n1", gpus=8))
    put(made, group("g", minimum=1, owner=OTHER), LEAF)
    assert (free(made.capacity), made.capacity.reserved) == (8, {})


def test_a_status_of_a_group_touches_no_pod() -> None:
    made = cache(node("n1"), LEAF, pod("p", group="g", pin="n1", gpus=8))
    pods: list[str] = []
    made.subscribe(Listener(pod=lambda found: pods.append(found.metadata.name)))
    put(made, group("g", minimum=1, status={"admitted": 1}), LEAF)
    assert pods == []


FORGED = [
    pytest.param(pod("f", gpus=8, spec={"affinity": pin_terms("n1")}), id="a DaemonSet's pod"),
    pytest.param(pod("f", gpus=8, gates=(GATE,), spec={"affinity": pin_terms("n1")}), id="gated"),
    pytest.param(pod("f", group="g", gpus=8, spec={"affinity": pin_terms("n1")}), id="a member that pins itself"),
    pytest.param(
        pod("f", group="g", gpus=8, spec={"affinity": pin_terms("n1")}, annotations={PINNED: "uid-other"}),
        id="with the mark of another pod",
    ),
    pytest.param(pod("f", group="g", pin="n1", gpus=8, gates=(GATE,)), id="marked, and still gated"),
    pytest.param(pod("f", group="g", pin="n1", gpus=8, owner=OTHER), id="marked, of another owner"),
    pytest.param(pod("f", group="g", pin="n1", gpus=8, owner=None), id="marked, without an owner"),
    pytest.param(pod("f", group="nowhere", pin="n1", gpus=8), id="marked, of no group"),
    pytest.param(
        pod("f", gpus=8, spec={"affinity": pin_terms("n1")}, annotations={PINNED: "uid-f"}), id="marked, no member"
    ),
]


@pytest.mark.parametrize("forged", FORGED)
def test_what_is_no_pin_of_ours_holds_no_room(forged: core.Pod) -> None:
    made = cache(node("n1"), LEAF, forged)
    assert free(made.capacity) == 8
    assert made.capacity.reserved == {}


def test_a_decision_whose_group_goes_before_its_pin_is_seen_holds_nothing() -> None:
    gated = pod("p", group="g", gates=(GATE,), gpus=8)
    made = cache(node("n1"), LEAF, gated)
    made.assume(gated, "n1")
    drop(made, LEAF)
    put(made, pod("p", group="g", pin="n1", gpus=8))
    assert (free(made.capacity), made.capacity.assumed, made.capacity.reserved) == (8, {}, {})


def keeps_off(**labels: str) -> dict[str, object]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_anti_affinity_is_seen_from_both_sides_and_as_labels_are_now() -> None:
    made = cache(node("n1"), LEAF)
    put(made, pod("hermit", node="n1", labels={"app": "db"}, spec=keeps_off(app="web")))
    assert made.capacity.refusal(pod("p", labels={"app": "web"}), "n1") == "pod anti-affinity"
    assert made.capacity.refusal(pod("p", labels={"app": "api"}), "n1") is None
    shy = pod("shy", spec=keeps_off(app="db"))
    assert made.capacity.refusal(shy, "n1") == "pod anti-affinity"
    put(made, pod("hermit", node="n1", labels={"app": "cache"}, spec=keeps_off(app="web")))
    assert made.capacity.refusal(shy, "n1") is None


@pytest.mark.parametrize("shy", ["member", "stranger"])
def test_a_stranger_that_would_keep_a_pinned_member_out_stays_away(shy: str) -> None:
    """kube-scheduler refuses the pin when the stranger is bound first, whichever of the two has the term."""
    made = cache(node("n1"), LEAF)
    terms = {name: keeps_off(app=other) for name, other in (("member", "web"), ("stranger", "llm"))}
    gated = pod("p", group="g", gates=(GATE,), labels={"app": "llm"}, spec=terms["member"] if shy == "member" else {})
    put(made, gated)
    made.assume(gated, "n1")
    web = pod("web", labels={"app": "web"}, gpus=0, spec=terms["stranger"] if shy == "stranger" else {})
    api = pod("api", labels={"app": "api"}, gpus=0)
    assert made.capacity.reserved_away(web, "n1") == "anti-affinity keeps it apart from a pod of an admitted gang"
    assert made.capacity.reserved_away(api, "n1") is None
