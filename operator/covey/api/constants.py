"""Names that pass through the API server: groups, labels, gates, annotations, conditions and their reasons.

Everything two components must agree on stands here, once.
"""

from typing import Final

# API groups and kinds
INFERENCE_GROUP: Final = "inference.covey.dev"
SCHEDULING_GROUP: Final = "scheduling.covey.dev"
VERSION: Final = "v1alpha1"
INFERENCE_API: Final = f"{INFERENCE_GROUP}/{VERSION}"
SCHEDULING_API: Final = f"{SCHEDULING_GROUP}/{VERSION}"

DEFAULT_SCHEDULER_NAME: Final = "covey-scheduler"
DEFAULT_NAMESPACE: Final = "covey-system"
#: The operator, as its Lease, its ServiceAccount and Events name it.
OPERATOR: Final = "covey-operator"

# Labels: one for every ancestor, on every object below a DisaggregatedInference
LABEL_INFERENCE: Final = "covey.dev/inference"
LABEL_UNIT: Final = "covey.dev/unit"
LABEL_ROLE: Final = "covey.dev/role"
LABEL_REPLICA: Final = "covey.dev/replica"
LABEL_INDEX: Final = "covey.dev/index"
LABEL_REVISION: Final = "covey.dev/revision"
#: Set on the one live pod of an address; a superseded pod loses it before its successor is created.
LABEL_ADDRESS: Final = "covey.dev/address"
#: ``"true"`` on one live pod of each unit, by which an autoscaler of units counts them.
LABEL_UNIT_LEADER: Final = "covey.dev/unit-leader"
#: On pods that take requests. A Service that balances load selects it beside readiness: a replica that drains loses it
#: and keeps its address, by which its own pods find each other.
LABEL_ENDPOINT: Final = "covey.dev/endpoint"
#: On the pods of a replica that is to go and takes no new requests.
LABEL_DRAINING: Final = "covey.dev/draining"
#: On a Service of one revision: the revision of the whole resource, as ``status.rollout`` names it. Services of one value
#: belong together; ``covey.dev/revision`` says of which revision the role's pods are.
LABEL_WHOLE_REVISION: Final = "covey.dev/whole-revision"
#: On the pods of roles that serve, for routers: pods of one value belong together, one revision of each of these roles.
LABEL_PAIRING: Final = "covey.dev/pairing"
#: ``"true"`` on the pods of roles with a minimum: the budget of their namespace selects it, and nobody evicts them.
#: ``"idle"`` on those of a replica that serves nobody and is in the way of a drain: they may be evicted.
LABEL_GANG: Final = "covey.dev/gang"
#: On a Job, from people: its pods start together, ``"true"`` for all of ``parallelism`` or so many of them. On a PodGroup: a
#: Job's.
LABEL_JOB_GANG: Final = "covey.dev/gang"
#: The Job controller's, on the pods of a Job.
LABEL_JOB_NAME: Final = "batch.kubernetes.io/job-name"
#: Kueue's: a Job that has it waits in a queue of Kueue's, which suspends it and resumes it.
LABEL_KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
#: Kubernetes' own, on what Covey makes for no single resource.
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "covey"
#: Node label of NVIDIA's: nodes with one value are one clique, whose GPUs NVLink connects.
LABEL_CLIQUE: Final = "nvidia.com/gpu.clique"
#: The channel of a node, of which there is one, as claims are counted: by it a pod joins a ComputeDomain.
RESOURCE_CHANNEL: Final = "compute-domain-default-channel.nvidia.com.deviceclass.resource.k8s.io/devices"
#: Names of the claim by which a pod joins its ComputeDomain; the second says that the domain shares no clique.
CLAIM_INTERCONNECT: Final = "covey-interconnect"
CLAIM_EXCLUSIVE: Final = "covey-interconnect-exclusive"
INTERCONNECT_CLAIMS: Final = (CLAIM_INTERCONNECT, CLAIM_EXCLUSIVE)
#: The PodGroup (same namespace, same controlling owner) that a pod belongs to.
LABEL_POD_GROUP: Final = f"{SCHEDULING_GROUP}/pod-group"
#: Replicas under one root that carry the same value are admitted all or none.
LABEL_TOGETHER: Final = f"{SCHEDULING_GROUP}/together"
#: Beside it, where it is known: how many replicas carry the mark. None of them is placed before all are there.
LABEL_TOGETHER_COUNT: Final = f"{SCHEDULING_GROUP}/together-count"
#: LeaderWorkerSet's, set on request: the object, the group, the place in it, the group again, the revision.
LABEL_LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LABEL_LWS_WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"
#: LeaderWorkerSet's annotation on its pods: how many a group has, the leader included.
ANNOTATION_LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
ANNOTATION_LWS_LEADER: Final = "leaderworkerset.sigs.k8s.io/leader-name"
LWS_LABELS: Final = (
    LABEL_LWS_NAME,
    "leaderworkerset.sigs.k8s.io/group-index",
    LABEL_LWS_WORKER,
    "leaderworkerset.sigs.k8s.io/group-key",
    "leaderworkerset.sigs.k8s.io/template-revision-hash",
)
#: llm-d's, set on request: the part of a request that a pod serves. Its decode filter takes pods without the label, too.
LABEL_LLMD_ROLE: Final = "llm-d.ai/role"
#: ``active`` on the one pod of the scheduler process that answers behind a Service: the holder of the lease.
LABEL_EXTENDER: Final = f"{SCHEDULING_GROUP}/extender"
EXTENDER_ACTIVE: Final = "active"
#: ``topology.covey.dev/<level>``: the domain that a pod's node lies in, an annotation written with the pin; a label as well
#: where the pod reads it as one or asks for it.
TOPOLOGY_PREFIX: Final = "topology.covey.dev/"
#: ``"true"`` on the ClusterTopology that is used when a resource names none.
ANNOTATION_DEFAULT_TOPOLOGY: Final = f"{SCHEDULING_GROUP}/default"

