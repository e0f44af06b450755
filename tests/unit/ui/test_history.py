"""A gang's story, from objects."""

from typing import Any

import msgspec

from covey.api import core
from covey.manifests.documents import convert
from covey.operator.model.objects import Inference
from covey.ui.history import tell
from covey.ui.history_sources import HistorySources, StoredEvent, TimedPod
from unit.ui.world import condition, expanded, told

NOW = 1_767_225_700.0


def resource(**status: Any) -> Inference:
    found = expanded("llm")[""]
    assert isinstance(found, Inference)
    return told(found, **status) if status else found


def pod(name: str, **more: Any) -> TimedPod:
    """A pod with its times; the pin at 3 s, the bind at 5 s."""
    found = expanded("llm")[name]
    raw = msgspec.to_builtins(found)
    raw["metadata"] |= {
        "creationTimestamp": "2026-01-01T00:00:01Z",
        "annotations": {"scheduling.covey.dev/pinned-at": "2026-01-01T00:00:03Z"},
    }
    raw["spec"] |= {"nodeName": "n1", "schedulingGates": []}
    raw["status"] = {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}],
    }
    for part, fields in more.items():
        raw[part] = raw[part] | fields
    return convert(raw, TimedPod)


def event(
    reason: str, action: str = "", kind: str = "DisaggregatedInference", uid: str = "uid-llm", **more: Any
) -> StoredEvent:
    regarding = {"kind": kind, "name": "llm", "uid": uid}
    body = {"metadata": {"name": "e"}, "regarding": regarding, "reason": reason, "action": action, **more}
    return convert({"eventTime": "2026-01-01T00:00:02.500000Z", **body}, StoredEvent)


def kinds(story: Any) -> list[tuple[str, str]]:
    return [(each.kind, each.source) for each in story.events]


def test_the_life_of_replicas_with_their_slowest_pod() -> None:
    ready = [{"type": kind, "status": "True", "lastTransitionTime": f"2026-01-01T00:00:0{at}Z"} for kind, at in
             (("PodScheduled", 5), ("Ready", 8))]  # fmt: skip
    pods = (pod("llm-0-prefill-0-0", status={"conditions": ready}), pod("llm-0-prefill-1-0"))
    story = tell(HistorySources(resource(), pods), NOW)
    first, second = story.lanes
    assert (first.replica, first.created, first.placed) == (0, "2026-01-01T00:00:01Z", "2026-01-01T00:00:03Z")
    assert (first.bound, first.ready, first.state) == ("2026-01-01T00:00:05Z", "2026-01-01T00:00:08Z", "ready")
    assert (second.bound, second.ready) == ("2026-01-01T00:00:05Z", None)
    assert [each.message for each in story.events if each.kind == "bound"] == ["unit 0, prefill: 2 replicas are bound"]
    assert [each.replica for each in story.events if each.kind == "ready"] == [0]
    assert [each.reason for each in story.events] == ["Created", "Created", "Placed", "Bound", "Ready"]


def test_containers_that_have_failed_and_pods_that_go() -> None:
    ended = {
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:01:00Z"}}
    }
    status = {"containerStatuses": [{"name": "engine", "restartCount": 1, **ended}]}
    going = {"deletionTimestamp": "2026-01-01T00:02:00Z"}
    found = pod("llm-0-prefill-0-0", status=status)
    gone = pod("llm-0-decode-0-0")
    gone = msgspec.structs.replace(gone, metadata=msgspec.structs.replace(gone.metadata, deletion_timestamp=going["deletionTimestamp"]))  # fmt: skip
    story = tell(HistorySources(resource(), (found, gone)), NOW)
    (failed,) = [each for each in story.events if each.kind == "failed"]
    assert (failed.reason, failed.type, failed.role, failed.object) == (
        "OOMKilled", "Warning", "prefill", "Pod/llm-0-prefill-0-0",
    )  # fmt: skip
    assert [each.time for each in story.events if each.kind == "draining"] == [going["deletionTimestamp"]]


