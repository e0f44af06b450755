"""Kubernetes 1.37 whose components do not agree on their feature gates: nothing is silent."""

import contextlib
from collections.abc import Iterator, Sequence

import pytest
from kubernetes.client import ApiException

from cluster.workbench import name_of
from localcluster import NATIVE_GROUPS, Cluster, Nodes, eventually
from matrix.native import Native, namespaced, start_operator, whole

_OFF = ("--feature-gates=CompositePodGroup=false,TopologyAwareWorkloadScheduling=false,GenericWorkload=false",)


def running(program: str, flags: Sequence[str] = _OFF) -> Iterator[Native]:
    """A cluster with one component that has other gates."""
    with Cluster(gates=NATIVE_GROUPS, scheduler_config="", flags={program: flags}) as cluster:
        cluster.add_nodes(Nodes(nodes=5))
        start_operator(cluster)
        yield from namespaced(cluster)


@pytest.fixture
def without_scheduler() -> Iterator[Native]:
    yield from running("kube-scheduler")


@pytest.fixture
def without_controllers() -> Iterator[Native]:
    yield from running("kube-controller-manager")


def test_a_scheduler_that_does_not_heed_groups(without_scheduler: Native) -> None:
    """It binds the pods of a gang one by one: that is told, and no surplus follows."""
    native = without_scheduler
    native.create(whole("prefill", replicas=2, size=2), whole("decode"))
    eventually(lambda: len(native.bound()) == 3, describe="the minimum is bound one by one")
    message = native.await_condition("Degraded", "True", "GroupsIgnored")
    assert "GenericWorkload, TopologyAwareWorkloadScheduling and CompositePodGroup" in message
    assert len(native.pods()) == 3


def test_a_scheduler_that_says_nothing(without_scheduler: Native) -> None:
    native = without_scheduler
    native.cluster.processes["kube-scheduler"].stop()
    native.create(whole("prefill", size=2), whole("decode"))
    message = native.await_condition("Admitted", "False", "GroupsIgnored", timeout=120)
    assert "GenericWorkload, TopologyAwareWorkloadScheduling and CompositePodGroup" in message


def test_controllers_that_leave_the_finalizer(without_controllers: Native) -> None:
    native = without_controllers
    native.create(whole("prefill", size=2), whole("decode"))
    native.await_bound(3)
    native.delete("PodGroup", "llm-0-prefill-0")
    native.delete("Pod", name_of(native.pods(role="prefill")[0]))
    message = native.await_condition("Admitted", "False", "GroupTerminating", timeout=200)
    assert "kube-controller-manager" in message
    # As an administrator would help, so that the cluster can be left.
    strip(native)
    native.await_bound(3)
    native.delete("DisaggregatedInference", "llm")
    eventually(lambda: strip(native) == 0, 60, "no group is left")


def strip(native: Native) -> int:
    """Take the finalizers off all PodGroups, some of which may go meanwhile; how many there were."""
    names = list(native.groups("PodGroup"))
    for name in names:
        with contextlib.suppress(ApiException):
            native.cluster.api("PATCH", native.path("PodGroup", name), {"metadata": {"finalizers": None}})
    return len(names)
