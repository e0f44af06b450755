"""The live tree and the usage of levels, from objects alone."""

import io
from typing import Any

import pytest
from rich.console import Console

from builders.files import covey, inference, role
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.api.status import DisaggregatedInferenceStatus as Status
from covey.cli.render.live import print_advice, print_branch, print_headroom
from covey.compile import compile_inference
from covey.manifests.documents import convert
from covey.watching.advice import Advice, advise
from covey.watching.status_tree import StatusTree, TreeState, branches_with_reason, grow

UID = "uid-of-llm"


class World:
    """A resource with two roles as it is on the API server right after it was expanded; tests then change pods."""

    def __init__(self, **spec: Any) -> None:
        body = inference("llm", role("prefill", 2, 1, size=2), role("decode", 1, 1), namespace="default", **spec)
        body["metadata"] |= {"uid": UID, "generation": 1}
        body["status"] = {"observedGeneration": 1}
        self.inference = DisaggregatedInference.model_validate(body)
        objects = list(compile_inference(self.inference).objects())
        self.groups = {each["metadata"]["name"]: each for each in objects if each["kind"].endswith("PodGroup")}
        self.pods = {each["metadata"]["name"]: each for each in objects if each["kind"] == "Pod"}
        for name, each in [*self.pods.items(), *self.groups.items()]:
            each["metadata"]["uid"] = name

    def condition(self, group: str, kind: str, status: str, reason: str, message: str = "") -> None:
        found = {"type": kind, "status": status, "reason": reason, "message": message}
        self.groups[group].setdefault("status", {}).setdefault("conditions", []).append(found)

    def pin(self, name: str, node: str) -> None:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        spec = self.pods[name]["spec"]
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        spec["schedulingGates"] = []
        marks = self.pods[name]["metadata"].setdefault("annotations", {})
        marks["scheduling.covey.dev/pinned"] = self.pods[name]["metadata"]["uid"]

    def bind(self, name: str, node: str, *, ready: bool = True) -> None:
        self.pin(name, node)
        self.pods[name]["spec"]["nodeName"] = node
        condition = {
            "type": "Ready",
            "status": str(ready),
            "message": "" if ready else "containers with unready status",
        }
        self.pods[name]["status"] = {"phase": "Running" if ready else "Pending", "conditions": [condition]}

    def bind_all(self) -> None:
        for number, name in enumerate(self.pods):
            self.bind(name, f"n{number}")
        self.condition("llm-0", "Admitted", "True", "Admitted")

    def tree(self) -> StatusTree:
        groups = [convert(each, core.Group) for each in self.groups.values()]
        pods = [convert(each, core.Pod) for each in self.pods.values()]
        return grow(self.inference, groups, pods, lambda nodes: f"on {len(nodes)} nodes" if nodes else "")

    def reasons(self) -> str:
        return " | ".join(f"{each.kind} {each.name}: {each.reason}" for each in branches_with_reason(self.tree()))


def at(branch: StatusTree, *names: str) -> StatusTree:
    for name in names:
        (branch,) = [child for child in branch.children if child.name == name]
    return branch


def test_what_the_scheduler_refused_stands_at_the_unit() -> None:
    world = World()
    world.condition("llm-0", "Admitted", "False", "Infeasible", "decode: no rack has room")
    tree = world.tree()
    assert tree.state is TreeState.WAITING
    assert at(tree, "0").reason == "Infeasible: decode: no rack has room"
    assert at(tree, "0", "decode", "0").children[0].reason == "no node yet"


def test_unit_that_serves_before_the_scheduler_process_has_said_so_is_not_said_to_wait() -> None:
    world = World()
    world.bind_all()
    world.groups["llm-0"].pop("status")
    tree = world.tree()
    assert (tree.ready, tree.state) == (1, TreeState.READY)
    assert not world.reasons()


def test_a_gang_that_the_barrier_holds() -> None:
    world = World()
    world.condition("llm-0", "Admitted", "True", "Admitted")
    world.bind("llm-0-prefill-0-0", "n0")
    world.pin("llm-0-prefill-0-1", "n1")
    world.pin("llm-0-decode-0-0", "n2")
    unit = at(world.tree(), "0")
    assert unit.state is TreeState.HELD
    assert "1 bound, 3 of 5 pods are assigned nodes" in unit.reason
    held = at(unit, "decode", "0").children[0]
    assert (held.state, held.reason) == (
        TreeState.HELD,
        "is assigned to n2; it is bound when its whole gang has arrived",
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {"started": False, "state": {"running": {}}},
            "container engine runs, and its startup probe has not passed yet",
        ),
        (
            {
                "started": True,
                "state": {"running": {}},
                "restartCount": 1,
                "lastState": {"terminated": {"exitCode": 0}},
            },
            "container engine runs, and its readiness probe does not pass, restarted 1 time",
        ),
        (
            {
                "restartCount": 5,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            },
            "container engine waits: CrashLoopBackOff, ended with exit code 137 (OOMKilled), restarted 5 times",
        ),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, "pending: containers with unready status"),
    ],
    ids=["startup probe", "readiness probe", "crash", "creating"],
)
def test_pod_that_is_not_ready_says_what_each_container_waits_for(status: dict[str, Any], words: str) -> None:
    world = World()
    world.bind_all()
    name = "llm-0-decode-0-0"
    world.bind(name, "n9", ready=False)
    world.pods[name]["spec"]["containers"][0] |= {"startupProbe": {"exec": {}}, "readinessProbe": {"exec": {}}}
    world.pods[name]["status"]["containerStatuses"] = [{"name": "engine", "ready": False, **status}]
    assert at(world.tree(), "0", "decode", "0", name).reason.endswith(words)


