"""Rollouts, sizes and losses, and a router that pairs by label in front of them: every event of every pod is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from builders.manifests import Object, workers
from cluster.workbench import label, name_of, uid_of, uids
from scheduler_trees import node_of
from screener import Judge, Route, find_blind_routes, find_routes
from stage import Stage
from stage.kubelet import change_images
from stage.play import INFERENCE, RACK
from stage.record import as_pairs

PAIRING = "covey.dev/pairing"
LLMD_ROLE = "llm-d.ai/role"
EXCLUSIVE = {"routing": "Exclusive"}


def image_of(tag: str) -> str:
    return f"registry.test/engine:{tag}"


def route(prefill: str, decode: str) -> Route:
    return (image_of(prefill), image_of(decode))


def pair(
    *, prefill: str = "1", decode: str = "1", counts: tuple[int, int] = (2, 3), size: int = 2, **fields: Any
) -> list[Object]:
    """Prefill replicas of two pods, and decode replicas of one; the images say the revision."""
    roles = [workers("prefill", replicas=counts[0], size=size), workers("decode", replicas=counts[1])]
    for role, tag in zip(roles, (prefill, decode), strict=True):
        role["template"]["spec"]["containers"][0]["image"] = image_of(tag)
        role.update(fields)
    return roles


def rolled(stage: Stage, count: int, wanted: Route) -> list[Object]:
    """The pods at rest: all run these images, and carry one pairing."""
    pods = stage.ready(count)
    assert find_routes(pods) == {wanted}, stage.told()
    assert len({pod["metadata"]["labels"][PAIRING] for pod in pods}) == 1
    assert stage.condition("Progressing")[:2] == ("True", "Complete")
    return pods


def judged(
    stage: Stage,
    before: list[Object],
    *allowed: Route,
    routes: Callable[[Iterable[Object]], set[Route]] = find_routes,
) -> Judge:
    """The verdict on what happened since a rest: nothing mixed; what was refused is for the story to say."""
    stage.settle()
    judge = Judge(before, allowed, routes)
    since = max(int(pod["metadata"]["resourceVersion"]) for pod in before)
    judge.see(as_pairs([event for event in stage.history("Pod") if event.version > since]))
    return judge


def await_route(stage: Stage, wanted: Route) -> None:
    """Wait until a revision takes requests, in the midst of a rollout."""
    stage.await_event(lambda: wanted in find_routes(stage.pods()), f"{wanted} takes requests")


@pytest.mark.parametrize("counts", [(2, 3), (1, 1), (3, 1)])
def test_role_when_it_rolls_alone_has_the_other_handed_over(stage: Stage, counts: tuple[int, int]) -> None:
    """llm-d-router#2141: prefill of one revision never meets decode of another, though decode does not change."""
    total = counts[0] * 2 + counts[1]
    stage.nodes(nodes=total + 2)
    stage.create(*pair(counts=counts))
    before = rolled(stage, total, route("1", "1"))
    stage.change(roles=pair(prefill="2", counts=counts))
    after = rolled(stage, total, route("2", "1"))
    verdict = judged(stage, before, route("1", "1"), route("2", "1"))
    assert not verdict.refused
    assert verdict.routes == {route("1", "1"), route("2", "1")}
    assert uids([pod for pod in before if label(pod, "role") == "decode"]) <= uids(after)


def test_roles_when_they_roll_together_and_turn_back_half_way_are_never_mixed(stage: Stage) -> None:
    stage.nodes(nodes=11)
    stage.create(*pair())
    before = stage.ready(7)
    stage.change(roles=pair(prefill="2", decode="2"))
    await_route(stage, route("2", "2"))
    # A third one, of which decode is the second's.
    stage.change(roles=pair(prefill="3", decode="2"))
    await_route(stage, route("3", "2"))
    stage.change(roles=pair())
    rolled(stage, 7, route("1", "1"))
    allowed = [route("1", "1"), route("2", "2"), route("3", "2")]
    verdict = judged(stage, before, *allowed)
    assert not verdict.refused
    assert verdict.routes == set(allowed)


