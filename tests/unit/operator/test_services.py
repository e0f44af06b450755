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
from covey.operator.plan import plan
from unit.operator.test_edit_storm import Event, Storm
from unit.operator.test_rolling import NEW, act, go_on, roll, serve
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
    serve(made)
    made.tell()
    return made


def services(world: World) -> set[str]:
    return {name for kind, name in world.objects if kind == SERVICES.type}


def of_revisions(world: World) -> dict[str, set[tuple[str, str]]]:
    """Role and revision of the pods that each revision of the resource has a Service over."""
    found: dict[str, set[tuple[str, str]]] = {}
    for (kind, _), owned in world.objects.items():
        if kind == SERVICES.type and (whole := owned.metadata.label(names.LABEL_WHOLE_REVISION)):
            selector = owned.spec["selector"]
            found.setdefault(whole, set()).add((selector[names.LABEL_ROLE], selector[names.LABEL_REVISION]))
    return found


def parts(resource: DisaggregatedInference, world: World) -> tuple[str, set[tuple[str, str]]]:
    del resource
    revision = world.judge().wanted
    return revision.hash, {(name, each.hash) for name, each in revision.roles.items()}


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


def test_services_of_replicas_come_and_go_with_them() -> None:
    world = served(llama(OWN))
    assert services(world) == {"llama-0-prefill-0", "llama-0-prefill-1", "llama-pods"}
    world.inference = llama({"replicas": 3, **OWN})
    world.settle()
    assert "llama-0-prefill-2" in services(world)
    serve(world)
    world.inference = llama({"replicas": 1, **OWN})
    world.carry_out()
    # Pods that terminate still find each other.
    assert {"llama-0-prefill-1", "llama-0-prefill-2"} < services(world)
    world.finish()
    world.settle()
    assert services(world) == {"llama-0-prefill-0", "llama-pods"}


def test_a_change_of_the_subdomain_replaces_pods_and_then_services() -> None:
    world = served(llama())
    world.inference = llama(OWN)
    act(world)
    assert "llama-pods" in services(world)
    assert any(name.startswith("llama-0-prefill-") for name in services(world))
    roll(world, {"prefill": 2, "decode": 2})
    assert {pod.spec.subdomain for pod in world.pods.values()} == services(world)
    assert len(services(world)) == 3
    decode = {pod.metadata.uid for name, pod in world.pods.items() if "decode" in name}
    # And back; the other role is left alone.
    world.inference = llama()
    roll(world, {"prefill": 2, "decode": 2})
    assert services(world) == {"llama-pods"}
    assert decode <= {pod.metadata.uid for pod in world.pods.values()}


def test_what_a_rollback_puts_in_force_has_its_own_subdomain_and_the_new_ports() -> None:
    world = served(llama({"network": PORTS}))
    before = world.judge().wanted
    world.inference = llama({"network": {**PORTS, **OWN["network"]}}, rollout={"onFailure": "Rollback"})
    act(world)
    world.now += 2000
    act(world, 2)
    accepted = world.judge().accepted
    assert accepted is not None
    assert accepted.revision.is_same(before)
    network = accepted.spec.roles[0].network
    assert network is not None
    assert (network.subdomain, [port.port for port in network.ports]) == (None, [8000])


def test_revisions_have_services_once_each_role_serves_and_while_several_run() -> None:
    world = served(llama())
    assert of_revisions(world) == {}
    former = parts(world.inference, world)
    world.inference = llama({"template": NEW}, {"template": NEW})
    act(world, 2)
    latter = parts(world.inference, world)
    assert of_revisions(world) == dict([former])
    serve(world, "0-prefill")
    assert world.plan().actions
    serve(world)
    world.carry_out()
    assert of_revisions(world) == dict([former, latter])
    roll(world, {"prefill": 2, "decode": 2})
    assert of_revisions(world) == {}


def test_a_role_that_does_not_change_is_of_both_revisions() -> None:
    world = served(llama())
    former = parts(world.inference, world)
    world.inference = llama(decode={"template": NEW, "update": {"partition": 1}})
    go_on(world, 6)
    latter = parts(world.inference, world)
    assert of_revisions(world) == dict([former, latter])
    assert len(former[1] & latter[1]) == 1
    assert not world.plan().actions


def test_services_of_a_revision_stay_while_its_pods_are_not_ready() -> None:
    world = served(llama())
    world.inference = llama(decode={"template": NEW, "update": {"partition": 1}})
    go_on(world, 6)
    assert len(of_revisions(world)) == 2
    for name in list(world.pods):
        world.change(name, status={"conditions": ()})
    world.forget()
    assert not [item for item in world.plan().actions.delete_objects if item.type == SERVICES.type]


