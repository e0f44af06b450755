"""What is read from groups as kube-scheduler 1.37.1 writes them, and who may come after the minimum."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from builders import pods
from builders.inferences import inference, role
from covey.api import core
from covey.api.core import rfc3339
from covey.api.inference import DisaggregatedInference
from covey.backends import Identity, Owned, Release, ReleaseFacts, ReplicaProgress
from covey.backends.kubernetes import Hierarchical
from covey.compile import Slot, type_of
from covey.operator.objects.drift import add_digest
from unit.backends.native import LEVELS, Object, llama

NOW = 1_800_000_000.0
BACKEND = Hierarchical()
PLACED = {"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled", "message": ""}
NO_ROOM = {
    "type": "PodGroupInitiallyScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining",
}


def stored(body: Object, *conditions: Object, **metadata: Any) -> Owned:
    """An object as the API server has it: defaults and admission have filled in what is not given."""
    spec = {"priority": 0, **body["spec"]}
    if body["kind"] == "Workload":
        spec = {**body["spec"], "podGroupTemplates": None}
    times = [{**each, "lastTransitionTime": rfc3339(NOW - 500)} for each in conditions]
    whole = {
        **body,
        "spec": spec,
        "status": {"conditions": times},
        "metadata": {**body["metadata"], "uid": f"uid-{body['metadata']['name']}", **metadata},
    }
    return msgspec.convert(whole, Owned)


def objects(wanted: DisaggregatedInference, conditions: Mapping[str, Object], **edits: Any) -> dict[Identity, Owned]:
    """All groups of a resource, and what kube-scheduler says of those PodGroups that are named."""
    found = {}
    for level in BACKEND.compile(wanted, levels=LEVELS).levels[:4]:
        for body in level.objects:
            name = body["metadata"]["name"]
            said = [conditions[name]] if name in conditions and body["kind"] == "PodGroup" else []
            found[type_of(body), name] = stored(body, *said, **edits.get(name, {}))
    return found


def pod(slot: Slot, node: str | None = None, *, age: float = 0.0, said: str = "") -> core.Pod:
    conditions: list[Object] = []
    if node:
        conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(NOW - age)}]
    elif said:
        conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}]
    name = f"{slot.role}-{slot.replica}-{slot.index}"
    return pods.pod(
        name,
        node=node,
        spec={"schedulingGroup": {"podGroupName": "whatever"}},
        status={"conditions": conditions},
        creationTimestamp=rfc3339(NOW - age),
    )


def replica(
    name: str, number: int, size: int, *, pods: Iterable[core.Pod] = (), minimum: bool = True, bound: bool = False
) -> ReplicaProgress:
    slots = tuple(Slot(0, name, number, index) for index in range(size))
    found = tuple(pods)
    return ReplicaProgress(
        slots,
        in_minimum=minimum,
        is_complete=len(found) == size,
        is_let_go=len(found) == size,
        is_bound=bound,
        pods=found,
    )


def made(name: str, number: int, size: int, node: str | None = None, *, minimum: bool = True, **pods: Any) -> Any:
    slots = [Slot(0, name, number, index) for index in range(size)]
    return replica(
        name, number, size, pods=[pod(slot, node, **pods) for slot in slots], minimum=minimum, bound=bool(node)
    )


def progress(*replicas: ReplicaProgress, conditions: Mapping[str, Object] | None = None, **edits: Any) -> ReleaseFacts:
    wanted = llama()
    return ReleaseFacts(wanted, {0: replicas}, objects(wanted, conditions or {}, **edits), now=NOW)


def unit(node: str | None, **pods: Any) -> list[ReplicaProgress]:
    """The golden resource's only unit with all of its minimum there, and nothing of its surplus."""
    return [
        made("prefill", 0, 2, node, **pods),
        replica("prefill", 1, 2, minimum=False),
        made("decode", 0, 1, node, **pods),
        made("decode", 1, 1, node, **pods),
        replica("decode", 2, 1, minimum=False),
        replica("router", 0, 1, minimum=False),
        replica("cache", 0, 2, minimum=False),
    ]


SURPLUS = {
    *(Slot(0, "prefill", 1, index) for index in range(2)),
    Slot(0, "decode", 2, 0),
    Slot(0, "router", 0, 0),
    *(Slot(0, "cache", 0, index) for index in range(2)),
}
BOTH_PLACED = {"llama-0-prefill-0": PLACED, "llama-0-decode": PLACED}


