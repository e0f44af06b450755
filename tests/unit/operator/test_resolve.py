"""Which backend a resource gets: the newest that the cluster can do, and the same one ever after."""

from __future__ import annotations

from typing import ClassVar

import pytest

from builders.inferences import inference, role
from covey import backends
from covey.api import constants as names
from covey.api.inference import BackendName
from covey.backends import Cluster, FieldProbe
from covey.backends.extender import Extender
from covey.backends.kubernetes import Flat
from covey.kube.resources import Resource
from covey.operator.validation import find_refused
from unit.operator.test_validation import conditions
from unit.operator.world import World

OLD = Resource("example.com", "v1", "gangs", "Gang")
NEW = Resource("example.com", "v2", "gangs", "Gang")


class Scheduler(Extender):
    """A backend of two dialects; each needs one kind that nobody else has."""

    name: ClassVar[BackendName] = BackendName.VOLCANO
    dialect: ClassVar[str] = "v1"
    kind: ClassVar[Resource] = OLD

    def absent(self, cluster: Cluster) -> str | None:
        return None if cluster.serves(self.kind) else f"the cluster does not serve {self.kind.api_version}"


class Newer(Scheduler):
    dialect: ClassVar[str] = "v2"
    kind: ClassVar[Resource] = NEW

    def probes(self) -> tuple[FieldProbe, ...]:
        return (
            FieldProbe(
                "v2 keeps spec.size", NEW, {"metadata": {"name": "probe"}, "spec": {"size": 1}}, ("spec", "size")
            ),
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(backends, "BACKENDS", (Extender(), Newer(), Scheduler()))
    return World(inference(role("prefill", size=2), role("decode", replicas=2), backend="Volcano"))


def recorded(world: World) -> tuple[str, str]:
    newest = world.observe().in_force
    assert newest is not None
    assert newest.record is not None
    assert newest.record.accepted is not None
    resolved = newest.record.accepted.resolved
    return resolved.backend, resolved.dialect


def test_an_upgraded_cluster_changes_nothing_for_what_is_there(world: World) -> None:
    world.cluster = Cluster(frozenset({NEW}))
    world.settle()
    world.cluster = Cluster()
    world.settle()
    assert recorded(world) == ("Volcano", "v1")
    world.edits = {"suspend": True}
    world.settle()
    world.edits = {}
    world.settle()
    # Its record says v1, which can still be had.
    assert recorded(world) == ("Volcano", "v1")


def test_what_runs_is_left_alone_when_its_dialect_is_gone(world: World) -> None:
    world.cluster = Cluster(frozenset({NEW}))
    world.settle()
    world.cluster = Cluster(frozenset({OLD}))
    world.fail(next(iter(world.pods)))
    assert not world.plan().actions
    status, reason, message = conditions(world)["BackendSupported"]
    assert (status, reason) == ("False", "Unsupported")
    assert "the cluster does not serve example.com/v1; what runs is left alone; set spec.suspend to true" in message
    # As the sentence says: given up and taken up again, it is made anew.
    world.edits = {"suspend": True}
    world.settle()
    assert not world.pods
    world.edits = {}
    world.settle()
    assert recorded(world) == ("Volcano", "v2")
    assert len(world.pods) == 4


def test_what_is_there_is_repaired_while_probes_have_no_answer() -> None:
    world = World(inference(role("prefill", size=2), role("decode"), backend="Kubernetes"))
    probes = frozenset(probe.name for each in backends.BACKENDS for probe in each.probes())
    world.cluster = Cluster(kept=probes)
    world.settle()
    world.serve()
    world.settle()
    world.cluster = Cluster(unprobed=dict.fromkeys(probes, "503 ServiceUnavailable"))
    assert not world.plan().actions, "the operator has begun again, and knows of no answer"
    world.vanish(next(iter(world.pods)))
    assert world.plan().actions.create
    assert conditions(world)["BackendSupported"][0] == "True"


def test_nothing_new_is_made_while_probes_have_no_answer() -> None:
    world = World(inference(role("prefill", size=2), role("decode"), backend="Kubernetes"))
    probes = (probe.name for each in backends.BACKENDS for probe in each.probes())
    world.cluster = Cluster(unprobed=dict.fromkeys(probes, "503 ServiceUnavailable"))
    assert not world.plan().actions
    status, _, message = conditions(world)["BackendSupported"]
    assert status == "False"
    assert "503 ServiceUnavailable" in message
    assert "suspend" not in message
    assert names.STALLED not in conditions(world), "it is asked again by itself"
    world.cluster = Cluster()
    assert names.STALLED in conditions(world), "the fields are dropped"


def test_no_older_dialect_is_chosen_while_a_probe_has_no_answer() -> None:
    world = World(inference(role("prefill", size=2), role("decode"), backend="Kubernetes"))
    probes = frozenset(probe.name for each in backends.BACKENDS for probe in each.probes())
    [parent] = [each for each in probes if "parent" in each]
    world.cluster = Cluster(kept=probes - {parent}, unprobed={parent: "503 ServiceUnavailable"})
    assert not world.plan().actions, "the dialect that is chosen stays"
    assert names.STALLED not in conditions(world)
    world.cluster = Cluster(kept=probes - {parent})
    verdict = world.judge()
    assert verdict.backend is not None
    assert verdict.backend.dialect == "1.37-flat"


def test_a_field_that_nobody_can_be_asked_about_is_no_persons_business() -> None:
    wanted = inference(role("prefill", size=2, topology={"required": "rack"}), role("decode"), backend="Kubernetes")
    levels = {"rack": ("x/rack",)}
    flat = Flat("1.37-flat")
    [topology] = [probe.name for probe in flat.probes() if "topology" in probe.name]
    unasked = find_refused(flat, wanted.spec, levels, Cluster(unprobed={topology: "503 ServiceUnavailable"}))
    dropped = find_refused(flat, wanted.spec, levels, Cluster())
    assert unasked is not None
    assert dropped is not None
    assert (unasked.retry, dropped.retry) == (True, False)