def test_replicas_when_they_drain_get_no_request(stage: Stage) -> None:
    """R3: of two units and of two revisions, with an hour to finish."""
    stage.nodes(nodes=12)
    lasting = {"size": 1, "counts": (2, 2), "drainSeconds": 3600}
    stage.create(*pair(**lasting), replicas=2, compat={"llmd": "Always"})
    before = stage.ready(8)
    assert {(label(pod, "role"), pod["metadata"]["labels"][LLMD_ROLE]) for pod in before} == {
        ("prefill", "prefill"),
        ("decode", "decode"),
    }
    stage.change(replicas=1, roles=pair(**lasting))
    for role in ("prefill", "decode"):
        stage.settle()
        draining = stage.pods(draining="true")
        assert [label(pod, "role") for pod in draining] == [role, role]
        assert not any(LLMD_ROLE in pod["metadata"]["labels"] for pod in draining)
        for pod in draining:
            stage.patch("Pod", name_of(pod), {"metadata": {"annotations": {"covey.dev/in-flight": "0"}}})
    stage.ready(4)
    assert not judged(stage, before, route("1", "1")).refused


def test_loss_half_way_is_made_good_in_the_pairing_that_serves(stage: Stage) -> None:
    stage.nodes(nodes=9)
    kept = {"update": {"partition": 1}}
    decode = pair(size=1)[1]
    stage.create(pair(size=1, **kept)[0], decode)
    before = stage.ready(5)
    stage.change(roles=[pair(prefill="2", size=1, **kept)[0], decode])
    both = {route("1", "1"), route("2", "1")}
    assert find_routes(stage.ready(5)) == both
    lost = stage.pods(role="decode")[:2]
    for pod in lost:
        stage.delete("Pod", name_of(pod))
    after = stage.ready(5)
    assert not uids(lost) & uids(after)
    assert find_routes(after) == both
    # Prefill of the new revision is lost: decode goes back to the other.
    [new] = [pod for pod in after if pod["spec"]["containers"][0]["image"] == image_of("2")]
    stage.delete("Pod", name_of(new))
    after = stage.ready(5)
    assert uid_of(new) not in uids(after)
    assert find_routes(after) == both
    assert not judged(stage, before, *both).refused


def test_pod_when_its_images_change_in_place_is_of_no_pairing_until_it_runs_them(stage: Stage) -> None:
    stage.nodes(nodes=6)
    small: dict[str, Any] = {"size": 1, "counts": (2, 2), "update": {"inPlace": "IfPossible"}}
    stage.create(*pair(**small))
    stage.ready(4)
    change_images(stage)
    before = stage.ready(4)
    stage.change(roles=pair(prefill="2", **small))
    change_images(stage)
    after = rolled(stage, 4, route("2", "1"))
    assert not judged(stage, before, route("1", "1"), route("2", "1")).refused
    assert uids(before) & uids([pod for pod in after if label(pod, "role") == "prefill"])


def test_sizes_when_they_change_while_a_role_rolls_mix_nothing(stage: Stage) -> None:
    stage.nodes(nodes=9)
    stage.create(*pair(size=1))
    before = stage.ready(5)
    stage.change(roles=pair(decode="2", size=1))
    await_route(stage, route("1", "2"))
    stage.change(roles=pair(decode="2", size=1, counts=(1, 1)))
    rolled(stage, 2, route("1", "2"))
    stage.change(roles=pair(size=1))
    rolled(stage, 5, route("1", "1"))
    assert not judged(stage, before, route("1", "1"), route("1", "2")).refused


def test_role_when_it_rolls_alone_behind_a_router_that_knows_no_pairing_leaves_no_moment_without(stage: Stage) -> None:
    """Either prefill pairs with decode that does not change."""
    stage.nodes(nodes=9)
    stage.create(*pair(), rollout=EXCLUSIVE)
    before = stage.ready(7)
    assert find_blind_routes(before) == {route("1", "1")}
    stage.change(roles=pair(prefill="2"))
    after = rolled(stage, 7, route("2", "1"))
    verdict = judged(stage, before, route("1", "1"), route("2", "1"), routes=find_blind_routes)
    assert not verdict.refused
    assert verdict.routes == {route("1", "1"), route("2", "1")}
    assert uids([pod for pod in before if label(pod, "role") == "decode"]) <= uids(after)