#: On a request for nodes, its PodTemplate, and the pods of it, which never run: the UID of the root that waits.
LABEL_ASK: Final = "covey.dev/ask"

# Gates
GATE_GANG: Final = f"{SCHEDULING_GROUP}/gang"
GATE_START: Final = f"{SCHEDULING_GROUP}/start"

# Extended resources
#: A limit of 0 in one container of every member, by which kube-scheduler tells whose bindings it must ask Covey for
#: (``managedResources``, which goes by the name alone). Nothing counts it: no node has it, and 0 is less than nothing.
RESOURCE_MEMBER: Final = f"{SCHEDULING_GROUP}/member"

# Evictions (``lifecycle.k8s.io``)
#: The operator as one that responds to Evictions of pods, in ``spec.evictionResponders``; and its priority, which is that of
#: the controller that manages the pod.
EVICTION_RESPONDER: Final = f"{INFERENCE_GROUP}/gang"
EVICTION_PRIORITY: Final = 10_000

# Readiness gates
#: Where a template declares it, Covey says whether the replica is to be given requests.
GATE_SERVING: Final = "covey.dev/serving"

# Annotations
#: Since when a replica has been marked as draining, RFC 3339.
ANNOTATION_DRAINING_SINCE: Final = "covey.dev/draining-since"
#: Beside it: when it goes at the latest, RFC 3339. Nobody but Covey writes it, so the scheduler process believes it.
ANNOTATION_DRAIN_UNTIL: Final = f"{SCHEDULING_GROUP}/drain-until"
#: From an engine to Covey: how many requests a pod has under way. A replica that drains goes when all its pods say 0.
ANNOTATION_IN_FLIGHT: Final = "covey.dev/in-flight"
#: From scheduler to operator: this unbound pod's pin must be undone; the value is a ``ReleaseReason``.
ANNOTATION_RELEASE: Final = f"{SCHEDULING_GROUP}/release"
#: Written with the pin: the UID of the pod that the scheduler process has pinned. No template and no copy of a pod can
#: carry it, for a pod has its UID only once it exists.
ANNOTATION_PINNED: Final = f"{SCHEDULING_GROUP}/pinned"
#: Beside it: when that was (RFC 3339).
ANNOTATION_PINNED_AT: Final = f"{SCHEDULING_GROUP}/pinned-at"
#: In a template: ``"true"`` for domains as labels of the pods too.
ANNOTATION_DOMAIN_LABELS: Final = "covey.dev/domain-labels"
#: On the successor of a bound pod, from operator to scheduler: the node where its predecessor was.
ANNOTATION_ROOM: Final = f"{SCHEDULING_GROUP}/room"
#: For SGLang's router, on pods of a role with a port of the name ``BOOTSTRAP``: its number.
ANNOTATION_BOOTSTRAP_PORT: Final = "sglang.ai/bootstrap-port"
BOOTSTRAP: Final = "bootstrap"
#: On a group of a scheduler whose API lets nobody change some of its fields: a digest of those that Covey wrote.
ANNOTATION_FIXED: Final = "covey.dev/fixed"
#: On the group of a role whose minimum was raised and has not been met yet: the one that was met last.
ANNOTATION_MET_MINIMUM: Final = "covey.dev/met-minimum"
#: Touched to wake one pod that the guard refused; kube-scheduler retries a pod when it is updated.
ANNOTATION_WAKE: Final = f"{SCHEDULING_GROUP}/wake"

