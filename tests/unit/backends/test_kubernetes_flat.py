"""The groups of Kubernetes without a hierarchy: golden trees to be read, what is refused, and what cannot be changed."""

from typing import Any

import msgspec
import pytest
from hypothesis import given

from builders.inferences import inference, inferences, role
from builders.inferences import llama as plain_llama
from covey.api import constants as names
from covey.api.inference import BackendName, DisaggregatedInference
from covey.backends import BACKENDS, Cluster, Owned, choose
from covey.backends.kubernetes import Embedded, Flat, Hierarchical
from covey.backends.kubernetes.gates import REASON
from covey.compile import Tree, type_of
from unit.backends.native import LEVELS, RACK, Object

BOUND_BY_GATES = (*map(Flat, Flat.dialects), Embedded())
EMBEDDED = """
Workload llama v1alpha1: prefill minCount 2, decode minCount 2, router basic
Pod llama-0-prefill-0-0 in llama/prefill/0-0
Pod llama-0-prefill-0-1 in llama/prefill/0-0
Pod llama-0-prefill-1-0 in llama/prefill/0-1
Pod llama-0-prefill-1-1 in llama/prefill/0-1
Pod llama-0-decode-0-0 in llama/decode/0
Pod llama-0-decode-1-0 in llama/decode/0
Pod llama-0-decode-2-0 in llama/decode/0
Pod llama-0-router-0-0 in llama/router/0
"""


def llama(*, level: str | None = "rack", decode: int = 2, **spec: Any) -> DisaggregatedInference:
    """Replicas of prefill in one domain each, and a role that is in no gang."""
    topology = {"topology": {"required": level}} if level else {}
    return plain_llama(topology, {"minReplicas": decode}, role("router", minReplicas=0), **spec)


def read(tree: Tree) -> str:
    return "\n".join(line(body) for body in tree.objects() if body["kind"] not in {"Service", "PodDisruptionBudget"})


def line(body: Object) -> str:
    """One line for an object, so that a tree can be read."""
    kind, name, spec = body["kind"], body["metadata"]["name"], body["spec"]
    if kind == "Workload":
        entries = spec.get("podGroupTemplates") or spec["podGroups"]
        told = ", ".join(f"{entry['name']} {group(entry)}" for entry in entries)
        return f"Workload {name} {body['apiVersion'].rpartition('/')[2]}: {told}"
    if kind == "PodGroup":
        reference = spec.get("workloadRef") or spec["podGroupTemplateRef"]["workload"]
        template = reference.get("templateName") or reference["podGroupTemplateName"]
        return f"PodGroup {name} of {reference['workloadName']}/{template}: {group(spec)}"
    assert spec["schedulingGates"] == [{"name": names.GATE_GANG}]
    reference = spec.get("workloadRef")
    if reference:
        return f"Pod {name} in {reference['name']}/{reference['podGroup']}/{reference['podGroupReplicaKey']}"
    return f"Pod {name} in {spec['schedulingGroup']['podGroupName']}"


def group(spec: Object) -> str:
    policy = spec.get("schedulingPolicy") or spec["policy"]
    parts = [f"minCount {policy['gang']['minCount']}" if "gang" in policy else "basic"]
    if "schedulingConstraints" in spec:
        assert spec["schedulingConstraints"] == {"topology": [{"key": RACK}]}
        parts.append("rack")
    mode = spec.get("disruptionMode")
    return " ".join([*parts, *([mode] if isinstance(mode, str) else mode or ())])


def test_groups_inside_the_workload() -> None:
    assert read(Embedded().compile(llama(level=None), levels=LEVELS)) == EMBEDDED.strip()


@pytest.mark.parametrize("backend", BOUND_BY_GATES, ids=lambda each: each.dialect)
@given(wanted=inferences())
def test_every_pod_has_its_group_and_its_gate(backend: Flat | Embedded, wanted: DisaggregatedInference) -> None:
    tree = backend.compile(wanted)
    objects = list(tree.objects())
    there = {(type_of(body), body["metadata"]["name"]) for body in objects}
    for slot in tree.slots:
        assert tree.pods.anchor(slot) in there
        assert tree.pods.membership(slot).spec["schedulingGates"] == [{"name": names.GATE_GANG}]
    groups = {body["metadata"]["name"]: body["spec"] for body in objects if body["kind"] == "PodGroup"}
    counts: dict[str, int] = {}
    for body in objects:
        if body["kind"] == "Pod" and "schedulingGroup" in body["spec"]:
            name = body["spec"]["schedulingGroup"]["podGroupName"]
            counts[name] = counts.get(name, 0) + 1
    for name, spec in groups.items():
        gang = spec["schedulingPolicy"].get("gang")
        # Otherwise its pods would wait for ever.
        assert gang is None or 1 <= gang["minCount"] <= counts[name]


def kept(*backends: Flat | Embedded) -> Cluster:
    return Cluster(kept=frozenset(probe.name for each in backends for probe in each.probes()))


@pytest.mark.parametrize("backend", BOUND_BY_GATES, ids=lambda each: each.dialect)
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"topology": {"preferred": "rack"}}, "spec.topology.preferred"),
        ({"spread": {"level": "rack"}}, "spec.spread"),
        ({"proximity": [{"roles": ["prefill", "decode"], "level": "rack"}]}, "spec.proximity"),
        ({"disruptionMode": "Unit"}, "spec.disruptionMode"),
        ({"queue": "q"}, "spec.queue"),
        ({"gang": {"timeoutSeconds": 60}}, "spec.gang.timeoutSeconds"),
    ],
)
def test_what_no_flat_group_carries(backend: Flat | Embedded, spec: dict[str, Any], words: str) -> None:
    [sentence] = backend.refusals(llama(level=None, **spec).spec, LEVELS, kept(backend))
    assert words in sentence
    assert ": " in sentence or "; " in sentence, "it says what to do"


