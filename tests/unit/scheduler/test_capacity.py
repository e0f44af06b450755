from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import GATE, cache, drop, group, node, pin_terms, pod, put
from covey.api import core
from covey.scheduler.cache import Cache
from covey.scheduler.capacity import Capacity

GPU = "nvidia.com/gpu"
LEAF = group("g", minimum=1)
OTHER = {"kind": "Thing", "name": "other", "uid": "other", "controller": True}


def free(capacity: Capacity, name: str = "n1") -> int:
    return capacity.room.free(name)[GPU]


def decided() -> Cache:
    """A cache with a gated pod for which a node was decided."""
    gated = pod("p", group="g", gates=(GATE,))
    made = cache(node("n1"), LEAF, gated)
    made.assume(gated, "n1")
    return made


def test_a_decision_that_the_watch_confirmed_is_not_taken_back() -> None:
    made = decided()
    put(made, pod("p", group="g", pin="n1"))
    made.unassume("uid-p")
    assert free(made.capacity) == 7


def test_host_ports_and_neighbours_of_the_absent_do_not_count() -> None:
    ports = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    mine, other = pod("m", group="g", pin="n1", spec=ports), pod("other", node="n1", spec=ports)
    made = cache(node("n1"), LEAF, mine, other)
    assert made.capacity.refusal_in_place(mine, "n1") == "host port"
    assert made.capacity.refusal_in_place(mine, "n1", [other]) is None


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


def test_reserved_host_ports_are_kept() -> None:
    ports = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    made = cache(node("n1"), LEAF, pod("m", group="g", pin="n1", spec=ports))
    assert made.capacity.reserved_away(pod("stranger", spec=ports), "n1") is not None
    assert made.capacity.reserved_away(pod("stranger"), "n1") is None
