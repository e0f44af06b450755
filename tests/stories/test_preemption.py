"""Room and quota taken from others: the least that suffices, whole, within budgets, and for nobody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from builders.files import queue
from builders.manifests import Object, workers
from cluster.workbench import name_of, uid_of, uids
from covey.kube.resources import PRIORITY_CLASSES
from covey.scheduler.settings import OrdinaryPods
from localcluster.programs import ROOT
from scheduler_trees import GATE, SCHEDULER, node_of, resources
from soak.settings import CLASSES
from stage import Stage
from stage.play import INFERENCE, RACK

#: Nobody waits before room is taken, and nothing is spared for being young.
AT_ONCE: Final = {"delaySeconds": 0, "minRunSeconds": 0}
SERVING: Final = {"readinessGates": [{"conditionType": "covey.dev/serving"}]}
BOTH: Final = ("operator", "scheduler")
QUEUES: Final = "/apis/scheduling.covey.dev/v1alpha1/queues"
#: The right to evict pods of no gang.
RIGHTS: Final = ROOT / "manifests" / "components" / "ordinary-pods" / "rights.yaml"


@pytest.fixture(autouse=True)
def classes(stage: Stage) -> None:
    """A low and a high PriorityClass."""
    for name in ("low", "high"):
        stage.priority_class(name, CLASSES[name])
    # What gives way is below what the spec asks for.
    stage.excused.add("budget")


def create(stage: Stage, name: str, *roles: Object, priority: str = "low", **spec: Any) -> None:
    stage.create(*roles, name=name, **{"priorityClassName": priority, "preemption": AT_ONCE, **spec})


def decode(replicas: int, least: int = 1, **fields: Any) -> Object:
    """Replicas of one node each."""
    return workers("decode", replicas=replicas, minReplicas=least, **fields)


def busy(replicas: int, least: int = 1) -> Object:
    """The same, whose requests end when the story says so."""
    return decode(replicas, least, drainSeconds=3600, spec=SERVING)


def bound(stage: Stage, name: str) -> set[str]:
    """UIDs of the pods of a resource that have nodes, at rest."""
    stage.settle()
    return uids(stage.bound(inference=name))


def claim_of(stage: Stage, name: str = "chat") -> Object:
    """The claim of a resource at rest; empty where it has none."""
    stage.settle()
    return dict(stage.get("CompositePodGroup", f"{name}-0").get("status", {}).get("claim") or {})


def named(claim: Object) -> set[str]:
    """UIDs of the pods that a claim names."""
    return {uid for victim in claim["victims"] for uid in victim["pods"]}


def marked(stage: Stage, count: int) -> list[Object]:
    """The pods of batch that are to go once they are idle, at rest: so many."""
    stage.settle()
    pods = [pod for pod in stage.pods(inference="batch") if "covey.dev/draining" in pod["metadata"]["labels"]]
    assert len(pods) == count, stage.told()
    return pods


def say_idle(stage: Stage, *pods: Object) -> None:
    """Say as an engine does that nothing is under way."""
    for pod in pods:
        stage.patch("Pod", name_of(pod), {"metadata": {"annotations": {"covey.dev/in-flight": "0"}}})


def fill(stage: Stage, nodes: int, *roles: Object, name: str = "batch", **spec: Any) -> list[Object]:
    """Have so many nodes, and a resource of low priority on all of them; its pods."""
    stage.nodes(nodes=nodes)
    create(stage, name, *roles, **spec)
    return stage.ready(nodes, inference=name)


def test_surplus_of_lower_priority_gives_way_and_no_more_than_is_needed(stage: Stage) -> None:
    """volcano#5984: one is needed, one goes; its successor waits behind its gate, and gets room when there is some."""
    before = fill(stage, 5, decode(5, 2))
    create(stage, "chat", decode(1), priority="high")
    assert len(bound(stage, "chat")) == 1
    assert len(bound(stage, "batch") & uids(before)) == 4
    assert len(stage.pods(inference="batch")) == 5
    assert stage.event_notes("Preempted")
    assert stage.condition("Preempted", "batch")[:2] == ("True", "Preemption")
    assert not claim_of(stage)
    stage.nodes(nodes=6)
    stage.ready(5, inference="batch")


