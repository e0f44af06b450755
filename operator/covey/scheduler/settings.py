"""Settings of ``covey scheduler``."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from covey.api.constants import DEFAULT_SCHEDULER_NAME
from covey.kube.settings import Address, File, LeaderSettings, Name, Names, Namespace, Seconds, SettingError
from covey.observability.addresses import is_loopback
from covey.scheduler.defaults import (
    MAX_HOLD,
    MAX_MIN_RUN,
    MAX_PREEMPTIONS_PER_MINUTE,
    MAX_RESERVATIONS,
    MAX_RESERVATIONS_PER_NAMESPACE,
    MAX_RESERVED_PERCENT,
    SYSTEM_PRIORITY,
)

#: In place of resources: the guard is asked for every pod.
EVERY_POD: Final = "*"
_ACCELERATORS: Final = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "google.com/tpu",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
)


class OrdinaryPods(StrEnum):
    """The fate of pods of no gang where a gang of higher priority needs their nodes."""

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


class SchedulerSettings(LeaderSettings):
    """What the scheduler process is told when it starts."""

    bind_address: Address = "127.0.0.1:8890"
    """Where the extender listens."""
    endpoint_mode: EndpointMode = EndpointMode.SIDECAR
    """Who calls: the kube-scheduler in the same pod, or any through a Service."""
    tls_cert_file: File | None = None
    """Certificate, to serve the extender with TLS."""
    tls_private_key_file: File | None = None
    """The certificate's key."""
    client_ca_file: File | None = None
    """Authority of which callers must show a certificate."""
    client_names: Names = Field(("covey-kube-scheduler",), alias="clientName", min_length=1)
    """Common or DNS names of the certificates that may call. In the chart also that of the guide for hand-made ones."""
    kube_scheduler_ca_file: File = "/etc/covey/tls/ca.crt"
    """To print: where kube-scheduler finds the authority of the extender's certificate."""
    kube_scheduler_cert_file: File = "/etc/covey/client-tls/tls.crt"
    """To print: where kube-scheduler finds its certificate."""
    kube_scheduler_key_file: File = "/etc/covey/client-tls/tls.key"
    """To print: where kube-scheduler finds its key."""
    scheduler_names: Names = Field((DEFAULT_SCHEDULER_NAME,), alias="schedulerName", min_length=1)
    """The profiles of the kube-scheduler that calls. With another name, resources must say it in spec.schedulerName."""
    pod_name: Name = ""
    """The pod of this process; behind a Service it is labelled while it leads."""
    pod_namespace: Namespace = ""
    """That pod's namespace."""
    reserve_after: Seconds = 300.0
    """Waiting time after which capacity that comes free is kept for a gang."""
    max_reservations: int = Field(MAX_RESERVATIONS, ge=0)
    """Waiting gangs for which a domain is kept at a time; 0 keeps none."""
    max_reservations_per_namespace: int = Field(MAX_RESERVATIONS_PER_NAMESPACE, ge=0)
    """Waiting gangs of one namespace for which a domain is kept at a time."""
    max_reserved_percent: int = Field(MAX_RESERVED_PERCENT, ge=0, le=100)
    """Of all there is of a resource, what is kept for waiting gangs together at most, in percent; the first in line is not
    bound by it."""
    max_preemptions_per_minute: int = Field(MAX_PREEMPTIONS_PER_MINUTE, ge=0)
    """Waiting gangs in a minute to which others of lower priority give way; 0: none."""
    max_min_run: Seconds = MAX_MIN_RUN
    """Whatever has served for so long may give way to others, whatever spec.preemption.minRunSeconds says."""
    preempt_ordinary_pods: OrdinaryPods = OrdinaryPods.NEVER
    """Whether pods of no gang are evicted for gangs of higher priority, within their PodDisruptionBudgets. With Evict the
    operator may evict any pod of the cluster."""
    max_hold: Seconds = MAX_HOLD
    """The capacity of a lost pod is held no longer than this, whatever spec.disruption.holdSeconds says."""
    yield_to_priority: int = SYSTEM_PRIORITY
    """Ordinary pods of this priority or more may preempt members, and take reserved capacity. The default lets
    system-cluster-critical and system-node-critical do so."""
    guarded_resources: Names = Field(_ACCELERATORS, alias="guardedResource", min_length=1)
    """For pods that want one of these a kube-scheduler of yours asks Covey, so that they keep off reserved capacity and
    preempt no member. Every device that gangs use belongs here (covey_devices_unguarded names what is missing); * asks for
    all pods, at a price."""

    @property
    def attached(self) -> bool:
        """Tell whether the user's own kube-scheduler calls, through Services: pods of every kind depend on the answers."""
        return self.endpoint_mode is EndpointMode.SERVICE

    @property
    def tls(self) -> Tls | None:
        """The files of the extender's certificate, if it has one."""
        if not self.tls_cert_file or not self.tls_private_key_file:
            return None
        return Tls(self.tls_cert_file, self.tls_private_key_file, self.client_ca_file)

    def guards(self, resource: str) -> bool:
        """Tell whether kube-scheduler asks the guard for pods that want this resource."""
        return not self.attached or not {resource, EVERY_POD}.isdisjoint(self.guarded_resources)

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        for name, beside in (("pod_name", "pod_namespace"), ("pod_namespace", "pod_name")):
            if getattr(self, name) and not getattr(self, beside):
                raise SettingError(name, "a pod is found by its name and its namespace", "give both, or neither")
        files = [name for name in ("tls_cert_file", "tls_private_key_file", "client_ca_file") if getattr(self, name)]
        if files and self.tls is None:
            raise SettingError(files[0], "TLS needs both a certificate and its key", "give both, or neither")
        return self

    def check_serving(self) -> None:
        """Make sure that nobody but kube-scheduler can have pods bound, and that the files are what they should be.

        Neither need be so to print a configuration.

        Raises:
            SettingError: a Service without mutual TLS, a sidecar that others can reach, a file that cannot be used.
        """
        mutual = self.tls is not None and self.tls.client_ca_file is not None
        files = "give --tls-cert-file, --tls-private-key-file and --client-ca-file"
        if self.attached and not mutual:
            raise SettingError("endpoint_mode", "behind a Service both sides must show a certificate", files)
        if not mutual and not is_loopback(self.bind_address):
            reached = "whoever can reach the extender could have pods bound"
            raise SettingError("bind_address", reached, f"{files}, or 127.0.0.1")
        if self.tls is None:
            return
        for field in ("tls_cert_file", "tls_private_key_file", "client_ca_file"):
            file = getattr(self, field)
            try:
                Path(file or os.devnull).read_bytes()
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise SettingError(field, f"{file} cannot be read: {reason}", "check the path") from None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.tls.cert_file, self.tls.private_key_file, password="")
        except (ssl.SSLError, ValueError):
            what = f"{self.tls.cert_file} and {self.tls.private_key_file} are no certificate and its key in PEM"
            raise SettingError("tls_cert_file", what, "give a pair, with a key that has no password") from None
        try:
            if self.tls.client_ca_file:
                context.load_verify_locations(self.tls.client_ca_file)
        except ssl.SSLError:
            what = f"{self.tls.client_ca_file} holds no certificate in PEM"
            raise SettingError("client_ca_file", what, "give the authority's certificate") from None
