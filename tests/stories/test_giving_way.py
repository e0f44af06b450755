"""Replicas and units that give way to a claim, and those that are pardoned; the story itself decides on claims."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from builders.manifests import Object, workers
from cluster.workbench import is_gated, label, name_of, uid_of, uids
from covey.api import constants as names
from soak.settings import CLASSES
from stage import Stage

SINCE = "covey.dev/draining-since"
SERVING = "covey.dev/serving"
ROOT = "chat-0"


def engine(name: str, replicas: int, seconds: int, **fields: object) -> Object:
    """A role with the readiness gate that Covey opens, and seconds for what its replicas still serve."""
    gate = {"readinessGates": [{"conditionType": SERVING}]}
    return workers(name, replicas=replicas, gpus=1, drainSeconds=seconds, spec=gate, **fields)


def gates(pods: list[Object]) -> set[str]:
    """The status of their readiness gates."""
    conditions = [condition for pod in pods for condition in pod["status"]["conditions"]]
    return {condition["status"] for condition in conditions if condition["type"] == SERVING}


def marked(stage: Stage, count: int, **labels: object) -> list[Object]:
    """The pods at rest that are to go as soon as they are idle: so many."""
    stage.settle()
    pods = [pod for pod in stage.pods(inference="llm", **labels) if SINCE in pod["metadata"].get("annotations", {})]
    assert len(pods) == count, f"{len(pods)} of {count} are marked; {stage.told()}"
    return pods


def say_idle(stage: Stage, pods: list[Object]) -> None:
    """Say as an engine does that nothing is under way."""
    for pod in pods:
        stage.patch("Pod", name_of(pod), {"metadata": {"annotations": {"covey.dev/in-flight": "0"}}})


def victim(stage: Stage, pods: list[Object], kind: str) -> Object:
    """The replica or the unit of these pods, as the scheduler process names it."""
    described: Object = {"kind": kind, "namespace": stage.namespace, "name": "llm", "unit": int(label(pods[0], "unit"))}
    if kind == "Replica":
        described |= {"role": label(pods[0], "role"), "replica": int(label(pods[0], "replica"))}
    return {**described, "pods": sorted(map(uid_of, pods))}


def write_claim(stage: Stage, *victims: Object) -> None:
    """Write the claim of the root of chat as the scheduler process does; without victims, none."""
    claim = {"path": [], "since": "2026-01-01T00:00:00Z", "purpose": "Preemption", "message": "takes room from llm"}
    status = {"claim": {**claim, "victims": list(victims)} if victims else None}
    stage.cluster.api("PATCH", f"{stage.path('CompositePodGroup', ROOT)}/status", {"status": status})


@contextmanager
def chat_waits(stage: Stage) -> Iterator[None]:
    """Chat waits, and nobody but the story decides on claims."""
    with stage.away("scheduler"):
        stage.create(
            engine("decode", 1, 0), name="chat", priorityClassName=stage.priority_class("high", CLASSES["high"])
        )
        stage.settle()
        yield


def test_surplus_replica_is_pardoned_then_goes_and_its_successor_waits(stage: Stage) -> None:
    stage.nodes(nodes=1)
    stage.create(engine("prefill", 1, 0), engine("decode", 2, 3600, size=2, minReplicas=1))
    stage.ready(5)
    with chat_waits(stage):
        claimed = stage.pods(inference="llm", role="decode", replica=1)
        write_claim(stage, victim(stage, claimed, "Replica"))
        going = marked(stage, 2)
        assert uids(going) == uids(claimed)
        root = uid_of(stage.get("CompositePodGroup", ROOT))
        assert {pod["metadata"]["annotations"][names.ANNOTATION_CLAIMED_BY] for pod in going} == {root}
        assert gates(going) == {"False"}
        status, reason, message = stage.condition("Preempting", "chat")
        assert (status, reason) == ("True", "Preemption")
        assert "llm" in message
        status, reason, message = stage.condition("Preempted")
        assert (status, reason) == ("True", "Preemption")
        assert "decode/1 of unit 0 gave way" in message
        successor = stage.pods(inference="llm", role="decode", replica=2)
        assert len(successor) == 2
        assert all(map(is_gated, successor))
        # It is not needed any more, and the operator is away meanwhile.
        with stage.away("operator"):
            write_claim(stage)
        # It serves again under its number, and its successor is gone.
        assert not marked(stage, 0)
        decode = stage.pods(inference="llm", role="decode")
        assert len(decode) == 4
        assert uids(claimed) <= uids(decode)
        assert gates(decode) == {"True"}
        assert not any("covey.dev/draining" in pod["metadata"]["labels"] for pod in decode)
        assert stage.event_notes("Pardoned")
        # Then it is needed after all, and goes as a whole.
        write_claim(stage, victim(stage, claimed, "Replica"))
        say_idle(stage, marked(stage, 2))
        stage.settle()
        assert not uids(claimed) & uids(stage.pods())
        successor = stage.pods(inference="llm", role="decode", replica=2)
        assert len(successor) == 2
        assert all(map(is_gated, successor))
        assert not any(names.ANNOTATION_ROOM in pod["metadata"].get("annotations", {}) for pod in successor)
        assert stage.event_notes("Preempted")


def test_unit_goes_whole_and_is_made_again_when_it_is_gone(stage: Stage) -> None:
    stage.nodes(nodes=2)
    stage.create(engine("prefill", 1, 3600), engine("decode", 2, 3600), replicas=2)
    before = stage.ready(6)
    with chat_waits(stage):
        claimed = stage.pods(inference="llm", unit=1)
        write_claim(stage, victim(stage, claimed, "Unit"))
        prefill = marked(stage, 1)
        assert label(prefill[0], "role") == "prefill"
        say_idle(stage, prefill)
        decode = marked(stage, 2, role="decode")
        # Nothing new stands beside what is left.
        assert uids(stage.pods(inference="llm", unit=1)) == uids(decode)
        assert "unit 1 gave way" in stage.condition("Preempted")[2]
        say_idle(stage, decode)
        stage.settle()
        again = stage.pods(inference="llm", unit=1)
        assert len(again) == 3
        assert not uids(again) & uids(claimed)
        assert all(map(is_gated, again))
        assert {uid_of(pod) for pod in before if label(pod, "unit") == "0"} == uids(stage.pods(inference="llm", unit=0))
    write_claim(stage)
    stage.ready(7)
    assert stage.condition("Preempted") == ("", "", "")
