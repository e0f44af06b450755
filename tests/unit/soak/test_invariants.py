"""The soak's invariants against a right life of a resource: nothing is found in it, and each invariant in what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soak.invariants import TORN
from soak.world import GRACE
from unit.soak.histories import GATED, History, Json, node, resource, role

#: What happens, and to which pod: ``unit/role/replica/index``.
Step = tuple[str, str, dict[str, Any]]

#: Nodes n0 and n2 lie in one rack, n1 and n3 in the other; each has room for two pods.
NODES = {
    "0/prefill/0/0": "n0",
    "0/decode/0/0": "n0",
    "0/decode/0/1": "n2",
    "0/decode/1/0": "n1",
    "0/decode/1/1": "n3",
}
DECODE = role("decode", 2, minReplicas=1, size=2, topology={"required": "rack"})
ROLES = (role("prefill"), DECODE)
COMPLETE = tuple(
    {"type": kind, "status": "True", "reason": "Complete"}
    for kind in ("Admitted", "Scheduled", "Available", "Progressing")
)
PAUSE: Step = ("wait", "", {"seconds": GRACE + 1})
#: A serving replica may go once its successor serves.
SUCCESSOR = tuple(f"0/decode/2/{index}" for index in range(2))
MINIMUM = [place for place in NODES if "decode/1" not in place]
SURPLUS = [place for place in NODES if "decode/1" in place]
REPLICA = st.sampled_from(["0/decode/0", "0/decode/1"])
PLACE = st.sampled_from(list(NODES))


def arrival(places: Iterable[str], nodes: dict[str, str]) -> list[Step]:
    """Pods are made, let go, bound and started; each together with the others."""
    states = (lambda _: {"gates": GATED}, lambda _: {}, lambda p: {"node": nodes[p]}, lambda p: runs(p, nodes))
    return [("see", place, state(place)) for state in states for place in places]


def runs(place: str, nodes: dict[str, str] = NODES) -> dict[str, Any]:
    return {"node": nodes[place], "ready": True}


def leaving(places: Iterable[str], nodes: dict[str, str] = NODES) -> list[Step]:
    """The operator deletes pods that serve."""
    return [("delete", place, runs(place, nodes)) for place in places]


BEGUN = [*arrival(MINIMUM, NODES), PAUSE, *arrival(SURPLUS, NODES), PAUSE]
AT_REST = [("complete", "", {"generation": 1}), ("wait", "", {"seconds": 1.0}), PAUSE, PAUSE]
SHRUNK = [("want", "", {"replicas": 1, "generation": 2}), *leaving(SURPLUS), PAUSE]
LIFE: list[Step] = [*BEGUN, *AT_REST, *SHRUNK]


def play(steps: Iterable[Step]) -> list[str]:
    """The invariants that these steps broke."""
    history = History(*ROLES)
    for verb, place, fields in steps:
        size = 2 if "decode" in place else 1
        match verb:
            case "see":
                history.see(place, **{"size": size} | fields)
            case "delete":
                history.delete(place, **{"size": size} | fields)
            case "wait":
                history.wait(**fields)
            case "node":
                history.checker.take("Node", "MODIFIED", fields["body"], history.at)
            case "want":
                decode: Json = DECODE | {"replicas": fields["replicas"]}
                more = {key: value for key, value in fields.items() if key != "replicas"}
                history.wanted(ROLES[0], decode, **more)
            case "proof":
                victims = [{"pods": fields["places"]}]
                status = {"succession": {"successors": [{"victims": victims}]}}
                meta = {"name": "llm-0", "namespace": "soak", "uid": "root", "resourceVersion": "1"}
                root: Json = {"metadata": meta, "spec": {}, "status": status}
                history.checker.take("CompositePodGroup", "MODIFIED", root, history.at)
            case "quota":
                history.checker.world.limited.add("soak")
            case "complete":
                found = resource(*ROLES, conditions=COMPLETE, **fields)
                found["status"]["observedGeneration"] = fields["generation"]
                history.checker.take("DisaggregatedInference", "MODIFIED", found, history.at)
    return [violation.rule for violation in history.checker.violations]


def without(steps: Iterable[Step], wrong: Callable[[Step], bool]) -> list[Step]:
    return [step for step in steps if not wrong(step)]


def changed(steps: Iterable[Step], place: str, **fields: Any) -> list[Step]:
    """What is seen of a pod from its binding on has other fields."""
    return [
        (verb, name, seen | fields) if name == place and verb == "see" and seen.get("node") else (verb, name, seen)
        for verb, name, seen in steps
    ]


def before_binding(steps: list[Step], place: str, *more: Step) -> list[Step]:
    at = next(index for index, (_, name, fields) in enumerate(steps) if name == place and fields.get("node"))
    return [*steps[:at], *more, *steps[at:]]


def cordon(place: str, **fields: Any) -> Step:
    name = NODES[place]
    return ("node", "", {"body": node(name, rack=f"rack-{int(name[1]) % 2}", cordoned=True, **fields)})


def test_nothing_is_found_in_a_right_life() -> None:
    assert play(LIFE) == []


@given(replica=REPLICA, index=st.integers(0, 1))
def test_a_replica_is_half_bound_when_a_mate_is_missing_or_gated(replica: str, index: int) -> None:
    place = f"{replica}/{index}"
    assert "half bound" in play(without(LIFE, lambda step: step[1] == place and not step[2].get("gates")))
    assert "half bound" in play(without(LIFE, lambda step: step[1] == place))


@given(replica=REPLICA, index=st.integers(0, 1))
def test_a_replica_is_torn_when_a_pod_is_lost_and_does_not_come_back(replica: str, index: int) -> None:
    place = f"{replica}/{index}"
    lost: Step = ("delete", place, runs(place) | {"by_operator": False})
    again: Step = ("see", place, runs(place) | {"uid": "again"})
    wait: Step = ("wait", "", {"seconds": TORN + 1})
    assert play([*BEGUN, lost, PAUSE, wait]) == ["torn"]
    assert play([*BEGUN, lost, again, PAUSE, wait]) == []


@given(place=st.sampled_from(SURPLUS), lacking=st.sampled_from(MINIMUM))
def test_surplus_is_let_go_before_the_minimum_when_a_pod_of_it_is_not_bound(place: str, lacking: str) -> None:
    late = without(BEGUN, lambda step: step[1] == lacking and bool(step[2].get("node")))
    other_role = "prefill" in lacking
    assert ("minimum first" in play([*late, ("see", place, {"gates": GATED}), ("see", place, {})])) == other_role


@pytest.mark.parametrize("state", ["deleted", "told to drain", "updated in place"])
@given(replica=st.sampled_from(["0/prefill/0", "0/decode/0", "0/decode/1"]))
def test_a_serving_replica_is_given_up_against_the_budget(state: str, replica: str) -> None:
    place = f"{replica}/0"
    given_up: dict[str, Step] = {
        "deleted": ("delete", place, runs(place)),
        "told to drain": ("see", place, runs(place) | {"labels": {"covey.dev/draining": "true"}}),
        "updated in place": ("see", place, runs(place) | {"annotations": {"covey.dev/in-place": "{}"}}),
    }
    assert play([*BEGUN, given_up[state]]) == ["budget"]


@pytest.mark.parametrize(
    "excuse",
    [
        pytest.param([("want", "", {"replicas": 1, "generation": 2})], id="fewer are wanted"),
        pytest.param([("want", "", {"replicas": 2, "suspend": True})], id="suspended"),
        pytest.param([("want", "", {"replicas": 2, "hold": "Nodes"})], id="there is no room"),
        pytest.param([("proof", "", {"places": SURPLUS})], id="it is proven to place a successor"),
        pytest.param([("quota", "", {})], id="a quota lets a successor come only for it"),
        pytest.param(
            [("want", "", {"replicas": 2, "conditions": ({"type": "Escalating", "status": "True", "reason": "R"},)})],
            id="it escalates",
        ),
        pytest.param(arrival(SUCCESSOR, dict.fromkeys(SUCCESSOR, "n9")), id="a successor serves"),
    ],
)
def test_a_serving_replica_may_go_with_a_reason_or_by_somebody_else(excuse: list[Step]) -> None:
    assert play([*BEGUN, *excuse, *leaving(SURPLUS)]) == []
    assert play([*BEGUN, ("delete", SURPLUS[0], runs(SURPLUS[0]) | {"by_operator": False})]) == []


@given(place=PLACE)
def test_two_pods_have_one_place(place: str) -> None:
    twin: Step = ("see", place, {"uid": "twin", "node": "n9"})
    assert play([*BEGUN, twin]) == ["double"]
    going: Step = ("see", place, runs(place) | {"going": True})
    assert "double" not in play([*BEGUN, going, twin])


def test_two_pods_have_one_address() -> None:
    place, labels = "0/decode/0/0", {"labels": {"covey.dev/address": "true"}}
    going: Step = ("see", place, runs(place) | labels | {"going": True})
    assert "double" in play([*BEGUN, going, ("see", place, labels | {"uid": "twin", "gates": GATED})])


@given(place=PLACE, gpus=st.integers(9, 16))
def test_a_node_is_overcommitted(place: str, gpus: int) -> None:
    assert "overcommitted" in play(changed(BEGUN, place, gpus=gpus))
    stranger: Step = ("see", "9/other/0/0", {"owned": False, "scheduler": "other", "gpus": 8, "node": NODES[place]})
    assert "overcommitted" in play(before_binding(BEGUN, place, stranger, PAUSE))
    assert "overcommitted" not in play(before_binding(BEGUN, place, stranger))


@given(place=PLACE)
def test_a_pod_is_bound_to_an_unfit_node(place: str) -> None:
    assert "unfit" in play(before_binding(BEGUN, place, cordon(place), PAUSE))
    assert "unfit" not in play(before_binding(BEGUN, place, cordon(place)))
    # It is well again, and its watch tells so afterwards.
    bound = before_binding(changed(BEGUN, place, version=7), place, cordon(place), PAUSE)
    at = next(index for index, (_, name, fields) in enumerate(bound) if name == place and fields.get("node")) + 1
    well: Step = ("node", "", {"body": cordon(place, version=6)[2]["body"] | {"spec": {}}})
    assert "unfit" not in play([*bound[:at], well, *bound[at:]])


@given(replica=REPLICA, index=st.integers(0, 1))
def test_a_replica_is_astray_in_two_racks(replica: str, index: int) -> None:
    place = f"{replica}/{index}"
    other = f"n{(int(NODES[place][1]) + 1) % 4}"
    assert "astray" in play(changed(BEGUN, place, node=other))


REASONS: dict[str, list[Step]] = {
    "its node is cordoned": [cordon(SURPLUS[0]), PAUSE, PAUSE],
    "the spec was changed": [("want", "", {"replicas": 2, "generation": 2})],
    "a pod was lost": [("see", "0/prefill/0/0", {"node": "n0"}), ("see", "0/prefill/0/0", runs("0/prefill/0/0"))],
}


@pytest.mark.parametrize("reason", ["none", "a node of others is cordoned", *REASONS])
def test_a_replica_at_rest_is_taken_unless_there_is_a_reason(reason: str) -> None:
    successor = arrival(SUCCESSOR, dict.fromkeys(SUCCESSOR, "n9"))
    others: list[Step] = [("node", "", {"body": node("n8", cordoned=True)})] if "others" in reason else []
    found = play([*BEGUN, *AT_REST, *REASONS.get(reason, others), *successor, *leaving(SURPLUS)])
    assert found == ([] if reason in REASONS else ["taken"])


@pytest.mark.parametrize("extra", [{"ready": False}, {"ready": True, "labels": {"covey.dev/revision": "other"}}])
def test_there_is_no_rest_with_a_pod_too_many(extra: dict[str, Any]) -> None:
    more: Step = ("see", "0/decode/2/0", {"node": "n9", "size": 1} | extra)
    successor = arrival(SUCCESSOR, dict.fromkeys(SUCCESSOR, "n9"))
    assert "taken" not in play([*BEGUN, more, *AT_REST, *successor, *leaving(SURPLUS)])
