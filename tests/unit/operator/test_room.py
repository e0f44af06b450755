"""Gangs are let go by the free room: nothing that does not fit whole, and one after another."""

from __future__ import annotations

import asyncio

import msgspec

from builders import inferences
from builders.inferences import template
from builders.requests import make_node
from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.backends import ReplicaProgress
from covey.backends.kubernetes import Flat
from covey.compile import Slot
from covey.kube.clock import Clock
from covey.operator.observe.room import ClusterRoom, RoomView
from covey.operator.observe.watched import Key

GPUS = {"containers": [{"name": "engine", "image": "e", "resources": {"requests": {"nvidia.com/gpu": "8"}}}]}
TOPOLOGY = msgspec.convert(
    {
        "metadata": {"name": "dc"},
        "spec": {"levels": [{"name": "rack", "keys": ["rack"]}, {"name": "host", "keys": ["kubernetes.io/hostname"]}]},
    },
    core.ClusterTopology,
)


class Ground:
    """A room whose watches are fed by hand."""

    def __init__(self, *nodes: core.Node) -> None:
        self.woken: list[Key] = []
        self.now = 0.0
        self.room = ClusterRoom(None, lambda: (TOPOLOGY,), self.woken.append, clock=Clock(lambda: self.now))  # type: ignore[arg-type] # nothing is asked
        for node in nodes:
            self.room._on_node("ADDED", node, None)
        self.room.nodes.synced.set()
        self.room.pods.synced.set()

    def view(self, name: str = "llama") -> RoomView:
        found = self.room.view(("ml", name))
        assert found is not None
        return found

    def see(self, *pods: core.Pod) -> None:
        for pod in pods:
            self.room._on_pod("ADDED", pod, None)

    def go(self, pod: core.Pod) -> None:
        self.room._on_pod("DELETED", pod, None)

    def wake(self) -> list[Key]:
        self.woken.clear()
        asyncio.run(self.room.wake())
        return list(self.woken)


def llama(name: str = "llama", *, size: int = 1, level: str | None = None) -> DisaggregatedInference:
    """Four replicas of each role, whose pods take whole nodes."""
    whole = {"replicas": 4, "template": template(**GPUS)}
    topology = {"topology": {"required": level}} if level else {}
    return inferences.llama({**whole, "size": size, **topology}, whole, name=name, uid=f"uid-{name}")


def pods_of(wanted: DisaggregatedInference) -> dict[Slot, core.Pod]:
    """As kubelet and API server know them: gated, with the membership of the dialect."""
    tree = Flat("1.36").compile(wanted)
    found = {}
    for slot in tree.slots:
        body = tree.pods.build_named(slot, f"{tree.owner.name}-{slot.unit}-{slot.role}-{slot.replica}-{slot.index}")
        body["metadata"]["uid"] = f"uid-{body['metadata']['name']}"
        found[slot] = msgspec.convert(body, core.Pod)
    return found


def replica(
    pods: dict[Slot, core.Pod], name: str, number: int = 0, *, size: int = 1, minimum: bool = True
) -> ReplicaProgress:
    slots = tuple(Slot(0, name, number, index) for index in range(size))
    mine = tuple(pods[slot] for slot in slots)
    gone = all(names.GATE_GANG not in core.gates(pod) for pod in mine)
    bound = all(pod.spec.node_name for pod in mine)
    return ReplicaProgress(slots, minimum, is_complete=True, is_let_go=gone, is_bound=bound, pods=mine)


def let_go(pod: core.Pod, node: str | None = None) -> core.Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=None, node_name=node))


def test_the_first_of_a_rollout_is_asked_for_by_itself() -> None:
    """It carries the mark of a set that comes together, of which it is one; the other has been let go before."""
    wanted = llama()
    pods = pods_of(wanted)
    mark = {names.LABEL_TOGETHER: "rev", names.LABEL_TOGETHER_COUNT: "2"}
    slot = Slot(0, "decode", 3, 0)
    metadata = pods[slot].metadata
    marked = msgspec.structs.replace(metadata, labels={**(metadata.labels or {}), **mark})
    pods[slot] = msgspec.structs.replace(pods[slot], metadata=marked)
    assert Ground(make_node("n1")).view().lacks(wanted, [replica(pods, "decode", 3, minimum=False)]) is None


def test_a_required_level_counts() -> None:
    wanted = llama(size=2, level="rack")
    pods = pods_of(wanted)
    minimum = [replica(pods, "prefill", size=2), replica(pods, "decode")]
    apart = [make_node(f"n{number}", labels={"rack": f"r{number}"}) for number in range(3)]
    assert Ground(*apart).view().lacks(wanted, minimum) is not None
    near = [make_node(f"n{number}", labels={"rack": f"r{number // 2}"}) for number in range(3)]
    view = Ground(*near).view()
    assert view.lacks(wanted, minimum) is None
    # Whoever binds them is told which rack; also of a pod that may go anywhere, lest it takes the others' room.
    assert [view.domain_labels(slot) for slot in minimum[0].slots] == [{"rack": "r0"}] * 2
    assert view.domain_labels(minimum[1].slots[0]) == {"rack": "r1"}


def test_a_pod_that_another_gate_holds_is_not_let_go() -> None:
    wanted = llama()
    pods = pods_of(wanted)
    slot = Slot(0, "decode", 0, 0)
    gates = (core.SchedulingGate(names.GATE_GANG), core.SchedulingGate("example.com/quota"))
    pods[slot] = msgspec.structs.replace(
        pods[slot], spec=msgspec.structs.replace(pods[slot].spec, scheduling_gates=gates)
    )
    lacks = (
        Ground(make_node("n1"), make_node("n2"))
        .view()
        .lacks(wanted, [replica(pods, "prefill"), replica(pods, "decode")])
    )
    assert lacks is not None
    assert "example.com/quota" in lacks


def ask(ground: Ground, name: str) -> str | None:
    """A pass over a resource whose minimum is two pods of 8 GPUs."""
    wanted = llama(name)
    pods = pods_of(wanted)
    return ground.view(name).lacks(wanted, [replica(pods, "prefill"), replica(pods, "decode")])


def taken(number: int) -> core.Pod:
    pod = pods_of(llama("taker"))[Slot(0, "prefill", 0, 0)]
    meta = msgspec.structs.replace(pod.metadata, uid=f"taker-{number}", name=f"taker-{number}")
    return msgspec.structs.replace(let_go(pod, f"n{number}"), metadata=meta)


def test_a_freed_node_wakes_one_of_many_and_only_when_it_helps() -> None:
    ground = Ground(*(make_node(f"n{number}") for number in range(3)))
    takers = [taken(number) for number in range(3)]
    ground.see(*takers)
    names_ = [f"w{number}" for number in range(100)]
    assert all(ask(ground, name) is not None for name in names_)
    ground.wake()
    ground.go(takers[0])
    assert ground.wake() == [], "one node is too little for two pods"
    ground.go(takers[1])
    assert ground.wake() == [("ml", "w0")]
    assert ask(ground, "w0") is None
    # Room was found: the next that asks for the same may find it too.
    assert ground.wake() == [("ml", "w1")]
    assert ask(ground, "w1") is not None
    assert ground.wake() == []
