"""Settings of the operator process; the command line fills them in."""

from __future__ import annotations

from dataclasses import dataclass

from covey.api.constants import DEFAULT_NAMESPACE
from covey.api.inference import Backend
from covey.operator.model.actions import Limits
from covey.operator.model.capacity import Capacity
from covey.operator.model.node_drain import AUTOSCALERS
from covey.operator.observe.probing import IMAGE


@dataclass(frozen=True, slots=True)
class Settings:
    """Flags of ``covey operator``.

    ``namespaces``: where resources are looked for; empty means everywhere. ``identity`` names this process in leases
    and events; empty means host name and a random part. ``workers`` reconcile at the same time; ``connections`` bounds
    the requests of all of them together, besides those of watches, the lease and Events. ``metrics_workload_limit``:
    the most resources of which the metrics show each one's state. ``backends``: those that resources may ask for.
    ``autoscaler_taints``: keys of the taints by which autoscalers announce that they delete a node.
    ``evacuation_taints``: keys of the other taints ``NoSchedule`` that replicas leave a node for. After
    ``avoid_node_after`` failures of a resource a node is avoided for ``avoid_node_seconds``; never where that is 0.
    ``capacity``: whom to ask for nodes. ``probe_namespace``, ``probe_image``: of the dry runs that ask what the API
    server keeps; see ``probes_in``. ``job_gangs``: Jobs with the label ``covey.dev/gang`` are gangs.
    ``native_groups``: pods of groups of ``scheduling.k8s.io`` that lost their places are replaced. ``leader_worker_sets``: groups
    of LeaderWorkerSets with the label are gangs.
    ``compute_domains``: ``spec.interconnect`` is honoured.
    ``inference_pools``: ``spec.routing.pool`` is honoured.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    leader_elect: bool = True
    leader_elect_namespace: str = DEFAULT_NAMESPACE
    metrics_bind_address: str = ":8080"
    health_probe_bind_address: str = ":8081"
    identity: str = ""
    workers: int = 8
    connections: int = 64
    metrics_workload_limit: int = 500
    backends: tuple[Backend, ...] = (Backend.EXTENDER,)
    autoscaler_taints: tuple[str, ...] = AUTOSCALERS
    evacuation_taints: tuple[str, ...] = ()
    avoid_node_after: int = 3
    avoid_node_seconds: float = 600.0
    probe_namespace: str = ""
    probe_image: str = IMAGE
    capacity: Capacity | None = None
    job_gangs: bool = False
    native_groups: bool = False
    leader_worker_sets: bool = False
    compute_domains: bool = False
    inference_pools: bool = False

    @property
    def probes_in(self) -> str:
        """Namespace of the probes: one of Covey's own, whose pods policies admit, or one where it has rights."""
        own = self.leader_elect_namespace if self.leader_elect else "default"
        return self.probe_namespace or (self.namespaces[0] if self.namespaces else own)

    @property
    def limits(self) -> Limits:
        """Limits from which on nodes are avoided, and for how long."""
        return Limits(self.avoid_node_after, self.avoid_node_seconds)