def test_one_role_alone_has_nobody_to_be_paired_with() -> None:
    world = served(inference(role("decode", replicas=2)))
    world.inference = inference(role("decode", replicas=2, template=NEW))
    for _ in range(3):
        act(world)
        assert of_revisions(world) == {}
        serve(world)


@pytest.mark.parametrize("asked", [{}, {"network": {**PORTS, "service": {}}}])
def test_pods_of_a_former_release_get_the_label_when_a_service_asks_for_it(asked: dict[str, Any]) -> None:
    world = served(llama(asked))
    label(world, "0-prefill-0-0", endpoint=None)
    assert wants(world, "0-prefill-0-0") == ({names.LABEL_ENDPOINT: "true"} if asked else {})


def test_a_replica_that_drains_takes_no_requests_and_keeps_its_address() -> None:
    world = served(llama({"network": {**PORTS, "service": {}}}))
    label(world, "0-prefill-0-0", draining="true")
    assert wants(world, "0-prefill-0-0") == {names.LABEL_ENDPOINT: None}
    world.settle()
    assert wants(world, "0-prefill-0-0") == {}
    label(world, "0-prefill-0-0", draining=None)
    assert wants(world, "0-prefill-0-0") == {names.LABEL_ENDPOINT: "true"}


def test_a_service_is_added_and_taken_away_without_touching_pods() -> None:
    world = served(llama())
    before = dict(world.pods)
    for network, count in (({**PORTS, "service": {}}, 3), ({**PORTS, "service": {"endpoints": "All"}}, 3), (PORTS, 2)):
        world.inference = llama({"network": network})
        world.settle()
        assert len(services(world)) == count
    assert world.pods == before


def test_labels_of_leaderworkerset_are_given_to_pods_that_run_and_taken_back() -> None:
    world = served(llama())
    before = {name: pod.metadata.uid for name, pod in world.pods.items()}
    world.inference = llama(compat={"lwsLabels": "Always"})
    world.settle()
    assert all(set(names.LWS_LABELS) <= (pod.metadata.labels or {}).keys() for pod in world.pods.values())
    world.inference = llama()
    world.settle()
    assert not any(set(names.LWS_LABELS) & (pod.metadata.labels or {}).keys() for pod in world.pods.values())
    assert {name: pod.metadata.uid for name, pod in world.pods.items()} == before


def test_labels_of_leaderworkerset_in_a_template_are_left_alone() -> None:
    own = {**template(), "metadata": {"labels": {names.LABEL_LWS_NAME: "mine"}}}
    world = served(llama({"template": own}))
    world.inference = llama({"template": own}, compat={"lwsLabels": "Always"})
    world.settle()
    world.inference = llama({"template": own})
    world.settle()
    found = [pod.metadata.labels or {} for name, pod in world.pods.items() if "prefill" in name]
    assert [each.get(names.LABEL_LWS_NAME) for each in found] == ["mine"] * 4
    assert not any(names.LWS_LABELS[3] in each for each in found)


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


def test_labels_and_services_touch_no_revision() -> None:
    """Whatever is live is live: neither a pod nor a ControllerRevision of another content comes of it."""
    storm = NetworkStorm((2, 2), (2, 1))
    before = {name: pod.metadata.uid for name, pod in storm.world.pods.items()}
    for kind in ("service", "labels", "service", "labels"):
        storm.happen(kind, 0)
        storm.rest()
    assert {name: pod.metadata.uid for name, pod in storm.world.pods.items()} == before


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


def test_a_rollout_of_one_role_gathers_its_pods() -> None:
    world = served(llama())
    former(world)
    world.settle()
    world.inference = llama({"template": NEW})
    roll(world, {"prefill": 2, "decode": 2})
    assert services(world) == {"llama-pods", "llama-decode"}
    assert {pod.spec.subdomain for pod in world.pods.values()} == services(world)


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


def test_pods_of_a_former_resource_of_the_name_are_published_no_more() -> None:
    """They may end for minutes, and each has the address of a pod that is new."""
    world = served(llama())
    pod = next(iter(world.pods.values()))
    observed = replace(world.observe(), former=(pod,))
    wanted = plan(world.judge(), observed, world.status).actions.relabel
    assert [(item.pod.metadata.uid, dict(item.labels)) for item in wanted] == [
        (pod.metadata.uid, {names.LABEL_ADDRESS: None, names.LABEL_ENDPOINT: None})
    ]
    assert not world.plan().actions.relabel


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
