"""All metrics of Covey, in one table, on a registry of its own.

Labels take few values by construction: verbs, results, reasons, resources; never the name of an object. The one
exception, the gauges of each DisaggregatedInference, is bounded where they are made (``operator/tell/gauges.py``). Names
follow the Prometheus practices; where controller-runtime has a metric of the same meaning, its words are kept, so that
dashboards know them. ``docs/reference/metrics.md`` explains each; a test compares it with this table.
"""

import platform
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

import covey

# A `_created` series beside every counter and histogram doubles the text and is read by nobody here.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # it has no annotations

REGISTRY: Final = CollectorRegistry(auto_describe=True)
#: The media type that goes with ``render``.
CONTENT_TYPE: Final = prometheus_client.CONTENT_TYPE_PLAIN_0_0_4

_FAST: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOW: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
#: A gang can wait for days; the API's times are whole seconds.
_LIFE: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 86400.0)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(name, text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(name, text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _FAST) -> Histogram:
    return Histogram(name, text, labels, registry=REGISTRY, buckets=buckets)


# Operator
RECONCILE_TOTAL: Final = _counter("covey_reconcile_total", "Reconciles by result (success, error, requeue).", "result")
RECONCILE_DURATION: Final = _histogram("covey_reconcile_duration_seconds", "Wall time of one reconcile.")
GANG_BOUND_TO_READY: Final = _histogram(
    "covey_gang_bound_to_ready_seconds",
    "From the last bind of a gang's minimum until all of it was Ready, once for each gang.",
    buckets=_LIFE,
)
GANG_CREATED_TO_READY: Final = _histogram(
    "covey_gang_created_to_ready_seconds",
    "From the creation of a gang until its minimum was Ready, once for each gang.",
    buckets=_LIFE,
)
GANG_DEGRADATIONS: Final = _counter("covey_gang_degradations_total", "Times that a gang that was Ready no longer was.")
REPLICA_FAILURES: Final = _counter(
    "covey_replica_failures_total",
    "Replicas that failed, by reason (PodFailed, PodRefused, ContainerRestarted, StartDeadlineExceeded).",
    "reason",
)

# Planner and admission
PLAN_DURATION: Final = _histogram(
    "covey_plan_duration_seconds", "Planning one gang, by verdict (Admitted, Infeasible, Unknown).", "verdict"
)
GANG_ADMISSIONS: Final = _counter(
    "covey_gang_admissions_total", "Admissions committed, by kind (minimum, surplus).", "kind"
)
GANG_REFUSALS: Final = _counter("covey_gang_refusals_total", "Gangs refused a plan, by reason.", "reason")
REFUSALS_UNTOLD: Final = _gauge(
    "covey_refusals_untold",
    "Gangs whose status is behind what was decided, because refusals are told at a bounded pace, by what has changed"
    " (verdict, numbers).",
    "change",
)
GANGS_WAITING: Final = _gauge("covey_gangs_waiting", "Gangs whose minimum has no place yet, by reason.", "reason")
GANGS_WAITING_OLDEST: Final = _gauge(
    "covey_gangs_waiting_oldest_age_seconds", "How long the gang that has waited longest has waited; 0 when none waits."
)
GANG_CREATED_TO_ADMITTED: Final = _histogram(
    "covey_gang_created_to_admitted_seconds",
    "From the creation of a gang until its minimum was admitted, once for each gang.",
    buckets=_LIFE,
)
GANG_ADMITTED_TO_BOUND: Final = _histogram(
    "covey_gang_admitted_to_bound_seconds",
    "From the admission of a gang's minimum until all of it was bound, once for each gang.",
    buckets=_LIFE,
)
ROOM_HELD: Final = _gauge("covey_room_held_pods", "Lost pods whose room is held for their successors.")
PODS_RELEASED: Final = _counter("covey_pods_released_total", "Pins given up before the pod was bound.", "reason")

# Extender
BARRIER_WAIT: Final = _histogram(
    "covey_barrier_wait_seconds", "How long a bind call was held until its gang was complete.", buckets=_SLOW
)
BARRIER_HELD: Final = _gauge("covey_barrier_held", "Bind calls held now.")
EXTENDER_REQUESTS: Final = _counter(
    "covey_extender_requests_total",
    "Calls by verb (filter, preempt, bind) and result (ok, refused, unavailable, bad, too_large, busy, timeout, hung_up);"
    " connections that came to no call (connect) by result (denied, too_many).",
    "verb",
    "result",
)
EXTENDER_DURATION: Final = _histogram(
    "covey_extender_request_duration_seconds",
    "From a call's head to its answer, by verb; a bind call's includes the time it was held.",
    "verb",
    buckets=(*_FAST, 60.0, 300.0, 900.0, 3600.0),
)
CERTIFICATE_RELOADS: Final = _counter(
    "covey_extender_certificate_reloads_total",
    "Changed certificate files read again, by result (success, error: the old ones stay in force).",
    "result",
)
CERTIFICATE_EXPIRATION: Final = _gauge(
    "covey_extender_certificate_expiration_timestamp_seconds",
    "When the extender's certificate expires, in seconds since the epoch; 0 without TLS.",
)

# Kubernetes client
KUBE_REQUESTS: Final = _counter(
    "covey_kube_requests_total",
    "Requests to the API server, repetitions included; the code is 'error' when no answer came.",
    "verb",
    "resource",
    "code",
)
KUBE_REQUEST_DURATION: Final = _histogram(
    "covey_kube_request_duration_seconds", "From sending a request until the head of its answer, by verb.", "verb"
)
WATCH_LISTS: Final = _counter(
    "covey_watch_lists_total",
    "Complete lists of a resource; every one after the first made good a lost watch.",
    "resource",
)
WATCH_STARTS: Final = _counter(
    "covey_watch_starts_total", "Watches begun; the API server ends each after some minutes.", "resource"
)
WATCH_FAILURES: Final = _counter(
    "covey_watch_failures_total",
    "Lists and watches that failed, by cause (expired, lost, short, absent).",
    "resource",
    "cause",
)
WATCH_SILENCE: Final = _gauge(
    "covey_watch_silence_seconds", "Since a watch was last heard of; a bookmark is due every minute.", "resource"
)
CACHE_OBJECTS: Final = _gauge("covey_cache_objects", "Objects that the caches hold.", "resource")
EVENTS_DROPPED: Final = _counter(
    "covey_events_dropped_total", "Events not written, by cause (rate, overflow, failed).", "cause"
)

# Work queues
WORKQUEUE_DEPTH: Final = _gauge("covey_workqueue_depth", "Keys that wait for a worker.", "name")
WORKQUEUE_ADDS: Final = _counter("covey_workqueue_adds_total", "Keys added that did not wait already.", "name")
WORKQUEUE_QUEUE_DURATION: Final = _histogram(
    "covey_workqueue_queue_duration_seconds", "How long a key waited until a worker took it.", "name"
)
WORKQUEUE_WORK_DURATION: Final = _histogram(
    "covey_workqueue_work_duration_seconds", "How long a worker had a key.", "name"
)
WORKQUEUE_RETRIES: Final = _counter("covey_workqueue_retries_total", "Keys that came back after a failure.", "name")

# Process
LEADER: Final = _gauge("leader_election_master_status", "1 while this process holds the lease, else 0.", "name")
LEASE_TRANSITIONS: Final = _gauge(
    "covey_lease_transitions", "How often the lease has changed hands, as the Lease itself says.", "name"
)
BUILD_INFO: Final = _gauge("covey_build_info", "Always 1; the labels say what runs.", "version", "python_version")
BUILD_INFO.labels(covey.__version__, platform.python_version()).set(1)

# Memory, CPU, file descriptors and start time of the process, and what the garbage collector did.
ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)


def render() -> bytes:
    """All metrics in the text format. Takes milliseconds: call it off the event loop."""
    return generate_latest(REGISTRY)
