"""The metrics of the scheduler process."""

from itertools import product
from typing import Final

from covey.api.constants import QUOTA_REFUSALS, REFUSALS
from covey.observability.families import FAST, LIFE, SLOW, Families

FAMILIES: Final = Families("Scheduler process")
_QUOTA: Final = ", ".join(f"`{reason}`" for reason in QUOTA_REFUSALS)

# Planner and admission
PLAN_DURATION: Final = FAMILIES.histogram(
    "covey_plan_duration_seconds",
    "Planning one gang: `Admitted`, `Infeasible`, `Unknown` (the search limit was met).",
    "verdict",
)
GANG_ADMISSIONS: Final = FAMILIES.counter(
    "covey_gang_admissions_total",
    "Admissions committed: `minimum`, `surplus`. A minimum that was lost and is admitted again counts again.",
    "kind",
    values=("minimum", "surplus"),
)
GANG_REPLANS: Final = FAMILIES.counter(
    "covey_gang_replans_total",
    "Minimums admitted again, of gangs that had been admitted before: `PinsReleased` (pins were given up before the gang"
    " was bound whole), `PodsLost` (pods that were bound were lost), `Other` (a rollout, a move, more replicas in the"
    " minimum, or pods that somebody else replaces).",
    "cause",
    values=("PinsReleased", "PodsLost", "Other"),
)
GANG_REFUSALS: Final = FAMILIES.counter(
    "covey_gang_refusals_total",
    f"Plans that found no nodes: `Infeasible`, `SearchLimit`, and gangs that were not planned for want of quota: {_QUOTA}."
    " A gang is planned again whenever capacity comes free.",
    "reason",
)
HEADROOM_DURATION: Final = FAMILIES.histogram(
    "covey_headroom_duration_seconds",
    "Looking how many replicas of one role would fit, when somebody asked: `known`, `unknown`, `broken_off` (a gang was"
    " waiting to be planned; it is tried again).",
    "result",
)
HEADROOM_QUESTIONS: Final = FAMILIES.gauge(
    "covey_headroom_questions", "Resources whose question for head-room is not answered yet."
)
REFUSALS_UNTOLD: Final = FAMILIES.gauge(
    "covey_refusals_untold",
    "Gangs whose status is behind what was decided, because refusals are told at a bounded pace (20 statuses and Events a"
    " second): the `verdict` has changed, or only `numbers` in its message.",
    "change",
)
REFUSALS_UNCHECKED: Final = FAMILIES.gauge(
    "covey_refusals_unchecked_age_seconds",
    "Age of the oldest refusal since which capacity or nodes have changed: the gang may fit by now. Such refusals are looked at"
    " again after a minute, one a second; 0 when there is none.",
)
UNREAD_GROUPS: Final = FAMILIES.gauge(
    "covey_pods_of_unread_groups",
    "Gated pods that name their group by `spec.workloadRef` (Kubernetes 1.35), which is not read where `gangs.native` is on.",
)
GANGS_WAITING: Final = FAMILIES.gauge(
    "covey_gangs_waiting",
    "Gangs whose minimum is not assigned nodes: `Waiting` (pods are missing, or about to be planned),"
    f" {', '.join(f'`{reason}`' for reason in REFUSALS)}, `Other`.",
    "reason",
)
GANGS_WAITING_OLDEST: Final = FAMILIES.gauge(
    "covey_gangs_waiting_oldest_age_seconds",
    "How long the gang that has waited longest has waited, of those that wait for this reason now; 0 when none does.",
    "reason",
)
GANG_CREATED_TO_ADMITTED: Final = FAMILIES.histogram(
    "covey_gang_created_to_admitted_seconds",
    "From the creation of a gang until its minimum was admitted, once for each gang.",
    buckets=LIFE,
)
GANG_ADMITTED_TO_BOUND: Final = FAMILIES.histogram(
    "covey_gang_admitted_to_bound_seconds",
    "From the admission of a gang's minimum until all of it was bound, once for each gang.",
    buckets=LIFE,
)
CAPACITY_HELD: Final = FAMILIES.gauge(
    "covey_capacity_held_pods", "Lost pods whose capacity is held for their successors (spec.disruption.holdSeconds)."
)
ROOM_HELD: Final = FAMILIES.gauge(
    "covey_room_held_pods", "The former name of `covey_capacity_held_pods`, until the next release."
)
DOMAINS_RESERVED: Final = FAMILIES.gauge(
    "covey_domains_reserved", "Gangs that have waited so long that a domain is kept for them."
)
CLAIMS: Final = FAMILIES.counter(
    "covey_claims_total",
    "Claims by which others give way to a gang that waits: `Made`; `Placed`, the gang is assigned nodes; `GivenUp`, it fits"
    " no more, is gone, or came no nearer for long; `TooLarge`, none was made, since more would have to go than an object can"
    " name (256 victims, 256 KiB).",
    "purpose",
    "outcome",
    values=tuple(product(("Preemption", "Reclaim", "Exchange"), ("Made", "Placed", "GivenUp", "TooLarge"))),
)
PREEMPTIONS_SERVED: Final = FAMILIES.gauge(
    "covey_preemptions_served",
    "1 where the API server knows Preemptions; 0 after an upgrade without their CRD: capacity is taken as before, and nobody"
    " is told by `kubectl get preemptions`.",
)
PREEMPTION_FAILURES: Final = FAMILIES.counter(
    "covey_preemption_write_failures_total",
    "Preemptions that could not be written before their claim was; they are tried again.",
)
CLAIM_SEARCH: Final = FAMILIES.histogram(
    "covey_claim_search_duration_seconds", "Looking for the least that has to give way to a gang that waits."
)
PODS_RELEASED: Final = FAMILIES.counter(
    "covey_pods_released_total",
    "Pins given up before the pod was bound: `Timeout`, `Unschedulable`, `NodeLost`, `Conflict`, `CapacityTaken`, `GroupDeleted`,"
    " and, of pods that wait, `Unmarked` (of an older release) and `GivenBack` (to an older gang that lacks pods).",
    "reason",
    values=(
        "Timeout",
        "Unschedulable",
        "NodeLost",
        "Conflict",
        "CapacityTaken",
        "Unmarked",
        "GroupDeleted",
        "GivenBack",
    ),
)
NODE_EXCLUSIONS: Final = FAMILIES.counter(
    "covey_node_exclusions_total",
    "Times that a node was left out for a gang for a while, because kube-scheduler refused one of its pods there although"
    " it fits by all that Covey models.",
)

