"""Rollouts, sizes and losses, and a router that pairs by label in front of them: every event of every pod is judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from builders.manifests import Object
from cluster.kubelet import Kubelet
from cluster.serving import RACK, AddNodes, Serving, serves, serving, workers
from cluster.workbench import label, name_of, uid_of, uids
from localcluster import eventually
from screener import Judge, Route, find_blind_routes, find_routes

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

PAIRING = "covey.dev/pairing"


def image_of(tag: str) -> str:
    return f"registry.test/engine:{tag}"


def route(prefill: str, decode: str) -> Route:
    return (image_of(prefill), image_of(decode))


def pair(
    *, prefill: str = "1", decode: str = "1", counts: tuple[int, int] = (2, 3), size: int = 2, **fields: Any
) -> list[Object]:
    """Prefill replicas of two pods, and decode replicas of one; the images say the revision."""
    found = [workers("prefill", replicas=counts[0], size=size), workers("decode", replicas=counts[1])]
    for each, tag in zip(found, (prefill, decode), strict=True):
        each["template"]["spec"]["containers"][0]["image"] = image_of(tag)
        each.update(fields)
    return found


def await_rolled(serving: Serving, count: int, wanted: Route) -> list[Object]:
    """Wait until everything runs these images, is Ready, and carries one pairing."""

    def rolled() -> bool:
        pods = serving.pods()
        assert len(pods) == count
        assert all(map(serves, pods))
        assert find_routes(pods) == {wanted}, f"{find_routes(pods)}; {serving.states()}"
        assert len({pod["metadata"]["labels"][PAIRING] for pod in pods}) == 1
        return True

    eventually(rolled, 180, "everything is rolled")
    serving.await_condition("Progressing", "True", "Complete")
    return serving.pods()


def judged(before: Iterable[Object], events: Sequence[tuple[str, Object]], *allowed: Route) -> Judge:
    """The verdict on a recording: nothing mixed; what was refused is for the test to say."""
    judge = Judge(before, allowed)
    judge.see(events)
    return judge


@pytest.mark.parametrize(("counts", "spare"), [((2, 3), 2), ((1, 1), 2), ((3, 1), 2)])
def test_one_role_rolls_and_the_other_is_handed_over(
    serving: Serving, nodes: AddNodes, counts: tuple[int, int], spare: int
) -> None:
    """llm-d-router#2141: prefill of one revision never meets decode of another, though decode does not change."""
    total = counts[0] * 2 + counts[1]
    nodes(blocks=1, racks=1, nodes=total + spare)
    serving.create(*pair(counts=counts))
    before = serving.await_ready(total)
    assert find_routes(before) == {route("1", "1")}
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair(prefill="2", counts=counts)})
        after = await_rolled(serving, total, route("2", "1"))
        found = judged(before, recording.events, route("1", "1"), route("2", "1"))
    assert not found.refused
    assert found.routes == {route("1", "1"), route("2", "1")}
    assert uids([pod for pod in before if label(pod, "role") == "decode"]) <= uids(after)


def test_roles_that_roll_together_and_turn_back_half_way(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=11)
    serving.create(*pair())
    before = serving.await_ready(7)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair(prefill="2", decode="2")})
        eventually(lambda: route("2", "2") in find_routes(serving.pods()), 120, "the new revision takes requests")
        # A third one, of which decode is the second's.
        serving.change({"roles": pair(prefill="3", decode="2")})
        eventually(lambda: route("3", "2") in find_routes(serving.pods()), 120, "the third takes requests")
        serving.change({"roles": pair()})
        await_rolled(serving, 7, route("1", "1"))
        allowed = [route("1", "1"), route("2", "2"), route("3", "2")]
        found = judged(before, recording.events, *allowed)
    assert not found.refused
    assert found.routes == set(allowed)


