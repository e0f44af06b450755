"""Rollouts: what serves while they go on, what they wait for, and what is there in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pytest

from builders.files import queue
from builders.manifests import Object, workers
from cluster.workbench import is_ready, label, name_of, uids
from scheduler_trees import node_of, pin_of
from stage import Stage
from stage.kubelet import asks, change_images, say_serving
from stage.play import fewest_serving, image_of, run_covey
from stage.wire import DENIAL

QUEUES: Final = "/apis/scheduling.covey.dev/v1alpha1/queues"


def with_image(role: Object, image: str, **spec: Any) -> Object:
    """The role with another image, and other fields of its pods."""
    role["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{image}"
    role["template"]["spec"].update(spec)
    return role


def pair(prefill: str = "1", decode: str = "1", **fields: Any) -> list[Object]:
    """Two replicas of two pods and three of one; the images say the revision."""
    return [
        with_image(workers("prefill", replicas=2, size=2, **fields), prefill),
        with_image(workers("decode", replicas=3, **fields), decode),
    ]


def singles(image: str = "1", *, update: Object | None = None, gpus: int = 8, **spec: Any) -> list[Object]:
    """Four and two replicas of one pod, of which one each is the minimum."""
    update = {"update": update} if update else {}
    return [
        with_image(workers(name, replicas=count, minReplicas=1, gpus=gpus, **update), image, **spec)
        for name, count in (("prefill", 4), ("decode", 2))
    ]


def start(stage: Stage, nodes: int, *roles: Object, **spec: Any) -> list[Object]:
    """Have roles on so many nodes; their pods at rest."""
    stage.nodes(nodes=nodes)
    stage.create(*roles, **spec)
    return stage.ready(sum(role["replicas"] * role.get("size", 1) for role in roles))


def images(pods: Sequence[Object]) -> Counter[tuple[str, str]]:
    """Pods by role and image."""
    return Counter((label(pod, "role"), image_of(pod)) for pod in pods)


def rolled(stage: Stage, image: str, count: int) -> list[Object]:
    """The pods at rest: so many, all of this image, and the rollout is complete."""
    pods = stage.ready(count, inference="llm")
    assert {image_of(pod) for pod in pods} == {image}
    assert stage.condition("Progressing")[:2] == ("True", "Complete")
    return pods


def hold(stage: Stage, gate: str) -> str:
    """What a rollout waits for, at rest, at this gate."""
    stage.settle()
    found = stage.status().get("rollout", {}).get("hold", {})
    assert found.get("gate") == gate, f"{found}; {stage.told()}"
    return str(found["message"])


def test_role_when_it_changes_alone_is_rolled_alone(stage: Stage) -> None:
    """Its image, its size, the template of its leaders: what serves is never less than what is wanted."""
    before = start(stage, 12, *pair())
    kept = uids(stage.pods(role="prefill"))
    stage.change(roles=pair(decode="2"))
    assert images(stage.ready(7)) == {("prefill", "1"): 4, ("decode", "2"): 3}
    assert "rollout" not in stage.status()
    assert {row["name"]: row["updated"] for row in stage.status()["roles"]} == {"prefill": 2, "decode": 3}
    assert uids(stage.pods(role="prefill")) == kept
    assert fewest_serving(stage, "decode", 3) == 3
    kept = uids(stage.pods(role="decode"))
    larger = pair(decode="2")
    leader = with_image(workers("leader"), "1")["template"]
    leader["spec"]["containers"][0]["env"] = [{"name": "LEADS", "value": "yes"}]
    larger[0] |= {"size": 3, "leaderTemplate": leader}
    stage.change(roles=larger)
    prefill = [pod for pod in stage.ready(9) if label(pod, "role") == "prefill"]
    assert {label(pod, "index") for pod in prefill if "LEADS" in str(pod["spec"])} == {"0"}
    assert not uids(prefill) & uids(before)
    assert uids(stage.pods(role="decode")) == kept
    assert fewest_serving(stage, "prefill", 2, size=2) == 2


@pytest.mark.usefixtures("router")
def test_roles_that_change_together_arrive_together_and_a_reversal_takes_them_back(stage: Stage) -> None:
    start(stage, 12, *pair())
    new = list(map(asks, pair("2", "2")))
    stage.change(roles=new)
    hold(stage, "Readiness")
    # The first of both, and the next of both once these serve.
    say_serving(stage, [pod for pod in stage.pods() if image_of(pod) == "2"])
    hold(stage, "Readiness")
    served = {role for (role, image) in images(list(filter(is_ready, stage.pods()))) if image == "2"}
    assert served == {"prefill", "decode"}
    stage.change(roles=pair())
    rolled(stage, "1", 7)
    assert fewest_serving(stage, "prefill", 2, size=2) == 2
    assert fewest_serving(stage, "decode", 3) == 3
    assert len(stage.owned("ControllerRevision")) == 2


def test_command_pauses_resumes_and_takes_back(stage: Stage) -> None:
    start(stage, 8, *pair())

    def covey(*arguments: str, status: int = 0) -> str:
        exit_code, output = run_covey(stage, "rollout", *arguments, "-n", stage.namespace)
        assert exit_code == status, output
        return output

    assert covey("pause", "llm") == "llm paused\n"
    stage.change(roles=pair(decode="2"))
    assert images(stage.ready(7)) == {("prefill", "1"): 4, ("decode", "1"): 3}
    assert stage.condition("Progressing")[:2] == ("Unknown", "RolloutPaused")
    assert "spec.rollout.paused is true" in covey("status", "llm")
    covey("resume", "llm")
    assert images(stage.ready(7)) == {("prefill", "1"): 4, ("decode", "2"): 3}
    assert "everything that is wanted runs" in covey("status", "llm", "--watch")
    assert "decode=registry.test/engine:2" in covey("history", "llm").splitlines()[-1]
    assert "goes back to revision" in covey("undo", "llm")
    rolled(stage, "1", 7)
    assert "there is no revision 99" in covey("undo", "llm", "--to-revision", "99", status=1)


def test_rollout_when_the_cluster_is_full_goes_on_at_once_and_a_rival_gets_nothing(stage: Stage) -> None:
    """One replica of each role goes, in whose place the first new ones come."""
    stage.excused.add("budget")
    start(stage, 6, *singles())
    stage.create(*singles(), name="rival")
    stage.change(roles=singles("2"))
    rolled(stage, "2", 6)
    # How long it waits at the gate is no promise; that somebody proves who may go is.
    assert stage.was("CompositePodGroup", lambda item: "victims" in str(item.get("status", {}).get("succession")))
    assert fewest_serving(stage, "prefill", 4, inference="llm") == 3
    assert fewest_serving(stage, "decode", 2, inference="llm") == 1
    assert stage.never("Pod", lambda pod: label(pod, "inference") == "rival" and node_of(pod))


def test_rollout_when_kube_scheduler_refuses_every_free_node_keeps_all_that_serves(stage: Stage) -> None:
    """The new template wants to be near a pod that there is not, which Covey does not model; four nodes are free."""
    start(stage, 7, workers("decode", replicas=3, minReplicas=1))
    term = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "kubernetes.io/hostname"}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    stage.change(roles=[with_image(workers("decode", replicas=3, minReplicas=1), "2", affinity=near)])
    for _ in range(60):
        stage.advance(3)
    tried = {pin_of(event.object) for event in stage.history("Pod") if image_of(event.object).endswith("2")}
    assert len(tried - {None, ""}) >= 4, "all free nodes were tried"
    assert fewest_serving(stage, "decode", 3) == 3
    found = stage.status().get("rollout", {}).get("hold", {})
    assert "kube-scheduler does not take" in found["message"]


@pytest.mark.parametrize("kind", ["ResourceQuota", "Queue"])
def test_rollout_when_a_quota_has_no_room_for_a_surge_is_not_held(stage: Stage, kind: str) -> None:
    """Half of the nodes are free, and the quota of the namespace, or of its queue, is used up."""
    stage.excused.add("budget")
    start(stage, 12, *singles())
    if kind == "Queue":
        selector = {"selector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}}
        stage.cluster.api("POST", QUEUES, queue("full", 48, namespaces=selector))
        stage.after(lambda: stage.cluster.delete(f"{QUEUES}/full"))
    else:
        stage.quota("full", **{"requests.nvidia.com/gpu": 48})
    stage.settle()
    stage.change(roles=singles("2"))
    rolled(stage, "2", 6)
    assert fewest_serving(stage, "prefill", 4) == 3
    assert fewest_serving(stage, "decode", 2) == 1


def test_images_in_place_when_the_cluster_is_full_wait_for_no_surge(stage: Stage) -> None:
    in_place = {"inPlace": "IfPossible"}
    before = start(stage, 6, *singles(update=in_place))
    change_images(stage)
    stage.change(roles=singles("2", update=in_place))
    change_images(stage)
    after = rolled(stage, "2", 6)
    assert fewest_serving(stage, "prefill", 4) >= 3
    assert fewest_serving(stage, "decode", 2) >= 1
    assert len(uids(before) & uids(after)) >= 4, "no more than the first of each role were made anew"


NOWHERE: Final = {"nodeSelector": {"gpu": "h100"}}


@pytest.mark.parametrize(
    ("nodes", "change", "words"),
    [
        (12, singles("2", **NOWHERE), "node selector"),
        (12, singles("2", gpus=16), "a pod asks for 16 nvidia.com/gpu, and the largest node has 8"),
        (6, [singles("2")[0], singles("2", **NOWHERE)[1]], "node selector"),
        (6, singles("2", update={"maxUnavailable": 0}), "prefill: capacity for 4 of 5 replicas"),
    ],
    ids=["a selector that no node has", "larger than a node", "one of both roles", "none may be missing"],
)
def test_change_when_it_has_no_places_costs_nothing_that_serves(
    stage: Stage, nodes: int, change: list[Object], words: str
) -> None:
    stage.excused.add("budget")
    before = start(stage, nodes, *singles())
    stage.change(roles=change)
    message = hold(stage, "Nodes")
    assert message.startswith("1 of prefill, 1 of decode of the new revision without nodes: ")
    assert words in message
    assert uids(before) == uids(list(filter(is_ready, stage.pods())))
    # The next change goes through.
    stage.change(roles=singles("3"))
    rolled(stage, "3", 6)
    spare = nodes > len(before)
    assert fewest_serving(stage, "prefill", 4) == 3 + spare
    assert fewest_serving(stage, "decode", 2) == 1 + spare


@pytest.mark.parametrize("nodes", [6, 12], ids=["on a full cluster", "with nodes to spare"])
def test_change_when_its_pins_are_denied_costs_nothing_that_serves(stage: Stage, nodes: int) -> None:
    stage.excused.add("budget")
    start(stage, nodes, *singles())
    denial = stage.deny("scheduler", resources={"pods"}, times=1000)
    stage.change(roles=singles("2"))
    assert DENIAL in hold(stage, "Nodes")
    stage.advance(300)
    assert fewest_serving(stage, "prefill", 4) == 4
    assert fewest_serving(stage, "decode", 2) == 2
    denial.times = 0
    stage.change(roles=singles("3"))
    stage.advance(300)
    rolled(stage, "3", 6)


def test_roles_of_a_revision_when_one_has_no_room_wait_both(stage: Stage) -> None:
    """There is room for one more prefill replica, and none for a decode replica beside it; no old one may be missing."""
    kept = {"update": {"maxUnavailable": 0}}
    start(stage, 9, *pair(**kept))
    stage.change(roles=pair("2", "2", **kept))
    assert "1 of prefill, 1 of decode" in hold(stage, "Nodes")
    assert stage.never("Pod", lambda pod: image_of(pod) == "2" and node_of(pod))
    stage.nodes(nodes=10)
    rolled(stage, "2", 7)
    assert fewest_serving(stage, "prefill", 2, size=2) == 2
    assert fewest_serving(stage, "decode", 3) == 3


def test_minimum_when_no_node_is_free_waits_for_one(stage: Stage) -> None:
    """RU-10: Grove takes one pod down and waits; both are the minimum here, so none goes."""
    roles = [workers("a", replicas=2, minReplicas=2), workers("sg", replicas=2, minReplicas=2, size=2)]
    before = start(stage, 6, *roles)
    stage.change(roles=[with_image(roles[0], "2"), roles[1]])
    assert "1 of a of the new revision without nodes" in hold(stage, "Nodes")
    assert uids(before) == uids(stage.bound())
    stage.nodes(nodes=7)
    assert images(stage.ready(6)) == {("a", "2"): 2, ("sg", "1"): 4}
    assert uids(stage.pods(role="sg")) <= uids(before)


def decode(image: str = "1", replicas: int = 3, **fields: Any) -> Object:
    """The role that changes where one is enough."""
    return with_image(workers("decode", replicas=replicas, **fields), image)


def of(stage: Stage, image: str) -> list[Object]:
    """Live pods with an image."""
    return [pod for pod in stage.pods() if image_of(pod) == image]


@pytest.mark.usefixtures("router")
def test_replicas_when_the_router_has_not_said_that_the_new_serve_stay(stage: Stage) -> None:
    start(stage, 4, decode())
    stage.change(roles=[asks(decode("2"))])
    assert "1 of decode" in hold(stage, "Readiness")
    before = stage.status()["rollout"]["hold"]
    stage.advance(300)
    assert stage.status()["rollout"]["hold"] == before, "since when does not move"
    for number in range(3):
        assert images(stage.pods()) == Counter({("decode", "1"): 3 - number, ("decode", "2"): 1 + number})
        say_serving(stage, of(stage, "2"))
        stage.settle()
    assert images(stage.pods()) == {("decode", "2"): 3}
    assert stage.condition("Progressing")[:2] == ("True", "Complete")


@pytest.mark.usefixtures("router")
def test_replica_when_the_router_takes_it_out_does_not_serve(stage: Stage) -> None:
    """The kubelet, here kwok, has not heard of it: its word is not waited for."""
    stage.nodes(nodes=4)
    stage.create(asks(decode()))
    stage.settle()
    say_serving(stage, stage.pods())
    out = stage.ready(3)[0]
    assert stage.status()["roles"][0]["ready"] == 3
    say_serving(stage, [out], serves=False)
    stage.settle()
    assert stage.status()["roles"][0]["ready"] == 2
    # One is missing already, and none may be: what serves is left alone until the new ones do.
    stage.change(roles=[asks(decode("2"))])
    hold(stage, "Readiness")
    assert len(of(stage, "1")) == 3
    say_serving(stage, [out])
    stage.settle()
    assert stage.status()["roles"][0]["ready"] == 3


@pytest.mark.usefixtures("router")
def test_percentages_are_of_the_replicas_that_are_wanted(stage: Stage) -> None:
    """Surge is rounded up, what may be missing down: 2 and 1 of 4."""
    update = {"maxSurge": "30%", "maxUnavailable": "45%"}
    start(stage, 8, decode(replicas=4, update=update))
    stage.change(roles=[asks(decode("2", replicas=4, update=update))])
    hold(stage, "Readiness")
    assert images(stage.bound()) == {("decode", "1"): 3, ("decode", "2"): 3}


def test_partition_keeps_so_many_and_is_complete(stage: Stage) -> None:
    before = start(stage, 4, decode())
    stage.change(roles=[decode("2", update={"partition": 2})])
    hold(stage, "Partition")
    assert {label(pod, "replica") for pod in of(stage, "1")} == {"0", "1"}
    assert uids(of(stage, "1")) <= uids(before)
    assert stage.condition("Progressing")[2].startswith(
        "partitioned roll out complete: 1 of 3 replicas of decode (partition 2) are of revision "
    )
    stage.change(roles=[decode("2")])
    rolled(stage, "2", 3)


@pytest.mark.usefixtures("router")
def test_rollout_when_its_deadline_is_over_stands_still_until_another_is_asked_for(stage: Stage) -> None:
    start(stage, 5, decode(), rollout={"progressDeadlineSeconds": 60})
    stage.change(roles=[asks(decode("2"))])
    stage.advance(70)
    status, reason, message = stage.condition("Progressing")
    assert (status, reason) == ("False", "ProgressDeadlineExceeded")
    assert "no progress for 60 s" in message
    hold(stage, "Failed")
    assert images(stage.pods()) == {("decode", "1"): 3, ("decode", "2"): 1}
    stage.change(roles=[decode("3")])
    rolled(stage, "3", 3)


@pytest.mark.usefixtures("router")
def test_rollout_when_it_fails_is_taken_back_where_that_is_asked_for(stage: Stage) -> None:
    before = start(stage, 5, decode(), rollout={"progressDeadlineSeconds": 60, "onFailure": "Rollback"})
    stage.change(roles=[asks(decode("2"))])
    stage.advance(70)
    assert stage.condition("Progressing")[1] == "RolledBack"
    assert uids(stage.ready(3)) == uids(before)
    marks = [
        set(record["metadata"]["annotations"]) - {"covey.dev/revision-number"}
        for record in stage.owned("ControllerRevision")
    ]
    assert sorted(marks, key=str) == [{"covey.dev/completed"}, {"covey.dev/failed"}], "what was complete has not failed"


@pytest.mark.usefixtures("router")
def test_replica_when_it_is_lost_in_the_middle_comes_back_as_it_was(stage: Stage) -> None:
    """An old one as an old one, a new one as a new one; and scaling goes on."""
    start(stage, 6, decode())
    stage.change(roles=[asks(decode("2"))])
    hold(stage, "Readiness")
    lost = [of(stage, image)[0] for image in ("1", "2")]
    for pod in lost:
        stage.delete("Pod", name_of(pod), grace=0)
    stage.settle()
    assert images(stage.bound()) == {("decode", "1"): 3, ("decode", "2"): 1}
    assert not uids(stage.pods()) & uids(lost)
    revisions = {label(pod, "replica"): label(pod, "revision") for pod in stage.pods()}
    assert all(revisions[label(pod, "replica")] == label(pod, "revision") for pod in lost)
    stage.change(roles=[asks(decode("2", replicas=4))])
    stage.settle()
    assert len(stage.bound()) == 5
    while len(of(stage, "1")):
        say_serving(stage, of(stage, "2"))
        stage.settle()
    say_serving(stage, of(stage, "2"))
    rolled(stage, "2", 4)


def grove(image: str, units: int = 1, singles: int = 2, groups: int = 2) -> Object:
    """Grove's rolling updates: units with replicas of one pod and of two."""
    roles = [workers("a", replicas=singles, gpus=2), workers("sg", replicas=groups, size=2, gpus=2)]
    return {"replicas": units, "roles": [with_image({**role, "minReplicas": 1}, image) for role in roles]}


