"""The metrics that both processes have: of their client, caches, queues and leases, and of the process itself."""

import platform
from typing import Final

import prometheus_client
from prometheus_client import generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

import covey
from covey.observability.families import REGISTRY, Families

#: The media type that goes with ``render``.
CONTENT_TYPE: Final = prometheus_client.CONTENT_TYPE_PLAIN_0_0_4

FAMILIES: Final = Families("Both")

# Ports
CONNECTIONS_DROPPED: Final = FAMILIES.counter(
    "covey_connections_dropped_total",
    "Connections of the ports of metrics, probes and the page that were cut off, since as many were open as may be.",
)

# Kubernetes client
KUBE_REQUESTS: Final = FAMILIES.counter(
    "covey_kube_requests_total",
    "Requests to the API server, repetitions included; `code` is `error` when no answer came.",
    "verb",
    "resource",
    "code",
)
KUBE_REQUEST_DURATION: Final = FAMILIES.histogram(
    "covey_kube_request_duration_seconds", "From sending a request until the head of its answer.", "verb"
)
WATCH_LISTS: Final = FAMILIES.counter(
    "covey_watch_lists_total", "Complete lists; every one after the first made good a lost watch.", "resource"
)
WATCH_STARTS: Final = FAMILIES.counter(
    "covey_watch_starts_total", "Watches begun; the API server ends each after some minutes.", "resource"
)
WATCH_FAILURES: Final = FAMILIES.counter(
    "covey_watch_failures_total",
    "Lists and watches that failed: `expired` (410), `lost` (no or a bad answer), `short` (it ended at once), `absent`"
    " (404: the API server does not know the resource).",
    "resource",
    "cause",
)
UNREADABLE_OBJECTS: Final = FAMILIES.counter(
    "covey_unreadable_objects_total",
    "Objects of lists and watches that could not be read, each time; the log names them.",
    "resource",
)
WATCH_SILENCE: Final = FAMILIES.gauge(
    "covey_watch_silence_seconds", "Since the watch was last heard of; a bookmark is due every minute.", "resource"
)
CACHE_OBJECTS: Final = FAMILIES.gauge("covey_cache_objects", "Objects that the caches hold.", "resource")
EVENTS_DROPPED: Final = FAMILIES.counter(
    "covey_events_dropped_total",
    "Events not written: `rate` (the spam filter), `overflow`, `failed`.",
    "cause",
    values=("rate", "overflow", "failed"),
)

# Work queues
WORKQUEUE_DEPTH: Final = FAMILIES.gauge(
    "covey_workqueue_depth",
    "Keys that wait for a worker: `inference` (operator), `status` (scheduler process).",
    "name",
)
WORKQUEUE_ADDS: Final = FAMILIES.counter("covey_workqueue_adds_total", "Keys added that did not wait already.", "name")
WORKQUEUE_QUEUE_DURATION: Final = FAMILIES.histogram(
    "covey_workqueue_queue_duration_seconds", "How long a key waited until a worker took it.", "name"
)
WORKQUEUE_WORK_DURATION: Final = FAMILIES.histogram(
    "covey_workqueue_work_duration_seconds", "How long a worker had a key.", "name"
)
WORKQUEUE_RETRIES: Final = FAMILIES.counter(
    "covey_workqueue_retries_total", "Keys that came back after a failure.", "name"
)

# Process
LEADER: Final = FAMILIES.gauge(
    "leader_election_master_status",
    "1 while this process holds the lease (`covey-operator`, `covey-planner`), else 0; no series without leader election.",
    "name",
)
LEASE_TRANSITIONS: Final = FAMILIES.gauge(
    "covey_lease_transitions", "How often the lease has changed hands, as the Lease itself says.", "name"
)
BUILD_INFO: Final = FAMILIES.gauge(
    "covey_build_info", "Always 1; the labels say what runs.", "version", "python_version"
)
BUILD_INFO.labels(covey.__version__, platform.python_version()).set(1)

# Memory, CPU, file descriptors and start time of the process, and what the garbage collector did.
ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)


def render() -> bytes:
    """All metrics in the text format. Takes milliseconds: call it off the event loop."""
    return generate_latest(REGISTRY)