def test_replicas_that_drain_get_no_request(serving: Serving, nodes: AddNodes) -> None:
    """R3: of two units and of two revisions, with an hour to finish."""
    nodes(blocks=1, racks=1, nodes=12)
    lasting = {"size": 1, "counts": (2, 2), "drainSeconds": 3600}
    serving.create(*pair(**lasting), replicas=2, compat={"llmd": "Always"})
    before = serving.await_ready(8)
    assert {(label(pod, "role"), pod["metadata"]["labels"]["llm-d.ai/role"]) for pod in before} == {
        ("prefill", "prefill"),
        ("decode", "decode"),
    }
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"replicas": 1, "roles": pair(**lasting)})
        eventually(lambda: len(serving.pods(draining="true")) == 2, 60, "prefill of a unit drains")
        for _ in range(2):
            for pod in serving.pods(draining="true"):
                assert "llm-d.ai/role" not in pod["metadata"]["labels"]
                idle = {"metadata": {"annotations": {"covey.dev/in-flight": "0"}}}
                serving.cluster.api("PATCH", serving.path("Pod", name_of(pod)), idle)
            eventually(lambda: not serving.pods(draining="true", role="prefill"), 60, "prefill has gone")
            eventually(lambda: len(serving.pods(draining="true")) in {0, 2}, 60, "decode drains")
        serving.await_pods(4, 60)
        found = judged(before, recording.events, route("1", "1"))
    assert not found.refused


def test_a_loss_half_way_is_made_good_in_the_pairing_that_serves(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=9)
    kept = {"update": {"partition": 1}}
    serving.create(*(pair(size=1, counts=(2, 3), **kept)[0], pair(size=1)[1]))
    before = serving.await_ready(5)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": [pair(prefill="2", size=1, **kept)[0], pair(size=1)[1]]})
        both = {route("1", "1"), route("2", "1")}
        eventually(lambda: find_routes(serving.pods()) == both, 120, "both revisions take requests")
        for pod in serving.pods(role="decode")[:2]:
            serving.delete("Pod", name_of(pod))
        eventually(lambda: len({uid_of(pod) for pod in serving.pods() if serves(pod)} - uids(before)) >= 3, 120)
        eventually(lambda: len(serving.await_ready(5)) == 5 and find_routes(serving.pods()) == both, 60, "both again")
        # Prefill of the new revision is lost: decode goes back to the other.
        [new] = [pod for pod in serving.pods(role="prefill") if pod["spec"]["containers"][0]["image"] == image_of("2")]
        serving.delete("Pod", name_of(new))
        eventually(lambda: find_routes(now := serving.pods()) == both and uid_of(new) not in uids(now), 120)
        found = judged(before, recording.events, *both)
    assert not found.refused


def test_images_that_are_changed_in_place(serving: Serving, nodes: AddNodes) -> None:
    """A pod that has new images and still runs the old ones is of no pairing."""
    nodes(blocks=1, racks=1, nodes=6)
    update = {"update": {"inPlace": "IfPossible"}}
    with Kubelet(serving):
        serving.create(*pair(size=1, counts=(2, 2), **update))
        before = serving.await_ready(4)
        with serving.cluster.record(serving.path("Pod")) as recording:
            serving.change({"roles": pair(prefill="2", size=1, counts=(2, 2), **update)})
            after = await_rolled(serving, 4, route("2", "1"))
            found = judged(before, recording.events, route("1", "1"), route("2", "1"))
    assert not found.refused
    assert uids(before) & uids([pod for pod in after if label(pod, "role") == "prefill"])


def test_sizes_that_change_while_one_role_rolls(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=9)
    serving.create(*pair(size=1))
    before = serving.await_ready(5)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair(decode="2", size=1)})
        eventually(lambda: route("1", "2") in find_routes(serving.pods()), 120, "the new revision takes requests")
        serving.change({"roles": pair(decode="2", size=1, counts=(1, 1))})
        await_rolled(serving, 2, route("1", "2"))
        serving.change({"roles": pair(decode="1", size=1, counts=(2, 3))})
        await_rolled(serving, 5, route("1", "1"))
        found = judged(before, recording.events, route("1", "1"), route("1", "2"))
    assert not found.refused


EXCLUSIVE = {"routing": "Exclusive"}