def test_surplus_that_waits_does_not_make_a_unit_wait() -> None:
    world = World()
    world.bind_all()
    for name in ("llm-0-prefill-1-0", "llm-0-prefill-1-1"):
        world.pods[name]["spec"].pop("nodeName")
        world.pods[name]["spec"].pop("affinity")
        world.pods[name]["spec"]["schedulingGates"] = [{"name": "scheduling.covey.dev/gang"}]
    tree = world.tree()
    assert (tree.state, tree.ready) == (TreeState.SERVING, 1)
    assert at(tree, "0", "prefill", "1").state is TreeState.WAITING
    out = io.StringIO()
    print_branch(tree, Console(file=out, width=200), whole=False)
    assert "2 pods, such as llm-0-prefill-1-0  no node yet" in out.getvalue()
    assert "decode" in out.getvalue()
    assert "llm-0-decode-0-0" not in out.getvalue()


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({"gates": ["example.com/quota"]}, TreeState.HELD, "held by the scheduling gate example.com/quota"),
        ({"gates": ["scheduling.covey.dev/start"], "pin": True}, TreeState.HELD, "its start is held"),
        (
            {"pin": True, "unschedulable": "0/1 nodes"},
            TreeState.FAILED,
            "cannot be scheduled where it was planned: 0/1",
        ),
        ({"gates": []}, TreeState.FAILED, "lost its scheduling gate"),
        ({"bound": True}, TreeState.STARTING, "pending: containers with unready status"),
    ],
)
def test_what_holds_a_pod(change: dict[str, Any], state: TreeState, words: str) -> None:
    world = World()
    name = "llm-0-decode-0-0"
    if change.get("pin"):
        world.pin(name, "n0")
    if change.get("bound"):
        world.bind(name, "n0", ready=False)
    if "gates" in change:
        world.pods[name]["spec"]["schedulingGates"] = [{"name": gate} for gate in change["gates"]]
    if "unschedulable" in change:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
        world.pods[name]["status"] = {"conditions": [condition]}
    found = at(world.tree(), "0", "decode", "0").children[0]
    assert found.state is state
    assert words in found.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "it is being deleted"),
        ({"metadata": {"annotations": {"scheduling.covey.dev/release": "Timeout"}}}, "its node was undone (Timeout)"),
        ({"status": {"phase": "Failed"}}, "it has ended (Failed)"),
    ],
)
def test_a_pod_on_its_way_out_leaves_a_gap_with_a_reason(change: dict[str, Any], words: str) -> None:
    world = World()
    body = world.pods["llm-0-prefill-0-1"]
    body["metadata"] |= change.get("metadata", {})
    body["status"] = change.get("status", {})
    reason = at(world.tree(), "0", "prefill", "0").reason
    assert reason.startswith("1 of 2 pods exist; llm-0-prefill-0-1: ")
    assert words in reason


@pytest.mark.parametrize("whole", [True, False])
def test_the_tree_on_a_terminal(whole: bool) -> None:  # noqa: FBT001 - a parameter
    world = World()
    world.bind_all()
    world.bind("llm-0-decode-0-0", "n4", ready=False)
    out = io.StringIO()
    print_branch(world.tree(), Console(file=out, width=200, highlight=False), whole=whole)
    text = out.getvalue()
    assert "default/llm  0/1 units serve" in text
    assert "pending: containers with unready status" in text
    assert ("llm-0-prefill-0-0" in text) == whole


def condition(kind: str, status: str, reason: str, message: str = "so it is") -> dict[str, str]:
    at_last = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at_last}


def advised(world: World, *conditions: dict[str, str], **status: Any) -> list[str]:
    body = world.inference.as_object() | {"status": {"conditions": list(conditions), **status}}
    world.inference = DisaggregatedInference.model_validate(body)
    pods = [convert(each, core.Pod) for each in world.pods.values()]
    return [each.reason for each in advise(world.inference, pods)]


