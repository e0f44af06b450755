"""Graceful going: a replica is marked, gets nothing new, and goes when nothing of it is under way or its time is over."""

from __future__ import annotations

from builders.manifests import Object, workers
from cluster.workbench import label, name_of, uid_of, uids
from stage import Stage

SINCE = "covey.dev/draining-since"
SERVING = "covey.dev/serving"


def engine(name: str, replicas: int, seconds: int, **fields: object) -> Object:
    """A role with the readiness gate that Covey opens, and seconds for what its replicas still serve."""
    gate = {"readinessGates": [{"conditionType": SERVING}]}
    return workers(name, replicas=replicas, gpus=1, drainSeconds=seconds, spec=gate, **fields)


def marked(stage: Stage, count: int, **labels: object) -> list[Object]:
    """The pods at rest that are to go as soon as they are idle: so many."""
    stage.settle()
    pods = [pod for pod in stage.pods(**labels) if SINCE in pod["metadata"].get("annotations", {})]
    assert len(pods) == count, f"{len(pods)} of {count} are marked; {stage.told()}"
    return pods


def gate(pod: Object) -> str:
    """The status of the readiness gate."""
    conditions = pod.get("status", {}).get("conditions", ())
    return next((condition["status"] for condition in conditions if condition["type"] == SERVING), "")


def say_idle(stage: Stage, *pods: Object) -> None:
    """Say as an engine does that nothing is under way."""
    for pod in pods:
        stage.patch("Pod", name_of(pod), {"metadata": {"annotations": {"covey.dev/in-flight": "0"}}})


def test_replica_when_it_is_marked_goes_once_all_of_it_is_idle_and_never_comes_back(stage: Stage) -> None:
    """Whatever happens meanwhile: the operator is killed, the scale is taken back."""
    stage.nodes(nodes=1)
    prefill = engine("prefill", 1, 0)
    stage.create(prefill, engine("decode", 2, 3600, size=2))
    before = stage.ready(5)
    assert {gate(pod) for pod in before} == {"True"}
    stage.change(roles=[prefill, engine("decode", 1, 3600, size=2)])
    going = marked(stage, 2)
    assert len({label(pod, "replica") for pod in going}) == 1
    assert {label(pod, "draining") for pod in going} == {"true"}
    assert {gate(pod) for pod in going} == {"False"}
    stage.kill_now("operator")
    # It never comes back: another one takes its place.
    stage.change(roles=[prefill, engine("decode", 2, 3600, size=2)])
    stage.settle()
    assert len(stage.bound()) == 7
    still = marked(stage, 2)
    assert {(uid_of(pod), pod["metadata"]["annotations"][SINCE]) for pod in going} == {
        (uid_of(pod), pod["metadata"]["annotations"][SINCE]) for pod in still
    }
    say_idle(stage, still[0])
    marked(stage, 2)
    say_idle(stage, still[1])
    after = uids(stage.ready(5))
    assert not uids(going) & after
    assert uids(before) - uids(going) <= after
    assert stage.condition("Progressing")[:2] == ("True", "Complete")


def test_replica_when_its_time_is_over_or_it_runs_no_more_is_not_waited_for(stage: Stage) -> None:
    stage.nodes(nodes=1)
    prefill = engine("prefill", 1, 0)
    stage.create(prefill, engine("decode", 3, 3600))
    stage.ready(4)
    stage.change(roles=[prefill, engine("decode", 2, 3600)])
    marked(stage, 1)
    assert stage.event_notes("Draining")
    stage.advance(600)
    marked(stage, 1)
    # The time is live, and counts from the mark.
    stage.change(roles=[prefill, engine("decode", 2, 900)])
    marked(stage, 1)
    stage.advance(310)
    stage.ready(3)
    stage.change(roles=[prefill, engine("decode", 1, 3600)])
    [going] = marked(stage, 1)
    stage.patch_status("Pod", name_of(going), {"conditions": [{"type": "ContainersReady", "status": "False"}]})
    assert uid_of(going) not in uids(stage.ready(2))


def test_unit_when_it_goes_lets_prefill_go_before_decode(stage: Stage) -> None:
    stage.nodes(nodes=2)
    stage.create(engine("prefill", 1, 3600), engine("decode", 1, 3600), replicas=2)
    before = stage.ready(4)
    stage.change(replicas=1)
    [prefill] = marked(stage, 1)
    assert label(prefill, "role") == "prefill"
    unit = label(prefill, "unit")
    assert stage.condition("Available")[:2] == ("True", "Available")
    say_idle(stage, prefill)
    [decode] = marked(stage, 1)
    assert (label(decode, "role"), label(decode, "unit")) == ("decode", unit)
    say_idle(stage, decode)
    assert uids(stage.ready(2)) == {uid_of(pod) for pod in before if label(pod, "unit") != unit}


def test_gate_when_somebody_closes_it_is_opened_again(stage: Stage) -> None:
    """A replica that serves is said to serve by Covey alone."""
    stage.nodes(nodes=1)
    stage.create(engine("prefill", 1, 0), engine("decode", 1, 0))
    [pod, _] = stage.ready(2)
    stage.patch_status("Pod", name_of(pod), {"conditions": [{"type": SERVING, "status": "False"}]})
    stage.settle()
    assert gate(stage.get("Pod", name_of(pod))) == "True"
