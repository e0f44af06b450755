"""Settings of the scheduler process, as the command line fills them in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from covey.api.constants import DEFAULT_NAMESPACE, DEFAULT_SCHEDULER_NAME

#: ``system-cluster-critical``, the lower of the two classes that Kubernetes keeps for the system.
SYSTEM_PRIORITY: Final = 2_000_000_000
#: The common name of the certificate that the chart has made for kube-scheduler.
CLIENT_NAME: Final = "covey-kube-scheduler"
#: Devices that room is reserved of: an attached kube-scheduler asks the guard for pods that want one of them.
GUARDED: Final = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "google.com/tpu",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
)
#: In place of resources: the guard is asked for every pod.
EVERY_POD: Final = "*"
#: Seconds for which the room of a lost pod is held at most.
MAX_HOLD: Final = 120.0
#: Gangs for which a domain is kept at a time.
MAX_RESERVATIONS: Final = 4
MAX_RESERVATIONS_PER_NAMESPACE: Final = 1
#: Of all there is of a resource, what is kept for them together at most, but for the first in line.
MAX_RESERVED_PERCENT: Final = 5
#: Claims a minute, in the cluster, by which others give way; 0 for none.
MAX_PREEMPTIONS_PER_MINUTE: Final = 6
#: Seconds that a replica has served before its room may be taken, whatever ``minRunSeconds`` says.
MAX_MIN_RUN: Final = 1800.0


class OrdinaryPods(StrEnum):
    """The fate of pods of no gang where a gang of higher priority needs their room."""

    NEVER = "Never"
    EVICT = "Evict"


class EndpointMode(StrEnum):
    """The clients of the extender: the kube-scheduler in the same pod, or any through a Service."""

    SIDECAR = "sidecar"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of the extender's own certificate, and of the authority that its callers' certificates need."""

    cert_file: str
    private_key_file: str
    client_ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class CallerFiles:
    """Files of kube-scheduler, where it finds them, for the configuration that is printed.

    The authority that the extender's certificate is of, and kube-scheduler's own certificate and key.
    """

    ca_file: str = "/etc/covey/tls/ca.crt"
    cert_file: str = "/etc/covey/client-tls/tls.crt"
    key_file: str = "/etc/covey/client-tls/tls.key"


@dataclass(frozen=True, slots=True)
class Settings:
    """Flags of ``covey scheduler``.

    ``namespaces``: where groups are looked for; empty means everywhere. Pods and nodes are always watched in the
    whole cluster, because capacity is held by pods of every owner. ``reserve_after``, ``max_hold``
    and ``max_min_run`` are in seconds. ``identity`` names this process in leases and events; empty means host name and process id.
    ``scheduler_names``: the profiles of the kube-scheduler that calls. ``client_names``: names of certificates
    that may call. ``yields_to``: the priority of ordinary pods from which on gangs give way to them.
    ``guarded_resources``: those for whose pods an attached kube-scheduler asks the guard, or ``*`` for all pods.
    ``pod_name`` and ``pod_namespace``: the pod that this process runs in, if any. ``native_groups``: groups of
    ``scheduling.k8s.io`` are planned too.
    """

    kubeconfig: str | None = None
    context: str | None = None
    bind_address: str = "127.0.0.1:8890"
    endpoint_mode: EndpointMode = EndpointMode.SIDECAR
    tls: Tls | None = None
    caller_files: CallerFiles = CallerFiles()
    scheduler_names: tuple[str, ...] = (DEFAULT_SCHEDULER_NAME,)
    client_names: tuple[str, ...] = (CLIENT_NAME,)
    yields_to: int = SYSTEM_PRIORITY
    guarded_resources: tuple[str, ...] = GUARDED
    reserve_after: float = 300.0
    max_hold: float = MAX_HOLD
    max_reservations: int = MAX_RESERVATIONS
    max_reservations_per_namespace: int = MAX_RESERVATIONS_PER_NAMESPACE
    max_reserved_percent: int = MAX_RESERVED_PERCENT
    max_preemptions_per_minute: int = MAX_PREEMPTIONS_PER_MINUTE
    max_min_run: float = MAX_MIN_RUN
    preempt_ordinary_pods: OrdinaryPods = OrdinaryPods.NEVER
    leader_elect: bool = True
    leader_elect_namespace: str = DEFAULT_NAMESPACE
    metrics_bind_address: str = ":8080"
    health_probe_bind_address: str = ":8081"
    namespaces: tuple[str, ...] = ()
    identity: str = ""
    pod_name: str = ""
    pod_namespace: str = ""
    connections: int = 64
    native_groups: bool = False

    def guards(self, resource: str) -> bool:
        """Tell whether kube-scheduler asks the guard for pods that want this resource."""
        return not self.attached or not {resource, EVERY_POD}.isdisjoint(self.guarded_resources)

    @property
    def attached(self) -> bool:
        """Tell whether the user's own kube-scheduler calls, through Services: pods of every kind depend on the answers."""
        return self.endpoint_mode is EndpointMode.SERVICE
