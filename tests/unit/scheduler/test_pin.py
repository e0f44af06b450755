from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import jsonpointer
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.api import core
from covey.scheduler.pin import NotGatedError, annotate_patch, escape, pin_patch
from scheduler_builders import GATE, PINNED, REQUIRED, START, decode_pod

Json = dict[str, Any]

expressions = st.lists(
    st.fixed_dictionaries({"key": st.sampled_from(["zone", "gpu"]), "operator": st.just("Exists")}),
    min_size=1,
    max_size=2,
)
fields = st.just([{"key": "metadata.name", "operator": "NotIn", "values": ["other"]}])
terms = st.fixed_dictionaries({}, optional={"matchExpressions": expressions, "matchFields": fields})
node_affinities = st.fixed_dictionaries(
    {},
    optional={
        REQUIRED: st.builds(lambda found: {"nodeSelectorTerms": found}, st.lists(terms, min_size=1, max_size=3)),
        "preferredDuringSchedulingIgnoredDuringExecution": st.just([{"weight": 1, "preference": {}}]),
    },
)
affinities = st.fixed_dictionaries({}, optional={"nodeAffinity": node_affinities, "podAffinity": st.just({"x": 1})})
gate_lists = st.permutations(["example.com/a", GATE, START]).flatmap(
    lambda found: st.integers(found.index(GATE), 2).map(lambda last: found[: last + 1])
)


def apply(body: Json, operations: list[Json]) -> Json:
    """Apply a patch as the API server does: a test for null passes where nothing is."""
    for position, each in enumerate(operations):
        if each["op"] == "test" and each["value"] is None:
            so_far = apply(body, operations[:position])
            if jsonpointer.resolve_pointer(so_far, each["path"], None) is not None:
                raise jsonpatch.JsonPatchTestFailed(each["path"])
    return jsonpatch.apply_patch(body, [each for each in operations if each.get("value", 1) is not None])


def manifest(gates: list[str], affinity: Json | None = None, annotations: Json | None = None) -> Json:
    spec: Json = {"schedulingGates": [{"name": gate} for gate in gates], "containers": []}
    if affinity is not None:
        spec["affinity"] = affinity
    metadata: Json = {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a/b": "c"}}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec}


@given(
    gates=gate_lists, affinity=st.none() | affinities, notes=st.none() | st.just({}) | st.just({"a": "b", PINNED: "x"})
)
def test_the_pin_stands_in_every_term_and_only_our_gate_goes(
    gates: list[str], affinity: Json | None, notes: Json | None
) -> None:
    before = manifest(gates, affinity, notes)
    operations = pin_patch(decode_pod(before), "n1", {"rack": "r1", "odd~/level": "x"})
    after = apply(before, operations)

    assert [gate["name"] for gate in after["spec"]["schedulingGates"]] == [gate for gate in gates if gate != GATE]
    old_terms = ((affinity or {}).get("nodeAffinity", {}).get(REQUIRED) or {}).get("nodeSelectorTerms", [{"new": 1}])
    new_terms = after["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    pin = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    for old, new in zip(old_terms, new_terms, strict=True):
        assert old == {} or new["matchFields"][-1] == pin
        assert old != {} or new == {}
    assert after["metadata"]["labels"] == {
        "a/b": "c",
        "topology.covey.dev/rack": "r1",
        "topology.covey.dev/odd~/level": "x",
    }
    if any(old_terms):
        assert core.pinned_node(msgspec.convert(after, core.Pod)) == "n1"
    assert after["metadata"]["annotations"] == (before["metadata"].get("annotations") or {}) | {PINNED: "u"}
    assert stripped(after) == stripped(before)


def stripped(body: Json) -> Json:
    """A pod without what the patch may change."""
    rest = copy.deepcopy(body)
    rest["metadata"].pop("annotations", None)
    rest["metadata"]["labels"] = {k: v for k, v in rest["metadata"]["labels"].items() if "topology" not in k}
    rest["spec"].pop("schedulingGates")
    affinity = rest["spec"].get("affinity", {})
    node = affinity.get("nodeAffinity", {})
    for term in node.get(REQUIRED, {}).get("nodeSelectorTerms", []):
        kept = [field for field in term.pop("matchFields", []) if field["operator"] != "In"]
        if kept:
            term["matchFields"] = kept
    if not any(node.get(REQUIRED, {}).get("nodeSelectorTerms", [])):
        node.pop(REQUIRED, None)
    if not node:
        affinity.pop("nodeAffinity", None)
    if not affinity:
        rest["spec"].pop("affinity", None)
    return rest


def test_what_was_added_meanwhile_is_not_replaced() -> None:
    before = manifest([GATE])
    pod = decode_pod(before)
    before["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        apply(before, pin_patch(pod, "n1", {}))
    before["metadata"]["annotations"] = {"somebody": "else"}
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        apply(before, annotate_patch(pod, {"a": "b"}))


@pytest.mark.parametrize("change", ["uid", "gate", "order"])
def test_a_pod_that_changed_meanwhile_refuses_the_patch(change: str) -> None:
    before = manifest(["example.com/a", GATE])
    operations = pin_patch(decode_pod(before), "n1", {})
    if change == "uid":
        before["metadata"]["uid"] = "other"
    elif change == "gate":
        before["spec"]["schedulingGates"].pop()
    else:
        before["spec"]["schedulingGates"].reverse()
    with pytest.raises(jsonpatch.JsonPatchException):
        apply(before, operations)


def test_a_term_added_meanwhile_is_seen_by_the_missing_parent() -> None:
    pod = decode_pod(
        manifest(
            [GATE],
            {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}]}
                        ]
                    }
                }
            },
        )
    )
    with pytest.raises(jsonpointer.JsonPointerException):
        apply(manifest([GATE]), pin_patch(pod, "n1", {}))


def test_without_our_gate_there_is_no_patch() -> None:
    with pytest.raises(NotGatedError):
        pin_patch(decode_pod(manifest(["example.com/a"])), "n1", {})


def test_releases_and_wakes_touch_one_incarnation_only() -> None:
    before = manifest([])
    before["metadata"]["annotations"] = {"kept": "1"}
    pod = decode_pod(before)
    after = apply(before, annotate_patch(pod, {"scheduling.covey.dev/release": "Timeout"}))
    assert after["metadata"]["annotations"] == {"kept": "1", "scheduling.covey.dev/release": "Timeout"}
    before["metadata"]["uid"] = "other"
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        apply(before, annotate_patch(pod, {"a": "b"}))


def test_keys_are_escaped_as_the_rfc_says() -> None:
    assert escape("a/b~c") == "a~1b~0c"
