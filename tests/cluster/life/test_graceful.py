"""Graceful going: a replica is marked, gets nothing new, and goes when nothing of it is under way or its time is over."""

from __future__ import annotations

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import AddNodes, Serving, serves, serving, workers
from cluster.workbench import label, name_of, uid_of, uids
from localcluster import eventually

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")
SINCE = "covey.dev/draining-since"


def engine(name: str, replicas: int, seconds: int, **fields: object) -> Object:
    gate = {"readinessGates": [{"conditionType": "covey.dev/serving"}]}
    return workers(name, replicas=replicas, gpus=1, drainSeconds=seconds, spec=gate, **fields)


def await_ready(serving: Serving, count: int) -> list[Object]:
    serving.await_bound(count)
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    return serving.pods()


def marked(serving: Serving, **labels: object) -> list[Object]:
    return [pod for pod in serving.pods(**labels) if SINCE in pod["metadata"].get("annotations", {})]


def await_marked(serving: Serving, count: int, **labels: object) -> list[Object]:
    def there() -> list[Object]:
        found = marked(serving, **labels)
        assert len(found) == count, f"{len(found)} of {count} are marked; {serving.states()}"
        return found

    return eventually(there, 60, f"{count} pods are marked")


def gate(pod: Object) -> str:
    found = pod.get("status", {}).get("conditions", ())
    return str(next((each["status"] for each in found if each["type"] == "covey.dev/serving"), ""))


def say_idle(serving: Serving, pods: list[Object]) -> None:
    for pod in pods:
        patch = {"metadata": {"annotations": {"covey.dev/in-flight": "0"}}}
        serving.cluster.api("PATCH", serving.path("Pod", name_of(pod)), patch)


def test_a_marked_replica_goes_when_it_says_that_nothing_is_under_way(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey
) -> None:
    """Whatever happens meanwhile: the operator is killed, the scale is taken back."""
    nodes(nodes=1)
    serving.create(engine("prefill", 1, 0), engine("decode", 2, 3600, size=2))
    before = await_ready(serving, 5)
    # kwok makes pods Ready that have no readiness gate yet.
    eventually(lambda: {gate(pod) for pod in serving.pods()} == {"True"}, 30, "their readiness gates are True")
    serving.change({"roles": [engine("prefill", 1, 0), engine("decode", 1, 3600, size=2)]})
    going = await_marked(serving, 2)
    assert len({label(pod, "replica") for pod in going}) == 1
    assert {pod["metadata"]["labels"]["covey.dev/draining"] for pod in going} == {"true"}
    eventually(lambda: {gate(pod) for pod in marked(serving)} == {"False"}, 30, "their readiness gates are False")
    covey_to_kill.operator.kill()
    covey_to_kill.operator.start()
    # It never comes back: another one takes its place.
    serving.change({"roles": [engine("prefill", 1, 0), engine("decode", 2, 3600, size=2)]})
    serving.await_bound(7)
    still = await_marked(serving, 2)
    assert {(uid_of(pod), pod["metadata"]["annotations"][SINCE]) for pod in going} == {
        (uid_of(pod), pod["metadata"]["annotations"][SINCE]) for pod in still
    }
    say_idle(serving, still[:1])
    say_idle(serving, still[1:])
    eventually(lambda: not uids(going) & uids(serving.pods()), 60, "it is gone")
    after = await_ready(serving, 5)
    assert uids(before) - uids(going) <= uids(after)
    serving.await_condition("Progressing", "True", "Complete")


def test_a_marked_replica_goes_when_its_time_is_over_or_it_runs_no_more(serving: Serving, nodes: AddNodes) -> None:
    nodes(nodes=1)
    serving.create(engine("prefill", 1, 0), engine("decode", 3, 3600))
    await_ready(serving, 4)
    serving.change({"roles": [engine("prefill", 1, 0), engine("decode", 2, 3600)]})
    await_marked(serving, 1)
    assert serving.await_event("Draining")
    # The time is live: it counts from the mark.
    serving.change({"roles": [engine("prefill", 1, 0), engine("decode", 2, 1)]})
    serving.await_bound(3)
    serving.change({"roles": [engine("prefill", 1, 0), engine("decode", 1, 3600)]})
    (going,) = await_marked(serving, 1)
    broken = {"status": {"conditions": [{"type": "ContainersReady", "status": "False"}]}}
    serving.cluster.api("PATCH", f"{serving.path('Pod', name_of(going))}/status", broken, patch="strategic")
    eventually(lambda: uid_of(going) not in uids(serving.pods()), 60, "what does not run is not waited for")


def test_prefill_goes_before_decode(serving: Serving, nodes: AddNodes) -> None:
    nodes(nodes=2)
    roles = [engine("prefill", 1, 3600), engine("decode", 1, 3600)]
    serving.create(*roles, replicas=2)
    before = await_ready(serving, 4)
    serving.change({"replicas": 1})
    (prefill,) = await_marked(serving, 1)
    assert label(prefill, "role") == "prefill"
    unit = label(prefill, "unit")
    serving.await_condition("Available", "True", "Available")
    assert not marked(serving, role="decode")
    say_idle(serving, [prefill])
    (decode,) = await_marked(serving, 1, role="decode")
    assert label(decode, "unit") == unit
    say_idle(serving, [decode])
    eventually(lambda: uids(serving.pods()) == {uid_of(pod) for pod in before if label(pod, "unit") != unit}, 60)


def test_a_gate_that_somebody_closed_is_opened_again(serving: Serving, nodes: AddNodes) -> None:
    """A replica that serves is said to serve by Covey alone."""
    nodes(nodes=1)
    serving.create(engine("prefill", 1, 0), engine("decode", 1, 0))
    (pod, *_) = await_ready(serving, 2)
    closed = {"status": {"conditions": [{"type": "covey.dev/serving", "status": "False"}]}}
    serving.cluster.api("PATCH", f"{serving.path('Pod', name_of(pod))}/status", closed, patch="strategic")
    eventually(lambda: gate(serving.get("Pod", name_of(pod))) == "True", 30, "it is open")
