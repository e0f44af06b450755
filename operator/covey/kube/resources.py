"""The resources that Covey reads and writes, and their paths on the API server."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from covey.api.constants import INFERENCE_GROUP, SCHEDULING_GROUP, VERSION


@dataclass(frozen=True, slots=True)
class Resource:
    """One REST resource; ``group`` is empty for the core group, ``plural`` stands in paths."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apiVersion`` of its objects: ``v1``, or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def type(self) -> str:
        """``PodGroup.v1alpha1.scheduling.covey.dev``: kind, version and group, as kubectl takes them."""
        return ".".join(part for part in (self.kind, self.version, self.group) if part)

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """The absolute path of an object, or of a collection without ``name``; no namespace means all of them.

        Raises:
            ValueError: an object of a namespaced resource is named without its namespace.
        """
        if self.namespaced and name and not namespace:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [self.plural, *(quote(part, safe=":") for part in (name, subresource) if part)]
        return "/".join(parts)


PODS: Final = Resource("", "v1", "pods", "Pod")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
VOLUME_CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
POD_TEMPLATES: Final = Resource("", "v1", "podtemplates", "PodTemplate")
SERVICES: Final = Resource("", "v1", "services", "Service")
POD_DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
#: A pod that somebody wants evicted, gracefully: alpha since 1.37. Not the subresource of pods that has the same kind.
EVICTIONS: Final = Resource("lifecycle.k8s.io", "v1alpha1", "evictions", "Eviction")
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
PRIORITY_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
SELF_SUBJECT_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
DISAGGREGATED_INFERENCES: Final = Resource(
    INFERENCE_GROUP, VERSION, "disaggregatedinferences", "DisaggregatedInference"
)
ROLE_SCALERS: Final = Resource(INFERENCE_GROUP, VERSION, "rolescalers", "RoleScaler")
WORKLOADS: Final = Resource(SCHEDULING_GROUP, VERSION, "workloads", "Workload")
COMPOSITE_POD_GROUPS: Final = Resource(SCHEDULING_GROUP, VERSION, "compositepodgroups", "CompositePodGroup")
POD_GROUPS: Final = Resource(SCHEDULING_GROUP, VERSION, "podgroups", "PodGroup")
#: Kubernetes' own groups, in the versions of 1.37.
NATIVE_POD_GROUPS: Final = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
NATIVE_COMPOSITE_POD_GROUPS: Final = Resource(
    "scheduling.k8s.io", "v1alpha3", "compositepodgroups", "CompositePodGroup"
)
#: And those of 1.36; a release serves one or the other.
NATIVE_POD_GROUPS_1_36: Final = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
NATIVE_GROUPS: Final = (NATIVE_COMPOSITE_POD_GROUPS, NATIVE_POD_GROUPS, NATIVE_POD_GROUPS_1_36)
CLUSTER_TOPOLOGIES: Final = Resource(
    SCHEDULING_GROUP, VERSION, "clustertopologies", "ClusterTopology", namespaced=False
)
QUEUES: Final = Resource(SCHEDULING_GROUP, VERSION, "queues", "Queue", namespaced=False)
PREEMPTIONS: Final = Resource(SCHEDULING_GROUP, VERSION, "preemptions", "Preemption")
RESOURCE_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
DEVICE_TAINT_RULES: Final = Resource("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", namespaced=False)
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES: Final = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
COMPUTE_DOMAINS: Final = Resource("resource.nvidia.com", "v1beta1", "computedomains", "ComputeDomain")
VOLCANO_POD_GROUPS: Final = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
HYPER_NODES: Final = Resource("topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", namespaced=False)
INFERENCE_POOLS: Final = Resource("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool")