def test_unit_when_its_minimum_is_needed_gives_way_whole_and_comes_back_whole(stage: Stage) -> None:
    """kai#1579: never a part of a minimum; the unit is queued again and gets the room back."""
    before = fill(stage, 4, workers("prefill", size=2), decode(2, 2))
    create(stage, "chat", decode(1), priority="high")
    assert len(bound(stage, "chat")) == 1
    assert not bound(stage, "batch")
    assert len(stage.pods(inference="batch")) == 4
    assert not uids(stage.pods()) & uids(before)
    stage.delete(INFERENCE, "chat")
    stage.ready(4, inference="batch")


def test_gang_takes_the_rack_where_the_least_is_in_its_way(stage: Stage) -> None:
    """kueue#12478: two racks are full; the one with the surplus is taken, and the minimum in the other one stays."""
    in_one_rack: dict[str, Any] = {"topology": {"required": "rack"}}
    stage.nodes(racks=2, nodes=3)
    create(stage, "first", decode(3, 3), **in_one_rack)
    create(stage, "second", decode(3, 1), **in_one_rack)
    stage.ready(6)
    create(stage, "chat", decode(2, 2), priority="high", **in_one_rack)
    pods = stage.ready(2, inference="chat")
    assert len(stage.domains(pods, RACK)) == 1
    assert len(bound(stage, "first")) == 3
    assert len(bound(stage, "second")) == 1


