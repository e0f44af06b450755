"""Which nodes are to be empty, for whom, and who of a resource has to leave."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builders.inferences import inference, role
from builders.pods import pod
from covey.api import core
from covey.kube.clock import Clock
from covey.operator.model.node_drain import Notice, notice_of
from covey.operator.observe.nodes import Nodes
from covey.operator.rolling.leaving import find_leaving
from unit.operator.world import World

DRAIN = "covey.dev/drain"
ENDING = "ToBeDeletedByClusterAutoscaler"
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"


def node(name: str = "a", *taints: str, cordoned: bool = False, **metadata: Any) -> core.Node:
    """A node; taints as kubectl writes them."""
    found = []
    for text in taints:
        pair, _, effect = text.rpartition(":")
        key, _, value = pair.partition("=")
        found.append({"key": key, "value": value, "effect": effect})
    spec = {"taints": found, "unschedulable": cordoned}
    return msgspec.convert({"metadata": {"name": name, **metadata}, "spec": spec}, core.Node)


def drives(found: core.Node, *tolerations: dict[str, Any]) -> str:
    notice = notice_of(found, evacuations=["team"])
    return notice.drives(pod(spec={"tolerations": tolerations})) if notice is not None else ""


EVERYTHING = {"operator": "Exists"}


@pytest.mark.parametrize(
    ("found", "tolerations", "why"),
    [
        (node(), (), ""),
        (node(cordoned=True), (EVERYTHING,), "cordoned"),
        (node(cordoned=True, annotations={DRAIN: "true"}), (EVERYTHING,), "to be drained"),
        (node(annotations={DRAIN: "true"}), (), ""),
        (node("a", f"{ENDING}=1:NoSchedule", cordoned=True), (), f"taint {ENDING}:NoSchedule"),
        (node("a", "team=x:NoSchedule"), (), "taint team:NoSchedule"),
        (node("a", "team=x:NoSchedule"), ({"key": "team", "operator": "Exists"},), ""),
        (node("a", "team=x:NoSchedule"), ({"key": "team", "value": "y"},), "taint team:NoSchedule"),
        (node("a", "team=x:PreferNoSchedule"), (), ""),
        # Agents set such around their own restarts.
        (node("a", "node.cilium.io/agent-not-ready:NoSchedule"), (), ""),
        # Who does not tolerate it has been deleted already.
        (node("a", "bad=x:NoExecute"), (), ""),
        (node("a", "bad=x:NoExecute"), (EVERYTHING,), ""),
        (node("a", "bad=x:NoExecute"), ({**EVERYTHING, "tolerationSeconds": 600},), "taint bad:NoExecute"),
        (node("a", f"{ENDING}=1:NoSchedule"), (EVERYTHING,), f"taint {ENDING}:NoSchedule"),
        (node("a", "karpenter.sh/disrupted:NoSchedule"), (EVERYTHING,), "taint karpenter.sh/disrupted:NoSchedule"),
        (node("a", "node.kubernetes.io/memory-pressure:NoSchedule"), (), ""),
        (node("a", "node.kubernetes.io/unreachable:NoExecute"), ({**EVERYTHING, "tolerationSeconds": 300},), ""),
        (node("a", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"), (), ""),
        (node("a", "node.cloudprovider.kubernetes.io/shutdown:NoSchedule"), (), ""),
        (node("a", f"{CANDIDATE}=1:PreferNoSchedule"), (), ""),
    ],
)
def test_who_has_to_leave_at_once(found: core.Node, tolerations: tuple[dict[str, Any], ...], why: str) -> None:
    assert drives(found, *tolerations) == why


class Watch:
    """The watch of nodes, fed by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.nodes = Nodes(None, lambda _: None, clock=Clock(wall=lambda: self.now))  # type: ignore[arg-type] # nothing is asked
        self._before: dict[str, core.Node] = {}

    def see(self, found: core.Node) -> None:
        before = self._before.get(found.metadata.name)
        self._before[found.metadata.name] = found
        self.nodes._on_event("ADDED" if before is None else "MODIFIED", found, before)


def test_a_taint_without_a_time_counts_from_when_it_was_seen() -> None:
    watch = Watch()
    watch.see(node("a", f"{CANDIDATE}=x:PreferNoSchedule"))
    watch.now = 1030.0
    watch.see(node("a", f"{CANDIDATE}=x:PreferNoSchedule", "more:PreferNoSchedule"))
    assert watch.nodes.notices(["a", "b"])["a"].since == 1000.0
    watch.see(node())
    watch.see(node("a", f"{CANDIDATE}=x:PreferNoSchedule"))
    assert watch.nodes.notices(["a"])["a"].since == 1030.0
    assert watch.nodes.candidates() == ("a",)


def test_a_cordon_counts_from_its_taint_or_from_when_it_was_seen() -> None:
    watch = Watch()
    watch.see(node(cordoned=True))
    watch.now = 1030.0
    watch.see(node("a", "more=x:NoSchedule", cordoned=True))
    assert watch.nodes.notices(["a"])["a"].since == 1000.0
    taint = core.Taint("node.kubernetes.io/unschedulable", "NoSchedule", time_added="1970-01-01T00:16:50Z")
    watch.see(core.Node(core.Meta(name="a"), core.NodeSpec(unschedulable=True, taints=(taint,))))
    assert watch.nodes.notices(["a"])["a"].since == 1010.0


def test_a_replica_is_patient_only_where_all_its_nodes_let_it_wait() -> None:
    roles = (role("prefill", replicas=2, size=2), role("decode"))
    world = World.settled(inference(*roles, disruption={"evacuateAfterSeconds": 30}))
    world.serve(apart=True)
    world.notices = {
        "prefill-0": Notice("cordoned", since=world.now - 20, waits=True),
        "prefill-1": Notice("cordoned", since=world.now - 30, waits=True),
        "decode-0": Notice("to be drained"),
    }
    found = find_leaving(world.inference.spec, world.observe())
    assert found.places.keys() == {(0, "prefill", 0), (0, "prefill", 1), (0, "decode", 0)}
    assert (found.patient, found.again) == ({(0, "prefill", 0)}, 10.0)
    second = next(name for name in world.pods if "prefill-0-1" in name)
    world.change(second, spec={"node_name": "decode-0"})
    assert not find_leaving(world.inference.spec, world.observe()).patient
