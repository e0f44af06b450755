"""The simulated nodes: which are ill, and what makes them well again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from localcluster import NotReachedError, eventually
from localcluster.components import FAKE_NODE
from soak.settings import NODES

if TYPE_CHECKING:
    from soak.stage import Stage

#: Seconds in which kwok takes the lease of a node again that was made anew: it asks every ten.
_LEASED: Final = 20.0
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Fleet:
    """All nodes of a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._manifests = {node["metadata"]["name"]: node for node in NODES.manifests()}
        #: Nodes that a choice has made ill, and how.
        self.ill: dict[str, str] = {}
        #: Nodes that nobody new may come to, by a taint that makes nobody leave.
        self.tainted: set[str] = set()

    def label(self, name: str, key: str) -> str:
        """The value of a node's label while nothing is amiss."""
        return str(self._manifests[name]["metadata"]["labels"][key])

    def restore(self, name: str) -> None:
        """Make a node as it was."""
        self.ill.pop(name, None)
        api, manifest = self._stage.api, self._manifests[name]
        found = api("GET", f"/api/v1/nodes/{name}")
        if found is None:
            api("POST", "/api/v1/nodes", manifest)
            return
        kept = [taint for taint in found["spec"].get("taints") or () if taint["key"].startswith("node.kubernetes.io/")]
        kept = [taint for taint in kept if not taint["key"].endswith(("unschedulable", "out-of-service"))]
        spec = {"unschedulable": None, "taints": kept or None}
        api("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": dict([FAKE_NODE])}, "spec": spec})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        api("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}}, patch="strategic")

    def heal(self) -> None:
        """Make all of them well, and wait until they are."""
        for name in sorted(self.ill):
            self.restore(name)
        self._await_fit()
        self._await_played()

    def _await_fit(self) -> None:
        """Wait for taints to go; a controller-manager that was killed right after a node's return may leave one for ever."""
        try:
            eventually(lambda: not self._unfit(), 30)
        except NotReachedError:
            for name in self._unfit():
                self._stage.say(f"mend: {name} is Ready and not fit: its taints are taken off")
                self._stage.api("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
                self.restore(name)
            eventually(lambda: not self._unfit(), 60, lambda: f"all nodes are fit: {self._unfit()}")

    def _unfit(self) -> list[str]:
        with self._stage.watching.lock:
            nodes = dict(self._stage.checker.world.nodes)
        return [name for name in NODES.names if name not in nodes or not nodes[name].fit]

    def _await_played(self) -> None:
        """Wait until kwok has the lease of every node: a pod that is bound to another is never started.

        kwok 0.8 takes a node once: when it first sees it. One that was without its annotation then, because it had
        failed when kwok was started, is not taken when the annotation comes back.
        """
        try:
            eventually(lambda: not self._unplayed(), _LEASED)
        except NotReachedError:
            self._stage.nudge("kwok", f"it does not play {', '.join(self._unplayed())}")
            eventually(lambda: self._stage.all_work() and not self._unplayed(), 60)

    def _unplayed(self) -> list[str]:
        leases = (self._stage.api("GET", _LEASES) or {"items": []})["items"]
        return sorted(set(NODES.names) - {each["metadata"]["name"] for each in leases})
