"""Nodes asked of an autoscaler: for whom, how many, where, and until when."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inferences import inference, inferences, role, template
from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.backends import Owned
from covey.compile.identity import group_name, slot_of
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_TEMPLATES
from covey.model import podstate
from covey.operator.model.actions import Object
from covey.operator.model.capacity import ASK_KINDS, PROVISIONING_REQUESTS, AutoscalerSettings, Provider
from unit.operator.world import World

REQUESTS = AutoscalerSettings(Provider.PROVISIONING_REQUEST)
BUFFERS = AutoscalerSettings(Provider.CAPACITY_BUFFER)
MINIMUM_ONLY = replace(REQUESTS, surplus=False)
RACKS = core.ClusterTopology(
    core.Meta(name="racks"),
    core.ClusterTopologySpec(
        (core.TopologyLevel("block", ("cloud/block",)), core.TopologyLevel("rack", ("cloud/rack",)))
    ),
)
_TYPES = {kind.type for kind in ASK_KINDS}


def gpus(count: int, **pod: Any) -> Object:
    limits = {"nvidia.com/gpu": str(count), "cpu": "1500m"}
    return template({"name": "engine", "image": "engine:1", "resources": {"limits": limits, "requests": limits}}, **pod)


def gang(name: str, replicas: int, count: int = 8, **fields: Any) -> Object:
    """A role all of whose replicas must come."""
    return role(name, **{"replicas": replicas, "minReplicas": replicas, "template": gpus(count), **fields})


class Asking(World):
    """A world with an autoscaler to ask; what was asked is noted with each plan that is carried out."""

    bodies: dict[str, Object]

    def _apply(self, body: Mapping[str, Any]) -> None:
        name = body["metadata"]["name"]
        if body["kind"] in {"ProvisioningRequest", "CapacityBuffer"}:
            assert name in self.of(POD_TEMPLATES), "asked for without its PodTemplate"
            if name in self.marks():
                again = core.seconds(self.marks()[name]["again"])
                assert again is not None, "asked for again, though nodes came"
                assert again <= self.now, "asked for again too early"
        super()._apply(body)
        if body["kind"] in {"PodTemplate", "ProvisioningRequest", "CapacityBuffer"}:
            self.bodies = {**getattr(self, "bodies", {}), f"{body['kind']}/{body['metadata']['name']}": body}

    def judge_unit(self, value: str, reason: str, unit: int = 0, ago: float = 60.0, **status: Any) -> None:
        """What the scheduler process says of a root."""
        key = (COMPOSITE_POD_GROUPS.type, group_name(self.inference.metadata.name, unit))
        told = core.Condition(names.ADMITTED, value, reason, last_transition_time=rfc3339(self.now - ago))
        found = self.objects[key]
        self.objects[key] = msgspec.structs.replace(
            found, status=msgspec.structs.replace(found.status, conditions=(told,), **status)
        )

    def want_something_else(self, what: str) -> None:
        """The first unit waits for quota, or for others to give way (``claim``)."""
        if what != "claim":
            self.judge_unit("False", names.REASON_OVER_QUOTA)
            return
        victim = core.Victim("Replica", "ml", "other", unit=0, pods=("uid",))
        claim = core.Claim((), "", purpose="Preemption", victims=(victim,))
        self.judge_unit("False", names.REASON_INFEASIBLE, claim=claim)

    def refuse(self, unit: int = 0, ago: float = 60.0) -> None:
        self.judge_unit("False", names.REASON_INFEASIBLE, unit, ago)

    def of(self, kind: Any = PROVISIONING_REQUESTS) -> dict[str, Owned]:
        return {name: found for (each, name), found in self.objects.items() if each == kind.type}

    def marks(self) -> dict[str, Any]:
        """How requests have ended, by name, as their PodTemplates say it."""
        texts = {
            name: made.metadata.annotation(names.ANNOTATION_ASK_ENDED) for name, made in self.of(POD_TEMPLATES).items()
        }
        return {name: json.loads(text) for name, text in texts.items() if text is not None}

    def template_of(self, name: str) -> Any:
        return self.bodies[f"PodTemplate/{name}"]["template"]

    def say(self, *conditions: core.Condition, name: str = "", kind: Any = PROVISIONING_REQUESTS) -> None:  # type: ignore[override]
        """What the autoscaler says of a request."""
        for each, found in self.of(kind).items():
            if name in each:
                timed = tuple(
                    msgspec.structs.replace(one, last_transition_time=rfc3339(self.now)) for one in conditions
                )
                status = msgspec.structs.replace(found.status, conditions=timed)
                self.objects[kind.type, each] = msgspec.structs.replace(found, status=status)

    def asked(self) -> tuple[str, str, str]:
        """Status, reason and message of the condition."""
        found = self.conditions().get(names.CAPACITY_ASKED)
        return ("", "", "") if found is None else (found["status"], found["reason"], found["message"])


def refused(*roles: Object, capacity: AutoscalerSettings | None = REQUESTS, notes: bool = True, **spec: Any) -> Asking:
    """A resource whose first unit has been refused for room for a minute."""
    world = Asking(inference(*(roles or (gang("decode", 2),)), **spec))
    world.topologies = (RACKS,)
    world.notes = notes
    world.settle()
    world.autoscaler = capacity
    world.refuse()
    world.settle()
    return world


FOUND = core.Condition("Provisioned", "True", "CapacityIsFound")
COMING = core.Condition("Provisioned", "True", "CapacityIsProvisioned")
NOT_FOUND = core.Condition("Provisioned", "False", "CapacityIsNotFound", "no node group has eight")
#: Of a buffer: nodes are on their way.
NEW = core.Condition("Provisioning", "False", "RequiresNewCapacity")
FAILED = core.Condition("Failed", "True", "Failed", "quota of the cloud")


def test_a_refused_minimum_asks_for_all_its_pods() -> None:
    world = refused(role("decode", replicas=3, minReplicas=2, size=4, template=gpus(8)))
    (name,) = world.of()
    assert world.bodies[f"ProvisioningRequest/{name}"]["spec"] == {
        "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
        "podSets": [{"podTemplateRef": {"name": name}, "count": 8}],
    }
    assert world.asked()[:2] == ("True", "Asked")
    assert "8 pods of decode of unit 0" in world.asked()[2]
    (owner,) = world.of()[name].metadata.owner_references
    assert (owner.uid, owner.controller) == ("uid-llama", True)


def test_a_template_has_the_shape_of_a_pod_and_nothing_of_the_gang() -> None:
    near = {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": "engine"}}}
    pod = {
        "nodeSelector": {"gpu": "b200"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}},
    }
    made = gpus(8, **pod) | {"metadata": {"labels": {"app": "engine", "team": "ml"}}}
    world = refused(gang("decode", 2, template=made))
    (name,) = world.of()
    found = world.template_of(name)
    root = world.objects[COMPOSITE_POD_GROUPS.type, "llama-0"].metadata.uid
    assert found["metadata"]["labels"] == {"app": "engine", names.LABEL_ASK: root}
    assert found["spec"].keys() == {"containers", "nodeSelector", "tolerations", "affinity"}
    assert found["spec"]["nodeSelector"] == {"gpu": "b200"}
    assert found["spec"]["affinity"] == {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    (container,) = found["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1500m", "nvidia.com/gpu": "8"},
        "limits": {"nvidia.com/gpu": "8"},
    }


def test_a_unit_that_is_being_admitted_asks_for_nothing_new() -> None:
    """Its pods are pinned one after another, and only then its root says so."""
    world = refused(gang("decode", 3))
    before = world.of().keys()
    world.pin(min(world.pods))
    world.settle()
    assert world.of().keys() == before


def serve_kind(world: Asking) -> None:
    world.autoscaler = REQUESTS


def name_level(world: Asking) -> None:
    world.topologies = (RACKS,)


def admit(world: Asking) -> None:
    world.judge_unit("True", names.ADMITTED)


def ask_nobody(world: Asking) -> None:
    world.autoscaler = None


def suspend(world: Asking) -> None:
    world.inference = inference(gang("decode", 2), suspend=True)


@pytest.mark.parametrize(
    ("cause", "reason", "end"),
    [
        pytest.param("kind", "ProviderMissing", serve_kind, id="the kind is served"),
        pytest.param("kind", "ProviderMissing", admit, id="the unit is admitted without anybody"),
        pytest.param("kind", "ProviderMissing", ask_nobody, id="nobody is asked any more"),
        pytest.param("kind", "ProviderMissing", suspend, id="the resource is suspended"),
        pytest.param("level", "LevelUnknown", name_level, id="the level is known"),
        pytest.param("level", "LevelUnknown", admit, id="the unit is admitted elsewhere"),
        pytest.param("answer", "NoCapacity", admit, id="the unit is admitted before nodes came"),
        pytest.param("answer", "NoCapacity", ask_nobody, id="nobody is asked any more after an answer"),
        pytest.param("answer", "NoCapacity", suspend, id="the resource is suspended after an answer"),
    ],
)
def test_condition_of_what_is_asked_for_when_its_cause_has_gone_is_told_no_more(
    cause: str, reason: str, end: Callable[[Asking], None]
) -> None:
    capacity = replace(REQUESTS, is_served=cause != "kind")
    world = refused(capacity=capacity, **({"topology": {"required": "rack"}} if cause == "level" else {}))
    if cause == "level":
        world.topologies = ()
    if cause == "answer":
        world.say(NOT_FOUND)
    assert world.asked()[1] == reason
    end(world)
    world.settle()
    assert world.asked()[1] in {"", "Asked"}


@pytest.mark.parametrize(
    ("capacity", "told", "expected"),
    [
        (REQUESTS, COMING, "Coming"),
        (REQUESTS, FOUND, "Disagreed"),
        (REQUESTS, NOT_FOUND, "NoCapacity"),
        (REQUESTS, core.Condition("Accepted", "True", "Accepted"), "Asked"),
        (BUFFERS, NEW, "Coming"),
        (BUFFERS, core.Condition("Provisioning", "True", "FitsExistingCapacity"), "Disagreed"),
        (BUFFERS, core.Condition("ReadyForProvisioning", "False", "ResolutionFailed"), "NoCapacity"),
        (BUFFERS, core.Condition("Provisioning", "Unknown", "NotReadyForProvisioning"), "Asked"),
    ],
    ids=lambda value: getattr(value, "reason", None) or getattr(value, "provider", value),
)
def test_the_condition_says_what_was_answered(
    capacity: AutoscalerSettings, told: core.Condition, expected: str
) -> None:
    world = refused(capacity=capacity)
    world.say(told, kind=capacity.kind)
    assert world.asked()[:2] == ("True", expected)
    assert not world.plan().actions.ask


@pytest.mark.parametrize(
    ("told", "reason"), [(FOUND, "Disagreed"), (COMING, "NothingCame"), (FAILED, "CapacityFailed")]
)
def test_an_answer_without_nodes_ends_and_is_asked_for_again_after_a_while(told: core.Condition, reason: str) -> None:
    world = refused()
    (name,) = world.of()
    world.say(told)
    world.now += 901
    world.note()
    world.settle()
    for _ in range(3):
        assert not world.of()
        assert list(world.of(POD_TEMPLATES)) == [name]
        assert world.asked()[:2] == ("False", reason)
        assert world.marks()[name]["again"] in world.asked()[2]
        world.now += 200
        world.forget()
        world.settle()
    world.now += 600
    world.settle()
    assert list(world.of()) == [name]
    assert world.asked()[:2] == ("True", "Asked")


def test_no_part_is_asked_for_while_there_are_no_nodes_for_another() -> None:
    world = refused(gang("prefill", 2), gang("decode", 1, 4))
    small = next(name for name, each in world.of().items() if each.spec["podSets"][0]["count"] == 1)
    world.say(NOT_FOUND, name=small)
    world.settle()
    assert list(world.of()) == [small]
    assert world.asked()[1] == "NoCapacity"
    assert "no node group has eight" in world.asked()[2]
    world.say(COMING, name=small)
    world.settle()
    assert len(world.of()) == 2


@pytest.mark.parametrize("capacity", [REQUESTS, BUFFERS])
def test_nodes_are_asked_for_only_once_the_template_is_stored(capacity: AutoscalerSettings) -> None:
    """A quota that has no room for it, or another's of its name: without it the request would fail, and for good."""
    world = refused(capacity=None)
    world.autoscaler = capacity
    (level,) = world.plan().actions.ask
    assert [body["kind"] for body in level] == ["PodTemplate"]
    world.settle()
    assert world.of(capacity.kind).keys() == world.of(POD_TEMPLATES).keys() != set()


