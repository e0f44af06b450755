"""The status as others read it: kstatus (Flux, Helm), ``kubectl wait``, the columns, at every stage of a resource's life."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import AddNodes, Event, Serving, serving, workers
from cluster.workbench import name_of
from kstatus import Judged, judge, judge_by_argo
from localcluster import eventually
from localcluster.binaries import ensure_tool

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")
KIND = "DisaggregatedInference"


def pair(image: str = "1", **fields: object) -> list[Object]:
    """A replica of two pods and one of one; the image says the revision."""
    found = [workers("prefill", size=2), workers("decode")]
    for each in found:
        each["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{image}"
        each.update(fields)
    return found


def nowhere(roles: Sequence[Object]) -> list[Object]:
    """The same for nodes that do not exist."""
    for each in roles:
        each["template"]["spec"]["nodeSelector"] = {"there": "is-none"}
    return list(roles)


def judged(serving: Serving, name: str = "llm") -> Judged:
    (found,) = judge([serving.get(KIND, name)])
    return found


def await_judged(serving: Serving, status: str, name: str = "llm", timeout: float = 90) -> str:
    """Wait until kstatus says so; its sentence."""

    def reached() -> Judged:
        found = judged(serving, name)
        assert found.status == status, str(found)
        return found

    return eventually(reached, timeout, f"kstatus says {status}").message


def versions(events: Sequence[Event]) -> list[Object]:
    return [item for kind, item in events if kind != "DELETED"]


def test_what_nobody_has_looked_at_is_in_progress(serving: Serving, covey_to_kill: Covey) -> None:
    """Without a word of the operator kstatus would take it for Current, and a rollout of Flux or Helm for done."""
    covey_to_kill.operator.kill()
    made = serving.create(*pair())
    assert made["status"] == {"observedGeneration": -1}
    assert judged(serving) == ("InProgress", f"{KIND} generation is 1, but latest observed generation is -1")
    covey_to_kill.operator.start()
    serving.await_condition("Ready", "False", "Infeasible")


def test_a_whole_life(serving: Serving, nodes: AddNodes) -> None:
    """Waiting and rolling are in progress, what is wanted and there is Current, nothing fails on the way."""
    with serving.cluster.record(serving.path(KIND)) as recording:
        serving.create(*pair())
        serving.await_condition("Ready", "False", "Infeasible")
        assert judged(serving) == ("InProgress", serving.states()["llm"])
        nodes(blocks=1, racks=1, nodes=6)
        await_judged(serving, "Current")
        assert serving.await_condition("Progressing", "True", "Complete") == "everything that is wanted runs"
        # More than there is room for: the minimum serves, and not all that is wanted is there.
        serving.change({"roles": [workers("prefill", size=2, replicas=3), workers("decode")]})
        # What is said changes once more when one of the two replicas has its place.
        eventually(
            lambda: judged(serving) == ("InProgress", serving.await_condition("Ready", "False", "SurplusWaiting")), 90
        )
        assert serving.condition("Available")["status"] == "True"
        serving.change({"roles": pair()})
        await_judged(serving, "Current")
        # A rollout that somebody has paused is not a failure; nor is one that is on its way.
        serving.change({"roles": pair("2"), "rollout": {"paused": True}})
        serving.await_condition("Ready", "False", "RolloutPaused")
        assert judged(serving).status == "InProgress"
        serving.change({"rollout": {"paused": False}})
        await_judged(serving, "Current")
        serving.change({"replicas": 0})
        await_judged(serving, "Current")
        assert not serving.pods()
        serving.change({"replicas": 1})
        serving.await_condition("Available", "True", "Available")
        await_judged(serving, "Current")
        serving.change({"suspend": True})
        serving.await_condition("Ready", "True", "Suspended")
        assert judged(serving).status == "Current"
        assert not serving.pods()
        # The recording may be a moment behind what is there.
        last = serving.get(KIND, "llm")["metadata"]["resourceVersion"]
        recording.wait(lambda events: any(item["metadata"]["resourceVersion"] == last for _, item in events))
        history = recording.events
    said = judge(versions(history))
    assert {each.status for each in said} == {"InProgress", "Current"}
    by_argo = judge_by_argo(versions(history))
    assert {(one.status, other.status) for one, other in zip(said, by_argo, strict=True)} == {
        ("InProgress", "Progressing"),
        ("Current", "Healthy"),
        ("Current", "Suspended"),
    }
    for body, each in zip(versions(history), said, strict=True):
        # No moment at which something that is not there was said to be.
        status = body["status"]
        done = status.get("observedGeneration") == body["metadata"]["generation"] and all(
            role["ready"] == role["updated"] == role["replicas"] for role in status.get("roles", ())
        )
        assert done or each.status == "InProgress", str(body)


def test_a_rollout_that_is_held_has_failed_until_it_is_taken_back(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=6)
    serving.create(*pair(), rollout={"progressDeadlineSeconds": 5})
    await_judged(serving, "Current")
    serving.change({"roles": nowhere(pair("2"))})
    message = await_judged(serving, "Failed")
    assert message == serving.await_condition("Stalled", "True", "ProgressDeadlineExceeded")
    assert message == serving.states()["llm"]
    assert judge_by_argo([serving.get(KIND, "llm")]) == [("Degraded", message)]
    assert serving.condition("Ready")["reason"] == "ProgressDeadlineExceeded"
    assert serving.condition("Available")["status"] == "True", "what runs goes on"
    roles = pair()
    for each in roles:
        each["template"]["spec"]["nodeSelector"] = None
    serving.change({"roles": roles})
    await_judged(serving, "Current")
    with pytest.raises(AssertionError, match="no condition Stalled"):
        serving.condition("Stalled")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"topology": {"name": "there-is-none", "required": "rack"}}, "InvalidTopology"),
        ({"spread": {"level": "rack", "mode": "Required"}, "backend": "Kubernetes"}, "Unsupported"),
    ],
    ids=["InvalidTopology", "Unsupported"],
)
def test_a_spec_that_only_a_person_can_mend_has_failed(serving: Serving, spec: Object, reason: str) -> None:
    serving.create(*pair(), **spec)
    message = serving.await_condition("Stalled", "True", reason)
    assert judged(serving) == ("Failed", message)
    assert serving.condition("Ready")["status"] == "False"


def test_a_name_that_is_taken_has_failed_until_it_is_free(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=6)
    path = f"/apis/scheduling.covey.dev/v1alpha1/namespaces/{serving.namespace}/podgroups"
    group = {"metadata": {"name": "llm-0-decode"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
    serving.cluster.api("POST", path, {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "PodGroup", **group})
    serving.create(*pair())
    assert "delete it, or give this resource another name" in serving.await_condition("Stalled", "True", "NameTaken")
    assert judged(serving).status == "Failed"
    serving.cluster.api("DELETE", f"{path}/llm-0-decode")
    await_judged(serving, "Current")


def test_a_quota_may_be_raised_or_come_free(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=6)
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    serving.cluster.api("POST", serving.path("ResourceQuota"), quota)
    eventually(lambda: serving.get("ResourceQuota", "few")["status"]["used"]["pods"] == "0", 60, "it is in force")
    serving.create(*pair())
    serving.await_condition("Ready", "False", "QuotaExceeded")
    assert judged(serving).status == "InProgress"
    serving.cluster.api("DELETE", serving.path("ResourceQuota", "few"))
    await_judged(serving, "Current")


def test_restarts_that_are_exhausted_need_a_person(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=4)
    serving.create(workers("decode", replicas=2, minReplicas=1, restart={"maxRestarts": 0}))
    await_judged(serving, "Current")
    path = f"{serving.path('Pod', name_of(serving.pods()[0]))}/status"
    serving.cluster.api("PATCH", path, {"status": {"phase": "Failed"}})
    assert await_judged(serving, "Failed") == serving.await_condition("Stalled", "True", "RestartsExhausted")
    assert serving.condition("Available")["status"] == "True"
    serving.change({"roles": [workers("decode", replicas=2, minReplicas=1, restart={"maxRestarts": 3})]})
    await_judged(serving, "Current")


def test_an_evacuation_that_is_blocked_fails_nobody_who_serves(serving: Serving, nodes: AddNodes) -> None:
    names = nodes(blocks=1, racks=1, nodes=2)
    serving.create(workers("decode", replicas=2, minReplicas=2))
    await_judged(serving, "Current")
    serving.cluster.kubectl("cordon", names[0])
    eventually(lambda: serving.condition("EvacuationBlocked")["reason"] == "NoRoom", 120, "it is blocked")
    assert judged(serving).status == "Current"
    serving.cluster.kubectl("uncordon", names[0])

    def over() -> bool:
        kinds = {each["type"] for each in serving.get(KIND, "llm")["status"]["conditions"]}
        assert not {"Evacuating", "EvacuationBlocked"} & kinds
        return True

    eventually(over, 60)
    await_judged(serving, "Current")


def test_what_is_being_deleted_is_terminating(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=6)
    serving.create(*pair())
    await_judged(serving, "Current")
    path = serving.path(KIND, "llm")
    serving.cluster.api("PATCH", path, {"metadata": {"finalizers": ["test.example.com/stays"]}}, patch="merge")
    serving.delete(KIND, "llm")
    assert judged(serving).status == "Terminating"
    serving.cluster.api("PATCH", path, {"metadata": {"finalizers": []}}, patch="merge")
    serving.await_nothing_left()


@pytest.mark.parametrize("condition", ["Available", "Ready"])
def test_kubectl_waits_for_a_condition(serving: Serving, nodes: AddNodes, condition: str) -> None:
    def wait(seconds: int, *, check: bool = True) -> str:
        return serving.cluster.kubectl(
            *("wait", "dinf/llm", f"--for=condition={condition}", f"--timeout={seconds}s"),
            *("--namespace", serving.namespace),
            check=check,
        )

    serving.create(*pair())
    assert "timed out" in wait(1, check=False)
    nodes(blocks=1, racks=1, nodes=6)
    assert "condition met" in wait(90)
    # The condition of an older spec does not count.
    serving.change({"roles": pair("2")})
    assert "condition met" in wait(90)
    status = serving.get(KIND, "llm")["status"]
    assert all(each["observedGeneration"] == 2 for each in status["conditions"])


def test_columns_in_several_states(serving: Serving, nodes: AddNodes) -> None:
    def row(name: str = "llm") -> list[str]:
        return serving.kubectl("get", "dinf", name, "--no-headers").split()[1:-1]

    nodes(blocks=1, racks=1, nodes=4)
    serving.create(*pair(), replicas=2)
    serving.await_condition("Admitted", "False", "PartiallyAdmitted")
    eventually(lambda: row() == ["prefill", "1/2", "decode", "1/2", "1/2", "False", "4/4"], describe=lambda: str(row()))
    nodes(blocks=1, racks=1, nodes=2)
    eventually(lambda: row() == ["prefill", "2/2", "decode", "2/2", "2/2", "True", "4/4"], describe=lambda: str(row()))
    serving.change({"suspend": True})
    eventually(lambda: row() == ["prefill", "0/0", "decode", "0/0", "0/0", "False", "0/0"], describe=lambda: str(row()))
    # The columns count nothing while pods and groups are still going.
    said = "suspended: no pods, and no place in the queue"
    eventually(lambda: said in serving.kubectl("get", "dinf", "--output=wide"), 60, said)
    eventually(lambda: "llm" not in serving.kubectl("get", "cvpg,cvcpg", "--output=wide"), 60, "no group is left")


Helm = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def helm(serving: Serving, tmp_path: Path) -> Helm:
    """``helm("install", seconds, *roles, **spec)``: a chart with one resource, and Helm waits until it is as it should be."""

    def run(verb: str, seconds: int, *roles: Object, **spec: object) -> subprocess.CompletedProcess[str]:
        body = {
            "apiVersion": "inference.covey.dev/v1alpha1",
            "kind": KIND,
            "metadata": {"name": "llm"},
            "spec": {"roles": list(roles), **spec},
        }
        (tmp_path / "templates").mkdir(exist_ok=True)
        text = yaml.safe_dump(body).replace(
            "{{", '{{ "{{" }}'
        )  # the start command's own braces are no template of Helm's
        (tmp_path / "templates" / "llm.yaml").write_text(text)
        (tmp_path / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "llm", "version": "1.0.0"}))
        access = ("--kubeconfig", str(serving.cluster.kubeconfig), "--namespace", serving.namespace)
        command = [ensure_tool("helm"), verb, "llm", str(tmp_path), "--wait", f"--timeout={seconds}s", *access]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    return run


def test_helm_waits_for_what_is_in_progress(serving: Serving, nodes: AddNodes, helm: Helm) -> None:
    found = helm("install", 20, *pair())
    assert found.returncode != 0
    assert "llm not ready. status: InProgress" in found.stderr, found.stderr
    nodes(blocks=1, racks=1, nodes=6)
    found = helm("upgrade", 120, *pair())
    assert found.returncode == 0, found.stderr
    assert [name_of(pod) for pod in serving.pods()], "it runs"
    assert judged(serving).status == "Current"
    found = helm("upgrade", 120, *pair(), spread={"level": "nonsense"})
    assert found.returncode != 0
    assert "Failed" in found.stderr, found.stderr
