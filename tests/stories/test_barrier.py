"""The barrier and the guard, with the story in kube-scheduler's place: its calls come one by one, when the story wants."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from builders.manifests import Object
from cluster.workbench import name_of, uid_of, uids
from covey.observability.families import REGISTRY
from scheduler_trees import RELEASE, START_GATE, Role, Tree, gates_of, node_of, pin_of
from stage import Stage
from stage.play import ROOT, Trees, replace_released

STARTED = ("scheduling.covey.dev/gang", START_GATE)


class Call:
    """A bind call that somebody waits for: for the node of the pod's pin and its UID, unless others are given."""

    def __init__(self, stage: Stage, pod: Object, node: str = "", uid: str = "") -> None:
        self._stage = stage
        self._connection = HTTPConnection(stage.ground.extender)
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": uid or meta["uid"]}
        body["Node"] = node or pin_of(pod) or ""
        #: The error of the answer, empty where there is none; None while there is no answer.
        self.answer: str | None = None
        self._connection.request("POST", "/barrier/bind", json.dumps(body))
        self._socket = self._connection.sock
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with self._connection.getresponse() as response:
                self.answer = json.load(response)["Error"]
        except (OSError, ValueError, AttributeError):
            self.answer = "hung up"
        finally:
            self._connection.close()

    def held(self) -> Call:
        """Wait until it is held, or answered: time that passes before it has come does not count for it."""
        self._stage.await_event(
            lambda: self.answer is not None or bool(REGISTRY.get_sample_value("covey_barrier_held")), "the call is held"
        )
        return self

    def wait(self) -> str:
        """Wait for the answer."""
        self._stage.await_event(lambda: self.answer is not None, "the call is answered")
        assert self.answer is not None
        return self.answer

    def hang_up(self) -> None:
        """Leave without an answer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()


@pytest.fixture(autouse=True)
def kube_scheduler_away(stage: Stage) -> Iterator[None]:
    """Nobody calls but the story."""
    with stage.away("kube-scheduler"):
        yield


def pinned(stage: Stage, tree: Tree, count: int) -> list[Object]:
    """The pods of a unit that are pinned, at rest: so many, in the order of their manifests."""
    stage.settle()
    order = [name_of(manifest) for manifest in tree.manifests]
    pods = sorted((pod for pod in tree.pods() if pin_of(pod)), key=lambda pod: order.index(name_of(pod)))
    assert len(pods) == count
    return pods


def bind(stage: Stage, pod: Object) -> None:
    """Bind a pod to its pin, as a former call has done."""
    target = {"apiVersion": "v1", "kind": "Node", "name": pin_of(pod)}
    body = {"metadata": {"name": name_of(pod), "uid": uid_of(pod)}, "target": target}
    stage.cluster.api("POST", f"{stage.path('Pod', name_of(pod))}/binding", body)


def post(stage: Stage, path: str, body: Any) -> Any:
    """The answer to a call of the extender."""
    request = urllib.request.Request(f"http://{stage.ground.extender}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def refusals(stage: Stage, pod: Object, *nodes: str) -> dict[str, str]:
    """Why the guard keeps a pod off nodes."""
    answer = post(stage, "/guard/filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
    assert not answer.get("FailedNodes"), "nobody need try there by preemption"
    found: dict[str, str] = answer.get("FailedAndUnresolvableNodes", {})
    assert set(answer["NodeNames"]) == set(nodes) - found.keys()
    return found


def test_call_when_the_minimum_has_not_arrived_is_held_until_the_last_of_it_has(stage: Stage, bench: Trees) -> None:
    stage.nodes(nodes=4)
    tree = bench.unit("held", Role("prefill", size=2), Role("decode", size=2))
    first, second, third, fourth = pinned(stage, tree, 4)
    older = Call(stage, first).held()
    stage.settle()
    calls = [Call(stage, pod) for pod in (first, second, third)]
    assert "newer" in older.wait()
    gone = Call(stage, fourth)
    gone.hang_up()
    stage.settle()
    if not stage.bound():  # it may have arrived before it hung up
        assert [call.answer for call in calls] == [None] * 3
        assert Call(stage, fourth).wait() == ""
    assert [call.wait() for call in calls] == [""] * 3
    stage.ready(4)


def test_pods_that_are_bound_count_for_those_who_wait_and_for_those_who_come(stage: Stage, bench: Trees) -> None:
    """So a barrier that begins anew finishes what another one began."""
    stage.nodes(nodes=3)
    first, second, third = pinned(stage, bench.unit("half", Role("decode", size=3)), 3)
    call = Call(stage, first).held()
    bind(stage, second)
    stage.settle()
    assert call.answer is None
    bind(stage, third)
    assert call.wait() == ""
    assert Call(stage, second).wait() == "", "it has what it asks for"


def test_pod_when_it_is_deleted_leaves_the_barrier_and_its_gang_waits_for_its_successor(
    stage: Stage, bench: Trees
) -> None:
    stage.nodes(nodes=2)
    tree = bench.unit("gone", Role("decode", size=2))
    first, second = pinned(stage, tree, 2)
    call = Call(stage, first).held()
    stage.settle()
    tree.replace([name_of(first)])
    assert call.wait().endswith(("is gone", "is being deleted"))
    other = Call(stage, second)
    successor = next(pod for pod in pinned(stage, tree, 2) if uid_of(pod) != uid_of(second))
    assert other.answer is None
    assert pin_of(successor) == pin_of(first)
    assert [Call(stage, successor).wait(), other.wait()] == ["", ""]


def test_pins_beside_a_pod_that_never_comes_back_are_given_up(stage: Stage, bench: Trees) -> None:
    stage.nodes(nodes=2)
    first, second = pinned(stage, bench.unit("alone", Role("decode", size=2)), 2)
    stage.delete("Pod", name_of(first), grace=0)
    stage.advance(60)
    assert stage.get("Pod", name_of(second))["metadata"]["annotations"][RELEASE] == "Conflict"


def test_call_for_another_incarnation_or_node_is_refused(stage: Stage, bench: Trees) -> None:
    names = stage.nodes(nodes=2)
    [pod] = pinned(stage, bench.unit("who", Role("decode")), 1)
    [elsewhere] = set(names) - {pin_of(pod)}
    assert "gone" in Call(stage, pod, uid="00000000-0000-0000-0000-000000000000").wait()
    assert "not on" in Call(stage, pod, node=elsewhere).wait()
    assert not stage.bound()


def test_pod_under_the_start_gate_counts_as_arrived(stage: Stage, bench: Trees) -> None:
    stage.nodes(nodes=2)
    tree = bench.unit("start", Role("leader"), Role("worker", gates=STARTED))
    leader, worker = pinned(stage, tree, 2)
    assert gates_of(worker) == [START_GATE]
    assert Call(stage, leader).wait() == ""
    stage.patch("Pod", name_of(worker), [{"op": "remove", "path": "/spec/schedulingGates/0"}])
    stage.settle()
    assert Call(stage, stage.get("Pod", name_of(worker))).wait() == ""


def test_surplus_replica_waits_for_itself_alone(stage: Stage, bench: Trees) -> None:
    stage.nodes(nodes=4)
    tree = bench.unit("more", Role("decode", replicas=2, minimum=1, size=2))
    first = [Call(stage, pod) for pod in pinned(stage, tree, 2)]
    assert [call.wait() for call in first] == ["", ""]
    third, fourth = (pod for pod in pinned(stage, tree, 4) if not node_of(pod))
    call = Call(stage, third).held()
    stage.settle()
    assert call.answer is None
    assert [Call(stage, fourth).wait(), call.wait()] == ["", ""]


@pytest.mark.parametrize("harm", ["cordon", "steal"])
def test_node_when_it_fails_while_a_call_is_held_binds_nobody(stage: Stage, bench: Trees, harm: str) -> None:
    stage.nodes(nodes=3)
    tree = bench.unit("check", Role("decode", size=2))
    first, second = pinned(stage, tree, 2)
    call = Call(stage, first).held()
    node = str(pin_of(second))
    if harm == "cordon":
        stage.cordon(node)
    else:
        stage.occupy(node)
    stage.settle()
    assert Call(stage, second).wait()
    assert replace_released(stage, tree) == ["NodeLost" if harm == "cordon" else "CapacityTaken"]
    assert call.answer is None
    assert not stage.bound(inference="check")
    [successor] = (pod for pod in pinned(stage, tree, 2) if uid_of(pod) != uid_of(first))
    assert [Call(stage, successor).wait(), call.wait()] == ["", ""]
    assert {node_of(pod) for pod in stage.ready(2, inference="check")} == {pin_of(first), pin_of(successor)}


def test_gang_when_it_is_not_complete_in_time_is_given_up_where_kube_scheduler_calls(
    stage: Stage, bench: Trees
) -> None:
    """While it is away, no pin is late, and when it is back, it has all that waits to do."""
    stage.nodes(nodes=2)
    first, second = pinned(stage, bench.unit("slow", Role("decode", size=2), timeout=300), 2)
    call = Call(stage, first).held()
    stage.advance(600)
    assert "not complete" in call.wait()
    assert uids(stage.pods()) == {uid_of(first), uid_of(second)}
    for number in range(8):
        assert number > 4 or never_released(stage)
        call = Call(stage, first).held()
        stage.advance(40)
    assert call.wait()
    assert {pod["metadata"]["annotations"][RELEASE] for pod in stage.pods()} == {"Timeout"}
    assert "given up" in Call(stage, second).wait()
    node = str(pin_of(second))
    assert "given up" in refusals(stage, stage.get("Pod", name_of(second)), node)[node]
    assert not stage.bound()


def never_released(stage: Stage) -> bool:
    return stage.never("Pod", lambda pod: RELEASE in pod["metadata"].get("annotations", {}))


def test_strangers_that_come_at_once_do_not_add_up_to_reserved_room(stage: Stage, bench: Trees) -> None:
    [node] = stage.nodes(nodes=1)
    pinned(stage, bench.unit("owner", Role("decode", gpus=6)), 1)
    strangers = [bench.pod(f"stranger-{number}", gpus=1) for number in range(4)]
    assert "reserved" in Call(stage, bench.pod("large", gpus=4), node=node).wait()
    answers = [call.wait() for call in [Call(stage, pod, node=node) for pod in strangers]]
    assert sum(not answer for answer in answers) == 2


def test_guard_shows_a_member_its_own_node_and_nobody_one_without_a_decision(stage: Stage, bench: Trees) -> None:
    names = stage.nodes(nodes=3)
    [pod] = pinned(stage, bench.unit("member", Role("decode")), 1)
    assert refusals(stage, pod, *names).keys() == set(names) - {pin_of(pod)}
    assert refusals(stage, pod, str(pin_of(pod))) == {}
    forged = json.loads(json.dumps(pod))
    forged["metadata"] |= {"ownerReferences": [], "uid": "forged"}
    assert "not owned" in refusals(stage, forged, names[0])[names[0]]
    [bare] = bench.unit("bare", Role("decode", gates=())).pods()
    stage.settle()
    assert "lost its scheduling gate" in stage.condition("Admitted", "bare", of=ROOT)[2]
    assert "not been admitted" in refusals(stage, bare, names[0])[names[0]]


def test_call_when_it_is_none_of_kube_schedulers_harms_nobody(stage: Stage) -> None:
    victims = {"node": {"Pods": [{"UID": "x" * 100}] * 20_000, "NumPDBViolations": 0}}
    answer = post(stage, "/guard/preempt", {"Pod": {"metadata": {}}, "NodeNameToMetaVictims": victims})
    assert answer == {"NodeNameToMetaVictims": {}}, "no member is evicted for a stranger"
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post(stage, "/barrier/bind", {"PodName": 3})
    with pytest.raises(urllib.error.HTTPError, match="413"):
        post(stage, "/guard/filter", "x" * 5 * 1024 * 1024)
    with urllib.request.urlopen(f"http://{stage.ground.extender}/readyz") as answer:
        assert answer.status == 200


def test_process_when_it_ends_does_not_wait_for_calls_that_it_holds(stage: Stage, bench: Trees) -> None:
    stage.nodes(nodes=2)
    pods = pinned(stage, bench.unit("stop", Role("decode", size=2)), 2)
    call = Call(stage, pods[0]).held()
    stage.settle()
    with stage.away("scheduler"):
        assert call.wait()
    assert [each.wait() for each in [Call(stage, pod) for pod in pods]] == ["", ""]
    assert uids(stage.ready(2)) == uids(pods)