def test_pods_that_are_not_in_the_way_stay(stage: Stage) -> None:
    """kueue#10497: one rack has a node of somebody who cannot go, and pods of no interest lie on all nodes."""
    names = stage.nodes(racks=2, nodes=2)
    other = stage.occupy(names[0])
    create(stage, "batch", decode(3, 1))
    router = workers("router", gpus=0, replicas=8, minReplicas=8)
    router["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "60"}}
    create(stage, "router", router)
    kept = uids(stage.ready(8, inference="router"))
    assert len(bound(stage, "batch")) == 3
    create(stage, "chat", decode(2, 2), priority="high", topology={"required": "rack"})
    assert {node_of(pod) for pod in stage.ready(2, inference="chat")} == set(names[2:])
    assert bound(stage, "router") == kept
    assert len(bound(stage, "batch")) == 1
    assert node_of(stage.get("Pod", other)) == names[0]


def test_unit_when_its_priority_class_is_deleted_keeps_the_priority_of_its_pods(stage: Stage) -> None:
    """The value of a class is changed by making it anew; for a moment who serves was below everybody."""
    before = fill(stage, 2, decode(2), priority="high")
    create(stage, "chat", decode(1), priority="low")
    stage.refusal("chat")
    stage.cluster.delete(f"{PRIORITY_CLASSES.path(None)}/high")
    stage.advance(900)
    assert stage.never("CompositePodGroup", lambda root: root.get("status", {}).get("claim", {}).get("victims"))
    assert bound(stage, "batch") == uids(before)


def test_unit_when_the_default_class_is_deleted_keeps_the_priority_of_its_pods(stage: Stage) -> None:
    path = PRIORITY_CLASSES.path(None)
    body = {"metadata": {"name": "usual"}, "value": CLASSES["high"], "globalDefault": True}
    stage.cluster.api("POST", path, body)
    stage.after(lambda: stage.cluster.delete(f"{path}/usual"))
    before = fill(stage, 2, decode(2), priorityClassName=None)
    create(stage, "chat", decode(1), priority="low")
    stage.refusal("chat")
    stage.cluster.delete(f"{path}/usual")
    stage.advance(900)
    assert stage.never("CompositePodGroup", lambda root: root.get("status", {}).get("claim", {}).get("victims"))
    assert bound(stage, "batch") == uids(before)


def test_victims_when_their_minimum_is_raised_stay_and_the_claim_begins_anew_at_once(stage: Stage) -> None:
    """Whoever is to give way could raise minReplicas each time, and be let alone."""
    before = fill(stage, 4, busy(4))
    create(stage, "chat", decode(2, 2), priority="high")
    assert named(claim_of(stage)) == uids(marked(stage, 2))
    stage.change("batch", roles=[busy(4, 4)])
    stage.settle()
    assert [victim["kind"] for victim in claim_of(stage)["victims"]] == ["Unit"], claim_of(stage)
    say_idle(stage, *before)
    assert len(bound(stage, "chat")) == 2
    assert not bound(stage, "batch") & uids(before)


def test_unit_when_its_minimum_is_raised_gets_back_what_it_loses_and_then_takes_the_rest(stage: Stage) -> None:
    """What it was refused is its right all the same, once it has what it had."""
    stage.nodes(nodes=4)
    create(stage, "batch", decode(1))
    later = {"delaySeconds": 600, "minRunSeconds": 0}
    create(stage, "chat", decode(3, 2), priority="high", preemption=later)
    before = stage.ready(4)
    stage.change("chat", roles=[decode(4, 4)])
    stage.settle()
    lost = next(pod for pod in before if pod["metadata"]["labels"]["covey.dev/inference"] == "chat")
    stage.delete("Pod", name_of(lost))
    assert len(bound(stage, "chat")) == 3
    assert len(bound(stage, "batch")) == 1
    stage.advance(900)
    assert len(bound(stage, "chat")) == 4
    assert not bound(stage, "batch")


def test_victims_when_the_beneficiary_goes_are_pardoned_but_for_those_that_went(stage: Stage) -> None:
    before = fill(stage, 3, busy(3))
    create(stage, "chat", decode(2, 2), priority="high")
    first, _ = marked(stage, 2)
    assert {"covey.dev/claimed-by"} <= first["metadata"]["annotations"].keys()
    say_idle(stage, first)
    stage.settle()
    assert uid_of(first) not in uids(stage.all("Pod"))
    stage.delete(INFERENCE, "chat")
    after = uids(stage.ready(3, inference="batch"))
    assert uids(before) - after == {uid_of(first)}
    assert not marked(stage, 0)


@pytest.mark.parametrize("killed", [("operator",), ("scheduler",), BOTH, ("kube-scheduler",)])
def test_processes_when_they_are_killed_before_each_deletion_take_no_more_than_the_claim(
    stage: Stage, killed: tuple[str, ...]
) -> None:
    """Between the claim and every deletion (L5)."""
    before = fill(stage, 4, busy(4))
    create(stage, "chat", decode(3, 3), priority="high")
    victims = named(claim_of(stage))
    for left in (3, 2, 1):
        if killed == ("kube-scheduler",):
            with stage.away(*killed):
                pass
        else:
            stage.ground.kill(*killed)
            stage.ground.start()
        going = marked(stage, left)
        assert uids(going) <= victims
        say_idle(stage, going[0])
    stage.ready(3, inference="chat")
    assert uids(before) - bound(stage, "batch") == victims


@pytest.mark.parametrize("denied", ["mark", "delete"])
def test_victim_when_the_operator_is_denied_its_mark_or_its_deletion_goes_later(stage: Stage, denied: str) -> None:
    before = fill(stage, 3, busy(3))
    verbs = {"mark": ("patch", "update"), "delete": ("delete",)}[denied]
    denial = stage.deny("operator", verbs=verbs, resources=("pods",), times=3)
    create(stage, "chat", decode(1), priority="high")
    stage.advance(120)
    victims = named(claim_of(stage))
    say_idle(stage, *marked(stage, 1))
    stage.advance(120)
    assert len(denial.denied) == 3
    stage.ready(1, inference="chat")
    assert uids(before) - bound(stage, "batch") == victims


def thieves(stage: Stage) -> list[str]:
    """Names of those who have got a node before chat."""
    return [name_of(pod) for pod in [*stage.pods(inference="thief"), stage.get("Pod", "passer-by")] if node_of(pod)]


def wait_for_chat(stage: Stage) -> list[Object]:
    """Three nodes are full, and chat wants two of them; a gang and a pod that want one each wait as well."""
    before = fill(stage, 3, busy(3))
    create(stage, "thief", decode(1), preemption={"delaySeconds": 3600, "minRunSeconds": 0})
    container = {"name": "c", "image": "registry.test/c:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"schedulerName": SCHEDULER, "containers": [container], "terminationGracePeriodSeconds": 0}
    stage.cluster.api("POST", stage.path("Pod"), {"metadata": {"name": "passer-by"}, "spec": spec})
    stage.refusal("thief")
    create(stage, "chat", decode(2, 2), priority="high")
    return before


def test_room_that_a_claim_frees_is_for_nobody_else(stage: Stage) -> None:
    before = wait_for_chat(stage)
    for pod in marked(stage, 2):
        assert not thieves(stage)
        say_idle(stage, pod)
        stage.settle()
    stage.ready(2, inference="chat")
    assert not thieves(stage)
    assert len(bound(stage, "batch") & uids(before)) == 1


def test_room_that_is_freed_without_a_claim_is_for_who_comes_first(stage: Stage) -> None:
    """The same by hand, as an administrator would do it: this is how many thefts the claim prevents."""
    stage.restart(scheduler={"max_preemptions_per_minute": 0, "max_reservations": 0})
    wait_for_chat(stage)
    stage.change("batch", roles=[busy(1)])
    for number, pod in enumerate(marked(stage, 2), start=1):
        say_idle(stage, pod)
        # kube-scheduler tries a pod again that it has refused when its own clock says so.
        stage.await_event(lambda number=number: len(thieves(stage)) >= number, f"{number} have come first")
        stage.settle()
        assert len(thieves(stage)) == number
    assert not bound(stage, "chat")


def test_tree_of_another_controller_takes_room_after_the_minute_that_it_cannot_change(stage: Stage) -> None:
    """Nothing of it has a label of the operator, which obeys its claim all the same, also after a restart."""
    before = fill(stage, 4, decode(4, 1))
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "desiredCount": 2, "priorityClassName": "high"}
    kind = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "PodGroup"}
    stage.cluster.api("POST", stage.path("PodGroup"), {**kind, "metadata": {"name": "theirs"}, "spec": spec})
    for number in range(2):
        metadata = {"name": f"theirs-{number}", "labels": {"scheduling.covey.dev/pod-group": "theirs"}}
        pod = {
            "schedulerName": SCHEDULER,
            "schedulingGates": [{"name": GATE}],
            "priorityClassName": "high",
            "terminationGracePeriodSeconds": 0,
            "containers": [resources(8)],
        }
        stage.cluster.api("POST", stage.path("Pod"), {"metadata": metadata, "spec": pod})
    stage.settle()
    assert bound(stage, "batch") == uids(before)
    stage.kill_now("operator")
    stage.advance(70)
    assert all(node_of(stage.get("Pod", f"theirs-{number}")) for number in range(2))
    assert len(bound(stage, "batch") & uids(before)) == 2
    assert f"gave way to {stage.namespace}/theirs" in stage.condition("Preempted", "batch")[2]


