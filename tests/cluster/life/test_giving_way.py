"""Replicas and units that give way to a claim, and those that are pardoned, where all of Covey has run."""

from __future__ import annotations

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import AddNodes, Serving, serves, serving, workers
from cluster.workbench import is_gated, label, name_of, uid_of, uids
from covey.api import constants as names
from localcluster import eventually, request

from .test_preempted_room import await_marked, marked, say_idle

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")
_ROOT = "chat-0"


def engine(name: str, replicas: int, seconds: int, **fields: object) -> Object:
    gate = {"readinessGates": [{"conditionType": "covey.dev/serving"}]}
    return workers(name, replicas=replicas, gpus=1, drainSeconds=seconds, spec=gate, **fields)


def await_ready(serving: Serving, count: int) -> list[Object]:
    serving.await_bound(count)
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    return serving.pods()


def gate(pod: Object) -> str:
    found = pod.get("status", {}).get("conditions", ())
    return str(next((each["status"] for each in found if each["type"] == "covey.dev/serving"), ""))


def victim(serving: Serving, pods: list[Object], kind: str) -> Object:
    """The replica or the unit of these pods, as the scheduler process names it."""
    told: Object = {"kind": kind, "namespace": serving.namespace, "name": "llm", "unit": int(label(pods[0], "unit"))}
    if kind == "Replica":
        told |= {"role": label(pods[0], "role"), "replica": int(label(pods[0], "replica"))}
    return {**told, "pods": sorted(map(uid_of, pods))}


def write_claim(serving: Serving, *victims: Object) -> None:
    """Write the claim of the root of chat as the scheduler process does, under its account; without victims, none."""
    claim = {"path": [], "since": "2026-01-01T00:00:00Z", "purpose": "Preemption", "message": "takes room from llm"}
    body = {"status": {"claim": {**claim, "victims": list(victims)} if victims else None}}
    with serving.cluster.service_account_client("covey-system", "covey-scheduler") as client:
        request(client, "PATCH", f"{serving.path('CompositePodGroup', _ROOT)}/status", body)


def begin(serving: Serving, covey: Covey, count: int) -> list[Object]:
    """Everything of llm serves, chat waits, and nobody but the test decides on claims."""
    before = await_ready(serving, count)
    covey.scheduler.kill()
    serving.create(engine("decode", 1, 0), name="chat")
    eventually(lambda: serving.get("CompositePodGroup", _ROOT), 30, "chat has its root")
    return before


def named(serving: Serving, **labels: object) -> list[Object]:
    return serving.pods(inference="llm", **labels)


def test_a_surplus_replica_is_pardoned_then_goes_and_its_successor_waits(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey
) -> None:
    nodes(nodes=1)
    serving.create(engine("prefill", 1, 0), engine("decode", 2, 3600, size=2, minReplicas=1))
    begin(serving, covey_to_kill, 5)
    claimed = named(serving, role="decode", replica=1)
    write_claim(serving, victim(serving, claimed, "Replica"))
    going = await_marked(serving, 2)
    assert uids(going) == uids(claimed)
    root = uid_of(serving.get("CompositePodGroup", _ROOT))
    assert {pod["metadata"]["annotations"][names.ANNOTATION_CLAIMED_BY] for pod in going} == {root}
    assert "llm" in serving.await_condition("Preempting", "True", "Preemption", name="chat")
    assert "decode/1 of unit 0 gave way" in serving.await_condition("Preempted", "True", "Preemption")
    eventually(lambda: len(named(serving, role="decode", replica=2)) == 2, 30, "its successor is there")
    assert all(map(is_gated, named(serving, role="decode", replica=2)))
    eventually(lambda: {gate(pod) for pod in marked(serving)} == {"False"}, 30, "their readiness gates are False")
    # It is not needed any more, and the operator is killed meanwhile.
    covey_to_kill.operator.kill()
    write_claim(serving)
    covey_to_kill.operator.start()

    def is_pardoned() -> None:
        found = named(serving, role="decode")
        assert len(found) == 4
        assert uids(claimed) <= uids(found)
        assert not marked(serving)
        assert {gate(pod) for pod in found} == {"True"}
        assert not any("covey.dev/draining" in pod["metadata"]["labels"] for pod in found)

    eventually(lambda: is_pardoned() is None, 60, "it serves again under its number, and its successor is gone")
    assert serving.await_event("Pardoned")
    # Then it is needed after all.
    write_claim(serving, victim(serving, claimed, "Replica"))
    say_idle(serving, await_marked(serving, 2))
    eventually(lambda: not uids(claimed) & uids(named(serving)), 60, "it is gone as a whole")
    successor = named(serving, role="decode", replica=2)
    assert len(successor) == 2
    assert all(map(is_gated, successor))
    assert not any(names.ANNOTATION_ROOM in pod["metadata"].get("annotations", {}) for pod in successor)
    assert serving.await_event("Preempted")


def test_a_unit_goes_whole_and_is_made_again_when_it_is_gone(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey
) -> None:
    nodes(nodes=2)
    serving.create(engine("prefill", 1, 3600), engine("decode", 2, 3600), replicas=2)
    before = begin(serving, covey_to_kill, 6)
    claimed = named(serving, unit=1)
    write_claim(serving, victim(serving, claimed, "Unit"))
    (prefill,) = await_marked(serving, 1)
    assert label(prefill, "role") == "prefill"
    say_idle(serving, [prefill])
    decode = await_marked(serving, 2, role="decode")
    # The first may be on its way still.
    assert uids(named(serving, unit=1)) <= uids([prefill, *decode]), "nothing new stands beside what is left"
    assert "unit 1 gave way" in serving.await_condition("Preempted", "True", "Preemption")
    say_idle(serving, decode)

    def is_made_again() -> None:
        found = named(serving, unit=1)
        assert len(found) == 3, sorted(map(name_of, found))
        assert not uids(found) & uids(claimed)
        assert all(map(is_gated, found))

    eventually(lambda: is_made_again() is None, 60, "the unit is made again, and waits")
    assert {uid_of(pod) for pod in before if label(pod, "unit") == "0"} == uids(named(serving, unit=0))
    covey_to_kill.scheduler.start()
    write_claim(serving)
    serving.await_bound(7)
    eventually(lambda: "Preempted" not in {each["type"] for each in _conditions(serving)}, 60, "it has places again")


def _conditions(serving: Serving) -> list[Object]:
    found: list[Object] = serving.get("DisaggregatedInference", "llm")["status"]["conditions"]
    return found
