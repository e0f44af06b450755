"""Services through the whole plan: which there are, when they go, and the labels of the pods that they select."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import inferences
from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.compile import Owner
from covey.kube.resources import SERVICES
from covey.operator.model.accepted import Record, read_record
from covey.operator.model.observed import is_former
from unit.operator.test_edit_storm import Event, Storm
from unit.operator.world import World

PORTS: dict[str, Any] = {"ports": [{"name": "http", "port": 8000}]}
OWN = {"network": {"subdomain": "UniquePerReplica"}}


def llama(
    prefill: dict[str, Any] | None = None, decode: dict[str, Any] | None = None, **spec: Any
) -> DisaggregatedInference:
    """Two replicas of each role."""
    return inferences.llama(prefill or {}, {"replicas": 2, **(decode or {})}, **spec)


def served(resource: DisaggregatedInference) -> World:
    made = World.settled(resource)
    made.serve()
    made.tell()
    return made


def services(world: World) -> set[str]:
    return {name for kind, name in world.objects if kind == SERVICES.type}


def wants(world: World, hostname: str) -> dict[str, str | None]:
    """Labels that the plan changes on the pod with this host name."""
    return {
        key: value
        for item in world.plan().actions.relabel
        if item.pod.spec.hostname == hostname
        for key, value in item.labels.items()
    }


def label(world: World, hostname: str, **labels: str | None) -> None:
    (name,) = (name for name, pod in world.pods.items() if pod.spec.hostname == hostname)
    world.label(name, {f"covey.dev/{key}": value for key, value in labels.items()})


def test_what_a_rollback_puts_in_force_has_its_own_subdomain_and_the_new_ports() -> None:
    world = served(llama({"network": PORTS}))
    before = world.judge().wanted
    world.inference = llama({"network": {**PORTS, **OWN["network"]}}, rollout={"onFailure": "Rollback"})
    world.act()
    world.now += 2000
    world.act(2)
    accepted = world.judge().accepted
    assert accepted is not None
    assert accepted.revision.is_same(before)
    network = accepted.spec.roles[0].network
    assert network is not None
    assert (network.subdomain, [port.port for port in network.ports]) == (None, [8000])


@pytest.mark.parametrize("asked", [{}, {"network": {**PORTS, "service": {}}}])
def test_pods_of_a_former_release_get_the_label_when_a_service_asks_for_it(asked: dict[str, Any]) -> None:
    world = served(llama(asked))
    label(world, "0-prefill-0-0", endpoint=None)
    assert wants(world, "0-prefill-0-0") == ({names.LABEL_ENDPOINT: "true"} if asked else {})


class Wired(World):
    """A world in which no pod is ever without the Service that its address goes through."""

    def check(self) -> None:
        super().check()
        for pod in self.pods.values():
            assert (SERVICES.type, pod.spec.subdomain or "") in self.objects, pod.spec.hostname


class NetworkStorm(Storm):
    """Edits, deaths and crashes, and edits of the network among them."""

    def __init__(self, replicas: tuple[int, int], sizes: tuple[int, int]) -> None:
        self.own, self.asked, self.labelled = [False, False], False, False
        super().__init__(replicas, sizes)
        self.world.__class__ = Wired

    def wanted(self) -> DisaggregatedInference:
        plain = super().wanted().as_object()
        for each, own in zip(plain["spec"]["roles"], self.own, strict=True):
            asked = {"service": {}} if self.asked else {}
            each["network"] = {**PORTS, "subdomain": "UniquePerReplica" if own else "Shared", **asked}
        plain["spec"]["compat"] = {"lwsLabels": "Always" if self.labelled else "Never"}
        return DisaggregatedInference.model_validate(plain)

    def happen(self, kind: str, number: int) -> None:
        match kind:
            case "subdomain":
                self.own[number % 2] = not self.own[number % 2]
            case "service":
                self.asked = not self.asked
            case "labels":
                self.labelled = not self.labelled
            case "drain" if self.world.pods:
                name = sorted(self.world.pods)[number % len(self.world.pods)]
                self.world.label(name, {names.LABEL_DRAINING: "true"})
            case _:
                pass
        super().happen(kind, number)

    def rest(self) -> None:
        """What is drained is gone, and everything gets ready, until there is nothing more to do."""
        for _ in range(60):
            self.act()
            self.world.finish()
            for name in list(self.world.pods):
                self.serve(name)
            if not self.world.plan().actions and "rollout" not in self.world.tell():
                return
        raise AssertionError(self.world.status.get("rollout"))


network_events = st.lists(
    st.tuples(
        st.sampled_from(
            ["edit", "edit all", "replicas", "serve", "fail", "vanish", "finish", "restart", "crash", "subdomain"]
            + ["subdomain", "service", "labels", "drain"]
            + ["act"] * 5
        ),
        st.integers(0, 60),
    ),
    max_size=24,
)


@settings(settings.get_profile("storm"))
@given(st.tuples(st.integers(1, 3), st.integers(1, 3)), st.tuples(st.integers(1, 2), st.integers(1, 2)), network_events)
def test_services_and_labels_follow_through_any_storm(
    replicas: tuple[int, int], sizes: tuple[int, int], happened: list[Event]
) -> None:
    storm = NetworkStorm(replicas, sizes)
    for kind, number in happened:
        storm.happen(kind, number)
    storm.rest()
    world = storm.world
    asked = {"llama-prefill-svc", "llama-decode-svc"} if storm.asked else set[str]()
    assert services(world) == {pod.spec.subdomain for pod in world.pods.values()} | asked
    for pod in world.pods.values():
        labels = pod.metadata.labels or {}
        assert (names.LABEL_LWS_NAME in labels) == storm.labelled
        if storm.asked:
            assert (names.LABEL_ENDPOINT in labels) == (names.LABEL_DRAINING not in labels)


def former(world: World) -> None:
    """The resource is of a release that had a headless Service for each role."""
    world.revisions = [replace(each, record=_ungathered(each.record)) for each in world.revisions]
    for name, pod in list(world.pods.items()):
        world.change(name, spec={"subdomain": f"llama-{pod.metadata.label(names.LABEL_ROLE)}"})
    world.carry_out()


def _ungathered(record: Record | None) -> Record | None:
    assert record is not None
    assert record.accepted is not None
    data = {key: value for key, value in record.accepted.as_data().items() if key != "gathered"}
    return read_record(data)


def test_a_resource_of_a_former_release_keeps_its_services_and_its_pods() -> None:
    world = served(llama())
    former(world)
    world.settle()
    pods = set(world.pods)
    assert services(world) == {"llama-prefill", "llama-decode"}
    world.inference = llama({"replicas": 3})
    world.settle()
    assert pods < set(world.pods)
    assert {pod.spec.subdomain for pod in world.pods.values()} == {"llama-prefill", "llama-decode"}


def test_images_that_are_changed_in_place_leave_addresses_as_they_are() -> None:
    def asked(image: str) -> DisaggregatedInference:
        made = template(containers=[{"name": "engine", "image": image}])
        update = {"inPlace": "IfPossible", "maxSurge": 0, "maxUnavailable": 1}
        return llama({"template": made, "update": update})

    world = served(asked("engine:1"))
    former(world)
    world.settle()
    world.inference = asked("engine:2")
    actions = world.plan().actions
    assert [item.pod.spec.hostname for item in actions.in_place] == ["0-prefill-1-0", "0-prefill-1-1"]
    assert not actions.delete_pods
    assert not [item for item in actions.delete_objects if item.type == SERVICES.type]


@pytest.mark.parametrize(
    ("kind", "name", "uid", "former"),
    [
        ("DisaggregatedInference", "llama", "old", True),
        ("DisaggregatedInference", "llama", "uid-llama", False),
        ("DisaggregatedInference", "alpaca", "old", False),
        ("ReplicaSet", "llama", "old", False),
    ],
    ids=["former", "its own", "another's", "a stranger's"],
)
def test_only_pods_of_a_resource_of_the_same_name_are_former(kind: str, name: str, uid: str, former: bool) -> None:  # noqa: FBT001 - a parameter of the test
    reference = core.OwnerReference(api_version="v1", kind=kind, name=name, uid=uid, controller=True)
    metadata = core.Meta(name="pod", owner_references=(reference,))
    assert is_former(metadata, Owner("ml", "llama", "uid-llama")) == former


def test_the_members_service_of_a_former_release_when_containers_name_ports_stays_without() -> None:
    engine = {"name": "engine", "image": "x", "ports": [{"containerPort": 29500}]}
    world = World.serving(inference(role("decode", template=template(containers=[engine]))))
    pods = (SERVICES.type, "llama-pods")
    assert world.objects[pods].spec["ports"]
    world.objects[pods] = World.serving(inference(role("decode"))).objects[pods]
    assert "ports" not in world.objects[pods].spec
    assert not world.plan().actions