WELL = (
    condition("Ready", "True", "Ready"),
    condition("Admitted", "True", "Admitted"),
    condition("Progressing", "True", "Complete"),
    condition("Degraded", "False", "AsExpected"),
)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"observedGeneration": -1}, "no operator has looked at it yet"),
        (None, "no operator has looked at it yet"),
        ({"observedGeneration": 0, "conditions": list(WELL)}, "no operator has looked at its new spec yet"),
        ({"observedGeneration": 1, "conditions": list(WELL)}, ""),
    ],
)
def test_resource_whose_spec_no_operator_has_seen_says_so(status: dict[str, Any] | None, words: str) -> None:
    world = World()
    world.bind_all()
    found = Status.model_validate(status) if status is not None else None
    world.inference = world.inference.model_copy(update={"status": found})
    assert world.tree().reason == words


def test_advice_begins_with_what_only_a_person_can_mend() -> None:
    world = World()
    found = advised(
        world,
        condition("Admitted", "False", "PartiallyAdmitted"),
        condition("Progressing", "True", "Waiting"),
        condition("Ready", "False", "ProgressDeadlineExceeded"),
        condition("Stalled", "True", "ProgressDeadlineExceeded"),
        condition("TopologySatisfied", "False", "NotReached"),
        condition("Paused", "True", "RolloutPaused"),
        rollout={"hold": {"gate": "Failed", "message": "no progress"}},
        unitStatuses=[{"unit": 1, "phase": "Pending", "reason": "Infeasible"}, {"unit": 0, "reason": "Ready"}],
    )
    # The gate of the hold means what the condition says already.
    assert found == [
        "ProgressDeadlineExceeded",
        "PartiallyAdmitted",
        "NotReached",
        "RolloutPaused",
        "Infeasible",
    ]


@pytest.mark.parametrize("reason", ["Infeasible", "QuotaExceeded", "InvalidTopology"])
def test_advice_of_what_is_refused_sends_nobody_to_the_scheduler_process(reason: str) -> None:
    conditions = [condition(kind, "False", reason) for kind in ("Ready", "Admitted")]
    conditions += [condition(kind, "False", "Waiting") for kind in ("Scheduled", "Available", "MinimumMet")]
    assert advised(World(), *conditions, condition("Progressing", "True", "Waiting")) == [reason]


def test_advice_of_what_nobody_has_decided_on_names_the_scheduler_process() -> None:
    conditions = [condition(kind, "False", "Waiting") for kind in ("Ready", "Admitted", "MinimumMet")]
    assert advised(World(), *conditions, condition("Progressing", "True", "Waiting")) == ["Waiting"]


def test_every_condition_that_is_wrong_stands_at_the_top_once() -> None:
    world = World()
    world.bind_all()
    advised(
        world,
        condition("Ready", "False", "RolledBack", "it was taken back"),
        condition("Stalled", "True", "RolledBack", "it was taken back"),
        condition("Degraded", "True", "GroupsIgnored", "nobody heeds them"),
    )
    assert world.tree().reason == "RolledBack: it was taken back; GroupsIgnored: nobody heeds them"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Preempting", "takes decode/3 of ml/chat"),
        ("Preempted", "decode/3 of unit 0 gave way to prod/llama (priority 9)"),
    ],
)
def test_a_claim_is_explained_on_both_sides(kind: str, message: str) -> None:
    world = World()
    world.bind_all()
    assert advised(world, *WELL, condition(kind, "True", "Preemption", message)) == ["Preemption"]
    assert world.tree().reason == f"Preemption: {message}"


def test_advice_on_a_terminal() -> None:
    out = io.StringIO()
    advice = (Advice("Infeasible", "No place is free.", "Free one."), Advice("Starting", "Pods are starting."))
    print_advice(advice, Console(file=out, width=80, highlight=False))
    assert out.getvalue() == "\nInfeasible  No place is free.\n  → Free one.\n\nStarting  Pods are starting.\n"


def test_headroom_is_told_where_it_is_known() -> None:
    world, out = World(), io.StringIO()
    console = Console(file=out, width=80, highlight=False)
    print_headroom(world.inference, console)
    rows = [{"name": "prefill", "admitted": 2, "maxFeasible": 1200}, {"name": "decode"}]
    status = {
        "headroom": {"asked": "now", "observedAt": "2026-01-01T00:00:00Z", "message": "decode: nobody knows"},
        "roles": rows,
    }
    print_headroom(world.inference.model_copy(update={"status": Status.model_validate(status)}), console)
    assert out.getvalue() == (
        "\nhead-room  as of 2026-01-01T00:00:00Z\n  prefill  1,200 replicas could be assigned nodes, 2 are\n"
        "  decode: nobody knows\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("explain", ""), "NAME: is empty"),
        (("explain", "dinf/"), "NAME: is empty"),
        (("status", ""), "NAME: is empty"),
        (("status", "llm", "-A"), "-A: means all there are, but one is named"),
    ],
)
def test_a_name_that_names_nothing_is_refused_before_a_cluster_is_asked(arguments: tuple[str, ...], words: str) -> None:
    result = covey(*arguments)
    assert (result.exit_code, words in result.stderr) == (2, True), result.output
