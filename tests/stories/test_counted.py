"""What is counted while gangs start, are rolled out, move off their nodes, are lost and placed anew."""

from __future__ import annotations

from typing import Any, Final

import pytest
from prometheus_client import generate_latest

from builders.manifests import Object, workers
from cluster.workbench import label, name_of
from covey.observability.families import REGISTRY
from covey.observability.operator_metrics import FORMER
from scheduler_trees import node_of, pin_of
from scrapes import Scrape
from stage import Stage
from stage.kubelet import fail
from stage.play import RACK

#: Everything that is counted of what happens, with its label.
COUNTERS: Final = {
    "rollouts_started": "cause",
    "rollouts_finished": "result",
    "evacuations_started": "",
    "evacuations_finished": "",
    "evacuations_blocked": "reason",
    "replicas_evacuated": "",
    "gang_escalations": "step",
    "gang_degradations": "",
    "gang_replans": "cause",
    "gang_preferred_levels": "satisfied",
    "node_exclusions": "",
}
#: Labels of gauges whose values are told apart.
GAUGES: Final = {"devices": "state", "rollouts_held": "gate", "workloads": "condition"}


def scrape() -> Scrape:
    """What both processes would answer now."""
    return Scrape.parse(generate_latest(REGISTRY).decode())


class Counted:
    """What has been counted since the story began."""

    def __init__(self) -> None:
        self._before = self._all()

    def __call__(self, stage: Stage) -> dict[str, float]:
        """Every counter that has moved, as ``rollouts_started Spec``, and by how much, at rest."""
        stage.advance(10)
        moved = {key: count - self._before.get(key, 0) for key, count in self._all().items()}
        return {key: count for key, count in moved.items() if count}

    def _all(self) -> dict[str, float]:
        counts: dict[str, float] = {}
        seen = scrape()
        for name, key in COUNTERS.items():
            metric = f"covey_{name}_total"
            values = seen.by(key, metric) if key else {"": seen(metric)}
            now = {value: count for value, count in values.items() if value not in FORMER.values()}
            counts |= {f"{name} {value}".rstrip(): count for value, count in now.items()}
        return counts


def check_gauges(**expected: float) -> None:
    """See what gauges show, as ``devices__whole`` with the value of the label that counts, or without one."""
    seen, shown = scrape(), {}
    for name in expected:
        metric, _, value = name.partition("__")
        shown[name] = seen(f"covey_{metric}", **({GAUGES.get(metric, "level"): value} if value else {}))
    assert shown == pytest.approx(expected)