def test_of_many_parts_some_are_asked_for_at_a_time() -> None:
    """The API server may deny them all, in every pass."""
    world = refused(gang("decode", 120, topology={"required": "rack"}), capacity=None)
    world.autoscaler = REQUESTS
    assert sum(map(len, world.plan().actions.ask)) == 50
    world.settle()
    assert len(world.of()) == 120


def test_a_long_answer_is_cut() -> None:
    """A condition has 32,768 characters, as that of the autoscaler: the status would not be stored."""
    world = refused(gang("prefill", 2), gang("decode", 1, 4))
    world.say(core.Condition("Provisioned", "False", "CapacityIsNotFound", "no " * 10_000))
    assert world.asked()[1] == "NoCapacity"
    assert len(world.asked()[2]) < 8_000


def affinity_of(found: Any) -> Any:
    terms = found["spec"].get("affinity", {}).get("podAffinity", {})
    return terms.get("requiredDuringSchedulingIgnoredDuringExecution", [])


def test_what_is_left_of_a_unit_is_asked_for_in_its_domain() -> None:
    world = refused(gang("decode", 3), topology={"required": "rack"})
    first = min(world.pods)
    world.bind(first, "node-1")
    world.known_nodes["node-1"] = core.Node(core.Meta(name="node-1", labels={"cloud/block": "b1", "cloud/rack": "r7"}))
    world.settle()
    (name,) = world.of()
    found = world.template_of(name)
    assert found["spec"]["nodeSelector"] == {"cloud/block": "b1", "cloud/rack": "r7"}
    assert not affinity_of(found)
    assert world.of()[name].spec["podSets"][0]["count"] == 2


