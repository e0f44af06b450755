"""What Volcano cannot carry is said by field, with what to do."""

from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api.inference import DisaggregatedInference
from covey.backends import Cluster, HyperNodes
from covey.backends.volcano import Volcano
from covey.kube.resources import VOLCANO_POD_GROUPS
from unit.backends.volcano.objects import DISCOVERED, LEVELS, hyper_node, kthena, workers

KEPT = frozenset(probe.name for probe in Volcano().probes())
CLUSTER = Cluster(kept=KEPT, hyper_nodes=HyperNodes(DISCOVERED))


def refusals(resource: DisaggregatedInference, cluster: Cluster = CLUSTER) -> tuple[str, ...]:
    return Volcano().refusals(resource.spec, LEVELS, cluster)


@pytest.mark.parametrize(
    "resource",
    [
        kthena(),
        kthena(queue="gpus", priorityClassName="high", schedulerName="volcano-2"),
        kthena(topology={"required": "block"}),
        inference(workers("prefill", size=2, topology={"required": "rack"}), topology={"required": "block"}),
        # Without a domain of the unit there is none that a role could leave.
        inference(workers("decode"), workers("router", minReplicas=0, topology={"followUnit": False})),
    ],
)
def test_what_it_carries(resource: DisaggregatedInference) -> None:
    assert refusals(resource) == ()


SPECS: list[tuple[DisaggregatedInference, str]] = [
    (kthena(topology={"preferred": "rack"}), "spec.topology.preferred: Volcano knows no preferred levels"),
    (
        inference(workers("decode", topology={"preferred": "rack"})),
        "spec.roles[decode].topology.preferred: Volcano knows no preferred levels",
    ),
    (kthena(topology={"required": "zone"}), "spec.topology.required zone: no HyperNode has the tierName"),
    (
        inference(workers("decode", topology={"required": "host"})),
        "spec.roles[decode].topology.required host: no HyperNode has the tierName",
    ),
    (
        inference(workers("decode", topology={"followUnit": False}), topology={"required": "block"}),
        "spec.roles[decode].topology.followUnit: Volcano keeps every role in the unit's domain",
    ),
    (kthena(proximity=[{"roles": ["prefill", "decode"], "level": "rack"}]), "spec.proximity: Volcano has no domain"),
    (kthena(spread={"level": "block"}), "spec.spread: Volcano does not keep PodGroups apart"),
    (kthena(gang={"timeoutSeconds": 60}), "spec.gang.timeoutSeconds: Volcano binds a minimum at once"),
    (kthena(preemption={}), "spec.preemption: Volcano preempts by its own rules"),
    (kthena(disruptionMode="Unit"), "spec.disruptionMode: Volcano preempts pod by pod"),
    (inference(role("decode")), "spec.roles[decode].template: Volcano counts a pod without resource requests"),
    (
        inference(workers("decode", leaderTemplate={"spec": {"containers": [{"name": "a", "image": "b"}]}})),
        "spec.roles[decode].leaderTemplate: Volcano counts a pod without resource requests",
    ),
]


@pytest.mark.parametrize(("resource", "words"), SPECS, ids=[words.split(":")[0] for _, words in SPECS])
def test_what_it_does_not(resource: DisaggregatedInference, words: str) -> None:
    (sentence,) = refusals(resource)
    assert sentence.startswith(words)
    assert any(
        remedy in sentence
        for remedy in ("or use backend Extender", "or use backend Kubernetes", "give its containers requests")
    )


def test_tiers_that_contradict_the_levels() -> None:
    wrong = HyperNodes((hyper_node("r", 2, "rack", children=("b",)), hyper_node("b", 1, "block", nodes=".*")))
    resource = inference(workers("prefill", topology={"required": "rack"}), topology={"required": "block"})
    (sentence,) = refusals(resource, Cluster(hyper_nodes=wrong))
    assert "level block is broader than rack, and its HyperNodes have tier 1 and 2" in sentence


# Whether the cluster can do it at all


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (
            Cluster(unserved=frozenset({VOLCANO_POD_GROUPS})),
            "does not serve podgroups of scheduling.volcano.sh/v1beta1",
        ),
        (Cluster(), "do not keep spec.subGroupPolicy"),
        (Cluster(kept=frozenset(list(KEPT)[:1])), "do not keep spec.subGroupPolicy"),
        (Cluster(unprobed=dict.fromkeys(KEPT, "a webhook does not answer")), "not known: a webhook does not answer"),
    ],
)
def test_an_older_volcano_is_not_used_at_all(cluster: Cluster, words: str) -> None:
    assert words in (Volcano().absent(cluster) or "")


def test_probes_ask_for_what_a_release_before_1_14_drops() -> None:
    paths = set()
    for probe in Volcano().probes():
        found: Any = probe.body
        for step in probe.path:
            found = found[step]
        assert found
        paths.add(probe.path[-1])
    assert paths == {"minSubGroups", "matchLabelKeys"}
