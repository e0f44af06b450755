"""Nodes that kube-scheduler refuses, for something that Covey does not model, are tried one after the other."""

from __future__ import annotations

from builders.manifests import workers
from cluster.workbench import uid_of
from scheduler_trees import node_of, pin_of
from stage import Stage


def test_nodes_when_kube_scheduler_refuses_one_after_the_other_are_all_tried_before_one_comes_again(
    stage: Stage,
) -> None:
    """Covey does not model affinity to other pods; two of many nodes have the pod that is asked for."""
    *_, first, second = stage.nodes(nodes=24)
    for node in (first, second):
        stage.occupy(node, gpus=0, name=f"cache-{node}")
        stage.patch("Pod", f"cache-{node}", {"metadata": {"labels": {"app": "cache"}}})
    term = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "kubernetes.io/hostname"}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    began = stage.ground.time.ahead
    stage.create(workers("prefill", replicas=2, minReplicas=2, spec={"affinity": near}))
    while stage.ground.time.ahead - began < 120 and not stage.bound(inference="llm"):
        stage.advance(1)
    after = stage.ready(2, inference="llm")
    assert {node_of(pod) for pod in after} == {first, second}
    pins = {(uid_of(event.object), pin_of(event.object)) for event in stage.history("Pod") if pin_of(event.object)}
    tried = [node for _, node in pins]
    assert len(tried) == len(set(tried))