def test_a_level_of_a_unit_is_carried_where_everything_is_let_go_by_the_room() -> None:
    wanted = llama(topology={"required": "block"})
    refused = {each.dialect: each.refusals(wanted.spec, LEVELS, kept(each)) for each in BOUND_BY_GATES}
    assert {dialect for dialect, sentences in refused.items() if sentences} == {"1.37-flat"}
    [sentence] = refused["1.37-flat"]
    assert "CompositePodGroup" in sentence
    assert all("there is no ClusterTopology" in text for text in Embedded().refusals(wanted.spec, None, Cluster()))


def test_a_priority_that_no_group_may_have_is_refused_where_groups_have_one() -> None:
    wanted = llama(level=None, priorityClassName="system-node-critical")
    refused = {each.dialect for each in BOUND_BY_GATES if each.refusals(wanted.spec, LEVELS, kept(each))}
    assert refused == {"1.37-flat", "1.36-preemption"}


def test_the_newest_that_the_cluster_can_do() -> None:
    kinds = {
        each.dialect: set(each.kinds()) for each in (*map(Hierarchical.of, Hierarchical.dialects), *BOUND_BY_GATES)
    }
    every = frozenset().union(*kinds.values())

    def chosen(dialect: str, without: str = "") -> str | None:
        probes = frozenset(
            probe.name for each in BACKENDS for probe in each.probes() if not without or without not in probe.name
        )
        found = choose(BackendName.KUBERNETES, Cluster(every - kinds[dialect], probes))
        return found.dialect if found else None

    assert chosen("1.38") == "1.38"
    assert chosen("1.37") == "1.37"
    assert chosen("1.37-flat") == "1.37-flat"
    assert chosen("1.37", without="parent") == "1.37-flat"
    assert chosen("1.36") == "1.36-preemption"
    assert chosen("1.36", without="preemption") == "1.36"
    assert chosen("1.35") == "1.35"
    assert chosen("1.35", without="workload-ref") is None
    assert chosen("1.36", without="scheduling-group") is None


def test_what_is_missing_is_told_with_its_remedy() -> None:
    backend = Flat("1.36")
    unserved = backend.absent(Cluster(frozenset(backend.kinds())))
    assert unserved is not None
    assert "--runtime-config=scheduling.k8s.io/v1alpha2=true" in unserved
    dropped = backend.absent(Cluster())
    assert dropped is not None
    assert "GenericWorkload" in dropped
    probe = backend.probes()[0].name
    unknown = backend.absent(Cluster(unprobed={probe: "forbidden"}))
    assert unknown is not None
    assert "forbidden" in unknown


def stored(body: Object, **more: Any) -> Owned:
    """As the API server stores it, with what it fills in."""
    return msgspec.convert({"metadata": body["metadata"], "spec": {**body["spec"], **more}}, Owned)


def only(tree: Tree, kind: str, name: str) -> Object:
    return next(body for body in tree.objects() if (body["kind"], body["metadata"]["name"]) == (kind, name))


@pytest.mark.parametrize("dialect", Flat.dialects)
def test_what_admission_fills_in_is_no_change(dialect: str) -> None:
    body = only(Flat(dialect).compile(llama(), levels=LEVELS), "PodGroup", "llama-0-decode")
    filled = {"priority": 0, "resourceClaims": None}
    if dialect == "1.36":
        # Its feature gate was turned on after the dialect was chosen.
        filled["disruptionMode"] = "Pod"
    assert not Flat(dialect).is_fixed(stored(body, **filled), body)


def test_what_kube_scheduler_says_of_a_group_is_told() -> None:
    backend = Flat("1.36")
    body = only(backend.compile(llama()), "PodGroup", "llama-0-decode")
    said = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    group = msgspec.convert({**body, "status": {"conditions": [said]}}, Owned)
    report = backend.read_back("llama", 0, {(type_of(body), "llama-0-decode"): group})
    assert report is not None
    assert report.admitted is not None
    assert report.admitted.reason == REASON
    assert "PodGroup llama-0-decode: 0/3 nodes" in report.admitted.message
    assert backend.read_back("llama", 1, {(type_of(body), "llama-0-decode"): group}) is None


def test_preemption_of_replicas_needs_a_version_that_says_it() -> None:
    wanted = llama(level=None, disruptionMode="Replica")
    refused = {each.dialect for each in BOUND_BY_GATES if each.refusals(wanted.spec, LEVELS, kept(each))}
    assert refused == {"1.36", "1.35"}
    tree = Flat("1.36-preemption").compile(llama(level=None, disruptionMode="Pod"))
    modes = {body["spec"]["disruptionMode"] for body in tree.objects() if body["kind"] == "PodGroup"}
    assert modes == {"Pod"}


def test_a_domain_needs_a_gang_that_lies_in_it() -> None:
    wanted = inference(
        role("router", topology={"followUnit": False}), role("cache", minReplicas=0), topology={"required": "block"}
    )
    [sentence] = Embedded().refusals(wanted.spec, LEVELS, Cluster())
    assert "minReplicas 0" in sentence
