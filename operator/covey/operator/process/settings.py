"""Settings of ``covey operator``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from covey.api.inference import BackendName
from covey.kube.settings import SPLIT_NAMES, LeaderSettings, Metavar, Name, Names, Namespace, Seconds
from covey.operator.model.avoid_limits import AvoidLimits
from covey.operator.model.capacity import ATOMIC, AutoscalerSettings, Provider
from covey.operator.model.node_drain import AUTOSCALERS
from covey.operator.observe.probing import IMAGE

_Backend = Literal[BackendName.EXTENDER, BackendName.KUBERNETES, BackendName.VOLCANO]
_Provider = Literal[Provider.PROVISIONING_REQUEST, Provider.CAPACITY_BUFFER, "None"]


class OperatorSettings(LeaderSettings):
    """What the operator is told when it starts."""

    metrics_workload_limit: int = Field(500, ge=0)
    """Resources that have gauges of their own in the metrics, at most."""
    backends: Annotated[tuple[_Backend, ...], SPLIT_NAMES] = Field((BackendName.EXTENDER,), min_length=1)
    """What resources may ask for in spec.backend: Extender (any cluster), Kubernetes (its own gang scheduling, 1.35 and
    later), Volcano (1.14 and later). The chart gives the operator the rights that each needs."""
    autoscaler_taints: Names = AUTOSCALERS
    """Keys of the taints by which autoscalers announce that they delete a node."""
    evacuation_taints: Names = ()
    """Keys of NoSchedule taints that replicas leave a node for; cordons and autoscalers' taints count anyway."""
    avoid_node_after: int = Field(3, ge=0)
    """Failures of a resource on a node after which it avoids that node; 0: never."""
    avoid_node_seconds: Seconds = Field(600.0, ge=1, le=86400)
    """Seconds for which it is avoided then."""
    max_drain_for_preemption: Seconds = Field(3600.0, ge=1, le=86400)
    """Seconds for which what gives way to others may drain, however long the drainSeconds of its role are."""
    probe_namespace: Namespace = ""
    """Where dry runs ask what the API server keeps. Without: the first --namespace, else --leader-elect-namespace."""
    probe_image: Annotated[str, Metavar("IMAGE")] = Field(IMAGE, min_length=1)
    """Image of the pod in these dry runs, which no node ever gets."""
    capacity_provider: _Provider = "None"
    """The object in which an autoscaler is asked for nodes: ProvisioningRequest (cluster-autoscaler), CapacityBuffer
    (Karpenter), or None."""
    capacity_class: Name = Field(ATOMIC, min_length=1)
    """Class of ProvisioningRequests. The default asks for all of a gang's pods of one shape in one node group, or none."""
    capacity_after_seconds: Seconds = Field(30.0, le=86400)
    """Seconds for which a gang has found no capacity when an autoscaler is asked."""
    capacity_wait_seconds: Seconds = Field(900.0, ge=1, le=86400)
    """Seconds after which an answer that brings no node is given up."""
    capacity_surplus: bool = True
    """Ask for replicas beyond the minimum, too, once every unit of the resource has its own."""
    job_gangs: bool = False
    """Whether Jobs with the label covey.dev/gang start whole. Kubernetes 1.36 or later; before that people write into such
    a Job what an admission policy sets otherwise."""
    leader_worker_sets: bool = False
    """Whether groups of LeaderWorkerSets (Kubernetes 1.36 or later) start whole whose templates have the label
    covey.dev/gang."""
    compute_domains: bool = False
    """Whether spec.interconnect is honoured: ComputeDomains of NVIDIA's DRA driver, which the operator then writes."""
    eviction_responder: bool = True
    """Whether pods of backend Extender name the operator in spec.evictionResponders where lifecycle.k8s.io/v1alpha1 is served,
    and an Eviction of one of them moves its replica."""
    inference_pools: bool = False
    """Whether spec.routing.pool of a resource makes an InferencePool, whose CRD comes with a gateway."""

    @property
    def capacity(self) -> AutoscalerSettings | None:
        """The autoscaler to ask for nodes, if any."""
        if not isinstance(self.capacity_provider, Provider):
            return None
        times = (self.capacity_after_seconds, self.capacity_wait_seconds)
        return AutoscalerSettings(self.capacity_provider, self.capacity_class, *times, self.capacity_surplus)

    @property
    def probes_in(self) -> str:
        """Namespace of the probes: one of Covey's own, whose pods policies admit, or one where it has rights."""
        own = self.leader_elect_namespace if self.leader_elect else "default"
        return self.probe_namespace or (self.namespaces[0] if self.namespaces else own)

    @property
    def limits(self) -> AvoidLimits:
        """Limits from which on nodes are avoided, and for how long."""
        return AvoidLimits(self.avoid_node_after, self.avoid_node_seconds)
