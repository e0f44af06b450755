"""All metrics of Covey, in one table, on a registry of its own.

Labels take few values by construction: verbs, results, reasons, kinds; never the name of an object.  What one
object's state is belongs on the object.  Names follow the Prometheus practices; where controller-runtime has
a metric of the same meaning, its words are kept, so that dashboards know them.
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


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(name, text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(name, text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _FAST) -> Histogram:
    return Histogram(name, text, labels, registry=REGISTRY, buckets=buckets)


# Operator
RECONCILE_TOTAL: Final = _counter("covey_reconcile_total", "Reconciles by result (success, error, requeue).", "result")
RECONCILE_DURATION: Final = _histogram("covey_reconcile_duration_seconds", "Wall time of one reconcile.")

# Planner and admission
PLAN_DURATION: Final = _histogram(
    "covey_plan_duration_seconds", "Planning one gang, by verdict (Admitted, Infeasible, Unknown).", "verdict"
)
GANG_ADMISSIONS: Final = _counter(
    "covey_gang_admissions_total", "Admissions committed, by kind (minimum, surplus).", "kind"
)
GANG_REFUSALS: Final = _counter("covey_gang_refusals_total", "Gangs refused a plan, by reason.", "reason")
GANGS_WAITING: Final = _gauge("covey_gangs_waiting", "Gangs whose minimum has no place yet.")
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
WORKQUEUE_DEPTH: Final = _gauge("covey_workqueue_depth", "Keys that wait for a worker.", "name")
EVENTS_DROPPED: Final = _counter(
    "covey_events_dropped_total", "Events not written, by cause (rate, overflow, failed).", "cause"
)
LEADER: Final = _gauge("leader_election_master_status", "1 while this process holds the lease, else 0.", "name")

BUILD_INFO: Final = _gauge("covey_build_info", "Always 1; the labels say what runs.", "version", "python_version")
BUILD_INFO.labels(covey.__version__, platform.python_version()).set(1)

# Memory, CPU, file descriptors and start time of the process, and what the garbage collector did.
ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)


def render() -> bytes:
    """All metrics in the text format. Takes milliseconds: call it off the event loop."""
    return generate_latest(REGISTRY)