def admitted(*, minimum: int = 1, capacity: AutoscalerSettings | None = REQUESTS, **spec: Any) -> Asking:
    """A resource of four replicas whose minimum has places, and whose surplus has waited for a while."""
    world = refused(role("decode", replicas=4, minReplicas=minimum, template=gpus(8)), capacity=None, **spec)
    for name in sorted(world.pods)[:minimum]:
        world.bind(name)
    world.judge_unit("True", names.REASON_ADMITTED)
    world.settle()
    world.autoscaler = capacity
    world.settle()
    return world


def test_a_request_stands_until_the_last_of_its_nodes_has_come() -> None:
    """Replicas beyond the minimum get their places one by one; one anew for the rest would bring its nodes twice."""
    world = admitted()
    before = set(world.of())
    world.say(COMING)
    for name in sorted(world.pods)[1:]:
        world.settle()
        assert set(world.of()) == before
        world.bind(name)
    world.settle()
    assert not world.of()


@pytest.mark.parametrize(
    "spec", [{}, {"podSets": []}, {"podSets": [{}]}, {"podSets": [{"count": "two"}]}, {"podSets": 1}]
)
def test_a_request_that_somebody_else_has_written_ends_no_pass(spec: Object) -> None:
    world = admitted()
    ((name, found),) = world.of().items()
    world.objects[PROVISIONING_REQUESTS.type, "strange"] = msgspec.structs.replace(found, spec=spec)
    world.plan()
    assert name in world.of()