def test_one_role_rolls_behind_a_router_that_knows_no_pairing(serving: Serving, nodes: AddNodes) -> None:
    """Either prefill pairs with decode that does not change: there is never a moment without one."""
    nodes(blocks=1, racks=1, nodes=9)
    serving.create(*pair(), rollout=EXCLUSIVE)
    before = serving.await_ready(7)
    assert find_blind_routes(before) == {route("1", "1")}
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair(prefill="2")})
        after = await_rolled(serving, 7, route("2", "1"))
        found = Judge(before, [route("1", "1"), route("2", "1")], find_blind_routes)
        found.see(recording.events)
    assert not found.refused
    assert found.routes == {route("1", "1"), route("2", "1")}
    assert uids([pod for pod in before if label(pod, "role") == "decode"]) <= uids(after)


def test_both_roles_roll_behind_a_router_that_knows_no_pairing(serving: Serving, nodes: AddNodes) -> None:
    """Nothing is mixed, and what is refused is the few writes of the switch."""
    nodes(blocks=1, racks=1, nodes=11)
    serving.create(*pair(), rollout=EXCLUSIVE)
    before = serving.await_ready(7)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair(prefill="2", decode="2")})
        await_rolled(serving, 7, route("2", "2"))
        eventually(lambda: find_blind_routes(serving.pods()) == {route("2", "2")}, 60, "all take requests")
        found = Judge(before, [route("1", "1"), route("2", "2")], find_blind_routes)
        found.see(recording.events)
    assert found.routes == {route("1", "1"), route("2", "2")}
    # Of the last old one of either role, and of new decode, which all may come before new prefill.
    assert len(found.refused) <= 6, found.refused


def test_a_revision_that_has_no_room_beside_the_other_takes_over_early(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=4)
    tight = {"size": 1, "counts": (2, 2), "minReplicas": 2, "update": {"maxSurge": 0, "maxUnavailable": 1}}
    serving.create(*pair(**tight), rollout=EXCLUSIVE)
    before = serving.await_ready(4)
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.change({"roles": pair(prefill="2", decode="2", **tight)})
        serving.await_condition("RoutingHeld", "True", "AwaitingMinimum")
        await_rolled(serving, 4, route("2", "2"))
        found = Judge(before, [route("1", "1"), route("2", "2")], find_blind_routes)
        found.see(recording.events)
    assert found.routes == {route("1", "1"), route("2", "2")}


def test_replicas_that_a_routers_controller_switches(serving: Serving, nodes: AddNodes) -> None:
    """SGLang's ``/pd_role_switch``: its label stays, and a part of a request that nobody serves is reported."""
    nodes(blocks=1, racks=1, nodes=2)
    serving.create(workers("worker", replicas=2, serves="Both"), compat={"llmd": "Always"})
    first, second = serving.await_ready(2)
    for pod in (first, second):
        body = {"metadata": {"labels": {"llm-d.ai/role": "prefill"}}}
        serving.cluster.api("PATCH", serving.path("Pod", name_of(pod)), body)
    serving.await_condition("CapabilityLacking", "True", "LacksCapability")
    # The operator has seen the labels, and left them.
    assert {pod["metadata"]["labels"]["llm-d.ai/role"] for pod in serving.pods()} == {"prefill"}
    body = {"metadata": {"labels": {"llm-d.ai/role": "decode"}}}
    serving.cluster.api("PATCH", serving.path("Pod", name_of(second)), body)

    def is_over() -> bool:
        (found,) = serving.all("DisaggregatedInference")
        return all(each["type"] != "CapabilityLacking" for each in found["status"]["conditions"])

    eventually(is_over, 60, "both parts are served")
    assert uids(serving.pods()) == uids([first, second])


def test_domains_are_there_for_files_before_a_pod_has_a_node(serving: Serving, nodes: AddNodes) -> None:
    """As Dynamo's workers read them: a volume of the template, and nothing else."""
    nodes(blocks=1, racks=2, nodes=1)
    field = {"fieldPath": "metadata.labels['topology.covey.dev/rack']"}
    volume = {"name": "topology", "downwardAPI": {"items": [{"path": "rack", "fieldRef": field}]}}
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(workers("prefill", spec={"volumes": [volume]}), workers("decode", spec={"volumes": [volume]}))
        pods = serving.await_ready(2)
        bound = [pod for _, pod in recording.events if pod["spec"].get("nodeName")]
        assert bound
        for pod in (*bound, *pods):
            rack = pod["metadata"]["labels"]["topology.covey.dev/rack"]
            assert serving.domains([pod], RACK) == {(rack,)}
