"""The meaning of every reason and every condition, and what a person can do about it.

One table for all who explain: ``covey explain``, ``docs/reference/status.md``, and the condition ``Stalled``, which
holds where only a person can help. A test collects the reasons that the code can give and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from covey.api import constants as names


@dataclass(frozen=True, slots=True)
class Explanation:
    """A reason in words.

    ``meaning`` is a sentence; so is ``remedy``, empty where there is nothing to do. ``needs_person``: nothing that
    Covey retries or waits for helps, so that the resource is Stalled, which Flux and Helm read as Failed.
    """

    meaning: str
    remedy: str = ""
    needs_person: bool = False


#: What it means that a condition is True. The first list is True where all is well, the second only where it is not:
#: those are absent otherwise, but for Degraded.
GOOD: Final[Mapping[str, str]] = {
    names.READY: "All that is wanted serves, and nothing of the spec is left to be done; kstatus reads Current.",
    names.BACKEND_SUPPORTED: "The cluster has what the backend needs, and the backend can do all that the spec asks for.",
    names.ADMITTED: "Every unit has nodes for its minimum.",
    names.SCHEDULED: "Every unit has its minimum bound.",
    names.AVAILABLE: "Every unit has its minimum Ready: the resource serves.",
    names.PROGRESSING: "Something is on its way, or, with reason Complete, all has arrived.",
    names.TOPOLOGY_SATISFIED: "Every preferred level is reached. Absent where none is asked for.",
    "MinimumMet": "Every unit is assigned nodes for its minimum now; it is counted anew each time.",
}
BAD: Final[Mapping[str, str]] = {
    names.DEGRADED: "A unit that has served is below its minimum, or something else is not as it should be.",
    names.STALLED: "Nothing gets any further before a person has acted; kstatus reads Failed.",
    names.PAUSED: "spec.rollout.paused keeps everything as it is.",
    "NodesAvoided": "New pods keep off nodes, or domains, on which replicas have failed again and again.",
    "Escalating": "What a unit still has is about to be given up, so that the unit can be placed anew.",
    "Evacuating": "Replicas are moved whole from nodes that are to be empty.",
    "EvacuationBlocked": "Replicas cannot leave nodes that are to be empty.",
    names.REMAKE_PENDING: "Groups are not as they would be made today; what serves is left as it is.",
    names.SCALING_LIMITED: "A role has another number of replicas than its RoleScaler asks for.",
    names.PREEMPTING: "Others give way to a unit of the resource that waits for its minimum; the message says who.",
    names.PREEMPTED: "Replicas or units have given way to others, and lack nodes since; the message says to whom.",
    names.CAPACITY_ASKED: "An autoscaler is asked for nodes; False where that is over, or nobody can be asked.",
    names.CAPABILITY_LACKING: "Of replicas that serve both parts of a request too few serve one of them in some unit.",
    names.CONSTRAINTS_UNKEPT: "A former release accepted constraints of templates that nobody keeps; new ones are refused.",
    names.POOL_MISSING: "spec.routing.pool asks for an InferencePool, which cannot be made.",
    names.ROUTING_HELD: "With rollout.routing Exclusive: a revision gets no requests yet, or has taken over early.",
    names.QUOTA_LIMITED: "Pods are wanted that do not fit the ResourceQuotas of the namespace; none of them is created.",
}

#: By reason, in the order of a resource's life.
REASONS: Final[Mapping[str, Explanation]] = {
    # A spec that cannot be had
    names.REASON_INVALID: Explanation(
        "The spec contradicts itself, or this release of Covey cannot read it.",
        "Correct what the message names.",
        needs_person=True,
    ),
    names.REASON_UNSUPPORTED: Explanation(
        "The backend, or this release of Covey, cannot do what the spec asks for.",
        "Take out the fields that the message names, choose another backend, or add to the cluster what it lacks.",
        needs_person=True,
    ),
    names.REASON_TOPOLOGY_CHANGED: Explanation(
        "The ClusterTopology has changed since the groups were made, which the API server lets nobody change.",
        "Nothing need be done; to use the new levels, change spec.topology, or suspend the resource and resume it.",
    ),
    names.REASON_GROUPS_FIXED: Explanation(
        "What was changed stands in groups that the API server lets nobody change. Their units are made anew one after "
        "another, those that serve last: another unit is built beside each, and it goes once that one serves.",
        "Nothing where there is capacity for one unit more; else free nodes, take the change back, or let units be taken down "
        "first by the annotation that the message names.",
    ),
    names.REASON_INVALID_TOPOLOGY: Explanation(
        "The spec names a topology or a level that does not exist, or levels in the wrong order; or the topology with which "
        "pods were placed is gone. Where only the nodes lack the level, the resource waits for others.",
        "Correct the level, or create the ClusterTopology; covey top shows what levels nodes have.",
        needs_person=True,
    ),
    names.REASON_TEMPLATE_REJECTED: Explanation(
        "The API server does not take the pods that a template makes.",
        "Correct the template, or the policy that denies its pods; a policy is asked again by itself.",
        needs_person=True,
    ),
    "NameTaken": Explanation(
        "An object of a name that Covey needs is there already and belongs to somebody else; or to nobody, and it is not as "
        "Covey would make it, so that it is not adopted.",
        "Delete that object, where the message has a command by that; or give the resource or its role another name.",
        needs_person=True,
    ),
    names.REASON_QUOTA_EXCEEDED: Explanation(
        "A ResourceQuota of the namespace does not allow the pods: for the whole minimum of a unit, before which "
        "no pod of it is created, or for more replicas.",
        "Raise the quota that the message names, or ask for less; it is looked at again when a quota changes.",
    ),
    "RequestRefused": Explanation(
        "The API server, or a webhook that it asks, has refused something that Covey wrote.",
        "Read the message: access rules, a webhook that does not answer, or a policy; it is tried again by itself.",
    ),
    "Supported": Explanation("The cluster has what the backend needs."),
    # Routers
    "AwaitingMinimum": Explanation("Another revision takes all requests until this one has as many replicas Ready."),
    "NoNodesForBoth": Explanation(
        "It has taken over below its minimum: the former was not whole any more.", "Free nodes, raise maxSurge."
    ),
    "LacksCapability": Explanation("Too few replicas serve this part of a request.", "See the router's controller."),
    "PoolsSwitchedOff": Explanation("The operator makes no InferencePools.", "Set the chart's routing.inferencePools."),
    "PoolsNotServed": Explanation("The cluster does not know InferencePools.", "Install the CRD of the gateway."),
    # A vector of roles that are scaled together
    "Judging": Explanation(
        "The targets of a RoleScaler are being judged as a whole; nothing moves meanwhile.",
        "Nothing, if it passes within seconds; else see whether the scheduler process runs.",
    ),
    "NoPlan": Explanation(
        "The replicas that the targets ask for have no nodes, or no quota, even without those that would go. Nothing has moved.",
        "Write one of the vectors that the message names, or free nodes; it is judged again every minute.",
    ),
    "OverBudget": Explanation(
        "The targets ask for more than spec.scaling.budget, or for more pods than a resource may have. Nothing has moved.",
        "Write targets that ask for less, or raise the budget.",
    ),
    "Draining": Explanation("The targets are in force, and some of the replicas that go still drain."),
    "Committed": Explanation("The targets of the RoleScaler are in force."),
    # The place
    names.REASON_SUSPENDED: Explanation(
        "spec.suspend is true: there are no pods, and nothing waits in the queue.",
        "Set spec.suspend to false to start it.",
    ),
    names.REASON_DELETING: Explanation(
        "The resource is being deleted, and its pods are going; nothing of it is made anew.",
        "Nothing; where it lasts, see what keeps its pods: their grace periods, and finalizers of others.",
    ),
    names.REASON_WAITING: Explanation(
        "Nothing has been decided yet: pods or groups are being created, or the scheduler is about to look.",
        "Nothing, if it passes within seconds; else see whether the scheduler process runs.",
    ),
    names.REASON_INFEASIBLE: Explanation(
        "There is no capacity for the whole minimum of the unit; nothing of it starts before there is.",
        "Free or add what the message says is short, or ask for less; covey plan tries changes without making them.",
    ),
    names.REASON_UNKNOWN: Explanation(
        "The search for nodes met its limit before it found some or could say that there are none.",
        "It is tried again whenever capacity comes free; fewer kinds of roles or a narrower level make the search easier.",
    ),
    # Nodes that are asked for
    "ProviderMissing": Explanation(
        "The cluster does not know the kind of object in which nodes are to be asked for, so nobody is asked.",
        "Install the CRD that the autoscaler brings, or choose another capacity.provider.",
    ),
    "LevelUnknown": Explanation(
        "The spec requires a level, and no ClusterTopology says which labels of nodes it stands in: nodes that would not lie "
        "in one domain are not asked for.",
        "Create a ClusterTopology, or name a preset in spec.topology.name.",
    ),
    "CapacityFailed": Explanation(
        "The autoscaler has given a request for nodes up; what else was asked for the unit is withdrawn. It is asked again "
        "after a while, later each time.",
        "Read its words in the message; to ask again at once, delete the PodTemplate that the message names.",
    ),
    "NoCapacity": Explanation(
        "The autoscaler cannot have the nodes now, and tries again by itself; what else was asked for the unit is withdrawn.",
        "See its limits and the cloud's; there may be no node group in which all of the pods fit.",
    ),
    "Disagreed": Explanation(
        "The autoscaler says that the pods fit on the nodes that there are; the planner says that they do not, which is "
        "told. Levels and capacity that is kept for others are known to the planner alone.",
        "covey explain says what is short; where a level is required, see that a whole domain can come.",
    ),
    "NothingCame": Explanation(
        "Nodes were to come, and the unit is not assigned any yet. Where none came they are asked for again after a while, later "
        "each time; where some came and did not help they are not.",
        "See the autoscaler's nodes; to ask again at once, delete the PodTemplate that the message names.",
    ),
    "NoAnswer": Explanation(
        "Nobody has answered a request for nodes for capacity.waitSeconds.",
        "See whether the autoscaler runs and reads such requests: both have a flag for it that is off by default.",
    ),
    "Asked": Explanation("An autoscaler has been asked for nodes, and has not answered yet."),
    "Coming": Explanation("The autoscaler makes nodes; the unit is placed as soon as they are Ready."),
    names.REASON_RESERVED: Explanation(
        "Nodes are reserved for the pods of a labelled Job, which are created next; after a minute they are free again."
    ),
    names.REASON_BELOW_MINIMUM: Explanation(
        "A unit that has served has lost replicas and has fewer than its minimum; they are being replaced.",
        "See which pods are missing and why; the message of Admitted says what keeps successors from nodes.",
    ),
    names.REASON_PARTIALLY_ADMITTED: Explanation(
        "Some units are assigned nodes, others wait for capacity.",
        "The message names the unit and what is short for it.",
    ),
    names.REASON_DENIED: Explanation(
        "The API server does not let the scheduler process write a pod's node.",
        "Find the policy or the webhook that the message names; it is tried again by itself.",
    ),
    names.REASON_UNSCHEDULABLE: Explanation(
        "kube-scheduler does not bind the pods where they were placed, for something that Covey does not model.",
        "Read its words in the message: a claim, a volume, affinity to pods; it is tried again by itself, ever later.",
    ),
    names.REASON_OVER_QUOTA: Explanation(
        "The queue of the unit has no quota left for its minimum, and may borrow none.",
        "Wait until others of the queue end, ask for less, or have the quota raised; the message says what is short.",
    ),
    names.REASON_QUEUE_AMBIGUOUS: Explanation(
        "Several Queues select the namespace, and the resource names none of them.", "Name one in spec.queue."
    ),
    names.REASON_QUEUE_NOT_FOUND: Explanation(
        "The Queue that the resource names does not exist, so that nothing more of it is placed; what runs stays.",
        "Name another in spec.queue, or have it created.",
    ),
    names.REASON_QUEUE_DENIED: Explanation(
        "The Queue that the resource names does not select its namespace.",
        "Name another in spec.queue, or have the namespace, or the Queue's selector, changed.",
    ),
    names.REASON_FAILED: Explanation(
        "The planner has ended with an error on this gang; others are not affected.",
        "Report it, with the log of the scheduler process; it is tried again when the cluster changes.",
    ),
    names.REASON_ADMITTED: Explanation("Every unit is assigned nodes."),
    "HierarchyByGates": Explanation(
        "Covey's own gates hold the gang, since the backend's groups know no hierarchy.",
        "Nothing; what this does not guarantee is said in docs/reference/backends.md.",
    ),
    "GroupsIgnored": Explanation(
        "kube-scheduler does not heed the groups: it binds pods without them, or says nothing of them.",
        "Turn on the feature gates that docs/reference/backends.md names on kube-scheduler, too.",
    ),
    "GroupTerminating": Explanation(
        "A group that somebody has deleted stays until its pods are gone; no pod is touched for it.",
        "Nothing; the replicas below it are made anew with it when they are lost.",
    ),
    "Preferred": Explanation("Every preferred level is reached."),
    "NotReached": Explanation(
        "The pods are assigned nodes that are farther from each other than preferred.",
        "Nothing, if that is good enough; else free nodes in one domain and let the unit be placed anew.",
    ),
    # The start
    "NotBound": Explanation(
        "The minimum is assigned nodes, and kube-scheduler has not bound all of its pods yet.",
        "Nothing, if it passes within seconds; a node that is lost meanwhile is planned again.",
    ),
    "GroupNotGone": Explanation(
        "A group, or a domain of the interconnect, is being deleted for more than a minute, and pods cannot be made before it "
        "has gone: somebody's finalizer holds it.",
        "Have the controller that set the finalizer take it away, or take it away yourself.",
    ),
    "FieldRewritten": Explanation(
        "Somebody changes a field of an object of the resource each time after it was written: a mutating admission policy or "
        "webhook, or another controller. The message names the object, the field and both values. It is left as it is, and "
        "written again after 10 s, and later after 10 minutes at most.",
        "Have whoever changes it leave objects with the label covey.dev/inference alone.",
    ),
    "StartHeld": Explanation(
        "Pods are assigned nodes and wait for others to start first: dependsOn, startup, or a back-off.",
        "See the pods of the role that is waited for.",
    ),
    "NotReady": Explanation(
        "The minimum is bound, and not all of its pods are Ready.",
        "See these pods: images, probes, loading of weights.",
    ),
    "Starting": Explanation("Objects are being created, or pods are starting."),
    "SurplusWaiting": Explanation(
        "The minimum serves, and replicas beyond it wait for nodes or are starting.",
        "Nothing, if the minimum is enough for now; else see the message, which says who refuses them and why.",
    ),
    "Scheduled": Explanation("Every unit has its minimum bound."),
    "Available": Explanation("Every unit has its minimum Ready."),
    "Ready": Explanation("All that is wanted is Ready."),
    "Complete": Explanation("All that is wanted runs, of the revision that is wanted."),
    "AsExpected": Explanation("Nothing that has served is missing."),
    # Failures
    "RestartsExhausted": Explanation(
        "A replica has failed more often in a row than restart.maxRestarts allows, and is left as it is.",
        "Correct what fails (a template that works is rolled out), raise maxRestarts, or delete its pods for one more try.",
        needs_person=True,
    ),
    "NodeAvoided": Explanation(
        "Replicas have failed on these nodes again and again; new pods keep off them for a while.",
        "See what is wrong there, and cordon what is broken.",
    ),
    "MinimumMet": Explanation("Every unit is assigned nodes for its minimum."),
    "RoleMoves": Explanation(
        "A role of a unit that serves nobody is about to be placed anew, with its unit's other roles where they are.",
        "Nothing; to keep it where it is, free or repair nodes there before the time that the message names.",
    ),
    "UnitMoves": Explanation(
        "A unit that serves nobody is about to be placed anew as a whole, for there is no capacity for what it lost where it is.",
        "Nothing; to keep it where it is, free or repair nodes there before the time that the message names.",
    ),
    "Preempted": Explanation(
        "kube-scheduler has evicted a pod of a unit for another, and what is left serves nobody: it goes, too, unless the "
        "successor finds capacity.",
        "Nothing; give the system's pods and gangs nodes of their own where that is frequent.",
    ),
    "TerminationDelay": Explanation(
        "A unit has been below its minimum for long and goes down after spec.gang.terminationDelaySeconds.",
        "Free or repair nodes before that time, or raise terminationDelaySeconds.",
    ),
    # Nodes that are to be empty
    "NodeLeaving": Explanation(
        "Replicas have pods on nodes that are cordoned, drained or about to be deleted, and are built elsewhere first.",
        "Nothing; uncordon the node to keep what has not moved yet.",
    ),
    "ServesNobody": Explanation(
        "A replica that does not get Ready is on a node that is to be empty. It serves nobody, so the budget of the namespace "
        "leaves its pods alone (covey.dev/gang: idle): whoever drains the node may evict them.",
        "Nothing for the drain; see why its pods are not Ready. What gets Ready is kept again.",
    ),
    "UnitMoving": Explanation(
        "A unit is moved as a whole, since its domain has no capacity for what has to leave its nodes.",
        "Nothing; uncordon the nodes to keep it where it is.",
    ),
    "NoNodes": Explanation(
        "There is no capacity for successors, and no replica may be missing, so the old ones stay on nodes that are to be empty.",
        "Add or free nodes, lower minReplicas, or set spec.disruption.allowBelowMinimum; or uncordon the node.",
    ),
    "NoSurge": Explanation(
        "Replicas stay on nodes that are to be empty: none may be missing, and update.maxSurge allows no successor.",
        "Raise maxSurge or replicas.",
    ),
    # Room that is taken from others
    "Preemption": Explanation(
        "Capacity is taken for the minimum of a unit from replicas of a lower priority: surplus ones one by one, then whole "
        "units. What gives way drains, goes whole, and waits in line for other nodes.",
        "Nothing; a resource that must not give way needs a higher priority, or nodes that others may not use.",
    ),
    "Reclaim": Explanation(
        "Capacity that was borrowed is given back to the queue that it belongs to.",
        "Nothing; what shall stay has to fit into the share of its own queue.",
    ),
    "Exchange": Explanation("Replicas of a role give way to those of another role of the unit, as its scaling asks."),
    "Evacuation": Explanation("Replicas leave nodes that are to be empty, and capacity is kept for their successors."),
    "Succession": Explanation("Replicas go for their successors in a rollout, and their capacity is kept for these."),
    "Capacity": Explanation("Some of the nodes that an autoscaler was asked for have come, and are kept for the unit."),
    # Scaling from outside (conditions of RoleScalers)
    "DesiredWithinRange": Explanation("The role has as many replicas as the autoscaler asks for."),
    "TooFewReplicas": Explanation(
        "The autoscaler asks for fewer replicas than scaling.min or minReplicas of all units allow.",
        "Lower the minimum.",
    ),
    "TooManyReplicas": Explanation(
        "The autoscaler asks for more replicas than scaling.max allows.", "Raise the maximum."
    ),
    # Rollouts
    "RollingOut": Explanation(
        "Replicas of another revision are being replaced.", "covey rollout status --watch shows how far it is."
    ),
    "RolloutPaused": Explanation(
        "A rollout is paused: nothing is replaced.", "Set spec.rollout.paused to false, or: covey rollout resume."
    ),
    "ProgressDeadlineExceeded": Explanation(
        "A rollout has got no further for progressDeadlineSeconds, and is held.",
        "See the pods of the new revision; correct the spec, or go back: covey rollout undo.",
        needs_person=True,
    ),
    "RevisionUnknown": Explanation(
        "Replicas are of revisions whose ControllerRevisions are gone: what they run is not known, and they are not rolled.",
        "Delete their pods, one replica after another: they are made anew of the revision in force.",
    ),
    "RolledBack": Explanation(
        "The newest revision did not get ready in time; the newest that was once complete is in force again.",
        "Correct the spec; covey rollout history shows what there was.",
        needs_person=True,
    ),
}

#: What a rollout waits for (``status.rollout.hold.gate``).
GATES: Final[Mapping[str, Explanation]] = {
    "Failed": REASONS["ProgressDeadlineExceeded"],
    "Paused": REASONS["RolloutPaused"],
    "Unsupported": Explanation(
        "The change cannot be brought in beside what runs.",
        "Suspend the resource until its pods are gone and resume it, or take the change back.",
        needs_person=True,
    ),
    "Nodes": Explanation(
        "New replicas have no nodes, and it is not proven that giving up old ones would give them some: nothing goes.",
        "See the message, which says who refuses them and why: correct the template, free or add nodes, raise a quota, or "
        "let replicas be missing with update.maxUnavailable.",
    ),
    "Readiness": Explanation(
        "New replicas are not Ready yet.", "See their pods; after progressDeadlineSeconds the rollout is held."
    ),
    "Partition": Explanation(
        "A partition keeps replicas of the revision before; that is as wanted.", "Lower update.partition to go on."
    ),
    "Budget": Explanation("No more replicas may be missing now.", "Wait until others serve, or raise maxUnavailable."),
}

#: Why a pod gave up its place before it was bound (the annotation ``scheduling.covey.dev/release``).
RELEASES: Final[Mapping[str, Explanation]] = {
    names.RELEASE_TIMEOUT: Explanation(
        "The gang was not whole within spec.gang.timeoutSeconds.", "See why some of its pods were not bound."
    ),
    names.RELEASE_UNSCHEDULABLE: Explanation(
        "kube-scheduler found that the pod cannot run on its node.",
        "The node is left out for a while; the message of Admitted says what the planner does not model.",
    ),
    names.RELEASE_NODE_LOST: Explanation("Its node has gone, or does not answer."),
    names.RELEASE_CONFLICT: Explanation("Somebody else has changed the pod while it was let go."),
    names.RELEASE_GROUP_DELETED: Explanation(
        "Its group, one of Kubernetes' own, is being deleted and starts nothing more."
    ),
    names.RELEASE_GIVEN_BACK: Explanation(
        "Its gang lacks pods, and so does an older one of the namespace, which may need the quota that this pod took."
    ),
    names.RELEASE_UNMARKED: Explanation(
        "It was made by an older release, without the mark by which your kube-scheduler asks Covey for its binding."
    ),
    names.RELEASE_CAPACITY_TAKEN: Explanation("Somebody else has taken the capacity of its node; it is planned again."),
}


#: Words of the column STATUS that are no reasons. Those of containers are the kubelet's; it has more, which are shown as they are.
STATUSES: Final[Mapping[str, Explanation]] = {
    "Serving": Explanation("All that is wanted serves, of the revision that is wanted."),
    "ScaledToZero": Explanation("spec.replicas is 0, so there are no pods.", "Scale it up when it shall serve."),
    names.DEGRADED: Explanation(
        "A unit that has served is below its minimum, or something else is not as it should be; the message says what.",
        "Read the message; what is lost is being replaced.",
    ),
    "ImagePullBackOff": Explanation(
        "The kubelet cannot pull the image of a container.",
        "Correct the image's name, or give the pods the pull secret, or let nodes reach the registry.",
    ),
    "CrashLoopBackOff": Explanation(
        "A container ends again and again; the kubelet waits longer each time before it starts it.",
        "See covey logs NAME --previous, and the exit code in the message: 137 with OOMKilled is the memory limit.",
    ),
    "OOMKilled": Explanation(
        "A container has used more memory than its limit, and was killed.", "Raise its limit, or let it use less."
    ),
    "Error": Explanation(
        "A container has ended with an error.", "See its log: covey logs NAME, with --previous that of the last run."
    ),
    "CreateContainerConfigError": Explanation(
        "A container cannot be made: a ConfigMap, a Secret or a key of one is missing.",
        "Create what the message names.",
    ),
}


def explain(reason: str) -> Explanation | None:
    """The explanation of a reason; None for one that is not Covey's: a scheduler's own word."""
    return REASONS.get(reason) or GATES.get(reason) or RELEASES.get(reason) or STATUSES.get(reason)


def needs_person(reason: str) -> bool:
    """Tell whether only a person can help."""
    explanation = explain(reason)
    return explanation is not None and explanation.needs_person