@pytest.mark.parametrize(
    ("capacity", "told", "passed"),
    [
        pytest.param(REQUESTS, (), 0, id="a request without an answer"),
        pytest.param(BUFFERS, (NEW,), 0, id="a buffer, which would bring as many nodes beside those that run"),
        pytest.param(REQUESTS, (COMING,), 901, id="a request that has ended"),
    ],
)
def test_what_still_waits_is_asked_for_anew_and_alone(
    capacity: AutoscalerSettings, told: tuple[core.Condition, ...], passed: float
) -> None:
    world = admitted(capacity=capacity)
    world.say(*told, kind=capacity.kind)
    world.bind(sorted(world.pods)[1])
    world.now += passed
    world.note()
    world.settle()
    (spec,) = (request.spec for request in world.of(capacity.kind).values())
    assert (spec["replicas"] if capacity is BUFFERS else spec["podSets"][0]["count"]) == 2


@pytest.mark.parametrize(
    ("capacity", "spec"),
    [
        pytest.param(MINIMUM_ONLY, {}, id="switched off"),
        pytest.param(REQUESTS, {"queue": "team"}, id="queue"),
        pytest.param(replace(REQUESTS, after=2_000_000_000.0), {}, id="young"),
    ],
)
def test_surplus_does_not_ask(capacity: AutoscalerSettings, spec: Object) -> None:
    assert not admitted(capacity=capacity, **spec).of()