# Quota


MakeQueue = Callable[[str, int], str]


@pytest.fixture
def queues(stage: Stage) -> MakeQueue:
    """Makes Queues of one cohort for the namespace, in devices."""
    selector = {"selector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}}

    def make(name: str, nominal: int) -> str:
        stage.cluster.api("POST", QUEUES, queue(name, nominal, cohort="reclaim", namespaces=selector))
        stage.after(lambda: stage.cluster.delete(f"{QUEUES}/{name}"))
        return name

    return make


def test_quota_that_is_borrowed_comes_back_exactly_as_much_as_is_needed(stage: Stage, queues: MakeQueue) -> None:
    """The nodes are idle, so that it is the quota alone that comes back; the condition of the borrower says so."""
    mine, other = queues("search", 32), queues("batch", 32)
    stage.nodes(nodes=12)
    create(stage, "borrower", decode(8, 2), queue=other)
    before = uids(stage.ready(8, inference="borrower"))
    create(stage, "owner", decode(2, 2), queue=mine)
    assert len(bound(stage, "owner")) == 2
    assert len(bound(stage, "borrower")) == len(bound(stage, "borrower") & before) == 6, "they do not borrow it again"
    assert len(stage.pods(inference="borrower")) == 8
    assert stage.condition("Preempted", "borrower")[:2] == ("True", "Reclaim")
    assert not claim_of(stage, "owner")
    stage.delete(INFERENCE, "owner")
    stage.ready(8, inference="borrower")


@pytest.mark.parametrize("kill", [False, True])
def test_room_that_is_borrowed_comes_back_too_whoever_is_killed_meanwhile(
    stage: Stage, queues: MakeQueue, *, kill: bool
) -> None:
    """There is quota for both, and not enough nodes."""
    mine, other = queues("search", 32), queues("batch", 16)
    queues("idle", 32)
    stage.nodes(nodes=4)
    create(stage, "borrower", busy(4), queue=other)
    before = uids(stage.ready(4, inference="borrower"))
    create(stage, "owner", decode(1), queue=mine)
    claim = claim_of(stage, "owner")
    assert claim["purpose"] == "Reclaim"
    if kill:
        stage.ground.kill(*BOTH)
        stage.ground.start()
    stage.settle()
    say_idle(stage, *(pod for pod in stage.pods() if uid_of(pod) in named(claim)))
    assert len(bound(stage, "owner")) == 1
    assert before - bound(stage, "borrower") == named(claim)


def test_two_queues_that_reclaim_from_each_other_come_to_rest(stage: Stage, queues: MakeQueue) -> None:
    """C7: each has borrowed, and then each wants its own back; afterwards nobody goes any more."""
    one, two = queues("one", 32), queues("two", 32)
    stage.nodes(nodes=8)
    create(stage, "first", decode(8), queue=one)
    stage.ready(8, inference="first")
    create(stage, "second", decode(7, 3), queue=two)
    stage.settle()
    create(stage, "third", decode(3, 3), queue=one)
    stage.settle()
    create(stage, "fourth", decode(1), queue=two)
    stage.advance(120)
    assert [len(bound(stage, name)) for name in ("first", "second", "third", "fourth")] == [1, 3, 3, 1]


def test_nominal_below_what_is_used_evicts_nobody(stage: Stage, queues: MakeQueue) -> None:
    """C6; its owner's minimum takes back only what is borrowed since."""
    queues("search", 16)
    other = queues("batch", 32)
    stage.nodes(nodes=6)
    create(stage, "borrower", decode(4, 2), queue=other)
    before = uids(stage.ready(4, inference="borrower"))
    flavors = [{"resources": [{"name": "nvidia.com/gpu", "nominal": 16}]}]
    stage.cluster.api("PATCH", f"{QUEUES}/{other}", {"spec": {"flavors": flavors}})
    create(stage, "waits", decode(1), queue=other)
    stage.refusal("waits", "OverQuota")
    assert bound(stage, "borrower") == before


# Pods of no gang


def run(stage: Stage, node: str, app: str, *, gpus: int = 8) -> str:
    """An ordinary pod on a node; returns its UID."""
    amounts = {"cpu": "100m"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "job", "image": "registry.test/job:1", "resources": {"limits": amounts}}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    body = {"metadata": {"name": f"{app}-{node}", "labels": {"app": app}}, "spec": spec}
    stage.settle()
    return uid_of(stage.cluster.api("POST", stage.path("Pod"), body))


def allow(stage: Stage, app: str, fewest: int, *, name: str = "") -> None:
    """A budget of an application's pods."""
    spec = {"minAvailable": fewest, "selector": {"matchLabels": {"app": app}}}
    stage.cluster.api("POST", stage.path("PodDisruptionBudget"), {"metadata": {"name": name or app}, "spec": spec})


def live(stage: Stage, app: str) -> set[str]:
    """UIDs of an application's pods, at rest."""
    stage.settle()
    return {uid_of(pod) for pod in stage.pods() if pod["metadata"].get("labels", {}).get("app") == app}


@pytest.fixture
def evicting(stage: Stage) -> None:
    """Ordinary pods may be victims."""
    stage.cluster.install_rbac(RIGHTS)
    stage.after(lambda: stage.cluster.kubectl("delete", "-f", str(RIGHTS)))
    stage.restart(scheduler={"preempt_ordinary_pods": OrdinaryPods.EVICT, "max_min_run": 0.0})


def test_ordinary_pods_stay_unless_the_cluster_says_otherwise(stage: Stage) -> None:
    [node] = stage.nodes(nodes=1)
    other = stage.occupy(node)
    create(stage, "chat", decode(1), priority="high")
    stage.refusal("chat")
    assert not claim_of(stage)
    stage.delete("Pod", other, grace=0)
    stage.ready(1, inference="chat")


@pytest.mark.usefixtures("evicting")
def test_ordinary_pods_in_the_way_are_evicted_and_others_are_not_touched(stage: Stage) -> None:
    """kueue#10497: the pods with the devices go, those beside them that take only processor time stay, and so does a third node."""
    names = stage.nodes(nodes=3)
    for node in names:
        run(stage, node, "web")
    beside = {run(stage, node, "agent", gpus=0) for node in names}
    create(stage, "chat", decode(2, 2), priority="high")
    stage.ready(2, inference="chat")
    assert len(live(stage, "web")) == 1
    assert live(stage, "agent") == beside
    assert any(f"priority {CLASSES['high']}" in note for note in stage.event_notes("Preempted"))


@pytest.mark.usefixtures("evicting")
def test_gang_when_a_budget_allows_none_goes_to_another_rack(stage: Stage) -> None:
    """The cheaper rack has a budget: nobody there is touched, and the dearer one is taken."""
    names = stage.nodes(racks=2, nodes=2)
    cheap, dear = names[:2], names[2:]
    kept = {run(stage, node, "web") for node in cheap}
    for node in dear:
        run(stage, node, "batch", gpus=4)
        run(stage, node, "more", gpus=4)
    allow(stage, "web", 2)
    stage.settle()
    create(stage, "chat", decode(2, 2), priority="high", topology={"required": "rack"})
    assert {node_of(pod) for pod in stage.ready(2, inference="chat")} == set(dear)
    assert live(stage, "web") == kept


@pytest.mark.usefixtures("evicting")
def test_nobody_is_touched_where_budgets_allow_none_or_two_cover_a_pod(stage: Stage) -> None:
    """429 for one, 500 for the other, though the plan would need both; the third could have gone, and stays too."""
    names = stage.nodes(nodes=3)
    kept = {run(stage, node, app) for node, app in zip(names, ("web", "twice", "free"), strict=True)}
    allow(stage, "web", 1)
    allow(stage, "twice", 0)
    allow(stage, "twice", 0, name="again")
    stage.settle()
    create(stage, "chat", decode(3, 3), priority="high")
    assert not claim_of(stage)
    refused = stage.get("CompositePodGroup", "chat-0")["metadata"]["annotations"]
    assert "scheduling.covey.dev/evictions-refused" in refused
    assert kept == live(stage, "web") | live(stage, "twice") | live(stage, "free")
    assert not bound(stage, "chat")


@pytest.mark.usefixtures("evicting")
@pytest.mark.parametrize("process", BOTH)
def test_process_when_it_dies_at_a_write_evicts_what_the_claim_names(stage: Stage, process: str) -> None:
    """The claim and the answers to evictions stand on API objects."""
    for node in stage.nodes(nodes=3):
        run(stage, node, "web")
    stage.settle()
    create(stage, "chat", decode(2, 2), priority="high")
    stage.kill(process, at=2)
    stage.ready(2, inference="chat")
    assert len(live(stage, "web")) == 1


# What is told of it


def preemptions(stage: Stage) -> list[Object]:
    """The Preemptions of the namespace, in the order in which they were made."""
    return sorted(stage.all("Preemption"), key=lambda item: item["metadata"]["creationTimestamp"])


def tale(stage: Stage) -> list[tuple[str, ...]]:
    """What has stood in turn of the Preemptions: the states of their victims, and how they ended."""
    lines = []
    for event in stage.history("Preemption"):
        status = event.object.get("status", {})
        states = (victim["state"] for victim in status.get("victims", ()))
        lines.append((*states, status.get("outcome", "")))
    return [line for number, line in enumerate(lines) if number == 0 or line != lines[number - 1]]


def test_preemption_tells_of_a_taking_before_anybody_is_touched_until_it_is_placed(stage: Stage) -> None:
    fill(stage, 3, busy(3))
    create(stage, "chat", decode(1), priority="high")
    victim = marked(stage, 1)
    table = stage.kubectl("get", "preemptions").splitlines()
    assert table[0].split() == ["NAME", "FOR", "REASON", "FROM", "GONE", "OUTCOME", "AGE"]
    assert f"Priority   1 replica of {stage.namespace}/batch   0/1" in table[1]
    say_idle(stage, *victim)
    stage.ready(1, inference="chat")
    stage.settle()
    lines = tale(stage)
    assert (lines[0], lines[-1]) == (("",), ("Gone", "Placed"))
    assert ("Draining", "") in lines
    assert stage.order(
        ("Preemption", lambda event: event.change == "ADDED"),
        ("CompositePodGroup", lambda event: event.object.get("status", {}).get("claim", {}).get("victims")),
        ("Pod", lambda event: "covey.dev/claimed-by" in event.object["metadata"].get("annotations", {})),
    )
    [told] = preemptions(stage)
    assert told["spec"]["beneficiary"]["name"] == "chat-0"
    assert told["spec"]["victims"][0]["name"].startswith("decode/")
    stage.advance(3700)
    assert not preemptions(stage)


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6])
def test_preemption_when_the_scheduler_dies_at_a_write_tells_of_one_taking_that_is_placed(
    stage: Stage, at: int
) -> None:
    before = fill(stage, 3, busy(3))
    death = stage.kill("scheduler", at)
    create(stage, "chat", decode(2, 2), priority="high")
    say_idle(stage, *marked(stage, 2))
    stage.ready(2, inference="chat")
    stage.settle()
    assert death.at
    assert [item["status"]["outcome"] for item in preemptions(stage)] == ["Placed"]
    [victims] = [item["status"]["victims"] for item in preemptions(stage)]
    assert {victim["uid"] for victim in victims} == uids(before) - bound(stage, "batch")