def test_roles_when_both_roll_behind_a_router_that_knows_no_pairing_are_switched_at_once(stage: Stage) -> None:
    """Nothing is mixed, and what is refused is the few writes of the switch."""
    stage.nodes(nodes=11)
    stage.create(*pair(), rollout=EXCLUSIVE)
    before = stage.ready(7)
    stage.change(roles=pair(prefill="2", decode="2"))
    assert find_blind_routes(rolled(stage, 7, route("2", "2"))) == {route("2", "2")}
    verdict = judged(stage, before, route("1", "1"), route("2", "2"), routes=find_blind_routes)
    assert verdict.routes == {route("1", "1"), route("2", "2")}
    # Of the last old one of either role, and of new decode, which all may come before new prefill.
    assert len(verdict.refused) <= 6, verdict.refused


def test_revision_when_it_has_no_room_beside_the_other_takes_over_early(stage: Stage) -> None:
    stage.nodes(nodes=4)
    tight = {"size": 1, "counts": (2, 2), "minReplicas": 2, "update": {"maxSurge": 0, "maxUnavailable": 1}}
    stage.create(*pair(**tight), rollout=EXCLUSIVE)
    before = stage.ready(4)
    stage.change(roles=pair(prefill="2", decode="2", **tight))
    rolled(stage, 4, route("2", "2"))
    held = ("RoutingHeld", "True", "AwaitingMinimum")
    assert stage.was(
        INFERENCE,
        lambda item: (
            held in [(each["type"], each["status"], each["reason"]) for each in item["status"].get("conditions", ())]
        ),
    )
    verdict = judged(stage, before, route("1", "1"), route("2", "2"), routes=find_blind_routes)
    assert verdict.routes == {route("1", "1"), route("2", "2")}


def test_replicas_when_a_routers_controller_switches_them_keep_its_label_and_lacks_are_told(stage: Stage) -> None:
    """SGLang's ``/pd_role_switch``: its label stays, and a part of a request that nobody serves is reported."""
    stage.nodes(nodes=2)
    stage.create(workers("worker", replicas=2, serves="Both"), compat={"llmd": "Always"})
    first, second = stage.ready(2)
    for pod in (first, second):
        stage.patch("Pod", name_of(pod), {"metadata": {"labels": {LLMD_ROLE: "prefill"}}})
    stage.settle()
    assert stage.condition("CapabilityLacking")[:2] == ("True", "LacksCapability")
    assert {pod["metadata"]["labels"][LLMD_ROLE] for pod in stage.pods()} == {"prefill"}
    stage.patch("Pod", name_of(second), {"metadata": {"labels": {LLMD_ROLE: "decode"}}})
    stage.settle()
    assert stage.condition("CapabilityLacking") == ("", "", "")
    assert uids(stage.ready(2)) == uids([first, second])


def test_domains_are_there_for_files_before_a_pod_has_a_node(stage: Stage) -> None:
    """As Dynamo's workers read them: a volume of the template, and nothing else."""
    stage.nodes(racks=2, nodes=1)
    field = {"fieldPath": "metadata.labels['topology.covey.dev/rack']"}
    volume = {"name": "topology", "downwardAPI": {"items": [{"path": "rack", "fieldRef": field}]}}
    stage.create(workers("prefill", spec={"volumes": [volume]}), workers("decode", spec={"volumes": [volume]}))
    stage.ready(2)
    bound = [event.object for event in stage.history("Pod") if node_of(event.object)]
    assert {label(pod, "role") for pod in bound} == {"prefill", "decode"}
    for pod in bound:
        assert stage.domains([pod], RACK) == {(pod["metadata"]["labels"]["topology.covey.dev/rack"],)}
