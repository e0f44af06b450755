"""The status as others read it: kstatus (Flux, Helm), ``kubectl wait``, the columns, at every stage of a resource's life."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.manifests import Object, workers
from cluster.workbench import OWNED, name_of, uids
from kstatus import Judged, judge, judge_by_argo
from localcluster.binaries import ensure_tool
from stage import Stage
from stage.play import INFERENCE


def pair(image: str = "1", **fields: object) -> list[Object]:
    """A replica of two pods and one of one; the image says the revision."""
    roles = [workers("prefill", size=2), workers("decode")]
    for role in roles:
        role["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{image}"
        role.update(fields)
    return roles


def on_nodes(roles: Sequence[Object], selector: Object | None) -> list[Object]:
    """The same for nodes with these labels."""
    for role in roles:
        role["template"]["spec"]["nodeSelector"] = selector
    return list(roles)


def judged(stage: Stage) -> Judged:
    """What kstatus says of the resource, at rest."""
    stage.settle()
    [verdict] = judge([stage.get(INFERENCE, "llm")])
    return verdict


def test_resource_when_nobody_has_looked_at_it_is_in_progress(stage: Stage) -> None:
    """Without a word of the operator kstatus would take it for Current, and a rollout of Flux or Helm for done."""
    with stage.away("operator"):
        made = stage.create(*pair())
        assert made["status"] == {"observedGeneration": -1}
        assert judged(stage) == ("InProgress", f"{INFERENCE} generation is 1, but latest observed generation is -1")
    stage.settle()
    assert stage.condition("Ready")[:2] == ("False", "Infeasible")


def test_status_over_a_whole_life_is_in_progress_or_current_as_it_is(stage: Stage) -> None:
    """Waiting and rolling are in progress, what is wanted and there is Current, nothing fails on the way."""
    stage.create(*pair())
    assert judged(stage) == ("InProgress", stage.told()["llm"])
    assert stage.condition("Ready")[:2] == ("False", "Infeasible")
    stage.nodes(nodes=6)
    assert judged(stage).status == "Current"
    assert stage.condition("Progressing") == ("True", "Complete", "everything that is wanted runs")
    # More than there is room for: the minimum serves, and not all that is wanted is there.
    stage.change(roles=[workers("prefill", size=2, replicas=3), workers("decode")])
    verdict = judged(stage)
    assert stage.condition("Ready") == ("False", "SurplusWaiting", verdict.message)
    assert verdict.status == "InProgress"
    assert stage.condition("Available")[0] == "True"
    stage.change(roles=pair())
    assert judged(stage).status == "Current"
    # A rollout that somebody has paused is not a failure; nor is one that is on its way.
    stage.change(roles=pair("2"), rollout={"paused": True})
    assert judged(stage).status == "InProgress"
    assert stage.condition("Ready")[:2] == ("False", "RolloutPaused")
    stage.change(rollout={"paused": False})
    assert judged(stage).status == "Current"
    stage.change(replicas=0)
    assert judged(stage).status == "Current"
    assert not stage.pods()
    stage.change(replicas=1)
    assert judged(stage).status == "Current"
    assert stage.condition("Available")[:2] == ("True", "Available")
    stage.change(suspend=True)
    assert judged(stage).status == "Current"
    assert stage.condition("Ready")[:2] == ("True", "Suspended")
    assert not stage.pods()
    versions = [event.object for event in stage.history(INFERENCE)]
    verdicts = judge(versions)
    assert {verdict.status for verdict in verdicts} == {"InProgress", "Current"}
    by_argo = judge_by_argo(versions)
    assert {(verdict.status, other.status) for verdict, other in zip(verdicts, by_argo, strict=True)} == {
        ("InProgress", "Progressing"),
        ("Current", "Healthy"),
        ("Current", "Suspended"),
    }
    for version, verdict in zip(versions, verdicts, strict=True):
        # No moment at which something that is not there was said to be.
        status = version["status"]
        done = status.get("observedGeneration") == version["metadata"]["generation"] and all(
            role["ready"] == role["updated"] == role["replicas"] for role in status.get("roles", ())
        )
        assert done or verdict.status == "InProgress", str(version)


def test_rollout_when_it_is_held_has_failed_until_it_is_taken_back(stage: Stage) -> None:
    stage.nodes(nodes=6)
    stage.create(*pair())
    assert judged(stage).status == "Current"
    stage.change(roles=on_nodes(pair("2"), {"there": "is-none"}))
    assert judged(stage).status == "InProgress"
    stage.advance(1810)
    status, message = judged(stage)
    assert status == "Failed"
    assert stage.condition("Stalled") == ("True", "ProgressDeadlineExceeded", message)
    assert message == stage.told()["llm"]
    assert judge_by_argo([stage.get(INFERENCE, "llm")]) == [("Degraded", message)]
    assert stage.condition("Ready")[1] == "ProgressDeadlineExceeded"
    assert stage.condition("Available")[0] == "True", "what runs goes on"
    stage.change(roles=on_nodes(pair(), None))
    assert judged(stage).status == "Current"
    assert stage.condition("Stalled") == ("", "", "")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"topology": {"name": "there-is-none", "required": "rack"}}, "InvalidTopology"),
        ({"spread": {"level": "rack", "mode": "Required"}, "backend": "Kubernetes"}, "Unsupported"),
    ],
    ids=["InvalidTopology", "Unsupported"],
)
def test_spec_when_only_a_person_can_mend_it_has_failed(stage: Stage, spec: Object, reason: str) -> None:
    stage.create(*pair(), **spec)
    status, message = judged(stage)
    assert status == "Failed"
    assert stage.condition("Stalled") == ("True", reason, message)
    assert stage.condition("Ready")[0] == "False"


def test_name_when_it_is_taken_has_failed_until_it_is_free(stage: Stage) -> None:
    stage.nodes(nodes=6)
    group = {"metadata": {"name": "llm-0-decode"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
    api_version = "scheduling.covey.dev/v1alpha1"
    stage.cluster.api("POST", stage.path("PodGroup"), {"apiVersion": api_version, "kind": "PodGroup", **group})
    stage.create(*pair())
    assert judged(stage).status == "Failed"
    status, reason, message = stage.condition("Stalled")
    assert (status, reason) == ("True", "NameTaken")
    assert "delete it, or give this resource another name" in message
    stage.delete("PodGroup", "llm-0-decode")
    # Nobody tells of strangers' objects: it is tried again once a minute.
    stage.advance(70)
    assert judged(stage).status == "Current"


def test_quota_when_it_is_short_is_in_progress_for_it_may_be_raised_or_come_free(stage: Stage) -> None:
    stage.nodes(nodes=6)
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    stage.cluster.api("POST", stage.path("ResourceQuota"), quota)
    stage.settle()
    stage.create(*pair())
    assert judged(stage).status == "InProgress"
    assert stage.condition("Ready")[:2] == ("False", "QuotaExceeded")
    stage.delete("ResourceQuota", "few")
    assert judged(stage).status == "Current"


def test_restarts_when_they_are_exhausted_need_a_person(stage: Stage) -> None:
    stage.nodes(nodes=4)
    stage.create(workers("decode", replicas=2, minReplicas=1, restart={"maxRestarts": 0}))
    assert judged(stage).status == "Current"
    failed = {"phase": "Failed", "conditions": [{"type": "Ready", "status": "False"}]}
    stage.patch_status("Pod", name_of(stage.pods()[0]), failed)
    status, message = judged(stage)
    assert status == "Failed"
    assert stage.condition("Stalled") == ("True", "RestartsExhausted", message)
    assert stage.condition("Available")[0] == "True"
    stage.change(roles=[workers("decode", replicas=2, minReplicas=1, restart={"maxRestarts": 3})])
    assert judged(stage).status == "Current"


def test_evacuation_when_it_is_blocked_fails_nobody_who_serves(stage: Stage) -> None:
    [node, _] = stage.nodes(nodes=2)
    stage.create(workers("decode", replicas=2, minReplicas=2))
    before = uids(stage.ready(2))
    stage.cordon(node)
    stage.advance(40)
    assert stage.condition("EvacuationBlocked")[1] == "NoNodes"
    assert judged(stage).status == "Current"
    stage.uncordon(node)
    assert judged(stage).status == "Current"
    assert stage.condition("Evacuating") == stage.condition("EvacuationBlocked") == ("", "", "")
    assert uids(stage.ready(2)) == before


def test_resource_when_it_is_being_deleted_is_terminating(stage: Stage) -> None:
    stage.nodes(nodes=6)
    stage.create(*pair())
    assert judged(stage).status == "Current"
    stage.patch(INFERENCE, "llm", {"metadata": {"finalizers": ["test.example.com/stays"]}})
    stage.delete(INFERENCE, "llm")
    assert judged(stage).status == "Terminating"
    stage.patch(INFERENCE, "llm", {"metadata": {"finalizers": None}})
    stage.settle()
    assert not [item for kind in (*OWNED, "ControllerRevision") for item in stage.owned(kind)]


def test_status_when_the_resource_is_being_deleted_says_what_is_left_and_not_that_it_serves(stage: Stage) -> None:
    """One pod takes long to end; all others have gone."""
    stage.nodes(nodes=6)
    stage.create(*pair())
    slow = name_of(stage.ready(3)[0])
    stage.patch("Pod", slow, {"metadata": {"finalizers": ["example.com/log-shipper"]}})
    stage.cluster.api("DELETE", f"{stage.path(INFERENCE, 'llm')}?propagationPolicy=Foreground")
    stage.await_event(lambda: len(stage.all("Pod")) == 1, "the other pods have gone")
    stage.settle()
    for kind in ("Ready", "Admitted", "Available"):
        assert stage.condition(kind) == ("False", "Deleting", "it is being deleted: 1 pod is left")
    columns = stage.kubectl("get", "dinf", "llm", "--no-headers")
    assert "True" not in columns
    assert "1/1" not in columns
    stage.patch("Pod", slow, {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("condition", ["Available", "Ready"])
def test_kubectl_when_it_waits_for_a_condition_takes_it_of_the_present_spec_alone(stage: Stage, condition: str) -> None:
    def is_met() -> bool:
        """Ask once."""
        answer = stage.cluster.kubectl(
            *("wait", "dinf/llm", f"--for=condition={condition}", "--timeout=0s", "-n", stage.namespace), check=False
        )
        return "condition met" in answer

    stage.create(*pair())
    stage.settle()
    assert not is_met()
    stage.nodes(nodes=6)
    stage.settle()
    assert is_met()
    with stage.away("operator"):
        stage.change(roles=pair("2"))
        assert not is_met()
    stage.settle()
    assert is_met()
    assert all(each["observedGeneration"] == 2 for each in stage.status()["conditions"])


def test_columns_show_replicas_units_and_pods_as_they_are(stage: Stage) -> None:
    def row() -> list[str]:
        stage.settle()
        return stage.kubectl("get", "dinf", "llm", "--no-headers").split()[1:-1]

    stage.nodes(nodes=4)
    stage.create(*pair(), replicas=2)
    assert row() == ["PartiallyAdmitted", "prefill", "1/2", "decode", "1/2", "1/2", "False", "4/4"]
    assert stage.condition("Admitted")[:2] == ("False", "PartiallyAdmitted")
    stage.nodes(nodes=6)
    assert row() == ["Serving", "prefill", "2/2", "decode", "2/2", "2/2", "True", "4/4"]
    stage.change(suspend=True)
    assert row() == ["Suspended", "prefill", "0/0", "decode", "0/0", "0/0", "False", "0/0"]
    assert "suspended: no pods, and nothing waits in the queue" in stage.kubectl("get", "dinf", "--output=wide")
    assert "llm" not in stage.kubectl("get", "cvpg,cvcpg", "--output=wide")


def test_helm_waits_for_what_is_in_progress(stage: Stage, tmp_path: Path) -> None:
    """A chart with one resource, which Helm judges as kstatus does."""

    def helm(verb: str, seconds: int, **spec: Any) -> subprocess.CompletedProcess[str]:
        body = {
            "apiVersion": "inference.covey.dev/v1alpha1",
            "kind": INFERENCE,
            "metadata": {"name": "llm"},
            "spec": {"roles": pair(), **spec},
        }
        (tmp_path / "templates").mkdir(exist_ok=True)
        # The start command's own braces are no template of Helm's.
        (tmp_path / "templates" / "llm.yaml").write_text(yaml.safe_dump(body).replace("{{", '{{ "{{" }}'))
        (tmp_path / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "llm", "version": "1.0.0"}))
        access = ("--kubeconfig", str(stage.cluster.kubeconfig), "--namespace", stage.namespace)
        command = [ensure_tool("helm"), verb, "llm", str(tmp_path), "--wait", f"--timeout={seconds}s", *access]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    stage.claim_nodes()
    installed = helm("install", 3)
    assert installed.returncode
    assert "llm not ready. status: InProgress" in installed.stderr, installed.stderr
    stage.nodes(nodes=6)
    upgraded = helm("upgrade", 600)
    assert not upgraded.returncode, upgraded.stderr
    assert judged(stage).status == "Current"
    upgraded = helm("upgrade", 600, spread={"level": "nonsense"})
    assert upgraded.returncode
    assert "Failed" in upgraded.stderr, upgraded.stderr
