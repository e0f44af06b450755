"""The KubeSchedulerConfiguration that goes with a set of flags.

Every line was found to matter on a real kube-scheduler: preemption is off because it evicts before it asks the
guard; neither extender is ignorable because an ignorable one lets the default binder tear a gang; every node is
scored because a sample may not hold an unpinned pod's only node; neither has ``managedResources`` because the guard
must see every pod that the barrier sees. The barrier's time-out is longer than the longest gang's (3600 s).
``clientConnection`` is left to the user, who alone knows how the scheduler authenticates. Behind a
Service both sides show a certificate. The files of ``tlsConfig`` are on kube-scheduler's side
(``--kube-scheduler-ca-file`` and so on); it reads its certificate again when that is renewed, its authority only when
it starts.
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
                "schedulerName": name,
                "percentageOfNodesToScore": 100,
                "plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}},
            }
            for name in settings.scheduler_names
        ],
        "extenders": [{**guard, **_https(settings)}, {**barrier, **_https(settings)}],
    }


def render(settings: Settings) -> str:
    """The configuration as YAML."""
    return str(yaml.safe_dump(configuration(settings), sort_keys=False, width=120))


def _base_url(settings: Settings) -> str:
    scheme = "https" if settings.tls or _is_service(settings) else "http"
    host, port = parse_address(settings.bind_address)
    if _is_service(settings):
        host = f"{SERVICE_NAME}.{settings.leader_elect_namespace}.svc"
    elif host in {None, "0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if host and ":" in host else f"{scheme}://{host}:{port}"


def _is_service(settings: Settings) -> bool:
    return settings.endpoint_mode is EndpointMode.SERVICE


def _https(settings: Settings) -> dict[str, Any]:
    service, own = _is_service(settings), settings.tls
    if own is None and not service:
        return {}
    files = settings.caller_files
    tls: dict[str, Any] = {"insecure": False, "caFile": files.ca_file}
    if service or (own and own.client_ca_file):
        tls |= {"certFile": files.cert_file, "keyFile": files.key_file}
    return {"enableHTTPS": True, "tlsConfig": tls}
