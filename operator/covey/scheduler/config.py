"""The KubeSchedulerConfiguration that goes with a set of flags.

Every line was found to matter on a real kube-scheduler: preemption is off because it evicts before it asks the
guard; the barrier is not ignorable because an ignorable one lets the default binder tear a gang; every node is
scored because a sample may not hold an unpinned pod's only node. The barrier's time-out is longer than the longest
gang's (3600 s). ``clientConnection`` is left to the user, who alone knows how the scheduler authenticates.

A scheduler of the user's, behind Services, also places the pods that have nothing to do with Covey, and Covey's own. So
there the guard is ignorable and asked for pods that want guarded devices, and the barrier is asked for members alone,
by a resource that they ask nothing of (``managedResources``): without Covey all others are scheduled as ever, and no
member is bound. The guard is not asked for members without devices, because a resource may stand in one entry only;
their pins keep them on their nodes, and the barrier looks at both.

The guard's Service has every replica, the barrier's the one that leads; both show the certificate of the latter's name.
Both sides show a certificate. The files of ``tlsConfig`` are on kube-scheduler's side (``--kube-scheduler-ca-file`` and
so on); it reads its certificate again when that is renewed, its authority only when it starts.
"""

from __future__ import annotations

from typing import Any, Final

from covey.api.constants import RESOURCE_MEMBER
from covey.api.yaml_dialect import dump
from covey.observability.addresses import parse_address
from covey.scheduler.settings import EVERY_POD, SchedulerSettings

#: Longer than the longest ``timeoutSeconds`` of a gang, so that the barrier always ends a call itself.
BARRIER_TIMEOUT: Final = "3700s"
GUARD_TIMEOUT: Final = "1s"
#: Of the replica that leads, and of all of them.
SERVICE_NAME: Final = "covey-scheduler-extender"
GUARD_NAME: Final = "covey-scheduler-guard"


def configuration(settings: SchedulerSettings) -> dict[str, Any]:
    """The configuration as plain data."""
    guard: dict[str, Any] = {
        "urlPrefix": f"{_base_url(settings, GUARD_NAME)}/guard",
        "filterVerb": "filter",
        "preemptVerb": "preempt",
        "nodeCacheCapable": True,
        "ignorable": settings.attached,
        "httpTimeout": GUARD_TIMEOUT,
    }
    barrier: dict[str, Any] = {
        "urlPrefix": f"{_base_url(settings, SERVICE_NAME)}/barrier",
        "bindVerb": "bind",
        "ignorable": False,
        "httpTimeout": BARRIER_TIMEOUT,
    }
    if settings.attached:
        barrier["managedResources"] = [{"name": RESOURCE_MEMBER, "ignoredByScheduler": True}]
        if EVERY_POD not in settings.guarded_resources:
            guard["managedResources"] = [{"name": name} for name in settings.guarded_resources]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceName": "covey-scheduler",
            "resourceNamespace": settings.leader_elect_namespace,
        },
        "podMaxBackoffSeconds": 1,
        "profiles": [
            {
                "schedulerName": name,
                "percentageOfNodesToScore": 100,
                "plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}},
            }
            for name in settings.scheduler_names
        ],
        "extenders": [{**guard, **_https(settings)}, {**barrier, **_https(settings)}],
    }


def render(settings: SchedulerSettings) -> str:
    """The configuration as YAML."""
    return dump([configuration(settings)])


def _base_url(settings: SchedulerSettings, service: str) -> str:
    scheme = "https" if settings.tls or settings.attached else "http"
    host, port = parse_address(settings.bind_address)
    if settings.attached:
        host = _host(settings, service)
    elif host in {None, "0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if host and ":" in host else f"{scheme}://{host}:{port}"


def _host(settings: SchedulerSettings, service: str) -> str:
    return f"{service}.{settings.leader_elect_namespace}.svc"


def _https(settings: SchedulerSettings) -> dict[str, Any]:
    service, own = settings.attached, settings.tls
    if own is None and not service:
        return {}
    tls: dict[str, Any] = {"insecure": False, "caFile": settings.kube_scheduler_ca_file}
    if service:
        tls["serverName"] = _host(settings, SERVICE_NAME)
    if service or (own and own.client_ca_file):
        tls |= {"certFile": settings.kube_scheduler_cert_file, "keyFile": settings.kube_scheduler_key_file}
    return {"enableHTTPS": True, "tlsConfig": tls}
