"""The backend Kubernetes where groups have no hierarchy, on real control planes: Covey's gates hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml

from builders.manifests import Object
from cluster.serving import BLOCK, RACK
from cluster.workbench import uids
from localcluster import Cluster, Gates, Nodes, eventually, native_groups
from localcluster.programs import ROOT
from matrix.native import Native, first_bound, namespaced, start_operator, whole


@dataclass(frozen=True)
class Dialect:
    """A form of the API and the release that has it. ``levels``: of units are kept; ``counts``: are changed in place."""

    name: str
    kubernetes: str
    kinds: Mapping[str, str]
    gates: Gates
    levels: bool = True
    counts: bool = False

    def __str__(self) -> str:
        return self.name


_FLAT = Gates({"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}, ["scheduling.k8s.io/v1beta1"])
DIALECTS: Final = (
    Dialect("1.37-flat", "1.37", {"Workload": "v1beta1", "PodGroup": "v1beta1"}, _FLAT, levels=False, counts=True),
    Dialect("1.36-preemption", "1.36", {"Workload": "v1alpha2", "PodGroup": "v1alpha2"}, native_groups("1.36")),
    Dialect("1.35", "1.35", {"Workload": "v1alpha1"}, native_groups("1.35")),
)


@pytest.fixture(scope="module", params=DIALECTS, ids=str)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found = request.param
    assert isinstance(found, Dialect)
    return found


@pytest.fixture(scope="module")
def cluster(dialect: Dialect) -> Iterator[Cluster]:
    """2 blocks of 3 racks of 6 nodes, as in the demo."""
    with Cluster(kubernetes=dialect.kubernetes, gates=dialect.gates, scheduler_config="") as running:
        running.add_nodes(Nodes(blocks=2, racks=3, nodes=6))
        running.apply(yaml.safe_load((ROOT / "examples" / "topology.yaml").read_text()))
        start_operator(running)
        yield running


@pytest.fixture
def native(cluster: Cluster, dialect: Dialect) -> Iterator[Native]:
    yield from namespaced(cluster, dialect.kinds)


def test_the_demos_example_ends_bound(native: Native, dialect: Dialect) -> None:
    """16 pods of a node each, the minimum before any surplus."""
    with native.cluster.record(native.path("Pod")) as pods:
        name = native.apply_example(*([] if dialect.levels else ["topology"]))
        bound = native.await_bound(16)
        pods.wait(lambda events: len(first_bound(events)) == 16)
    for role, count in (("prefill", 4), ("decode", 2)):
        for number in range(count):
            assert len(native.domains(native.bound(role=role, replica=number), RACK)) == 1
    assert len(native.domains(bound, BLOCK)) == 1 or not dialect.levels
    when = first_bound(pods.events)
    minimum = {host for host in when if host.startswith(("0-prefill-0-", "0-decode-0-"))}
    assert len(minimum) == 6
    assert max(when[host] for host in minimum) < min(at for host, at in when.items() if host not in minimum)
    native.await_condition("Available", "True", name=name)
    assert native.condition("BackendSupported", name)["message"] == f"backend Kubernetes {dialect.name}"
    admitted = native.condition("Admitted", name)
    assert admitted["reason"] == "HierarchyByGates"
    assert "somebody else may take the capacity" in admitted["message"]
    native.delete("DisaggregatedInference", name)
    native.await_nothing_left()


def test_what_cannot_be_carried_is_refused(native: Native, dialect: Dialect) -> None:
    native.create(whole("prefill", size=2), topology={"required": "block", "preferred": "rack"})
    message = native.await_condition("BackendSupported", "False", "Unsupported")
    assert "spec.topology.preferred" in message
    assert ("spec.topology.required" in message) is not dialect.levels
    assert not native.pods()


def test_a_minimum_counts_replicas_and_starts_nothing_alone(native: Native) -> None:
    """Gap 1: a node short of the minimum, no pod is bound; with it, all of the minimum are, and no surplus."""
    roles = [whole("prefill", size=2, replicas=2, minReplicas=2), whole("decode", replicas=3, minReplicas=1, size=33)]
    native.create(*roles)
    native.await_condition("Admitted", "False", "HierarchyByGates")
    assert not native.bound()
    [extra] = native.cluster.add_nodes(Nodes(prefix="late-"))
    try:
        eventually(lambda: len(native.bound()) == 37, 60, "the minimum is bound")
        assert len(native.bound(role="prefill")) == 4
        native.await_condition("Admitted", "True", "HierarchyByGates")
    finally:
        native.delete("DisaggregatedInference", "llm")
        native.await_nothing_left()
        native.cluster.delete_nodes([extra])


def test_surplus_takes_no_room_from_a_minimum(native: Native) -> None:
    """Surplus of single pods beyond any room, and a second unit that comes later: it has its minimum when room comes."""
    native.create(whole("prefill", replicas=60), whole("decode", replicas=2), name="greedy")
    eventually(lambda: len(native.bound(inference="greedy")) == 36, 60, "every node is taken")
    native.create(whole("prefill", size=2), whole("decode"), name="later")
    native.await_condition("Admitted", "False", "HierarchyByGates", name="later")
    native.change({"roles": [whole("prefill", replicas=10), whole("decode", replicas=2)]}, "greedy")
    eventually(lambda: len(native.bound(inference="later")) == 3, 60, "the later one starts")


def test_a_change_of_the_minimum(native: Native, dialect: Dialect) -> None:
    """Where counts cannot be changed, groups are made anew: a Workload alone, or a PodGroup with the pods of its unit."""
    roles: list[dict[str, Any]] = [whole("prefill", size=2), whole("decode", replicas=3)]
    native.create(*roles)
    before = native.await_bound(5)
    workload = native.groups("Workload")["llm"]
    native.change({"roles": [roles[0], {**roles[1], "minReplicas": 2}]})

    def changed() -> Object:
        found = native.groups("Workload")
        assert "llm" in found, "it is made anew"
        spec = found["llm"]["spec"]
        entries = spec.get("podGroupTemplates") or spec["podGroups"]
        [decode] = [each for each in entries if "decode" in each["name"]]
        policy = decode.get("schedulingPolicy") or decode["policy"]
        assert policy == {"gang": {"minCount": 2}}, str(spec)
        return found["llm"]

    made = eventually(changed, 60, "the Workload says 2")
    assert (made["metadata"]["uid"] == workload["metadata"]["uid"]) is dialect.counts
    kept = "PodGroup" not in dialect.kinds or dialect.counts
    if not kept:
        eventually(lambda: not uids(before) & uids(native.pods()), 60, "the unit is made anew")
        eventually(lambda: "UnitRemade" in native.events(), describe="it is announced")
    after = native.await_bound(5)
    assert (uids(before) == uids(after)) is kept


def test_a_killed_operator_lets_no_part_go(native: Native) -> None:
    """It stops between waiting and letting go; the next one does the rest."""
    native.create(whole("prefill", size=2), whole("decode", size=35))
    native.await_condition("Admitted", "False", "HierarchyByGates")
    native.cluster.processes["covey-operator"].kill()
    [extra] = native.cluster.add_nodes(Nodes(prefix="late-"))
    try:
        native.cluster.processes["covey-operator"].start()
        eventually(lambda: len(native.bound()) == 37, 60, "the gang is bound")
    finally:
        native.delete("DisaggregatedInference", "llm")
        native.await_nothing_left()
        native.cluster.delete_nodes([extra])