# Quota
QUEUE_AMOUNTS: Final = {
    kind: FAMILIES.gauge(f"covey_queue_{kind}", meaning, "queue", "resource")
    for kind, meaning in {
        "nominal": "Amount of a resource that a Queue has by right, over all its flavors; of the first 100 queues by name.",
        "used": "Amount that is charged to a Queue: minimums and surplus replicas that have their nodes.",
        "borrowed": "Amount of that which is beyond its nominal.",
        "lent": "Amount of a Queue's nominal that others of its cohort have.",
        "waiting": "Amount that pods without nodes ask for, which would be charged to a Queue.",
    }.items()
}
QUEUE_OLDEST: Final = FAMILIES.gauge(
    "covey_queue_minimums_waiting_oldest_age_seconds",
    "How long the minimum that would be within its Queue's nominal, and has waited longest, has waited; 0 when none does.",
    "queue",
)
QUEUES_SERVED: Final = FAMILIES.gauge(
    "covey_queues_served",
    "1 where the API server knows Queues; 0 after an upgrade without their CRD: no quota is counted.",
)

# Placement quality
PREFERRED_LEVELS: Final = FAMILIES.counter(
    "covey_gang_preferred_levels_total",
    "Preferred levels of the minimums that were admitted, each as often as its gang: what prefers it (`unit`, `role`,"
    " `group`, `proximity`), the level that is preferred, and the narrowest one that was reached, at most as narrow as"
    " that (`cluster`: none is shared). `satisfied` is `true` where they are the same. `Other` is no level of the"
    " topology.",
    "scope",
    "preferred",
    "reached",
    "satisfied",
)
DEVICES: Final = FAMILIES.collected_gauge(
    "covey_devices",
    "Devices (GPUs and the like) by what they are (the resource, and the product where nodes carry a label of it) and"
    " state: `used`; free on nodes that gangs may use and none of whose devices of the kind is used (`whole`); free on"
    " partly used nodes (`partial`); free on nodes that are cordoned or not ready (`closed`). Their sum is what the nodes"
    " have. `covey top` calls `partial` and `closed` stranded.",
    "resource",
    "product",
    "state",
)
DEVICES_STRANDED: Final = FAMILIES.collected_gauge(
    "covey_devices_stranded",
    "Free devices that a pod, or a gang, which wants a whole domain of the level cannot have: those in domains with a used"
    " device of the kind or a closed node, and those on nodes without the level.",
    "resource",
    "product",
    "level",
)
DEVICES_LARGEST_GANG: Final = FAMILIES.collected_gauge(
    "covey_devices_largest_gang",
    "The largest gang that would still fit, in devices: the most that are `whole` in one domain of the level; `cluster` is"
    " everything. CPU, memory, taints and selectors of a gang are not looked at.",
    "resource",
    "product",
    "level",
)
DEVICES_FRAGMENTATION: Final = FAMILIES.collected_gauge(
    "covey_devices_fragmentation_ratio",
    "How much smaller the largest gang is than it could be: 1 - largest gang / the smaller one of all devices free on nodes"
    " that are not closed, and of what the largest domain of the level has on such nodes. 0 when nothing is free. For the"
    " level `cluster` it is the share of what is free there that a pod which wants a whole node cannot have.",
    "resource",
    "product",
    "level",
)
FREE_DOMAINS: Final = FAMILIES.collected_gauge(
    "covey_free_domains",
    "Domains of the level that are wholly free: with devices of the kind, none of them used, and no closed node that has"
    " some. `covey plan --defrag` says which moves would free another.",
    "resource",
    "product",
    "level",
)
DEVICE_KINDS_DROPPED: Final = FAMILIES.collected_gauge(
    "covey_device_kinds_dropped",
    "Kinds of devices that are not shown, because there are more than 16; those of which there are most are shown.",
)
DEVICES_UNGUARDED: Final = FAMILIES.collected_gauge(
    "covey_devices_unguarded",
    "1 for a resource of nodes for whose pods an attached kube-scheduler does not ask Covey: they may take reserved capacity, and"
    " preempt members. Add it to `scheduler.extender.guardedResources`.",
    "resource",
)

