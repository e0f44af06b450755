"""Gangs on devices of a driver that is not Covey's: Karpenter's for nodes that kwok plays, 1.14.1, with its own controller.

It looks at its DRAConfigs every 30 s, and when it starts; so a test that changes one starts it again. It names pools
``<driver>/<node>``, and writes generations slice by slice, which leaves a pool of which one slice has changed incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from builders.devices import DRIVER, GPU, class_body, device, gpus, request_body, wish_body
from cluster.conftest import AddNodes
from device_driver import API, Driver, assert_devices
from localcluster import Cluster, Process, eventually
from localcluster.binaries import DRA_KWOK_DRIVER, ensure_files
from localcluster.ports import address, free_port
from localcluster.probe import answers
from scheduler_trees import Bench, Replacing, Role, node_of

Json = dict[str, Any]
# The driver is built when it is wanted for the first time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("scheduler")]

_CONFIGS: Final = "/apis/test.karpenter.sh/v1alpha1/draconfigs"
_MARK: Final = "devices"


class Config:
    """The DRAConfig of one test: slices that each of the test's nodes has."""

    def __init__(self, cluster: Cluster, name: str, driver: Process) -> None:
        self._cluster = cluster
        self._path = f"{_CONFIGS}/{name}"
        self._name = name
        self._driver = driver

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the nodes that have the slices."""
        return {_MARK: self._name}

    def write(self, *slices: list[Json]) -> None:
        """Have the driver write these slices for every node of the test, and wait until it has."""
        terms = [{"matchExpressions": [{"key": _MARK, "operator": "In", "values": [self._name]}]}]
        pool = {"name": "gpus", "nodeSelectorTerms": terms, "resourceSlices": [{"devices": each} for each in slices]}
        body = {"apiVersion": "test.karpenter.sh/v1alpha1", "kind": "DRAConfig", "metadata": {"name": self._name}}
        self._cluster.apply(body | {"spec": {"driver": DRIVER, "pools": [pool]}})
        self._driver.restart()
        wanted = sorted([each["name"] for each in devices] for devices in slices)

        def written() -> bool:
            for found in self.slices().values():
                if sorted([each["name"] for each in one["spec"]["devices"]] for one in found) != wanted:
                    return False
            return bool(self.slices())

        eventually(written, 60, lambda: f"the driver has written its slices: {self.slices()}")

    def slices(self) -> dict[str, list[Json]]:
        """Slices of the driver, by node of the test."""
        names = {
            node["metadata"]["name"]
            for node in self._cluster.api("GET", f"/api/v1/nodes?labelSelector={_MARK}%3D{self._name}")["items"]
        }
        found: dict[str, list[Json]] = {name: [] for name in names}
        label = "test.karpenter.sh%2Fmanaged-by%3Ddra-kwok-driver"
        for each in self._cluster.api("GET", f"{API}/resourceslices?labelSelector={label}")["items"]:
            if each["spec"]["nodeName"] in names:
                found[each["spec"]["nodeName"]].append(each)
        return found

    def delete(self) -> None:
        """Delete it; its slices go with the nodes."""
        self._cluster.api("DELETE", self._path)


@pytest.fixture(scope="module")
def dra_kwok_driver(cluster: Cluster) -> Iterator[Process]:
    program, crds = ensure_files(DRA_KWOK_DRIVER)
    cluster.install_crds(crds)

    def build() -> Process:
        health = address(free_port())
        return Process(
            "dra-kwok-driver",
            [str(program), f"--health={health}"],
            directory=cluster.directory,
            ready=lambda: answers(f"http://{health}/readyz"),
            environment={"KUBECONFIG": str(cluster.kubeconfig)},
        )

    yield cluster.launch(build)[0]
    cluster.forget("dra-kwok-driver")


@pytest.fixture
def config(cluster: Cluster, namespace: str, dra_kwok_driver: Process) -> Iterator[Config]:
    made = Config(cluster, namespace, dra_kwok_driver)
    yield made
    made.delete()


@pytest.fixture
def driver(cluster: Cluster, namespace: str) -> Iterator[Driver]:
    """Writes the classes, which are the administrator's, and looks at claims."""
    made = Driver(cluster, namespace)
    made.make("deviceclasses", class_body())
    yield made
    for path in made.made:
        cluster.api("DELETE", path)


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


def pool_of(node: str) -> str:
    return f"{DRIVER}/{node}"


