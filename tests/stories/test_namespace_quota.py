"""ResourceQuotas of a namespace: a minimum fits whole, or no pod of it is there."""

from __future__ import annotations

from typing import Any

from builders.manifests import Object, role, template
from cluster.workbench import label, name_of
from stage import Stage

GPU = "requests.nvidia.com/gpu"


def gang(*gpus: int, **fields: Any) -> list[Object]:
    """Roles of one replica each, of one pod that takes so many devices."""
    return [
        role(f"role-{number}", template=template(containers=[engine(count)]), **fields)
        for number, count in enumerate(gpus)
    ]


def engine(gpus: int) -> Object:
    """A container that takes so many devices."""
    return {"name": "engine", "image": "engine:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}


def refusal(stage: Stage, name: str = "llm") -> str:
    """Why a quota holds a resource back, at rest."""
    stage.settle()
    status, reason, message = stage.condition("Admitted", name)
    assert (status, reason) == ("False", "QuotaExceeded"), message
    return message


def test_gangs_when_a_quota_suffices_for_one_and_a_half_are_there_whole_or_not_at_all(stage: Stage) -> None:
    stage.quota("gpus", **{GPU: 48})
    names = [f"gang-{number}" for number in range(4)]
    for name in names:
        stage.create(*gang(8, 8, 8, 8), name=name)
    stage.settle()
    waiting = [name for name in names if not stage.pods(inference=name)]
    assert len(waiting) == 3
    assert len(stage.pods()) == 4
    for name in waiting:
        message = refusal(stage, name)
        assert f"quota {stage.namespace}/gpus: {GPU} 32 needed, 16 left" in message
        assert message.startswith("no pod of unit 0 is created before its whole minimum fits")
        assert stage.condition("QuotaLimited", name)[0] == "True"
    # A quota that is raised wakes one more, and no half of another.
    stage.quota("gpus", **{GPU: 80})
    stage.settle()
    assert sorted(len(stage.pods(inference=name)) for name in names) == [0, 0, 4, 4]


def test_minimum_that_runs_when_it_loses_a_pod_comes_before_one_that_waits_across_a_restart(stage: Stage) -> None:
    stage.nodes(gpus=32)
    stage.quota("gpus", **{GPU: 24})
    stage.create(*gang(8, 8), name="serving")
    stage.ready(2)
    stage.create(*gang(12), name="waiting")
    refusal(stage, "waiting")
    for away in ((), ("operator",)):
        with stage.away(*away):
            stage.delete("Pod", name_of(next(pod for pod in stage.pods() if label(pod, "role") == "role-1")))
            stage.settle(ahead=0)
        stage.ready(2, inference="serving")
        assert not stage.pods(inference="waiting")
    stage.quota("gpus", **{GPU: 28})
    stage.ready(1, inference="waiting")


def test_quota_when_it_does_not_count_these_pods_holds_nothing_up(stage: Stage) -> None:
    body = {"metadata": {"name": "jobs"}, "spec": {"hard": {"pods": "0"}, "scopes": ["Terminating"]}}
    stage.cluster.api("POST", stage.path("ResourceQuota"), body)
    stage.nodes(gpus=32)
    stage.create(*gang(8, 8))
    stage.ready(2)


def test_default_of_a_limit_range_is_counted(stage: Stage) -> None:
    item = {"type": "Container", "defaultRequest": {"cpu": "2"}}
    path = f"/api/v1/namespaces/{stage.namespace}/limitranges"
    stage.cluster.api("POST", path, {"metadata": {"name": "defaults"}, "spec": {"limits": [item]}})
    stage.after(lambda: stage.cluster.delete(f"{path}/defaults"))
    stage.quota("cpu", requests__cpu=3)
    stage.create(*gang(8, 8))
    assert f"quota {stage.namespace}/cpu: requests.cpu 4 needed, 3 left" in refusal(stage)
    assert stage.never("Pod", lambda _: True)