# Extender
BARRIER_WAIT: Final = FAMILIES.histogram(
    "covey_barrier_wait_seconds", "How long a bind call was held until its gang was complete.", buckets=SLOW
)
BARRIER_HELD: Final = FAMILIES.gauge("covey_barrier_held", "Bind calls held now.")
EXTENDER_REQUESTS: Final = FAMILIES.counter(
    "covey_extender_requests_total",
    "kube-scheduler's calls: `filter`, `preempt`, `bind`; `ok`, `refused`, `unavailable` (not synced), `bad`, `too_large`,"
    " `busy`, `timeout`, `hung_up`. Connections that came to no call: `connect`; `denied`, `too_many`,"
    " `wrong_name` (a certificate of the authority with a name that may not call).",
    "verb",
    "result",
    values=(
        *product(
            ("filter", "preempt", "bind"),
            ("ok", "refused", "unavailable", "bad", "too_large", "busy", "timeout", "hung_up"),
        ),
        ("connect", "denied"),
        ("connect", "too_many"),
        ("connect", "wrong_name"),
    ),
)
EXTENDER_DURATION: Final = FAMILIES.histogram(
    "covey_extender_request_duration_seconds",
    "From a call's head to its answer; a bind call's includes the time that it was held.",
    "verb",
    buckets=(*FAST, 60.0, 300.0, 900.0, 3600.0),
)
CERTIFICATE_RELOADS: Final = FAMILIES.counter(
    "covey_extender_certificate_reloads_total",
    "Changed certificate files read again: `success`, `error` (the old ones stay in force).",
    "result",
    values=("success", "error"),
)
CALLER_EXPIRATION: Final = FAMILIES.gauge(
    "covey_extender_caller_certificate_expiration_timestamp_seconds",
    "When the certificate expires with which a name has last called, since the epoch.",
    "name",
)
