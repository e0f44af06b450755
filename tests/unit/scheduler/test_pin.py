from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import GATE, PINNED, REQUIRED, START, decode_pod
from covey.api import core
from covey.scheduler.pin import annotate_patch, pin_patch
from merge_patch import merge

Json = dict[str, Any]
NOW = 1767225600.0

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


def reading(field: str) -> Json:
    return {"name": "READS", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{field}"}}}


RACK_FILE = {"path": "rack", **reading("labels['topology.covey.dev/rack']")["valueFrom"]}


def manifest(gates: list[str], affinity: Json | None = None, annotations: Json | None = None) -> Json:
    spec: Json = {"schedulingGates": [{"name": gate} for gate in gates], "containers": []}
    if affinity is not None:
        spec["affinity"] = affinity
    metadata: Json = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {"a/b": "c"}}
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
    patch = pin_patch(decode_pod(before), "n1", {"rack": "r1", "odd~level": "x"}, NOW)
    after = merge(before, json.loads(json.dumps(patch)))

    assert [gate["name"] for gate in after["spec"]["schedulingGates"]] == [gate for gate in gates if gate != GATE]
    old_terms = ((affinity or {}).get("nodeAffinity", {}).get(REQUIRED) or {}).get("nodeSelectorTerms", [{"new": 1}])
    new_terms = after["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    pin = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    for old, new in zip(old_terms, new_terms, strict=True):
        assert old == {} or new["matchFields"][-1] == pin
        assert old != {} or new == {}
    if any(old_terms):
        assert core.pinned_node(msgspec.convert(after, core.Pod)) == "n1"
    assert after["metadata"]["labels"] == {"a/b": "c"}
    assert after["metadata"]["annotations"] == (notes or {}) | {
        PINNED: "u",
        "scheduling.covey.dev/pinned-at": "2026-01-01T00:00:00Z",
        "topology.covey.dev/rack": "r1",
        "topology.covey.dev/odd~level": "x",
    }
    assert after["metadata"]["managedFields"] == [{}]
    assert stripped(after) == stripped(before)


def stripped(body: Json) -> Json:
    """A pod without what the patch may change."""
    rest = copy.deepcopy(body)
    rest["metadata"].pop("annotations", None)
    rest["metadata"].pop("managedFields", None)
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


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"env": [{"name": "A", "value": "1"}, reading("labels['topology.covey.dev/rack']")]}]},
        {"initContainers": [{"env": [reading("labels['topology.covey.dev/rack']")]}]},
        {"volumes": [{"name": "v", "downwardAPI": {"items": [{"path": "all", **reading("labels")["valueFrom"]}]}}]},
        {
            "volumes": [
                {"name": "v", "projected": {"sources": [{"secret": {}}, {"downwardAPI": {"items": [RACK_FILE]}}]}}
            ]
        },
    ],
    ids=["a variable", "of an init container", "a volume of all labels", "a projected volume"],
)
def test_a_pod_that_reads_domains_as_labels_gets_both(spec: Json) -> None:
    pod = decode_pod({**manifest([GATE]), "spec": {"schedulingGates": [{"name": GATE}], "containers": [], **spec}})
    metadata = pin_patch(pod, "n1", {"rack": "r1"}, NOW)["metadata"]
    assert metadata["labels"] == {"topology.covey.dev/rack": "r1"}
    assert metadata["annotations"]["topology.covey.dev/rack"] == "r1"


@pytest.mark.parametrize(
    ("spec", "annotations", "labels"),
    [
        ({"containers": [{"env": [reading("annotations['topology.covey.dev/rack']")]}]}, {}, None),
        ({"containers": [{"env": [reading("labels['covey.dev/revision']")]}]}, {}, None),
        ({}, {"covey.dev/domain-labels": "true"}, {"topology.covey.dev/rack": "r1"}),
        ({}, {"covey.dev/domain-labels": "false"}, None),
    ],
)
def test_other_pods_get_labels_where_they_ask(spec: Json, annotations: Json, labels: Json | None) -> None:
    before = manifest([GATE], annotations=annotations)
    before["spec"] |= spec
    assert pin_patch(decode_pod(before), "n1", {"rack": "r1"}, NOW)["metadata"].get("labels") == labels


def test_releases_and_wakes_touch_one_incarnation_only() -> None:
    before = manifest([], annotations={"kept": "1"})
    patch = annotate_patch(decode_pod(before), {"scheduling.covey.dev/release": "Timeout"})
    assert patch["metadata"]["uid"] == "u"
    assert merge(before, patch)["metadata"]["annotations"] == {"kept": "1", "scheduling.covey.dev/release": "Timeout"}