def released(found: ReleaseFacts) -> Release:
    return BACKEND.release(found)


def test_a_minimum_without_any_word_for_a_minute() -> None:
    early = released(progress(*unit(None, age=20.0)))
    assert not early.waits
    assert early.again == pytest.approx(40.0)
    late = released(progress(*unit(None, age=61.0))).waits[0]
    assert late.status == "False"
    assert late.reason == "GroupsIgnored"
    for gate in ("GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup"):
        assert gate in late.message


def test_pods_that_are_bound_without_their_groups() -> None:
    early = released(progress(*unit("n", age=4.0)))
    assert not early.waits
    assert early.again == pytest.approx(6.0)
    late = released(progress(*unit("n", age=11.0)))
    assert late.waits[0].reason == "GroupsIgnored"
    assert "without regard to their groups" in late.waits[0].message
    assert late.withheld == SURPLUS


def test_a_group_that_does_not_go() -> None:
    """kube-controller-manager has not the feature gate: nobody takes the finalizer off."""
    gone = [replica("prefill", 0, 2), *unit("n")[1:]]

    def at(age: float) -> Release:
        edits = {"llama-0-prefill-0": {"deletionTimestamp": rfc3339(NOW - age)}}
        return released(progress(*gone, conditions=BOTH_PLACED, **edits))

    assert not at(100.0).waits
    assert at(100.0).again == pytest.approx(20.0)
    waits = at(121.0).waits[0]
    assert waits.reason == "GroupTerminating"
    assert "kube-controller-manager" in waits.message


def report(conditions: Mapping[str, Object], wanted: DisaggregatedInference | None = None) -> core.Condition | None:
    found = BACKEND.read_back("llama", 0, objects(wanted or llama(), conditions))
    assert found is not None
    assert found.uid == "uid-llama-0"
    return found.admitted


def test_the_root_is_never_asked() -> None:
    assert report({}) is None
    placed = report(BOTH_PLACED)
    assert placed is not None
    assert placed.status == "True"


def test_upstreams_own_sentence() -> None:
    told = report({"llama-0-decode": PLACED, "llama-0-prefill-0": NO_ROOM})
    assert told is not None
    assert (told.status, told.reason, told.message) == ("False", "Unschedulable", NO_ROOM["message"])


CHANGES: dict[str, tuple[DisaggregatedInference, set[str]]] = {
    "nothing": (llama(), set()),
    "minCount of single pods": (
        inference(
            role("prefill", replicas=2, size=2, topology={"required": "rack"}),
            role("decode", replicas=3, minReplicas=3),
            role("router", minReplicas=0, topology={"followUnit": False}),
            role("cache", minReplicas=0, size=2, topology={"followUnit": False, "required": "rack"}),
            topology={"required": "block"},
        ),
        set(),
    ),
    "minGroupCount of a role": (
        inference(
            role("prefill", replicas=2, minReplicas=2, size=2, topology={"required": "rack"}),
            role("decode", replicas=3, minReplicas=2),
            topology={"required": "block"},
        ),
        {"Workload", "llama-0-prefill"},
    ),
    "a level": (llama(topology={"required": "zone"}), {"Workload", "llama-0"}),
    "what preemption takes": (
        llama(disruptionMode="Replica"),
        {"Workload", "llama-0", "llama-0-prefill", "llama-0-decode"},
    ),
    "a role that joins the gang": (
        inference(
            role("prefill", replicas=2, size=2, topology={"required": "rack"}),
            role("decode", replicas=3, minReplicas=2),
            role("cache", minReplicas=1, size=2, topology={"required": "rack"}),
            topology={"required": "block"},
        ),
        {"Workload", "llama-0", "llama-0-cache-0"},
    ),
}


@pytest.mark.parametrize(("wanted", "fixed"), CHANGES.values(), ids=CHANGES.keys())
def test_what_cannot_be_changed_in_place(wanted: DisaggregatedInference, fixed: set[str]) -> None:
    before = objects(llama(), {})
    found = set()
    for level in BACKEND.compile(wanted, levels=LEVELS).levels[:4]:
        for body in level.objects:
            owned = before.get((type_of(body), body["metadata"]["name"]))
            if owned is not None and BACKEND.is_fixed(owned, add_digest(body)):
                found.add("Workload" if body["kind"] == "Workload" else body["metadata"]["name"])
    assert found == fixed