@pytest.mark.parametrize(
    ("scenario", "before", "after", "meanwhile"),
    [
        ("RU-11", {"units": 2, "groups": 1}, {"units": 3, "groups": 1}, True),
        ("RU-12", {"units": 2, "groups": 1}, {"units": 1, "groups": 1}, True),
        ("RU-14", {}, {"singles": 4, "groups": 3}, True),
        ("RU-15", {}, {"singles": 4, "groups": 3}, False),
        ("RU-16", {"singles": 3, "groups": 3}, {}, True),
        ("RU-17", {"singles": 3, "groups": 3}, {}, False),
    ],
)
def test_update_when_units_or_replicas_are_scaled_keeps_what_is_wanted(
    stage: Stage, scenario: str, before: Object, after: Object, *, meanwhile: bool
) -> None:
    """New replicas come before old ones go; a smaller number is in force at once."""
    assert scenario
    stage.nodes(nodes=6)
    spec = grove("1", **before)
    stage.create(*spec.pop("roles"), **spec)
    wanted = {"units": 1, "singles": 2, "groups": 2, **before}
    units = {label(pod, "unit") for pod in stage.ready(wanted["units"] * (wanted["singles"] + 2 * wanted["groups"]))}
    if meanwhile:
        stage.change(**grove("2", **before))
        stage.await_event(lambda: any(map(is_ready, of(stage, "2"))), "it has begun")
    stage.change(**grove("2", **after))
    wanted = {"units": 1, "singles": 2, "groups": 2, **after}
    pods = rolled(stage, "2", wanted["units"] * (wanted["singles"] + 2 * wanted["groups"]))
    # Which unit goes is decided by how far each has come, not by its index alone.
    kept = units & {label(pod, "unit") for pod in pods}
    assert len(kept) == min(before.get("units", 1), after.get("units", 1))
    for unit in kept:
        for role, size, key in (("a", 1, "singles"), ("sg", 2, "groups")):
            first, last = before.get(key, 2), after.get(key, 2)
            assert fewest_serving(stage, role, first, size=size, unit=unit) >= min(first, last)