def claiming(bench: Bench, name: str, count: int) -> Json:
    """A ResourceClaimTemplate for so many devices, and what the spec of a pod needs for a claim of it."""
    path = f"{API}/namespaces/{bench.namespace}/resourceclaimtemplates"
    body = {"metadata": {"name": name}, "spec": {"spec": wish_body(request_body(count))}}
    bench.cluster.api("POST", path, body)
    return {"resourceClaims": [{"name": "r", "resourceClaimTemplateName": name}]}


def test_gangs_are_counted_bound_and_give_their_devices_back(
    bench: Bench, driver: Driver, config: Config, nodes: AddNodes
) -> None:
    """Three nodes of eight GPUs in two slices: a gang by the extended resource on two, one by claims on the third."""
    names = nodes(nodes=3, gpus=0, labels=config.labels)
    config.write(gpus(4), gpus(4, first=4))
    llm = bench.unit("llm", Role("decode", replicas=2, minimum=2, size=1), required="rack")
    claims = bench.unit(
        "claims", Role("decode", replicas=2, minimum=2, gpus=0, spec=claiming(bench, "four", 4)), required="rack"
    )
    with Replacing(llm, claims) as replacing:
        on = {node_of(pod) for tree in (llm, claims) for pod in tree.wait_bound()}
    assert on == set(names)
    assert replacing.released == []
    assert_devices(driver, llm, 8, pool_of)
    assert_devices(driver, claims, 4, pool_of)
    late = bench.unit("late", Role("decode", replicas=2, minimum=2, gpus=2))
    assert late.wait_refused().endswith(f"4 more {GPU} there would do")
    # Half of the third node is enough for both.
    gone = claims.bound()[0]["metadata"]
    bench.delete(gone["name"])
    late.wait_bound()
    assert gone["uid"] not in driver.allocated()
    assert_devices(driver, late, 2, pool_of)
    for tree in (llm, claims, late):
        for pod in tree.pods():
            bench.delete(pod["metadata"]["name"])
    eventually(lambda: driver.allocated() == {}, describe=lambda: str(driver.allocated()))


def test_nothing_stays_allocated_of_a_gang_that_was_released(
    bench: Bench, driver: Driver, config: Config, nodes: AddNodes
) -> None:
    """One pod is held with its devices; the other is one that kube-scheduler takes to no node."""
    nodes(nodes=1, gpus=0, labels=config.labels)
    config.write(gpus(4))
    nobody = {"labelSelector": {"matchLabels": {"is": "nowhere"}}, "topologyKey": "kubernetes.io/hostname"}
    lonely = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [nobody]}}}
    holding = claiming(bench, "four", 4)
    tree = bench.unit("llm", Role("decode", gpus=0, spec=holding), Role("router", gpus=0, spec=lonely))
    with bench.cluster.record(driver.claims) as recording, Replacing(tree) as replacing:
        tree.wait_refused("Unschedulable")
        eventually(lambda: driver.allocated() == {}, describe=lambda: str(driver.allocated()))
        assert replacing.released
        assert tree.bound() == []
    assert any(claim.get("status", {}).get("allocation") for _, claim in recording.events), "none was ever allocated"
    following = bench.unit("next", Role("decode", gpus=4))
    following.wait_bound()
    assert_devices(driver, following, 4, pool_of)


def test_a_pool_that_the_driver_leaves_incomplete_counts_nothing_to_covey_and_to_kubernetes(
    bench: Bench, driver: Driver, config: Config, nodes: AddNodes
) -> None:
    """One of two slices is written anew: it is of the next generation, and the other one is not."""
    (name,) = nodes(nodes=1, gpus=0, labels=config.labels)
    config.write(gpus(2), gpus(2, first=2))
    config.write([*gpus(2), device("gpu-9")], gpus(2, first=2))
    assert sorted(each["spec"]["pool"]["generation"] for each in config.slices()[name]) == [0, 1]
    tree = bench.unit("llm", Role("decode", gpus=1))
    assert GPU in tree.wait_refused()
    # kube-scheduler by itself, without Covey's filter: it is a pod of nobody's gang, and no device is free to it.
    bench.pod("ordinary", gpus=1)

    def refused() -> str:
        conditions = bench.get("ordinary").get("status", {}).get("conditions", [])
        return next((str(each["message"]) for each in conditions if each["type"] == "PodScheduled"), "")

    said = eventually(refused, 30, "kube-scheduler says why")
    assert "cannot allocate" in said or GPU in said, said
    assert driver.allocated() == {}
    config.write([*gpus(2), device("gpu-9")], gpus(3, first=2))
    tree.wait_bound()
    eventually(lambda: node_of(bench.get("ordinary")) == name)
    assert_devices(driver, tree, 1, pool_of)
