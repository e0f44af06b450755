"""Queues of a cohort: what each may have, who waits for quota, and what their statuses say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from builders.manifests import Object, workers
from cluster.workbench import name_of
from covey.kube.resources import QUEUES
from scheduler_trees import Role
from stage import Stage
from stage.play import ROOT, Trees


class Quotas:
    """Queues for the namespace of a story, of one cohort."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._path = QUEUES.path(None)
        self._names: set[str] = set()

    def make(self, name: str, nominal: int, **amounts: int) -> str:
        """Have a Queue; returns its name."""
        name = f"{self.stage.namespace}-{name}"
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self.stage.namespace}}
        flavor = {"resources": [{"name": "nvidia.com/gpu", "nominal": nominal, **amounts}]}
        spec = {"namespaces": {"selector": selector}, "cohort": self.stage.namespace, "flavors": [flavor]}
        body = {
            "apiVersion": "scheduling.covey.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        }
        self.stage.cluster.api("POST", self._path, body)
        self._names.add(name)
        return name

    def raise_to(self, name: str, nominal: int) -> None:
        """Change what a Queue may have."""
        flavors = [{"resources": [{"name": "nvidia.com/gpu", "nominal": nominal}]}]
        self.stage.cluster.api("PATCH", f"{self._path}/{name}", {"spec": {"flavors": flavors}})

    def delete(self, *names: str) -> None:
        """Delete these Queues; all where none are named."""
        for name in names or tuple(self._names):
            self._names.discard(name)
            self.stage.cluster.api("DELETE", f"{self._path}/{name}")

    def status(self, name: str) -> Object:
        """The status at rest."""
        self.stage.advance(10)
        found: Object = self.stage.cluster.api("GET", f"{self._path}/{name}")["status"]
        return found

    def usage(self, name: str) -> dict[str, Any]:
        """The amounts of its status, at rest."""
        [amounts] = self.status(name)["resources"]
        return {key: value for key, value in amounts.items() if key != "name"}


@pytest.fixture
def quotas(stage: Stage) -> Iterator[Quotas]:
    made = Quotas(stage)
    yield made
    made.delete()


def within_limits(status: Object) -> str:
    return str(next(each["status"] for each in status["conditions"] if each["type"] == "WithinLimits"))


def test_queues_of_a_cohort_lend_and_borrow_and_say_so(stage: Stage, bench: Trees, quotas: Quotas) -> None:
    stage.nodes(nodes=6)
    mine, theirs = quotas.make("a", 16, borrow=8), quotas.make("b", 16)
    stage.create(workers("decode", replicas=4, minReplicas=1), name="first", queue=mine)
    stage.settle()
    assert len(stage.bound(inference="first")) == 3
    bench.unit("second", Role("decode", replicas=3, minimum=3), queue=mine)
    assert f"minimums of {mine} do not borrow" in stage.refusal("second", "OverQuota", of=ROOT)
    bench.unit("third", Role("decode"), queue=theirs)
    stage.ready(1, inference="third")
    assert quotas.usage(mine) == {"nominal": 16, "used": 24, "borrowed": 8, "lent": 0, "waiting": 32}
    assert quotas.usage(theirs) == {"nominal": 16, "used": 8, "borrowed": 0, "lent": 8, "waiting": 0}
    assert "24/16" in stage.cluster.kubectl("get", "cvq", mine)
    # The cohort is full: 32 of 32.
    bench.unit("fourth", Role("decode"), queue=theirs)
    stage.refusal("fourth", "OverQuota", of=ROOT)
    quotas.raise_to(theirs, 24)
    stage.ready(1, inference="fourth")
    # A queue that goes takes nothing with it, and what is left of its units says so.
    quotas.delete(theirs)
    stage.settle()
    assert f"there is no Queue {theirs}" in stage.condition("Admitted", "third", of=ROOT)[2]
    assert len(stage.bound(inference="third")) == 1


def test_quota_of_a_cohort_when_a_tree_of_others_wants_it_is_not_lent(
    stage: Stage, bench: Trees, quotas: Quotas
) -> None:
    """Nobody could take it back."""
    stage.nodes(nodes=4)
    mine = quotas.make("lent-a", 8, borrow=16)
    quotas.make("lent-b", 16)
    bench.unit("theirs", Role("decode", replicas=3), queue=mine)
    stage.settle()
    assert len(stage.bound(inference="theirs")) == 1


def test_namespace_when_several_queues_select_it_must_name_one(stage: Stage, bench: Trees, quotas: Quotas) -> None:
    stage.nodes()
    quotas.make("c", 8)
    other = quotas.make("d", 8)
    bench.unit("lost", Role("decode"))
    stage.refusal("lost", "QueueAmbiguous", of=ROOT)
    quotas.delete(other)
    stage.ready(1)


def test_quota_when_it_is_below_what_is_used_evicts_nobody(stage: Stage, bench: Trees, quotas: Quotas) -> None:
    stage.nodes(nodes=4)
    mine = quotas.make("f", 24)
    bench.unit("first", Role("decode", replicas=3), queue=mine)
    pods = stage.ready(3)
    quotas.raise_to(mine, 8)
    assert quotas.usage(mine)["used"] == 24
    assert within_limits(quotas.status(mine)) == "False"
    bench.unit("second", Role("decode"), queue=mine)
    stage.refusal("second", "OverQuota", of=ROOT)
    assert len(stage.bound(inference="first")) == 3
    for pod in sorted(pods, key=name_of)[1:]:
        stage.delete("Pod", name_of(pod), grace=0)
    # What is left of it is all that the queue may have.
    assert within_limits(quotas.status(mine)) == "True"
    stage.refusal("second", "OverQuota", of=ROOT)
    quotas.raise_to(mine, 16)
    stage.ready(1, inference="second")


def test_quota_when_all_pods_of_a_unit_are_deleted_stays_with_it_until_they_are_back(
    stage: Stage, quotas: Quotas
) -> None:
    """They are long in ending, and nobody makes their successors meanwhile."""
    stage.nodes(nodes=3)
    mine = quotas.make("ending", 8)
    stage.create(workers("decode"), name="first", queue=mine)
    [pod] = stage.ready(1, inference="first")
    stage.create(workers("decode"), name="second", queue=mine)
    stage.refusal("second", "OverQuota")
    stage.patch("Pod", name_of(pod), {"metadata": {"finalizers": ["story.test/ends"]}})
    with stage.away("operator"):
        stage.delete("Pod", name_of(pod), grace=0)
        stage.settle()
        assert not stage.bound(inference="second")
        stage.patch("Pod", name_of(pod), {"metadata": {"finalizers": None}})
    stage.ready(1, inference="first")
    stage.refusal("second", "OverQuota")