def test_conditions_groups_rollouts_and_losses() -> None:
    hold = {"gate": "Nodes", "message": "no room", "since": "2026-01-01T00:04:00Z"}
    status = {
        "conditions": [condition("Admitted", "False", "Infeasible", "no room"), condition("Degraded", "True", "Below")],
        "rollout": {"toRevision": "b", "progressedAt": "2026-01-01T00:03:00Z", "hold": hold},
        "unitStatuses": [{"unit": 0, "message": "one is missing", "belowMinimumSince": "2026-01-01T00:05:00Z"}],
    }
    root = expanded("llm")["llm-0"]
    kept = {"level": "rack", "path": ["b0", None], "since": "2026-01-01T00:02:00Z", "nodes": ["n"]}
    root = told(root, conditions=[condition("Admitted", "False", "Infeasible", "no rack")], claim=kept)
    assert isinstance(root, core.Group)
    story = tell(HistorySources(resource(**status), groups=(root,)), NOW)
    found = {(each.kind, each.reason, each.type, each.unit) for each in story.events}
    assert ("waiting", "Infeasible", "Warning", None) in found
    assert ("waiting", "Infeasible", "Warning", 0) in found
    assert ("waiting", "Reserved", "Normal", 0) in found
    assert ("failed", "Below", "Warning", None) in found
    assert ("rollout", "Nodes", "Warning", None) in found
    assert ("failed", "BelowMinimum", "Warning", 0) in found


def test_a_claim_says_for_what_and_who_gives_way() -> None:
    claim = {"level": "rack", "path": ["b0", "r1"], "since": "2026-01-01T00:02:00Z", "nodes": ["n"]}
    claim |= {"purpose": "Preemption", "message": "takes decode/3 of dev/batch-0"}
    root = told(expanded("llm")["llm-0"], claim=claim)
    assert isinstance(root, core.Group)
    (found,) = [each for each in tell(HistorySources(resource(), groups=(root,)), NOW).events if each.kind == "waiting"]
    assert found.reason == "Preemption"
    assert found.message == "takes decode/3 of dev/batch-0; what comes free in rack b0/r1 is kept for it"


def test_a_preemption_when_it_has_ended_says_who_gave_way_and_how_it_ended() -> None:
    root = told(expanded("llm")["llm-0"])
    assert isinstance(root, core.Group)
    body = {
        "metadata": {"name": "llm-0-1", "namespace": "default", "creationTimestamp": "2026-01-01T00:02:00Z"},
        "spec": {
            "beneficiary": {"kind": "CompositePodGroup", "name": "llm-0", "uid": root.metadata.uid},
            "reason": "Priority",
            "summary": "1 pod of default/web",
        },
    }
    end = {"outcome": "GivenUp", "reason": "Refused", "message": "not evicted", "endTime": "2026-01-01T00:03:00Z"}
    going, ended = (msgspec.convert({**body, "status": status}, core.Preemption) for status in ({}, end))
    story = tell(HistorySources(resource(), groups=(root,), preemptions=(going, ended)), NOW)
    assert [(each.time, each.reason, each.message, each.unit) for each in story.events if each.kind == "waiting"] == [
        ("2026-01-01T00:02:00Z", "Priority", "1 pod of default/web to give way", 0),
        ("2026-01-01T00:03:00Z", "Refused", "GivenUp: not evicted", 0),
    ]


def test_events_by_what_was_done_and_repeated_ones() -> None:
    series = {"count": 4, "lastObservedTime": "2026-01-01T00:09:00.000000Z"}
    events = (
        event("Created", "Create", note="creating"),
        event("Admitted", "Admit", note="a"),
        event("Infeasible", "Admit", type="Warning", note="b", series=series),
        event("Evacuating", "Evacuate"),
        event("Odd", "Dance"),
        event("Scheduled", "Binding", kind="Pod", uid="llm-0-prefill-0-0"),
        event("FailedScheduling", "Scheduling", kind="Pod", uid="llm-0-prefill-0-0", type="Warning"),
        event("Pulled", "", kind="Pod", uid="llm-0-prefill-0-0"),
        event("BackOff", "", kind="Pod", uid="somebody-else", type="Warning"),
    )
    story = tell(HistorySources(resource(), (pod("llm-0-prefill-0-0"),), events=events), NOW)
    found = [each for each in story.events if each.source == "event"]
    assert sorted(each.kind for each in found) == ["admitted", "created", "evacuation", "other", "waiting", "waiting"]
    (repeated,) = [each for each in found if each.count > 1]
    assert (repeated.count, repeated.last, repeated.time) == (4, "2026-01-01T00:09:00Z", "2026-01-01T00:00:02Z")


def test_an_event_and_a_condition_that_say_the_same_are_one() -> None:
    happened = event("Available", "Start", note="all serve", eventTime="2026-01-01T00:00:08.9Z")
    story = tell(
        HistorySources(
            resource(conditions=[condition("Available", "True", "Available", "all serve")]), events=(happened,)
        ),
        NOW,
    )
    assert kinds(story) == [("created", "metadata"), ("ready", "event")]
