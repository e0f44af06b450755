"""The topology of a unit: one answer for the scheduler process, ``covey plan`` and all that is shown. Pure.

What the labels of nodes show, and which ClusterTopology is the default, decides for units without placed pods alone. A unit
with placed pods keeps the topology with which they were placed, which the status of its root names: or one more node, one
more ClusterTopology, would change what its required levels mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from covey.admission.required_levels import requires_levels
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import ANNOTATION_DEFAULT_TOPOLOGY, TOPOLOGY_PREFIX
from covey.model import podstate
from covey.placement.cluster import presets
from covey.placement.cluster.inventory import domains_of, path_of
from covey.placement.model import Topology

#: The labels of a node by its name; None where it is not known.
NodeLabels = Callable[[str], Mapping[str, str] | None]


def kept_preset(root: core.Group) -> str | None:
    """The topology that a root keeps which names none itself and has members with nodes; None for any other root."""
    status, constraints = root.status, root.spec.scheduling_constraints
    if (constraints and constraints.topology_name) or not (status.admitted or status.scheduled):
        return None
    return status.topology


def presets_in_use(roots: Iterable[core.Group]) -> Counter[str]:
    """Running units by the topology that they keep (``kept_preset``)."""
    return Counter(name for root in roots if (name := kept_preset(root)) is not None)


def recorded_domains(pod: core.Pod) -> dict[str, str]:
    """Levels and domains of a pod's node as its pin says; for pods of former releases as labels say."""
    written = {**(pod.metadata.labels or {}), **(pod.metadata.annotations or {})}
    return {
        key.removeprefix(TOPOLOGY_PREFIX): value for key, value in written.items() if key.startswith(TOPOLOGY_PREFIX)
    }


@dataclass(frozen=True, slots=True)
class TopologyChoice:
    """All by which topologies are chosen: the ClusterTopologies, those marked default, labels of nodes, what is in use."""

    known: Mapping[str, Topology]
    defaults: Sequence[str] = ()
    counts: presets.LabelCounts = field(default_factory=presets.LabelCounts)
    in_use: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, resources: Iterable[core.ClusterTopology], counts: presets.LabelCounts, in_use: Mapping[str, int]
    ) -> TopologyChoice:
        """Take from ClusterTopologies their levels, and which of them are marked default."""
        stored = tuple(resources)
        marked = [r.metadata.name for r in stored if r.metadata.annotation(ANNOTATION_DEFAULT_TOPOLOGY) == "true"]
        return cls({r.metadata.name: presets.topology_of(r) for r in stored}, marked, counts, in_use)

    def choose(self, name: str | None = None) -> Topology:
        """The topology of what has no placed pods (``presets.choose``).

        Args:
            name: the one that it names; None where it names none.

        Raises:
            LookupError: the choice is not clear; the message says why.
        """
        return presets.choose(name, self.known, self.defaults, self.counts, self.in_use)

    def of_unit(
        self, unit: Unit, labels_of: NodeLabels, *, assumed: Mapping[str, str] | None = None, kept: str | None = None
    ) -> Topology:
        """The topology of a unit: the one it names, else, once pods of it are placed, the one that it keeps.

        A unit of which nothing says what it keeps (of a former release), or whose topology is gone, takes the one under
        which the domains that its pods tell are those of their nodes. Where there is none, it goes on with the default
        unless it requires a level.

        Args:
            unit: the unit.
            labels_of: labels of the nodes of its pods.
            assumed: UID → node, of pods whose place was decided and is on no object yet.
            kept: the topology of a decision that the root's status need not tell yet.

        Raises:
            LookupError: the choice is not clear, or levels are required of which nobody knows the meaning.
        """
        constraints = unit.root.spec.scheduling_constraints
        named = constraints.topology_name if constraints else None
        if named is not None and (topology := presets.find(named, self.known)) is not None:
            return topology
        places = ((pod, podstate.place_of(pod, assumed or {})) for pod in unit.pods())
        placed = ((pod, node) for pod, node in places if node is not None)
        first = next(placed, None)
        if first is None:
            return self.choose(named)
        kept = kept or unit.root.status.topology
        if kept is not None and (topology := presets.find(kept, self.known)) is not None:
            return topology
        recorded = [
            (domains, labels)
            for pod, node in (first, *placed)
            if (domains := recorded_domains(pod)) and (labels := labels_of(node)) is not None
        ]
        agreeing = self._find_agreeing(recorded)
        if recorded and not agreeing and _has_hard_levels(unit):
            raise LookupError(_describe_loss(kept or named))
        try:
            current = self.choose()
        except LookupError:
            if not agreeing:
                raise
            return agreeing[0]
        return current if current in agreeing or not agreeing else agreeing[0]

    def _find_agreeing(self, recorded: Sequence[tuple[Mapping[str, str], Mapping[str, str]]]) -> list[Topology]:
        """The topologies under which nodes with these labels lie in the domains that were told of them.

        Those that have no level more come alone, where there are any; the broadest preset first among equals.
        """
        shipped = (preset for preset in reversed(presets.PRESETS) if preset.name not in self.known)
        agreeing, exact = [], []
        for topology in (*(self.known[name] for name in sorted(self.known)), *shipped) if recorded else ():
            pairs = [(domains, domains_of(topology, path_of(topology, labels))) for domains, labels in recorded]
            if all(domains.items() <= now.items() for domains, now in pairs):
                agreeing.append(topology)
                if all(domains == now for domains, now in pairs):
                    exact.append(topology)
        return exact or agreeing


def _describe_loss(name: str | None) -> str:
    gone = f"topology {name}, with which its pods were placed, is gone; " if name else ""
    return (
        f"{gone}under no {'other' if name else 'topology'} do the nodes of its pods lie in the domains that these tell"
        f" (annotations {TOPOLOGY_PREFIX}*): what runs stays, and nothing is placed, as a level is required; create a"
        " ClusterTopology with these levels, give the nodes their labels back, or suspend the resource and resume it"
    )


def _has_hard_levels(unit: Unit) -> bool:
    constraints = unit.root.spec.scheduling_constraints
    spread = constraints.spread if constraints else None
    return requires_levels(unit) or (spread is not None and spread.mode == "Required")