#: The containers' images were changed and not all of them have been seen to run since: what each ran before, as JSON.
ANNOTATION_IN_PLACE: Final = "covey.dev/in-place"
#: On the leader of a replica: when the operator first saw all of the replica Ready (RFC 3339).
ANNOTATION_STARTED: Final = "covey.dev/started"
#: The same for the scheduler process, where nobody but Covey writes it.
ANNOTATION_SERVES_SINCE: Final = f"{SCHEDULING_GROUP}/started"
#: Beside it: containers that were replaced since without a restart count as restarted. Former releases knew of none.
ANNOTATION_REPLACED: Final = "covey.dev/replaced-containers"
#: On a pod: restarts of its containers that are no failures, as a JSON object of container to count.
ANNOTATION_RESTART_BASELINE: Final = "covey.dev/restart-baseline"
#: In a template: names of containers, separated by commas, whose restarts are no failures of the replica.
ANNOTATION_RESTART_IGNORED: Final = "covey.dev/restart-ignored-containers"
#: On a root group, from the operator: nodes and domains that its new pods keep off, a JSON list (``api.annotations``).
ANNOTATION_AVOID: Final = f"{SCHEDULING_GROUP}/avoid"
#: Beside it: ordinary pods that could not be evicted for it, as a JSON object (``api.annotations``).
ANNOTATION_EVICTIONS_REFUSED: Final = f"{SCHEDULING_GROUP}/evictions-refused"
#: Beside it: nodes that an autoscaler is asked for, as a JSON object (``api.annotations``).
ANNOTATION_CAPACITY_ASKED: Final = f"{SCHEDULING_GROUP}/capacity-asked"

#: On the PodGroup of a Job, from the operator: the pods that are not created before they are assigned nodes, or why they
#: are not asked for yet, as a JSON object (``api.annotations``).
ANNOTATION_EXPECTED: Final = f"{SCHEDULING_GROUP}/expected"

#: On a Job: who suspends it. ``"true"``: Covey does, until it is the gang's turn; ``"false"``: Covey has resumed it. A Job
#: without it is suspended and resumed by others alone.
ANNOTATION_QUEUED: Final = "covey.dev/queued"
#: Beside it: when Covey resumed the Job last (RFC 3339), and how often it has suspended it again since its gang last ran.
ANNOTATION_RESUMED: Final = "covey.dev/resumed"
ANNOTATION_GIVEN_UP: Final = "covey.dev/given-up"

#: On a resource, from people and programs: any text that was not there before asks how many replicas of each role could
#: have places now.
ANNOTATION_HEADROOM: Final = "covey.dev/headroom"
#: Beside it or instead of it: asks again each time so many seconds have passed.
ANNOTATION_HEADROOM_SECONDS: Final = "covey.dev/headroom-seconds"
#: On a resource, from people: the generation for which units may be taken down before others serve in their place, where
#: their groups cannot be changed in place.
ANNOTATION_REMAKE: Final = "covey.dev/remake"
#: On a node that is cordoned, from people: replicas above their minimum leave it at once, also without room elsewhere.
ANNOTATION_DRAIN: Final = "covey.dev/drain"
#: On a root group, from the operator: the same question for the scheduler process (``api.headroom``).
ANNOTATION_QUESTION: Final = f"{SCHEDULING_GROUP}/headroom"
#: On a root: the numbers of replicas that its unit is to have, once they can be had (``api.exchange``).
ANNOTATION_EXCHANGE: Final = f"{SCHEDULING_GROUP}/exchange"
#: On a root: the replicas that wait for places, and those that may go for them (``api.succession``).
ANNOTATION_SUCCESSION: Final = f"{SCHEDULING_GROUP}/succession"

