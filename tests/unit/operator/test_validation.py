"""What runs goes on, whatever is wrong with a new spec or with what was stored of the old one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders.inferences import FORMER, inference, llama, role, template
from covey.api import constants as names
from covey.api import core
from covey.api.inference import BackendName, DisaggregatedInferenceSpec
from covey.api.rules import broken_rules
from covey.compile import Revision
from covey.compile.revision import without_nulls
from covey.operator.model.accepted import FORMAT, Accepted, Record, Resolved, read_leniently, read_record
from covey.operator.model.observed import StoredRevision
from covey.operator.status import status
from covey.operator.status.units import describe_units
from unit.operator.world import World

GOLDEN = Path(__file__).parent / "golden"
CHANGED = template(nodeSelector={"new": "yes"})


def topology(name: str, *levels: str) -> core.ClusterTopology:
    spec = core.ClusterTopologySpec(tuple(core.TopologyLevel(level, (f"x/{level}",)) for level in levels))
    return core.ClusterTopology(core.Meta(name=name), spec)


@pytest.fixture
def world() -> World:
    return World.serving(llama())


def computed(world: World) -> dict[str, Any]:
    verdict, observed, planned = world.judge(), world.observe(), world.plan()
    units = tuple(describe_units(verdict.inference, verdict.backend, observed, planned))
    return status.compute(verdict, observed, planned, units, {}, "2026-01-01T00:00:00Z")


def conditions(world: World) -> dict[str, tuple[str, str, str]]:
    found = computed(world)["conditions"]
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in found}


BAD: dict[str, dict[str, Any]] = {
    "unsupported": {"disruptionMode": "Replica", "replicas": 2},
    "unknown level": {"topology": {"required": "no-such-level"}, "replicas": 2},
    "unknown enum": {"rollout": {"strategy": "OfALaterRelease"}, "replicas": 2},
    "out of bounds": {"replicas": 5000},
}


@pytest.mark.parametrize("edits", BAD.values(), ids=BAD)
def test_a_bad_spec_holds_itself_and_no_repair(world: World, edits: dict[str, Any]) -> None:
    world.edits = edits
    before = set(world.pods)
    lost, released = world.name_at("0-decode-0-0"), world.name_at("0-decode-1-0")
    world.fail(lost)
    world.change(released, spec={"node_name": None}, status={"phase": "Pending", "conditions": ()})
    world.release(released)
    world.settle()
    assert before - set(world.pods) == {lost, released}
    assert len(world.pods) == len(before)
    assert {slot.unit for slot in world.observe().pods} == {0}
    found = conditions(world)
    assert found["Progressing"][0] == "False"
    assert "kept as it was accepted last" in found["Progressing"][2]
    assert found["Admitted"][1] != found["Progressing"][1]
    assert found["BackendSupported"][0] == ("False" if "disruptionMode" in edits else "True")
    world.edits = {"replicas": 2}
    world.settle()
    assert {slot.unit for slot in world.observe().pods} == {0, 1}


def test_an_accepted_spec_that_a_later_release_stored_is_read_without_what_is_unknown(world: World) -> None:
    """After a downgrade, neither the spec nor the record of it can be read to the letter."""
    unknown = {"rollout": {"strategy": "OfALaterRelease"}, "newField": 3}
    stored = world.observe().in_force
    assert stored is not None
    assert stored.record is not None
    assert stored.record.accepted is not None
    data = stored.record.accepted.as_data()
    data["spec"] = {**data["spec"], **unknown}
    world.revisions = [StoredRevision(stored.name, stored.number, read_record(data))]
    world.edits = unknown
    world.fail(world.name_at("0-decode-0-0"))
    assert len(world.plan().actions.create) == 1
    assert conditions(world)["Progressing"][1] == "Invalid"


def test_what_cannot_be_done_without_makes_a_spec_unreadable() -> None:
    content = llama().as_object()["spec"]
    content["roles"][0]["restart"] = {"policy": "OfALaterRelease", "maxRestarts": 3}
    content["roles"][1]["update"] = {"maxSurge": "lots"}
    spec = read_leniently(content)
    assert spec.roles[0].restart is not None
    assert (spec.roles[0].restart.policy, spec.roles[0].restart.max_restarts) == (None, 3)
    assert spec.roles[1].update is not None
    assert content["roles"][0]["restart"]["policy"] == "OfALaterRelease"
    del content["roles"][0]["template"]
    with pytest.raises(ValueError, match="template"):
        read_leniently(content)


@pytest.mark.parametrize("lost", ["deleted", "unreadable", "of a later format"])
def test_without_a_record_what_runs_stays_as_it_is(world: World, lost: str) -> None:
    stored = world.observe().in_force
    assert stored is not None
    data = {"unreadable": {"roles": 3}, "of a later format": {"format": FORMAT + 1}}.get(lost)
    world.revisions = [] if data is None else [StoredRevision(stored.name, stored.number, read_record(data))]
    assert all(each.record is None for each in world.revisions)
    before = dict(world.pods)
    # Meanwhile somebody has changed rolled fields, the size among them.
    world.inference = inference(role("prefill", replicas=2, size=1), role("decode", replicas=3, template=CHANGED))
    planned = world.plan()
    assert not planned.actions.delete_pods
    assert not planned.actions.create
    world.settle()
    assert world.pods == before
    newest = world.observe().in_force
    assert newest is not None
    assert newest.number == (1 if lost == "deleted" else 2)
    # What is lost from now on is replaced by what is wanted now.
    world.fail(world.name_at("0-decode-1-0"))
    world.settle()
    successor = world.pods[world.name_at("0-decode-1-0")]
    assert successor.spec.node_selector == {"new": "yes"}
    assert before.keys() - world.pods.keys() == {
        name for name, pod in before.items() if pod.spec.hostname == "0-decode-1-0"
    }


def test_pods_that_run_prove_their_template(world: World) -> None:
    """The record is gone; the API server, asked anew, might say something else today."""
    world.revisions = []
    assert not world.judge().unproven
    world.inference = inference(role("prefill", replicas=2, size=2), role("decode", replicas=3, template=CHANGED))
    assert world.judge().unproven


@pytest.mark.parametrize("form", sorted(path.stem for path in GOLDEN.glob("*.json")))
def test_what_former_releases_stored_rolls_nothing(form: str) -> None:
    """Each file is what a release wrote; its hashes need not be those that this one computes."""
    data = json.loads((GOLDEN / f"{form}.json").read_text())["data"]
    record = read_record(data)
    assert record is not None
    former = template(containers=[FORMER])
    leader = template(containers=[FORMER], nodeSelector={"pool": "leaders"})
    world = World(
        inference(
            role("prefill", replicas=2, size=2, template=former, leaderTemplate=leader),
            role("decode", replicas=3, minReplicas=2, template=former, topology={"required": "rack"}),
            replicas=2,
        )
    )
    world.topologies = (topology("network", "zone", "block", "rack"),)
    world.revisions = [StoredRevision("llama-old", 7, record)]
    world.settle()
    labels = {
        (pod.metadata.label(names.LABEL_ROLE), pod.metadata.label(names.LABEL_REVISION)) for pod in world.pods.values()
    }
    assert labels == {(name, each.hash) for name, each in record.revision.roles.items()}
    world.bind_all()
    before = dict(world.pods)
    assert not world.settle().actions
    assert world.pods == before
    assert record.revision.is_same(Revision.of(world.inference.spec))
    newest = world.observe().in_force
    assert newest is not None
    assert newest.record is not None
    assert newest.record.accepted is not None
    assert newest.number == (7 if record.accepted else 8)
    # A change of content is one, under whatever names.
    world.inference = inference(role("prefill", replicas=2, size=2), role("decode", replicas=3), replicas=2)
    assert not record.revision.is_same(world.judge().wanted)


def test_the_present_format_is_one_of_the_golden_ones(world: World) -> None:
    golden = json.loads((GOLDEN / f"format-{FORMAT}.json").read_text())["data"]
    accepted = world.judge().accepted
    assert accepted is not None
    # Records of former releases lack it, and say by that what it says.
    assert accepted.as_data().keys() - {"gathered"} == golden.keys()
    record = read_record(golden)
    assert isinstance(record, Record)
    assert record.accepted is not None
    assert record.accepted.as_data() == golden
    resolved = record.accepted.resolved
    assert (resolved.backend, resolved.scheduler_name) == (BackendName.EXTENDER, "covey-scheduler")
    assert (resolved.topology, list(resolved.levels or ())) == ("network", ["zone", "block", "rack"])


def test_a_record_has_no_nulls_and_one_of_a_former_release_with_nulls_says_the_same(world: World) -> None:
    """kubectl cannot create a ControllerRevision again whose data have one."""
    content = {**world.judge().inference.as_object()["spec"], "suspend": None}
    content["roles"][0]["template"]["spec"]["containers"][0]["command"] = None
    resolved = Resolved(BackendName.EXTENDER, "covey-scheduler")
    spec = DisaggregatedInferenceSpec.model_validate(
        {key: value for key, value in content.items() if value is not None}
    )
    accepted = Accepted(spec, content, resolved, Revision.of(spec))
    data = accepted.as_data()
    assert without_nulls(data) == data
    for stored in (data, {**data, "topology": None, "spec": content}):
        record = read_record(stored)
        assert record is not None
        assert record.accepted is not None
        assert record.accepted.is_same(accepted)
        assert accepted.is_same(record.accepted)
        assert record.revision.hash == accepted.revision.hash
        assert record.revision.is_same(accepted.revision)


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        (("template", "metadata"), "labels", {"scheduling.covey.dev/pod-group": "somebodys-0-prefill-0"}),
        (("template", "metadata"), "annotations", {"scheduling.covey.dev/room": "node-7"}),
        (("template", "metadata"), "labels", 5),
        (("template",), "metadata", 5),
        ((), "template", 5),
        (("template", "spec"), "nodeName", "node-7"),
        (("template", "spec"), "priority", 2_000_000_000),
        (("template", "spec"), "containers", [5]),
        ((), "minReplicas", 9),
        ((), "replicas", 9999),
    ],
    ids=[
        "label",
        "annotation",
        "no labels",
        "no metadata",
        "no template",
        "node",
        "priority",
        "no containers",
        "minimum",
        "pods",
    ],
)
@pytest.mark.parametrize("form", [1, 2])
def test_a_record_that_breaks_a_rule_of_the_crd_is_not_read(
    form: int, place: tuple[str, ...], key: str, value: object
) -> None:
    """Whoever may write ControllerRevisions would else have pods made that nobody may ask for."""
    data = json.loads((GOLDEN / f"format-{form}.json").read_text())["data"]
    assert read_record(data) is not None
    part = data["roles"]["prefill"] if form == 1 else data["spec"]["roles"][0]
    for step in place:
        part = part.setdefault(step, {})
    part[key] = value
    if key == "replicas":
        part["size"] = 999
    record = read_record(data)
    # The first format has no numbers of replicas.
    assert (record is None) == (form == 2 or bool(place) or key == "template")


def test_a_record_of_a_time_before_a_rule_is_read() -> None:
    """The API server lets a stored spec stay that breaks a younger rule; its pods serve."""
    data = json.loads((GOLDEN / "format-2.json").read_text())["data"]
    for part in data["spec"]["roles"]:
        part["minReplicas"] = 0
    assert list(broken_rules(read_leniently(data["spec"])))
    assert read_record(data) is not None


@pytest.mark.parametrize("data", [{}, {"roles": 3}, {"format": 2}, {"format": 2, "spec": None}, {"format": "2"}])
def test_what_is_no_record_is_not_read(data: dict[str, Any]) -> None:
    assert read_record(data) is None
