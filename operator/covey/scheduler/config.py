"""The KubeSchedulerConfiguration that goes with a set of flags.

Every line was found to matter on a real kube-scheduler: preemption is off because it evicts before it asks the
guard; neither extender is ignorable because an ignorable one lets the default binder tear a gang; every node is
scored because a sample may not hold an unpinned pod's only node; neither has ``managedResources`` because the guard
must see every pod that the barrier sees. The barrier's time-out is longer than the longest gang's (3600 s).
``clientConnection`` is left to the user, who alone knows how the scheduler authenticates. The files of ``tlsConfig``
are on kube-scheduler's side, to be put or changed there: the flags name the extender's own.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from covey.observability.http import parse_address
from covey.scheduler.settings import EndpointMode, Settings

#: Longer than the longest ``timeoutSeconds`` of a gang, so that the barrier always ends a call itself.
BARRIER_TIMEOUT: Final = "3700s"
GUARD_TIMEOUT: Final = "1s"
SERVICE_NAME: Final = "covey-scheduler-extender"


def configuration(settings: Settings) -> dict[str, Any]:
    """The configuration as plain data."""
    base = _base_url(settings)
    guard = {
        "urlPrefix": f"{base}/guard",
        "filterVerb": "filter",
        "preemptVerb": "preempt",
        "nodeCacheCapable": True,
        "ignorable": False,
        "httpTimeout": GUARD_TIMEOUT,
    }
    barrier = {"urlPrefix": f"{base}/barrier", "bindVerb": "bind", "ignorable": False, "httpTimeout": BARRIER_TIMEOUT}
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
                "schedulerName": settings.scheduler_name,
                "percentageOfNodesToScore": 100,
                "plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}},
            }
        ],
        "extenders": [{**guard, **_https(settings)}, {**barrier, **_https(settings)}],
    }


def render(settings: Settings) -> str:
    """The configuration as YAML."""
    return str(yaml.safe_dump(configuration(settings), sort_keys=False, width=120))


def _base_url(settings: Settings) -> str:
    scheme = "https" if settings.tls else "http"
    host, port = parse_address(settings.bind_address)
    if settings.endpoint_mode is EndpointMode.SERVICE:
        host = f"{SERVICE_NAME}.{settings.leader_elect_namespace}.svc"
    elif host in {None, "0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if host and ":" in host else f"{scheme}://{host}:{port}"


def _https(settings: Settings) -> dict[str, Any]:
    if settings.tls is None:
        return {}
    tls: dict[str, Any] = {"insecure": False, "caFile": "/etc/covey/tls/ca.crt"}
    if settings.tls.client_ca_file:
        tls |= {"certFile": "/etc/covey/client-tls/tls.crt", "keyFile": "/etc/covey/client-tls/tls.key"}
    return {"enableHTTPS": True, "tlsConfig": tls}
