"""A story as the metrics tell it: gangs start, are rolled out, moved off their nodes, lost and placed anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.kubelet import fail
from cluster.scraping import await_scrape, is_alone, scrape
from cluster.serving import AddNodes, Serving, serves, serving, workers
from cluster.workbench import label, name_of
from localcluster import Cluster, Process, eventually
from localcluster.programs import scheduler_config
from scheduler_trees import node_of
from scrapes import Scrape

__all__ = ["serving"]

#: Everything of the operator and of the scheduler process that is counted of what happens, with its label.
COUNTERS = {
    "operator": {
        "covey_rollouts_started_total": "cause",
        "covey_rollouts_finished_total": "result",
        "covey_evacuations_started_total": "",
        "covey_evacuations_finished_total": "",
        "covey_evacuations_blocked_total": "reason",
        "covey_replicas_evacuated_total": "",
        "covey_gang_escalations_total": "step",
        "covey_gang_degradations_total": "",
    },
    "scheduler": {
        "covey_gang_replans_total": "cause",
        "covey_gang_preferred_levels_total": "satisfied",
        "covey_node_exclusions_total": "",
    },
}
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
#: Pods that end only when somebody on their node ends them.
LASTING = {"terminationGracePeriodSeconds": 30}
NO_BACKOFF = {"backoff": {"baseSeconds": 0, "maxSeconds": 0}}


@pytest.fixture(scope="module")
def covey(cluster: Cluster) -> Iterator[Covey]:
    """All of Covey; nodes are avoided for a short time, and a domain is kept for who has waited for a moment."""
    try:
        scheduler = cluster.start_covey("scheduler", "--reserve-after=3s")
        kube_scheduler = cluster.start_scheduler(scheduler_config(scheduler))
        operator = cluster.start_covey("operator", "--avoid-node-seconds=20")
        yield Covey(operator, scheduler, kube_scheduler)
    finally:
        cluster.stop_all()


class Told:
    """What has been counted since the test began, or since the processes were restarted."""

    def __init__(self, covey: Covey) -> None:
        self._covey = covey
        await_scrape(covey.scheduler, is_alone, "nobody waits")
        self._before = self._all()

    def restarted(self) -> None:
        """Counters begin at 0 with every process."""
        self._before = {}

    def __call__(self) -> dict[str, float]:
        """Every counter that has moved, as ``rollouts_started Spec``, and by how much."""
        found = {key: count - self._before.get(key, 0) for key, count in self._all().items()}
        return {key: count for key, count in found.items() if count}

    def await_all(self, expected: dict[str, float]) -> None:
        """Wait until exactly this has been counted."""
        eventually(lambda: self() == expected, 60, lambda: f"counted: {self()}\nexpected: {expected}")

    def _all(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for process, counters in COUNTERS.items():
            seen = scrape(getattr(self._covey, process))
            for metric, by in counters.items():
                name = metric.removeprefix("covey_").removesuffix("_total")
                values = seen.by(by, metric) if by else {"": seen(metric)}
                found |= {f"{name} {value}".rstrip(): count for value, count in values.items()}
        return found


def image(revision: str, **fields: Any) -> list[Object]:
    """Two roles, the second one of an image."""
    found = [workers("prefill", size=2, spec=LASTING), workers("decode", **fields)]
    found[1]["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{revision}"
    return found


def await_ready(serving: Serving, count: int, **labels: Any) -> list[Object]:
    serving.await_bound(count, **labels)
    eventually(lambda: all(map(serves, serving.pods(**labels))), 60, "all pods are Ready")
    return serving.pods(**labels)


def await_gauges(process: Process, expected: dict[str, float], describe: str) -> None:
    """Wait for gauges, as ``devices whole`` with the value of the label that counts, or without one."""

    def there(seen: Scrape) -> bool:
        return all(gauge(seen, name) == pytest.approx(value) for name, value in expected.items())

    await_scrape(process, there, describe)


def await_stuck(serving: Serving) -> None:
    """Wait until a successor has had no room for half a minute, and it is said."""

    def is_stuck() -> bool:
        found = serving.condition("EvacuationBlocked")
        return (found["status"], found["reason"]) == ("True", "NoRoom")

    eventually(is_stuck, 120, "there is no room for a successor")


def gauge(seen: Scrape, name: str) -> float:
    metric, _, value = name.partition(" ")
    labels = {"devices": "state", "rollouts_held": "gate", "workloads": "condition"}
    return seen(f"covey_{metric}", **({labels.get(metric, "level"): value} if value else {}))


def free_nodes(serving: Serving) -> list[str]:
    taken = {node_of(pod) for pod in serving.pods()}
    return sorted({name_of(each) for each in serving.cluster.api("GET", "/api/v1/nodes")["items"]} - taken)


def test_a_story(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    nodes(blocks=1, racks=2, nodes=3)
    told, operator, scheduler = Told(covey_to_kill), covey_to_kill.operator, covey_to_kill.scheduler
    # It starts, as close together as it likes, and half of the GPUs are left, all in one rack.
    serving.create(*image("1"), topology={"preferred": "rack"})
    await_ready(serving, 3)
    expected: dict[str, float] = {"gang_preferred_levels true": 1}
    told.await_all(expected)
    counted = {"devices used": 24, "devices whole": 24, "devices partial": 0, "devices closed": 0}
    largest = {"devices_largest_gang cluster": 24, "devices_largest_gang rack": 24, "devices_largest_gang host": 8}
    whole = {"devices_fragmentation_ratio rack": 0, "devices_stranded rack": 0, "device_kinds_dropped": 0}
    await_gauges(scheduler, counted | largest | whole, "half of the cluster is free")
    # Somebody takes one GPU of a free node: 23 are free, 16 of them on whole nodes.
    other = serving.take_room(free_nodes(serving)[0], gpus=1)
    expected_now = {"devices used": 25, "devices whole": 16, "devices partial": 7, "devices_largest_gang rack": 16}
    stranded = {"devices_stranded host": 7, "devices_stranded rack": 23, "devices_fragmentation_ratio cluster": 7 / 23}
    await_gauges(scheduler, expected_now | stranded, "a node is broken into")
    serving.free_room(other)
    # A rollout: begun, held by a person, completed.
    await_gauges(operator, {"rollouts_in_progress": 0}, "nothing is rolled out")
    serving.change({"roles": image("2"), "rollout": {"paused": True}})
    expected |= {"rollouts_started Spec": 1}
    told.await_all(expected)
    await_gauges(operator, {"rollouts_in_progress": 1, "rollouts_held Paused": 1}, "it is held")
    serving.change({"rollout": {"paused": False}})
    expected |= {"rollouts_finished Completed": 1}
    told.await_all(expected)
    await_gauges(operator, {"rollouts_in_progress": 0, "rollouts_held Paused": 0}, "it is over")
    # One that nobody has room for: given up, and a step back.
    await_ready(serving, 3)
    nowhere = image("2", spec={"nodeSelector": {"no": "where"}})
    serving.change({"roles": nowhere, "rollout": {"progressDeadlineSeconds": 4, "onFailure": "Rollback"}})
    serving.await_condition("Progressing", "False", "RolledBack")
    expected |= {"rollouts_started Spec": 2, "rollouts_started StepBack": 1}
    expected |= {"rollouts_finished RolledBack": 1, "rollouts_finished Completed": 2}
    told.await_all(expected)
    assert scrape(operator)("covey_rollout_holds_total", gate="Failed") >= 1
    serving.change({"roles": image("2"), "rollout": None})
    serving.await_condition("Progressing", "True", "Complete")
    told.await_all(expected)
    # A node is drained, first without room elsewhere.
    (decode,) = serving.pods(role="decode")
    spare = free_nodes(serving)
    # One after the other: its own last, or it moves to one that is about to be closed.
    serving.cluster.kubectl("cordon", *spare, node_of(decode))
    await_stuck(serving)
    expected |= {"evacuations_started": 1, "evacuations_blocked NoRoom": 1}
    told.await_all(expected)
    await_gauges(operator, {"workloads EvacuationBlocked": 1}, "it is stuck")
    await_gauges(scheduler, {"devices whole": 0, "devices closed": 24, "devices_largest_gang cluster": 0}, "no room")
    serving.cluster.kubectl("uncordon", *spare)
    expected |= {"evacuations_finished": 1, "replicas_evacuated": 1}
    told.await_all(expected)
    await_gauges(operator, {"workloads EvacuationBlocked": 0, "workloads Evacuating": 0}, "it has moved")
    await_ready(serving, 3)
    # A node dies, and one replica with it.
    dead = node_of(serving.pods(role="prefill")[0])
    serving.cluster.fail_node(dead)
    serving.cluster.kubectl("taint", "node", dead, OUT_OF_SERVICE)
    eventually(lambda: dead not in {node_of(pod) for pod in serving.pods()}, 60, "what was lost is given up")
    await_ready(serving, 3)
    expected |= {"gang_degradations": 1, "gang_replans PodsLost": 1}
    eventually(lambda: expected.items() <= told().items(), 60, lambda: f"counted: {told()}\nexpected: {expected}")
    # Whoever comes next counts nothing of that again, and shows what is.
    for process in (operator, scheduler):
        process.restart(kill=True)
    told.restarted()
    await_gauges(scheduler, {"devices used": 24, "devices closed": 16}, "devices are counted")
    await_gauges(operator, {"workloads Available": 1, "rollouts_in_progress": 0}, "the resource is known")
    assert told() == {}
    serving.change({"roles": image("3")})
    told.await_all({"rollouts_started Spec": 1, "rollouts_finished Completed": 1})


def test_what_is_under_way_at_a_restart_is_finished_once(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey
) -> None:
    """A rollout that is held, and an evacuation that is stuck, are begun before the restart and end after it."""
    (*_, spare) = nodes(blocks=1, racks=1, nodes=4)
    told = Told(covey_to_kill)
    serving.cluster.kubectl("cordon", spare)
    serving.create(*image("1"))
    await_ready(serving, 3)
    (decode,) = serving.pods(role="decode")
    serving.change({"roles": image("2"), "rollout": {"paused": True}})
    told.await_all({"rollouts_started Spec": 1})
    serving.cluster.kubectl("cordon", node_of(decode))
    begun = {"rollouts_started Spec": 1, "evacuations_started": 1}
    eventually(lambda: begun.items() <= told().items(), 60, lambda: str(told()))
    await_stuck(serving)
    await_gauges(covey_to_kill.operator, {"workloads EvacuationBlocked": 1}, "there is no room for a successor")
    for process in (covey_to_kill.operator, covey_to_kill.scheduler):
        process.restart(kill=True)
    told.restarted()
    await_gauges(covey_to_kill.operator, {"rollouts_in_progress": 1, "rollouts_held Paused": 1}, "it is still held")
    assert told() == {}
    serving.change({"rollout": {"paused": False}})
    serving.cluster.kubectl("uncordon", spare)
    ended = {"rollouts_finished Completed": 1, "evacuations_finished": 1, "replicas_evacuated": 1}
    eventually(lambda: ended.items() <= told().items(), 120, lambda: str(told()))
    assert not {key for key in told() if "started" in key}, told()


def test_pins_that_are_given_up(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    """Before kube-scheduler has bound it, the gang's node is cordoned."""
    nodes(racks=1, nodes=2)
    told = Told(covey_to_kill)
    covey_to_kill.kube_scheduler.pause()
    serving.create(workers("decode"))
    (pod,) = serving.await_pinned(1)
    serving.cluster.kubectl("cordon", pinned_node(pod))
    told.await_all({"gang_replans PinsReleased": 1})
    covey_to_kill.kube_scheduler.resume()
    serving.await_bound(1)
    assert scrape(covey_to_kill.scheduler)("covey_pods_released_total", reason="NodeLost") >= 1
    told.await_all({"gang_replans PinsReleased": 1})


