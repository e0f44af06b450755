"""What the groups of Kubernetes 1.37 cannot carry is refused before anything is made: by field, with what to do."""

from collections.abc import Mapping
from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.api.template import RESERVED
from covey.backends import Cluster
from covey.backends.kubernetes import Hierarchical
from covey.backends.kubernetes.shared import COMPOSITE_POD_GROUPS_1_38
from covey.compile import Levels
from unit.backends.native import LEVELS, llama

ALL_KEPT = Cluster(
    frozenset({COMPOSITE_POD_GROUPS_1_38}), kept=frozenset(probe.name for probe in Hierarchical().probes())
)


def refusals(wanted: DisaggregatedInference, levels: Levels | None = LEVELS) -> tuple[str, ...]:
    return Hierarchical().refusals(wanted.spec, levels, ALL_KEPT)


def together() -> DisaggregatedInference:
    mode = {"scaling": {"mode": "Together"}}
    return inference(role("prefill", **mode), role("decode", **mode))


def wide(count: int, **fields: Any) -> DisaggregatedInference:
    return inference(*(role(f"r{number}", **fields) for number in range(count)))


CARRIED: Mapping[str, DisaggregatedInference] = {
    "the golden tree": llama(),
    "eight roles of several pods and eight of single pods": inference(
        *(role(f"a{number}", size=2) for number in range(8)), *(role(f"b{number}") for number in range(8))
    ),
    "any number of roles outside the gang": inference(
        role("gang"), *(role(f"r{number}", minReplicas=0, size=2) for number in range(15))
    ),
    "a level of single pods that the unit keeps anyway": inference(
        role("a", topology={"required": "block"}), topology={"required": "rack"}
    ),
    "proximity that the unit keeps anyway": inference(
        role("a"),
        role("b"),
        topology={"required": "rack"},
        proximity=[{"roles": ["a", "b"], "level": "block", "mode": "Required"}],
    ),
    "followUnit false where the unit has no level": inference(role("a", topology={"followUnit": False})),
}

REFUSED: list[tuple[str, DisaggregatedInference]] = [
    ("spec.topology.preferred", llama(topology={"required": "block", "preferred": "rack"})),
    ("spec.roles[a].topology.preferred", inference(role("a", size=2, topology={"preferred": "rack"}))),
    ("spec.topology.required names level host, which has several keys", llama(topology={"required": "host"})),
    ("spec.roles[a].topology.required names level host", inference(role("a", size=2, topology={"required": "host"}))),
    ("spec.roles[a].topology.required asks on a role of size 1", inference(role("a", topology={"required": "rack"}))),
    ("spec.proximity of prefill and decode", llama(proximity=[{"roles": ["prefill", "decode"], "level": "rack"}])),
    ("spec.spread", llama(spread={"level": "rack"})),
    ("spec.gang.timeoutSeconds is 60", llama(gang={"timeoutSeconds": 60})),
    ("spec.queue", llama(queue="q")),
    (
        "spec.roles[a].dependsOn holds pods",
        inference(role("a", dependsOn=[{"role": "b", "condition": "Ready"}]), role("b")),
    ),
    ("spec.roles[a].startup LeaderReady holds pods", inference(role("a", size=2, startup="LeaderReady"))),
    ("spec.roles[prefill].scaling.mode Together", together()),
    ("spec.preemption: kube-scheduler preempts by its own rules", llama(preemption={"delaySeconds": 5})),
    ("spec.priorityClassName system-node-critical", llama(priorityClassName="system-node-critical")),
    (
        "spec.roles[a].topology.followUnit is false",
        inference(role("a", topology={"followUnit": False}), role("b"), topology={"required": "rack"}),
    ),
    ("spec.roles[b] has minReplicas 0", inference(role("a"), role("b", minReplicas=0), topology={"required": "rack"})),
    ("9 roles of the gang have replicas of several pods", wide(9, size=2)),
    ("9 roles of the gang have replicas of single pods", wide(9)),
]


@pytest.mark.parametrize("wanted", CARRIED.values(), ids=CARRIED.keys())
def test_what_is_carried(wanted: DisaggregatedInference) -> None:
    assert not refusals(wanted)


@pytest.mark.parametrize(("words", "wanted"), REFUSED, ids=[words for words, _ in REFUSED])
def test_what_is_refused(words: str, wanted: DisaggregatedInference) -> None:
    [sentence] = refusals(wanted)
    assert sentence.startswith(words) or words in sentence
    assert ": " in sentence, "it says what to do"


def test_templates_cannot_say_what_groups_say() -> None:
    """So no two templates can differ in priority, and none can bring its own group: the CRD refuses that."""
    assert {"schedulingGroup", "priorityClassName", "priority", "schedulingGates", "schedulerName"} <= RESERVED.keys()


@pytest.mark.parametrize("kind", Hierarchical().kinds(), ids=lambda kind: kind.plural)
def test_a_kind_that_is_not_served(kind: Any) -> None:
    sentence = Hierarchical().absent(Cluster(unserved=ALL_KEPT.unserved | {kind}, kept=ALL_KEPT.kept))
    assert sentence is not None
    assert kind.plural in sentence
    assert "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true" in sentence


@pytest.mark.parametrize(
    ("probe", "gate"),
    [
        ("kubernetes-pod-scheduling-group", "GenericWorkload"),
        ("kubernetes-1.37-topology", "TopologyAwareWorkloadScheduling"),
        ("kubernetes-1.37-parent", "CompositePodGroup"),
    ],
)
def test_a_field_that_is_dropped(probe: str, gate: str) -> None:
    dropped = Cluster(kept=ALL_KEPT.kept - {probe})
    assert gate in (Hierarchical().absent(dropped) or "")
    unknown = Cluster(kept=ALL_KEPT.kept - {probe}, unprobed={probe: "quota"})
    assert "is not known: quota" in (Hierarchical().absent(unknown) or "")


@pytest.mark.parametrize("probe", Hierarchical().probes(), ids=lambda probe: probe.name)
def test_probes_look_at_what_they_send(probe: Any) -> None:
    value: Any = probe.body
    for step in probe.path:
        value = value[step]
    assert value in {"covey-probe", names.HOSTNAME_LABEL}
    assert "namespace" not in probe.body["metadata"]