def test_preemption_when_the_operator_dies_before_each_deletion_tells_of_it_still(stage: Stage) -> None:
    fill(stage, 3, busy(3))
    create(stage, "chat", decode(2, 2), priority="high")
    for left in (2, 1):
        stage.ground.kill("operator")
        stage.ground.start()
        say_idle(stage, marked(stage, left)[0])
    stage.ready(2, inference="chat")
    stage.settle()
    assert [(item["status"]["progress"], item["status"]["outcome"]) for item in preemptions(stage)] == [
        ("2/2", "Placed")
    ]


def test_preemption_when_its_beneficiary_is_deleted_goes_with_it(stage: Stage) -> None:
    before = fill(stage, 3, busy(3))
    create(stage, "chat", decode(2, 2), priority="high")
    marked(stage, 2)
    stage.delete(INFERENCE, "chat")
    assert uids(stage.ready(3, inference="batch")) == uids(before)
    stage.await_event(lambda: not preemptions(stage), "the garbage collector has looked at it")


@pytest.mark.usefixtures("evicting")
def test_preemption_when_a_budget_allows_none_is_given_up_and_another_is_placed(stage: Stage) -> None:
    names = stage.nodes(nodes=2)
    kept = run(stage, names[0], "web")
    run(stage, names[1], "free", gpus=4)
    run(stage, names[1], "more", gpus=4)
    allow(stage, "web", 1)
    stage.settle()
    create(stage, "chat", decode(1), priority="high")
    stage.ready(1, inference="chat")
    stage.settle()
    ends = {(item["status"]["outcome"], item["status"]["reason"]) for item in preemptions(stage)}
    assert ends == {("GivenUp", "Refused"), ("Placed", "Placed")}
    refused = next(item for item in preemptions(stage) if item["status"]["outcome"] == "GivenUp")
    assert [(victim["uid"], victim["state"]) for victim in refused["status"]["victims"]] == [(kept, "Refused")]
    assert live(stage, "web") == {kept}
