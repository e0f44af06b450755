"""``update.inPlace: IfPossible``: pods that get other images keep their names, nodes and groups.

What a rolebasedgroup or AIBrix promises of it: image-only changes keep UID and node, a change of the environment falls
back to replacement; what is under way counts against the budget; the way an image is spelled does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from builders.manifests import Object, workers
from cluster.kubelet import runs_its_images
from cluster.workbench import is_ready, label, name_of, uid_of, uids
from scheduler_trees import node_of
from stage import Stage
from stage.kubelet import change_images
from stage.play import fewest_serving

#: One may be missing, none is added.
NO_SURGE = {"inPlace": "IfPossible", "maxSurge": 0, "maxUnavailable": 1}
SURGE = {"inPlace": "IfPossible"}
SIZES = {"prefill": 2, "decode": 1}
GROUPS = ("PodGroup", "CompositePodGroup", "Workload")


def image_of(tag: str) -> str:
    return f"registry.test/engine:{tag}"


MISSING = [image_of("missing")]


def pair(*, prefill: str = "1", decode: str = "1", update: Object = NO_SURGE) -> list[Object]:
    """Two replicas of two pods and three of one."""
    roles = [workers("prefill", replicas=2, size=2), workers("decode", replicas=3)]
    for role, tag in zip(roles, (prefill, decode), strict=True):
        role["template"]["spec"]["containers"][0]["image"] = image_of(tag)
        role["update"] = update
    return roles


def create(stage: Stage, *roles: Object, spare: int = 0, **spec: Any) -> list[Object]:
    """Everything has nodes for what is wanted, and runs."""
    stage.nodes(nodes=7 + spare)
    stage.create(*roles, **spec)
    stage.ready(7)
    change_images(stage)
    assert stage.condition("Progressing")[:2] == ("True", "Complete")
    return stage.pods()


def images(pods: Sequence[Object]) -> set[tuple[str, str]]:
    return {(label(pod, "role"), pod["spec"]["containers"][0]["image"].rpartition(":")[2]) for pod in pods}


def identities(pods: Sequence[Object]) -> set[tuple[str, str, str, str]]:
    """Name, UID, node and group of every pod."""
    group = "scheduling.covey.dev/pod-group"
    return {(name_of(pod), uid_of(pod), node_of(pod), pod["metadata"]["labels"][group]) for pod in pods}


def updated(stage: Stage, *wanted: tuple[str, str]) -> list[Object]:
    """The pods once the kubelet has done its part: all run these images, and no update is open."""
    change_images(stage)
    pods = stage.ready(7)
    assert images(pods) == set(wanted)
    assert all(map(runs_its_images, pods))
    assert not any("covey.dev/in-place" in pod["metadata"].get("annotations", {}) for pod in pods)
    assert stage.condition("Progressing")[:2] == ("True", "Complete")
    return pods


def fewest(stage: Stage, role: str, wanted: int) -> int:
    """The fewest replicas that served since as many as wanted did, all their pods with the images that they shall have."""
    return fewest_serving(
        stage, role, wanted, size=SIZES[role], serves=lambda pod: is_ready(pod) and runs_its_images(pod)
    )


def test_images_when_they_change_alone_do_so_in_the_pods_that_run(stage: Stage) -> None:
    before = create(stage, *pair())
    groups = {uid_of(group) for kind in GROUPS for group in stage.owned(kind)}
    stage.change(roles=pair(prefill="2", decode="2"))
    after = updated(stage, ("prefill", "2"), ("decode", "2"))
    assert identities(after) == identities(before)
    assert {uid_of(event.object) for event in stage.history("Pod")} == uids(before), "no pod was added"
    assert fewest(stage, "prefill", 2) == 1
    assert fewest(stage, "decode", 3) == 2
    assert groups == {uid_of(group) for kind in GROUPS for group in stage.owned(kind)}
    assert stage.event_notes("UpdatedInPlace")
    assert not any("3 replicas of decode" in note for note in stage.event_notes("UpdatedInPlace"))
    rows = {role["name"]: (role["updated"], role["restarts"]) for role in stage.status()["roles"]}
    assert rows == {"prefill": (2, 0), "decode": (3, 0)}
    assert not {label(pod, "revision") for pod in before} & {label(pod, "revision") for pod in after}


def test_replica_of_surge_when_none_may_be_missing_serves_meanwhile(stage: Stage) -> None:
    """And goes when all that was there before serves again."""
    before = create(stage, *pair(update=SURGE), spare=3)
    stage.change(roles=pair(prefill="2", decode="2", update=SURGE))
    assert identities(updated(stage, ("prefill", "2"), ("decode", "2"))) == identities(before)
    assert len({uid_of(event.object) for event in stage.history("Pod")}) > len(before)
    assert fewest(stage, "prefill", 2) == 2
    assert fewest(stage, "decode", 3) == 3


def test_change_of_anything_else_replaces_pods(stage: Stage) -> None:
    before = create(stage, *pair(), spare=3)
    roles = pair(decode="2")
    roles[1]["template"]["spec"]["containers"][0]["env"] = [{"name": "MORE", "value": "yes"}]
    stage.change(roles=roles)
    after = updated(stage, ("prefill", "1"), ("decode", "2"))
    kept = [pod for pod in before if uid_of(pod) in uids(after)]
    assert {label(pod, "role") for pod in kept} == {"prefill"}
    assert not stage.event_notes("UpdatedInPlace")


def test_update_in_place_when_it_is_paused_or_partitioned_is_held(stage: Stage) -> None:
    before = create(stage, *pair(), rollout={"paused": True})
    stage.change(roles=pair(decode="2"))
    stage.settle()
    assert stage.condition("Progressing")[:2] == ("Unknown", "RolloutPaused")
    assert images(stage.pods()) == {("prefill", "1"), ("decode", "1")}
    stage.change(rollout={"paused": False}, roles=pair(decode="2", update={**NO_SURGE, "partition": 2}))
    change_images(stage)
    pods = stage.ready(7)
    assert all(map(runs_its_images, pods))
    new = [pod for pod in pods if pod["spec"]["containers"][0]["image"] == image_of("2")]
    assert [(label(pod, "role"), label(pod, "replica")) for pod in new] == [("decode", "2")]
    assert stage.status()["rollout"]["hold"]["gate"] == "Partition"
    stage.change(roles=pair(decode="2"))
    assert identities(updated(stage, ("prefill", "1"), ("decode", "2"))) == identities(before)


def test_image_when_it_cannot_be_pulled_is_got_over_in_place(stage: Stage) -> None:
    before = create(stage, *pair())
    stage.change(roles=pair(decode="missing"))
    change_images(stage, MISSING)
    stage.advance(1810)
    status, reason, message = stage.condition("Progressing")
    assert (status, reason) == ("False", "ProgressDeadlineExceeded")
    assert "1 of decode" in message
    stage.change(roles=pair(decode="3"))
    assert identities(updated(stage, ("prefill", "1"), ("decode", "3"))) == identities(before)
    assert fewest(stage, "decode", 3) == 2


def test_rollout_when_it_fails_is_taken_back_in_place(stage: Stage) -> None:
    before = create(stage, *pair(), rollout={"onFailure": "Rollback"})
    stage.change(roles=pair(decode="missing"))
    change_images(stage, MISSING)
    assert images(stage.pods()) == {("prefill", "1"), ("decode", "missing"), ("decode", "1")}
    stage.advance(1810)
    change_images(stage, MISSING)
    assert stage.condition("Progressing")[1] == "RolledBack"
    after = stage.ready(7)
    assert all(map(runs_its_images, after))
    assert images(after) == {("prefill", "1"), ("decode", "1")}
    assert identities(after) == identities(before)


@pytest.mark.parametrize("at", [1, 2, 3, 5, 8])
def test_operator_when_it_dies_at_a_write_of_an_update_goes_on_where_it_was(stage: Stage, at: int) -> None:
    """Pods of one replica may be of two revisions then: it is brought to its end and counts as serving after that."""
    before = create(stage, *pair())
    death = stage.kill("operator", at)
    stage.change(roles=pair(prefill="2", decode="2"))
    after = updated(stage, ("prefill", "2"), ("decode", "2"))
    assert death.at is not None
    assert identities(after) == identities(before)
    assert fewest(stage, "prefill", 2) == 1
    assert fewest(stage, "decode", 3) == 2
