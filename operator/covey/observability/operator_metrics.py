"""The metrics of the operator."""

from itertools import product
from typing import Final

from covey.api import constants as names
from covey.observability.families import LIFE, Families, Family

FAMILIES: Final = Families("Operator")
#: Reasons of the condition CapacityAsked.
CAPACITY_REASONS: Final = (
    names.REASON_PROVIDER_MISSING,
    names.REASON_LEVEL_UNKNOWN,
    names.REASON_CAPACITY_FAILED,
    names.REASON_NO_CAPACITY,
    names.REASON_DISAGREED,
    names.REASON_NOTHING_CAME,
    names.REASON_NO_ANSWER,
    names.REASON_ASKED,
    names.REASON_COMING,
)

RECONCILE_TOTAL: Final = FAMILIES.counter(
    "covey_reconcile_total",
    "Reconciles: `success`, `requeue` (comes back after a while, by intention), `error`.",
    "result",
    values=("success", "requeue", "error"),
)
RECONCILE_DURATION: Final = FAMILIES.histogram("covey_reconcile_duration_seconds", "Wall time of one reconcile.")
KOPF_RESTARTS: Final = FAMILIES.counter(
    "covey_kopf_restarts_total",
    "Times that Kopf was started again within the process: `failed` (it ended by an error), `served` (a kind that was not"
    " served is now), `deaf` (it has not told of an object within a minute).",
    "cause",
    values=("failed", "served", "deaf"),
)
PROBES_UNANSWERED: Final = FAMILIES.gauge(
    "covey_probes_unanswered",
    "1 where the last dry run that asks what the API server keeps of a backend's fields had no answer: an error, or a"
    " policy that denies it (--probe-namespace, --probe-image). What was known before still counts.",
    "probe",
)

# A gang's life
GANG_BOUND_TO_READY: Final = FAMILIES.histogram(
    "covey_gang_bound_to_ready_seconds",
    "From the last bind of a gang's minimum until all of it was Ready, once for each gang.",
    buckets=LIFE,
)
GANG_CREATED_TO_READY: Final = FAMILIES.histogram(
    "covey_gang_created_to_ready_seconds",
    "From the creation of a gang until its minimum was Ready, once for each gang: the whole start.",
    buckets=LIFE,
)
CLAIMS_UNCOUNTED: Final = FAMILIES.counter(
    "covey_claims_uncounted_total",
    "Looks at ResourceQuotas for which templates of claims could not be read (no right, an API that is not served, more"
    " than 512 of them): each claim counted as one object, and its devices not at all.",
)
GANG_DEGRADATIONS: Final = FAMILIES.counter(
    "covey_gang_degradations_total", "Times that a gang whose minimum was Ready fell below it."
)
GANG_ESCALATIONS: Final = FAMILIES.counter(
    "covey_gang_escalations_total",
    "Times that something of a gang below its minimum was given up so that it can be placed anew: `Role` (its roles that"
    " have too few), `Unit`, `Termination` (the unit, by spec.gang.terminationDelaySeconds).",
    "step",
    values=("Role", "Unit", "Termination"),
)
REPLICA_FAILURES: Final = FAMILIES.counter(
    "covey_replica_failures_total",
    "Replicas that failed: a pod ended by itself (`PodFailed`), the kubelet did not take it (`PodRefused`), a container"
    " restarted after the replica had been Ready (`ContainerRestarted`), it was not Ready in time"
    " (`StartDeadlineExceeded`).",
    "reason",
    values=("PodFailed", "PodRefused", "ContainerRestarted", "StartDeadlineExceeded"),
)
NODES_AVOIDED: Final = FAMILIES.collected_gauge(
    "covey_nodes_avoided",
    "Nodes that new pods of some resource keep off, because replicas have failed there again and again, or because an"
    " autoscaler may delete them.",
)

#: Values of labels that are called otherwise now, new → old: both are counted until the next release.
FORMER: Final = {"Nodes": "Room", "NoNodes": "NoRoom"}

# Rollouts
ROLLOUTS_STARTED: Final = FAMILIES.counter(
    "covey_rollouts_started_total",
    "Rollouts begun: `Spec` (another revision is asked for), `StepBack` (the one before is brought back, since the newest"
    " did not get Ready in time and onFailure is Rollback).",
    "cause",
    values=("Spec", "StepBack"),
)
ROLLOUTS_FINISHED: Final = FAMILIES.counter(
    "covey_rollouts_finished_total",
    "Rollouts ended: `Completed`, `Unready` (nothing else is left, and not all of the new revision is Ready within"
    " progressDeadlineSeconds), `RolledBack` (given up; a step back follows), `Superseded` (yet another revision is asked"
    " for), `Withdrawn` (the resource was suspended, or its spec can no longer be had). One whose resource is deleted ends"
    " uncounted.",
    "result",
    values=("Completed", "Unready", "RolledBack", "Superseded", "Withdrawn"),
)
ROLLOUT_HOLDS: Final = FAMILIES.counter(
    "covey_rollout_holds_total",
    "Times that a rollout began to wait, by what it waits for: `Failed` (no progress for progressDeadlineSeconds),"
    " `Paused`, `Unsupported`, `Nodes`, `Readiness`, `Partition`, `Budget`. To wait for `Readiness` is part of every"
    " rollout. What is `Nodes` counts as `Room`, too, its former name, until the next release.",
    "gate",
    values=("Failed", "Paused", "Unsupported", "Nodes", "Readiness", "Partition", "Budget", FORMER["Nodes"]),
)
ROLLOUTS: Final = FAMILIES.collected_gauge(
    "covey_rollouts_in_progress",
    "Rollouts that are on their way, held or not; one that a partition keeps from its end stays among them.",
)
ROLLOUTS_HELD: Final = FAMILIES.collected_gauge(
    "covey_rollouts_held", "Those of them that wait, by what they wait for (as `covey_rollout_holds_total`).", "gate"
)