def test_surplus_does_not_ask_while_a_minimum_waits() -> None:
    world = admitted(replicas=2)
    world.refuse(unit=1)
    world.settle()
    assert all("unit 1" in text for text in world.asked()[2].split("; "))


def needed(world: Asking) -> Counter[int]:
    """Pods of each refused unit's minimum that have no place."""
    found: Counter[int] = Counter()
    spec = world.inference.spec
    by_replica: dict[tuple[int, str, int], list[core.Pod]] = {}
    for pod in world.pods.values():
        slot = slot_of(pod.spec.hostname)
        assert slot is not None
        by_replica.setdefault(slot[:3], []).append(pod)
    for unit in range(spec.replicas):
        for each in spec.roles:
            ranked = sorted(
                (not all(map(podstate.is_admitted, pods)), number, sum(not podstate.is_admitted(pod) for pod in pods))
                for (of, name, number), pods in by_replica.items()
                if (of, name) == (unit, each.name)
            )
            found[unit] += sum(lacking for _, _, lacking in ranked[: each.min_replicas])
    return found


def counts(world: Asking) -> Counter[int]:
    """Pods that are asked for, by unit."""
    units = {
        world.objects[COMPOSITE_POD_GROUPS.type, group_name(world.inference.metadata.name, unit)].metadata.uid: unit
        for unit in range(world.inference.spec.replicas)
    }
    total: Counter[int] = Counter()
    for each in world.of().values():
        total[units[each.metadata.label(names.LABEL_ASK) or ""]] += each.spec["podSets"][0]["count"]
    return total