def image(revision: str, **fields: Any) -> list[Object]:
    """Two roles, the second one of an image."""
    roles = [workers("prefill", size=2), workers("decode", **fields)]
    roles[1]["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{revision}"
    return roles


def free_nodes(stage: Stage, names: list[str]) -> list[str]:
    return sorted(set(names) - {node_of(pod) for pod in stage.pods()})


def test_devices_are_shown_as_they_are_used_whole_and_stranded(stage: Stage) -> None:
    names, counted = stage.nodes(racks=2, nodes=3), Counted()
    stage.create(*image("1"), topology={"preferred": "rack"})
    stage.ready(3)
    assert counted(stage) == {"gang_preferred_levels true": 1}
    check_gauges(devices__used=24, devices__whole=24, devices__partial=0, devices__closed=0)
    check_gauges(devices_largest_gang__cluster=24, devices_largest_gang__rack=24, devices_largest_gang__host=8)
    check_gauges(devices_fragmentation_ratio__rack=0, devices_stranded__rack=0, device_kinds_dropped=0)
    # Somebody takes one GPU of a free node: 23 are free, 16 of them on whole nodes.
    stage.occupy(free_nodes(stage, names)[0], gpus=1)
    stage.advance(10)
    check_gauges(devices__used=25, devices__whole=16, devices__partial=7, devices_largest_gang__rack=16)
    check_gauges(devices_stranded__host=7, devices_stranded__rack=23, devices_fragmentation_ratio__cluster=7 / 23)


@pytest.mark.parametrize("killed", [(), ("operator", "scheduler")], ids=["at once", "across a restart"])
def test_rollout_and_evacuation_are_counted_once_when_they_begin_and_end(stage: Stage, killed: tuple[str, ...]) -> None:
    names, counted = stage.nodes(racks=2, nodes=3), Counted()
    stage.create(*image("1"))
    stage.ready(3)
    counted(stage)
    counted = Counted()
    check_gauges(rollouts_in_progress=0)
    stage.change(roles=image("2"), rollout={"paused": True})
    assert counted(stage) == {"rollouts_started Spec": 1}
    # A node is drained, without room elsewhere.
    [decode] = stage.pods(role="decode")
    spare = free_nodes(stage, names)
    for node in (*spare, node_of(decode)):
        stage.cordon(node)
    stage.advance(60)
    begun = {"rollouts_started Spec": 1, "evacuations_started": 1}
    blocked = counted(stage).pop("evacuations_blocked NoNodes")
    assert counted(stage) == begun | {"evacuations_blocked NoNodes": blocked}
    for process in killed:
        stage.kill_now(process)
    stage.advance(10)
    check_gauges(rollouts_in_progress=1, rollouts_held__Paused=1, workloads__EvacuationBlocked=1)
    check_gauges(devices__whole=0, devices_largest_gang__cluster=0)
    stage.change(rollout={"paused": False})
    for node in spare:
        stage.uncordon(node)
    stage.advance(60)
    ended = {"rollouts_finished Completed": 1, "evacuations_finished": 1, "replicas_evacuated": 1}
    assert counted(stage) == begun | ended | {"evacuations_blocked NoNodes": blocked}
    check_gauges(
        rollouts_in_progress=0, workloads__EvacuationBlocked=0, workloads__Evacuating=0, workloads__Available=1
    )


def test_rollout_that_fails_and_node_that_dies_are_counted(stage: Stage) -> None:
    stage.nodes(racks=2, nodes=3)
    stage.create(*image("1"), rollout={"progressDeadlineSeconds": 60, "onFailure": "Rollback"})
    stage.ready(3)
    stage.advance(10)
    counted = Counted()
    stage.change(roles=image("2", spec={"nodeSelector": {"there": "is-none"}}))
    stage.advance(70)
    assert counted(stage) == {
        "rollouts_started Spec": 1,
        "rollouts_started StepBack": 1,
        "rollouts_finished RolledBack": 1,
        "rollouts_finished Completed": 1,
    }
    counted = Counted()
    stage.fail_nodes([node_of(stage.pods(role="prefill")[0])])
    stage.ready(3)
    assert counted(stage) == {"gang_degradations": 1, "gang_replans PodsLost": 1}


def test_pins_that_are_given_up_are_counted(stage: Stage) -> None:
    """Before kube-scheduler has bound it, the gang's node is cordoned."""
    stage.nodes(nodes=2)
    counted, before = Counted(), scrape()("covey_pods_released_total", reason="NodeLost")
    with stage.away("kube-scheduler"):
        stage.create(workers("decode"))
        stage.settle()
        stage.cordon(pin_of(stage.pods()[0]) or "")
        assert counted(stage) == {"gang_replans PinsReleased": 1}
    stage.ready(1)
    assert scrape()("covey_pods_released_total", reason="NodeLost") > before
    assert counted(stage) == {"gang_replans PinsReleased": 1}


def test_unit_that_is_given_up_is_counted_once_also_by_an_operator_that_comes_back(stage: Stage) -> None:
    stage.nodes(nodes=2)
    stage.create(workers("prefill"), workers("decode"), gang={"terminationDelaySeconds": 60})
    stage.ready(2)
    counted = Counted()
    [pod] = stage.pods(role="decode")
    stage.cordon(node_of(pod))
    stage.delete("Pod", name_of(pod))
    stage.advance(70)
    assert counted(stage)["gang_escalations Termination"] == 1
    stage.kill_now("operator")
    assert counted(stage)["gang_escalations Termination"] == 1
    stage.uncordon(node_of(pod))
    stage.ready(2)


def test_domain_that_is_kept_is_shown(stage: Stage) -> None:
    [node] = stage.nodes(nodes=1)
    other = stage.occupy(node)
    stage.create(workers("decode"))
    stage.refusal()
    stage.advance(400)
    check_gauges(domains_reserved=1)
    stage.delete("Pod", other, grace=0)
    stage.ready(1, inference="llm")
    stage.advance(10)
    check_gauges(domains_reserved=0)


def test_node_that_is_avoided_is_shown_until_it_is_forgiven(stage: Stage) -> None:
    stage.nodes(nodes=1)
    stage.create(workers("decode", restart={"backoff": {"baseSeconds": 0, "maxSeconds": 0}}))
    for _ in range(3):
        # The kubelet does not take it.
        fail(stage, stage.ready(1)[0], "UnexpectedAdmissionError")
        stage.settle()
    assert stage.condition("NodesAvoided")[:2] == ("True", "NodeAvoided")
    check_gauges(nodes_avoided=1)
    stage.advance(3600)
    check_gauges(nodes_avoided=0)


def test_node_that_kube_scheduler_refuses_is_counted(stage: Stage) -> None:
    """The pod keeps off other pods of another label, which Covey does not model beyond a host."""
    taken, _ = stage.nodes(racks=2, nodes=1)
    counted = Counted()
    hermit = stage.occupy(taken, gpus=1)
    stage.patch("Pod", hermit, {"metadata": {"labels": {"app": "hermit"}}})
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "hermit"}}}
    repelled = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    stage.create(workers("decode", gpus=1, spec={"affinity": repelled}))
    stage.advance(60)
    [pod] = stage.ready(1, inference="llm")
    assert node_of(pod) != taken
    assert label(pod, "role") == "decode"
    assert counted(stage) == {"node_exclusions": 1, "gang_replans PinsReleased": 1}
