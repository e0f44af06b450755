"""The nodes of the cluster, and which of them are to be empty.

All are watched once, for all that ask. Heartbeats change a node all the time; resources are looked at only when what
matters to their pods there has changed, so that a node that flaps costs one look for each resource on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import islice
from typing import Final

from covey.api import core
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.reflector import Reflector
from covey.kube.resources import NODES
from covey.kube.watch import DELETED, EventType
from covey.operator.model.node_drain import AUTOSCALERS, Notice, is_out_of_service, is_to_be_drained, notice_of
from covey.placement.cluster.elastic import ElasticDomain, expand_elastic
from covey.placement.cluster.presets import LabelCounts, detect
from covey.placement.model import Topology

#: The index of nodes by their labels.
_LABELS: Final = "labels"


#: Candidates that a resource gets to know: they are written on its groups.
_MANY: Final = 64
#: Seconds for which it is remembered that a node was deleted: by then Kubernetes has removed its pods.
_REMEMBERED: Final = 600.0


class Nodes:
    """A live copy of all nodes.

    Args:
        client: to the API server.
        on_change: called with the name of a node when it is to be empty, or no longer, or lost.
        autoscalers: keys of the taints by which autoscalers announce that they delete a node.
        evacuations: keys of the other taints ``NoSchedule`` that replicas leave a node for.
        clock: the time.
    """

    def __init__(
        self,
        client: Client,
        on_change: Callable[[str], None],
        *,
        clock: Clock,
        autoscalers: Collection[str] = AUTOSCALERS,
        evacuations: Collection[str] = (),
    ) -> None:
        self.reflector: Reflector[core.Node] = Reflector(client, NODES, core.Node, clock=clock, on_event=self._on_event)
        self._on_change = on_change
        self._autoscalers = frozenset(autoscalers)
        self._evacuations = frozenset(evacuations)
        self._clock = clock.wall
        self._counts = LabelCounts()
        self._notices: dict[str, Notice] = {}
        #: Nodes that were seen to be deleted, and when.
        self._gone: dict[str, float] = {}
        #: Whether nodes are found by their labels.
        self._by_label = False

    def deleted_nodes(self, names: Iterable[str]) -> dict[str, float]:
        """Find nodes that were seen to be deleted, with the time in seconds since the epoch."""
        return {name: self._gone[name] for name in names if name in self._gone} if self._gone else {}

    def of(self, names: Iterable[str]) -> dict[str, core.Node]:
        """Find nodes by name; those that are not known are left out."""
        store = self.reflector.store
        return {name: store["", name] for name in names if ("", name) in store}

    def detect_topology(self) -> Topology | None:
        """Find the preset that the labels of nodes show now; None where they show none."""
        return detect(self._counts)

    def find_elastic(self, topologies: Iterable[core.ClusterTopology]) -> dict[str, list[ElasticDomain]]:
        """Find the domains that may come, by topology: those that there are whole are none."""
        elastic = [topology for topology in topologies if topology.spec.elastic]
        if elastic and not self._by_label:
            self._by_label = True
            self.reflector.add_index(_LABELS, lambda node: (node.metadata.labels or {}).items())
        return {topology.metadata.name: [*filter(self._lacks, expand_elastic(topology))] for topology in elastic}

    def _lacks(self, domain: ElasticDomain) -> bool:
        wanted = domain.selector.items()
        *_, last = wanted
        there = self.reflector.by_index(_LABELS, last)
        return sum(wanted <= (node.metadata.labels or {}).items() for node in there) < domain.kind.nodes

    def notices(self, names: Iterable[str]) -> dict[str, Notice]:
        """Find nodes that are to be empty, with their notices."""
        return {name: self._notices[name] for name in names if name in self._notices} if self._notices else {}

    def candidates(self) -> tuple[str, ...]:
        """Nodes that an autoscaler may delete soon; a few of them where there are many."""
        marked = (name for name, notice in sorted(self._notices.items()) if notice.candidate)
        return tuple(islice(marked, _MANY))

    def _on_event(self, kind: EventType, node: core.Node, before: core.Node | None) -> None:
        name = node.metadata.name
        self._counts.note(name, None if kind == DELETED else node)
        if kind == DELETED:
            self._notices.pop(name, None)
            seen = self._clock()
            self._gone = {other: at for other, at in self._gone.items() if seen < at + _REMEMBERED} | {name: seen}
            self._on_change(name)
            return
        self._gone.pop(name, None)
        if before is not None and _notice_source(node) == _notice_source(before):
            return
        was, now = self._notices.pop(name, None), notice_of(node, self._autoscalers, self._evacuations)
        if now is not None:
            self._notices[name] = now = self._date_notice(now, was)
        if now != was or is_out_of_service(node) != (before is not None and is_out_of_service(before)):
            self._on_change(name)

    def _date_notice(self, notice: Notice, before: Notice | None) -> Notice:
        """Date a notice: where the node gives no time, by when this process first saw it so."""
        if notice.since is not None or not (notice.candidate or notice.waits):
            return notice
        same = before is not None and (before.candidate, before.waits) == (notice.candidate, notice.waits)
        return replace(notice, since=before.since if same and before is not None else self._clock())


def _notice_source(node: core.Node) -> tuple[object, ...]:
    """The parts of a node that a notice is read from."""
    return node.spec, is_to_be_drained(node)