#: On the PodTemplate of a request for nodes that is over, without any that helped: a JSON object of ``reason`` (of
#: ``CapacityAsked``), ``again`` (RFC 3339: when the same may be asked for again; null: never), ``backoffSeconds`` and
#: ``request`` (the UID of the one that ended). Former releases wrote the reason alone.
ANNOTATION_ASK_ENDED: Final = "covey.dev/ask-ended"
#: There: when the last node was created that is kept for it; and since when its unit has not wanted it, for now.
ANNOTATION_ASK_CAME: Final = "covey.dev/ask-nodes-came"
ANNOTATION_ASK_UNWANTED: Final = "covey.dev/ask-unwanted"

#: On the pods of what gives way to a claim: the UID of the root that it was taken for. Without a claim of that root they
#: are pardoned.
ANNOTATION_CLAIMED_BY: Final = "covey.dev/claimed-by"

# Field managers of server-side apply, one for each writer
MANAGER_OPERATOR: Final = "covey-operator"
MANAGER_OPERATOR_STATUS: Final = "covey-operator-status"
#: Of what the operator notes on objects for later: applying them must not take it away.
MANAGER_OPERATOR_NOTES: Final = "covey-operator-notes"
#: What the operator says in the status of an Eviction.
MANAGER_OPERATOR_EVICTIONS: Final = "covey-operator-evictions"
MANAGER_SCHEDULER: Final = "covey-scheduler"
#: Of answers about head-room: they are written apart from the rest of a group's status.
PURPOSE_PREEMPTION: Final = "Preemption"
PURPOSE_RECLAIM: Final = "Reclaim"
PURPOSE_EXCHANGE: Final = "Exchange"
PURPOSE_EVACUATION: Final = "Evacuation"
PURPOSE_SUCCESSION: Final = "Succession"
PURPOSE_CAPACITY: Final = "Capacity"
#: Purposes of claims to which others give way.
FOR_OTHERS: Final = frozenset({PURPOSE_PREEMPTION, PURPOSE_RECLAIM})
MANAGER_SCHEDULER_HEADROOM: Final = "covey-scheduler-headroom"
MANAGER_SCHEDULER_EXCHANGE: Final = "covey-scheduler-exchange"

# Condition types
ADMITTED: Final = "Admitted"
SCHEDULED: Final = "Scheduled"
AVAILABLE: Final = "Available"
#: Of the whole; with STALLED it is what kstatus reads, by which Flux and Helm judge.
READY: Final = "Ready"
#: Nothing gets further before a person has acted. Absent otherwise, as kstatus has it.
STALLED: Final = "Stalled"
PROGRESSING: Final = "Progressing"
TOPOLOGY_SATISFIED: Final = "TopologySatisfied"
DEGRADED: Final = "Degraded"
PAUSED: Final = "Paused"
BACKEND_SUPPORTED: Final = "BackendSupported"
NODES_AVOIDED: Final = "NodesAvoided"
EVACUATING: Final = "Evacuating"
EVACUATION_BLOCKED: Final = "EvacuationBlocked"
#: As HorizontalPodAutoscalers call it.
SCALING_LIMITED: Final = "ScalingLimited"
#: Of a RoleScaler with targets: they are in force.
COMMITTED: Final = "Committed"
#: Groups are not as they would be made today, and are left as they are.
REMAKE_PENDING: Final = "RemakePending"
MINIMUM_MET: Final = "MinimumMet"
#: Pods are wanted for which a ResourceQuota has no room.
QUOTA_LIMITED: Final = "QuotaLimited"
#: Pods of a revision get no requests, or it has taken over with less than its minimum.
ROUTING_HELD: Final = "RoutingHeld"
#: A router's controller has left too few replicas of a unit for prefill, or for decode.
CAPABILITY_LACKING: Final = "CapabilityLacking"
CONSTRAINTS_UNKEPT: Final = "ConstraintsUnkept"
#: There is no InferencePool where one is asked for.
POOL_MISSING: Final = "PoolMissing"
#: Others give way to a unit that waits; the message says who.
PREEMPTING: Final = "Preempting"
#: Replicas or units have given way to others, and have no places again yet.
PREEMPTED: Final = "Preempted"
#: An autoscaler is asked for nodes; False where that is over, and the message says why.
CAPACITY_ASKED: Final = "CapacityAsked"
#: Something that is below its minimum is about to be given up; the message says when.
ESCALATING: Final = "Escalating"
#: On a root that was refused: it would fit if what its reason names (``Role``, ``Unit``) did not have to stay.
MOVABLE: Final = "Movable"
#: On a root: its minimum has its places, and more of it was refused; the reason is that of ``Admitted`` for a minimum.
SURPLUS_ADMITTED: Final = "SurplusAdmitted"

