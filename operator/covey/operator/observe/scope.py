"""The part of a cluster that an operator looks at: what its flags say."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from covey.api.inference import BackendName
from covey.kube.resources import COMPUTE_DOMAINS, Resource
from covey.operator.model.capacity import AutoscalerSettings
from covey.operator.model.node_drain import AUTOSCALERS
from covey.operator.observe.probing import IMAGE


@dataclass(frozen=True, slots=True)
class WatchScope:
    """The part of a cluster that an operator looks at."""

    #: Empty means everywhere.
    namespaces: Sequence[str] = ()
    #: Those whose kinds are watched.
    backends: Collection[BackendName] = tuple(BackendName)
    #: Keys of the taints by which autoscalers announce that they delete a node.
    autoscalers: Collection[str] = AUTOSCALERS
    #: Keys of the other taints ``NoSchedule`` that replicas leave a node for.
    evacuations: Collection[str] = ()
    #: The namespace of dry runs that ask what the API server keeps, and the image of the pod among them.
    probes_in: str = "default"
    probe_image: str = IMAGE
    #: Whom to ask for nodes.
    capacity: AutoscalerSettings | None = None
    #: Resources may have ComputeDomains.
    compute_domains: bool = False
    #: InferencePools are made.
    pools: bool = False
    #: Evictions of pods are answered, where they are served.
    evictions: bool = False
    #: Seconds for which what gives way to others may drain at the most.
    max_drain: float = inf

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """Kinds that are watched only because something is switched on."""
        asked = self.capacity.kinds if self.capacity is not None else ()
        return (*asked, COMPUTE_DOMAINS) if self.compute_domains else asked


EVERYTHING: Final = WatchScope()