def pinned_node(pod: Object) -> str:
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    return str(term["matchFields"][0]["values"][0])


def test_a_unit_that_is_given_up(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    nodes(racks=1, nodes=2)
    told = Told(covey_to_kill)
    serving.create(workers("prefill"), workers("decode"), gang={"terminationDelaySeconds": 5})
    before = await_ready(serving, 2)
    victim = next(pod for pod in before if label(pod, "role") == "decode")
    serving.cluster.kubectl("cordon", node_of(victim))
    serving.delete("Pod", name_of(victim))
    eventually(lambda: told().get("gang_escalations Termination") == 1, 60, lambda: str(told()))
    covey_to_kill.operator.restart(kill=True)
    await_scrape(covey_to_kill.operator, lambda seen: seen("covey_workload_units_desired", name="llm"), "it is known")
    assert scrape(covey_to_kill.operator)("covey_gang_escalations_total") == 0
    serving.cluster.kubectl("uncordon", node_of(victim))
    await_ready(serving, 2)


def test_a_domain_that_is_kept(serving: Serving, nodes: AddNodes, covey: Covey) -> None:
    (node,) = nodes(racks=1, nodes=1)
    other = serving.take_room(node)
    serving.create(workers("decode"))
    await_gauges(covey.scheduler, {"domains_reserved": 1}, "it has waited for long enough")
    ages = "covey_gangs_waiting_oldest_age_seconds"
    await_scrape(covey.scheduler, lambda seen: seen(ages, reason="Infeasible") >= 3, "by the reason of its wait")
    serving.free_room(other)
    serving.await_bound(1, role="decode")
    await_gauges(covey.scheduler, {"domains_reserved": 0}, "nobody waits")
    assert scrape(covey.scheduler)(ages) == 0


def test_a_node_that_is_avoided(serving: Serving, nodes: AddNodes, covey: Covey) -> None:
    nodes(racks=1, nodes=1)
    await_gauges(covey.operator, {"nodes_avoided": 0}, "none is")
    serving.create(workers("decode", restart=NO_BACKOFF))
    for _ in range(3):
        (pod,) = serving.await_bound(1)
        refuse(serving, pod)
    serving.await_condition("NodesAvoided", "True", "NodeAvoided")
    await_gauges(covey.operator, {"nodes_avoided": 1}, "it is shown")
    await_gauges(covey.operator, {"nodes_avoided": 0}, "it is forgiven")


def refuse(serving: Serving, pod: Object) -> None:
    """The kubelet does not take it."""
    fail(serving, pod, "UnexpectedAdmissionError")
    gone: Callable[[], bool] = lambda: name_of(pod) not in set(map(name_of, serving.pods()))  # noqa: E731 - a sentence
    eventually(gone, 60, "it is replaced")


def test_a_node_that_kube_scheduler_refuses(serving: Serving, nodes: AddNodes, covey: Covey) -> None:
    """The pod keeps off other pods of another label, which Covey does not model beyond a host."""
    nodes(blocks=1, racks=2, nodes=1)
    told = Told(covey)
    rack = "cloud.provider.com/topology-rack"
    (taken, _) = sorted(name_of(each) for each in serving.cluster.api("GET", "/api/v1/nodes")["items"])
    hermit = serving.take_room(taken, gpus=1, name="hermit")
    serving.cluster.kubectl("label", "pod", hermit, "app=hermit", "--namespace", serving.namespace)
    term = {"topologyKey": rack, "labelSelector": {"matchLabels": {"app": "hermit"}}}
    repelled = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    serving.create(workers("decode", gpus=1, spec={"affinity": repelled}))
    (pod,) = serving.await_bound(1, role="decode")
    assert node_of(pod) != taken
    told.await_all({"node_exclusions": 1, "gang_replans PinsReleased": 1})