# Nodes that are to be empty
EVACUATIONS_STARTED: Final = FAMILIES.counter(
    "covey_evacuations_started_total",
    "Evacuations begun: a resource has replicas on nodes that are cordoned, drained or about to be deleted. One for each"
    " resource, from the first such replica until none is left.",
)
EVACUATIONS_FINISHED: Final = FAMILIES.counter(
    "covey_evacuations_finished_total",
    "Evacuations ended: no replica is left on such a node, since they have moved or the nodes may be used again.",
)
EVACUATIONS_BLOCKED: Final = FAMILIES.counter(
    "covey_evacuations_blocked_total",
    "Times that an evacuation got stuck: `NoNodes` (for successors), `NoSurge` (update.maxSurge allows none). What is"
    " `NoNodes` counts as `NoRoom`, too, its former name, until the next release. Stuck now:"
    ' `covey_workloads{condition="EvacuationBlocked"}`.',
    "reason",
    values=("NoNodes", "NoSurge", FORMER["NoNodes"]),
)
REPLICAS_EVACUATED: Final = FAMILIES.counter(
    "covey_replicas_evacuated_total",
    "Replicas that were taken off a node that is to be empty, whether their successors stand already or not.",
)

# Room for others
EVICTION_ANSWERS: Final = FAMILIES.counter(
    "covey_eviction_answers_total",
    "Answers in the status of Evictions (lifecycle.k8s.io) of pods, by what they say: how far the move of the replica has"
    " come (`Progress`), that the operator is done (`Completed`), or that the API server did not take the answer"
    " (`Refused`: rights, or a clock that is off by more than half a minute).",
    "result",
    values=(("Progress",), ("Completed",), ("Refused",)),
)
VICTIMS: Final = FAMILIES.counter(
    "covey_victims_total",
    "Replicas and ordinary pods that were deleted since a claim names them, by its purpose and by what it names: the"
    " replica by itself (`Replica`), all of its unit (`Unit`), or a pod of no gang (`Pod`).",
    "purpose",
    "kind",
    values=(*product(("Preemption", "Reclaim", "Exchange"), ("Replica", "Unit")), ("Preemption", "Pod")),
)

# Nodes that are asked for
CAPACITY_ANSWERS: Final = FAMILIES.counter(
    "covey_capacity_answers_total",
    "Times that the nodes asked for one resource came to another state, by the reason of its condition CapacityAsked:"
    " `Asked`, `NoAnswer`, `Coming`, `Disagreed`, `NoCapacity`, `CapacityFailed`, `NothingCame`, `ProviderMissing`,"
    " `LevelUnknown`.",
    "reason",
    values=CAPACITY_REASONS,
)
CAPACITY_ASKED: Final = FAMILIES.collected_gauge(
    "covey_capacity_asked",
    "Resources by the reason of their condition CapacityAsked: those for which nodes are asked for, or were without result.",
    "reason",
)
CAPACITY_SECONDS: Final = FAMILIES.histogram(
    "covey_capacity_seconds",
    "From the first request for nodes of a resource until all its units were admitted, where nodes were coming.",
    buckets=LIFE,
)

# Resources
WORKLOADS: Final = FAMILIES.collected_gauge(
    "covey_workloads", "DisaggregatedInferences whose condition is True, those beyond the limit included.", "condition"
)
WORKLOADS_UNREADY: Final = FAMILIES.collected_gauge(
    "covey_workloads_unready",
    "DisaggregatedInferences that are not Ready, by the reason of their condition Ready, those beyond the limit included;"
    " `Other` is a word of the backend's own scheduler.",
    "reason",
)
WORKLOAD_SERIES_DROPPED: Final = FAMILIES.collected_gauge(
    "covey_workload_series_dropped",
    "Resources without gauges of their own, because there are more than --metrics-workload-limit.",
)
WORKLOAD_CONDITION: Final = FAMILIES.collected_gauge(
    "covey_workload_condition", "1 for True, 0 for False, -1 for Unknown.", "namespace", "name", "condition"
)


def _of_units(state: str, meaning: str) -> Family:
    return FAMILIES.collected_gauge(f"covey_workload_units_{state}", meaning, "namespace", "name")


def _of_roles(what: str, meaning: str) -> Family:
    return FAMILIES.collected_gauge(f"covey_workload_{what}", meaning, "namespace", "name", "role")


#: In the order of the values that the operator keeps of each resource.
WORKLOAD_UNITS: Final = (
    _of_units("desired", "Units that are wanted; 0 while suspended."),
    _of_units("admitted", "Units whose minimum has its nodes."),
    _of_units("ready", "Units whose minimum is Ready."),
)
#: By the field of a role's status.
WORKLOAD_ROLES: Final = {
    "replicas": _of_roles("replicas_desired", "Replicas that are wanted, over all units."),
    "minReplicas": _of_roles("replicas_minimum", "Replicas without which the units must not start."),
    "admitted": _of_roles("replicas_admitted", "Replicas whose pods all have a node reserved."),
    "scheduled": _of_roles("replicas_scheduled", "Replicas whose pods are all bound."),
    "ready": _of_roles("replicas_ready", "Replicas whose pods are all Ready."),
    "maxFeasible": _of_roles(
        "replicas_feasible",
        "Replicas that could be assigned nodes, all else as it is, when somebody asked last (annotation `covey.dev/headroom`);"
        " absent before, and where nobody knows.",
    ),
    "restarts": _of_roles("replica_restarts", "How often the present replicas were recreated after a failure."),
}