@given(inferences(), st.data())
def test_each_pod_of_a_refused_minimum_is_asked_for_once(found: Any, data: st.DataObject) -> None:
    """A1, A2, A3 and A5, whatever the resource, whoever has places, and wherever the operator is killed."""
    world = Asking(found)
    world.notes = True
    world.settle()
    world.autoscaler = MINIMUM_ONLY
    for name in data.draw(st.sets(st.sampled_from(sorted(world.pods)))) if world.pods else ():
        world.bind(name)
    states = {unit: data.draw(st.sampled_from(["True", "False", "young"])) for unit in range(found.spec.replicas)}
    for unit, state in states.items():
        if state == "True":
            world.judge_unit("True", names.REASON_ADMITTED, unit)
        else:
            world.refuse(unit, ago=60 if state == "False" else 1)
    world.crash(data.draw(st.integers(0, 12)))
    world.settle()
    wanted = needed(world)
    expected = {unit: wanted[unit] for unit, state in states.items() if state == "False" and wanted[unit]}
    assert counts(world) == expected
    assert world.of().keys() == world.of(POD_TEMPLATES).keys()
    kinds = [json.dumps([name.rpartition("-")[0], world.template_of(name)]) for name in world.of()]
    assert len(kinds) == len(set(kinds))
    planned = world.plan().actions
    assert not planned.ask
    assert not planned.delete_objects


@settings(settings.get_profile("storm"))
@given(st.data())
def test_whatever_is_answered_nothing_is_asked_for_twice(data: st.DataObject) -> None:
    """A1, A4, A5: answers in any order, time, kills and decisions; what has ended is asked for once it is due."""
    world = refused(gang("prefill", 2), gang("decode", 1, 4))
    known = set(world.of())
    assert (len(known), world.asked()[1]) == (2, "Asked")
    for _ in range(data.draw(st.integers(1, 8))):
        step = data.draw(
            st.sampled_from(["answer", "time", "kill", "undecided", "quota", "claim", "nodes", "refused", "admitted"])
        )
        if step == "answer" and world.of():
            answer = data.draw(st.sampled_from([FOUND, COMING, NOT_FOUND, FAILED]))
            world.say(answer, name=data.draw(st.sampled_from(sorted(world.of()))))
        elif step == "time":
            world.now += data.draw(st.sampled_from([10, 31, 901, 90_000]))
        elif step == "kill":
            world.crash(data.draw(st.integers(0, 4)))
        elif step == "undecided":
            world.judge_unit("False", names.REASON_WAITING, claim=None)
        elif step in {"quota", "claim"}:
            world.want_something_else(step)
        elif step == "nodes":
            claim = core.Claim((), "", nodes=("n",), last_progress_time=rfc3339(world.now), purpose="Capacity")
            world.judge_unit("False", names.REASON_INFEASIBLE, claim=claim)
        elif step == "refused":
            world.judge_unit("False", names.REASON_INFEASIBLE, claim=None)
        elif step == "admitted":
            for name in world.pods:
                world.pin(name)
            world.judge_unit("True", names.REASON_ADMITTED, claim=None)
            world.settle()
            assert not any(kind in _TYPES for kind, _ in world.objects)
            return
        world.note()
        world.settle()
        world.note()
        assert set(world.of()) <= known
        assert set(world.of()) <= set(world.of(POD_TEMPLATES))
        marks = world.marks()
        uids = {name: request.metadata.uid for name, request in world.of().items()}
        assert not [name for name in marks.keys() & uids.keys() if marks[name]["request"] == uids[name]]
        assert not world.plan().actions.ask
        assert bool(world.asked()[1]) == bool(known & set(world.of(POD_TEMPLATES)))
        # None outlives what it was believed for, whatever is decided on its unit.
        for name, request in world.of().items():
            provisioned = [told for told in request.status.conditions or () if told.status == "True"]
            times = [core.seconds(told.last_transition_time) or 0.0 for told in provisioned]
            times.append(
                core.seconds(world.of(POD_TEMPLATES)[name].metadata.annotation(names.ANNOTATION_ASK_CAME)) or 0.0
            )
            assert not provisioned or world.now < max(times) + 900
        # All parts are asked for, where none is refused or has ended.
        if step == "refused" and not marks and world.asked()[1] != "NoCapacity":
            assert set(world.of()) == known