# Reasons of ``Admitted``
REASON_ADMITTED: Final = "Admitted"
REASON_PARTIALLY_ADMITTED: Final = "PartiallyAdmitted"
REASON_INFEASIBLE: Final = "Infeasible"
REASON_UNKNOWN: Final = "SearchLimit"
REASON_WAITING: Final = "Waiting"
REASON_BELOW_MINIMUM: Final = "BelowMinimum"
#: A gang has places that are reserved for its pods, which are not created yet.
REASON_RESERVED: Final = "Reserved"
REASON_QUOTA_EXCEEDED: Final = "QuotaExceeded"
#: A root names no queue although several select its namespace; one that does not exist; one that is not for it.
REASON_QUEUE_AMBIGUOUS: Final = "QueueAmbiguous"
REASON_QUEUE_NOT_FOUND: Final = "QueueNotFound"
REASON_QUEUE_DENIED: Final = "QueueDenied"
#: The queue of a root has no room for it.
REASON_OVER_QUOTA: Final = "OverQuota"
REASON_PAUSED: Final = "RolloutPaused"
REASON_SUSPENDED: Final = "Suspended"
REASON_DELETING: Final = "Deleting"
REASON_TEMPLATE_REJECTED: Final = "TemplateRejected"
REASON_UNSUPPORTED: Final = "Unsupported"
REASON_INVALID_TOPOLOGY: Final = "InvalidTopology"
REASON_TOPOLOGY_CHANGED: Final = "TopologyChanged"
REASON_GROUPS_FIXED: Final = "GroupsFixed"
REASON_INVALID: Final = "Invalid"
REASON_FAILED: Final = "PlannerFailed"
REASON_DENIED: Final = "PinDenied"
#: kube-scheduler refused the places of a plan, for something that the planner does not model.
REASON_UNSCHEDULABLE: Final = "Unschedulable"
#: Those of a gang that is not planned for want of quota.
QUOTA_REFUSALS: Final = (
    REASON_OVER_QUOTA,
    REASON_QUEUE_AMBIGUOUS,
    REASON_QUEUE_NOT_FOUND,
    REASON_QUEUE_DENIED,
)
#: Those of a gang that has no place, and will not have one by itself.
REFUSALS: Final = (
    REASON_INFEASIBLE,
    REASON_UNKNOWN,
    REASON_INVALID_TOPOLOGY,
    REASON_INVALID,
    REASON_UNSUPPORTED,
    REASON_FAILED,
    REASON_DENIED,
    REASON_UNSCHEDULABLE,
    *QUOTA_REFUSALS,
)

# Reasons of ``CapacityAsked``
REASON_PROVIDER_MISSING: Final = "ProviderMissing"
REASON_LEVEL_UNKNOWN: Final = "LevelUnknown"
REASON_CAPACITY_FAILED: Final = "CapacityFailed"
REASON_NO_CAPACITY: Final = "NoCapacity"
REASON_DISAGREED: Final = "Disagreed"
REASON_NOTHING_CAME: Final = "NothingCame"
REASON_NO_ANSWER: Final = "NoAnswer"
REASON_ASKED: Final = "Asked"
REASON_COMING: Final = "Coming"

# Why a pin is undone (values of ANNOTATION_RELEASE)
RELEASE_TIMEOUT: Final = "Timeout"
RELEASE_UNSCHEDULABLE: Final = "Unschedulable"
RELEASE_NODE_LOST: Final = "NodeLost"
RELEASE_CONFLICT: Final = "Conflict"
RELEASE_CAPACITY_TAKEN: Final = "CapacityTaken"
RELEASE_UNMARKED: Final = "Unmarked"
RELEASE_GROUP_DELETED: Final = "GroupDeleted"
#: Of a gang that lacks pods, and holds what an older one of its namespace may lack.
RELEASE_GIVEN_BACK: Final = "GivenBack"

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"

#: The Lease of the scheduler process.
LEASE_SCHEDULER: Final = "covey-planner"
#: On the leases of both processes, JSON: the holder, its version, and the namespaces that it watches (none: all).
ANNOTATION_LEADER: Final = "covey.dev/leader"
