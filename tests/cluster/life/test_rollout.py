"""Rollouts with everything running: what serves while they go on, and what is there in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from builders import files
from builders.manifests import Object
from cluster.serving import AddNodes, Serving, fewest_serving, serves, serving, workers
from cluster.workbench import label, uid_of
from localcluster import eventually

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")


def pair(*, prefill: str = "1", decode: str = "1", **fields: Any) -> list[Object]:
    """Two replicas of two pods and three of one; the images say the revision."""
    found = [workers("prefill", replicas=2, size=2), workers("decode", replicas=3)]
    for each, image in zip(found, (prefill, decode), strict=True):
        each["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{image}"
        each.update(fields)
    return found


def images(pods: Sequence[Object]) -> set[tuple[str, str]]:
    """Roles and what they run."""
    return {(label(pod, "role"), pod["spec"]["containers"][0]["image"].rpartition(":")[2]) for pod in pods}


def await_rolled(serving: Serving, count: int, wanted: set[tuple[str, str]]) -> None:
    def rolled() -> bool:
        pods = serving.pods()
        assert images(pods) == wanted, f"{images(pods)}; {serving.states()}"
        assert len(pods) == count
        assert all(map(serves, pods))
        return True

    eventually(rolled, 180, "everything is rolled")
    serving.await_condition("Progressing", "True", "Complete")


def await_ready(serving: Serving, count: int) -> list[Object]:
    serving.await_bound(count)
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    return serving.pods()


def test_a_change_of_one_role_rolls_that_role_only(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=2, nodes=5)
    serving.create(*pair())
    before = await_ready(serving, 7)
    prefill = {uid_of(pod) for pod in before if label(pod, "role") == "prefill"}
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair(decode="2")})
        await_rolled(serving, 7, {("prefill", "1"), ("decode", "2")})
        history = recording.events
    assert {uid_of(pod) for pod in serving.pods(role="prefill")} == prefill
    assert fewest_serving(before, history, "decode", 1) == 3
    assert fewest_serving(before, history, "prefill", 2) == 2
    status = serving.get("DisaggregatedInference", "llm")["status"]
    assert "rollout" not in status
    assert {each["name"]: each["updated"] for each in status["roles"]} == {"prefill": 2, "decode": 3}


def test_roles_arrive_together_and_a_reversal_takes_them_back(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=2, nodes=6)
    serving.create(*pair())
    before = await_ready(serving, 7)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair(prefill="2", decode="2")})
        eventually(
            lambda: {("prefill", "2"), ("decode", "2")} <= images([pod for pod in serving.pods() if serves(pod)]), 120
        )
        serving.change({"roles": pair()})
        await_rolled(serving, 7, {("prefill", "1"), ("decode", "1")})
        history = recording.events
    for role, size, count in (("prefill", 2, 2), ("decode", 1, 3)):
        assert fewest_serving(before, history, role, size) == count
    assert len(serving.owned("ControllerRevision")) == 2


def test_a_change_of_size_is_rolled(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=2, nodes=8)

    def roles(size: int) -> list[Object]:
        return [workers("prefill", replicas=2, size=2), workers("decode", replicas=3, size=size)]

    serving.create(*roles(2))
    before = await_ready(serving, 10)
    prefill = {uid_of(pod) for pod in before if label(pod, "role") == "prefill"}
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": roles(3)})
        eventually(lambda: len(serving.bound(role="decode")) == 9 and len(serving.pods()) == 13, 120)
        serving.await_condition("Progressing", "True", "Complete")
        history = recording.events
    assert {uid_of(pod) for pod in serving.pods(role="prefill")} == prefill
    assert fewest_serving(before, history, "decode", 2) == 3


def test_the_command_line_pauses_resumes_and_takes_back(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=2, nodes=5)

    def covey(*arguments: str, exit_code: int = 0) -> str:
        done = files.covey("rollout", *arguments, "-n", serving.namespace, "--kubeconfig", serving.cluster.kubeconfig)
        assert done.exit_code == exit_code, done.output
        return str(done.output)

    serving.create(*pair())
    await_ready(serving, 7)
    assert covey("pause", "llm") == "llm paused\n"
    serving.change({"roles": pair(decode="2")})
    serving.await_condition("Progressing", "Unknown", "RolloutPaused")
    assert images(serving.pods()) == {("prefill", "1"), ("decode", "1")}
    assert "spec.rollout.paused is true" in covey("status", "llm")
    covey("resume", "llm")
    assert "everything that is wanted runs" in covey("status", "llm", "--watch")
    await_rolled(serving, 7, {("prefill", "1"), ("decode", "2")})
    table = covey("history", "llm").splitlines()
    assert [line.split()[0] for line in table] == ["REVISION", *(line.split()[0] for line in table[1:])]
    assert "decode=registry.test/engine:2" in table[-1]
    assert "goes back to revision" in covey("undo", "llm")
    await_rolled(serving, 7, {("prefill", "1"), ("decode", "1")})
    assert "there is no revision 99" in covey("undo", "llm", "--to-revision", "99", exit_code=1)


def test_where_there_is_no_room_old_replicas_make_it(serving: Serving, nodes: AddNodes) -> None:
    """A full cluster: one replica of each role goes, in whose place the first new ones come."""
    nodes(blocks=1, racks=1, nodes=7)
    serving.create(*pair())
    before = await_ready(serving, 7)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair(prefill="2", decode="2")})
        eventually(
            lambda: (
                serving.get("DisaggregatedInference", "llm")["status"].get("rollout", {}).get("hold", {}).get("gate")
                == "Room"
            ),
            90,
        )
        await_rolled(serving, 7, {("prefill", "2"), ("decode", "2")})
        history = recording.events
    assert fewest_serving(before, history, "prefill", 2) >= 1
    assert fewest_serving(before, history, "decode", 1) >= 1
