"""Settings of the two processes: a YAML file, overridden by the environment, overridden by flags.

One table (the models' fields) gives all three their names: ``metrics_bind_address`` is ``metricsBindAddress`` in the
file, ``COVEY_METRICS_BIND_ADDRESS`` in the environment and ``--metrics-bind-address`` on the command line. Whatever is
wrong is said with the name under which it was given.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from covey.api.constants import DEFAULT_NAMESPACE, DEFAULT_SCHEDULER_NAME
from covey.api.inference import Backend
from covey.manifests.documents import read_plain
from covey.manifests.sources import InputError, Place, Problem
from covey.manifests.strict import in_words
from covey.observability.http import parse_address
from covey.operator.model.capacity import ATOMIC, Capacity, Provider
from covey.operator.model.node_drain import AUTOSCALERS
from covey.operator.observe.probing import IMAGE as PROBE_IMAGE
from covey.operator.process.settings import Settings as OperatorSettings
from covey.scheduler.settings import (
    CLIENT_NAME,
    GUARDED,
    MAX_HOLD,
    MAX_MIN_RUN,
    MAX_PREEMPTIONS_PER_MINUTE,
    MAX_RESERVATIONS,
    MAX_RESERVATIONS_PER_NAMESPACE,
    MAX_RESERVED_PERCENT,
    SYSTEM_PRIORITY,
    CallerFiles,
    EndpointMode,
    OrdinaryPods,
    Tls,
)
from covey.scheduler.settings import Settings as SchedulerSettings

_PREFIX: Final = "COVEY_"
_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
#: Addresses that switch a server off.
_OFF: Final = ("", "0")
#: Hosts that only this machine, or this pod, can reach.
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
#: Fields whose flag is not their own name.
FLAGS: Final = {"namespaces": "namespace"}


def _seconds(value: object) -> object:
    """``300s``, ``5m``, ``1h30m``, or plain seconds."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match and any(match.groups()):
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return hours * 3600 + minutes * 60 + seconds
    try:
        return float(value)
    except ValueError:
        raise ValueError("is no duration; write 300s or 5m") from None


def _address(value: str) -> str:
    if value not in _OFF:
        parse_address(value)
    return value


def _names(value: object) -> object:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


def _split_names(value: object) -> object:
    """Names with commas, in a list or not, each of them once."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        return value
    return tuple(dict.fromkeys(name.strip() for part in parts for name in part.split(",") if name.strip()))


Address = Annotated[str, AfterValidator(_address)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Profiles = Annotated[tuple[str, ...], BeforeValidator(_split_names), Field(min_length=1)]
ClientNames = Profiles
Resources = Profiles
Backends = Annotated[
    tuple[Literal[Backend.EXTENDER, Backend.KUBERNETES, Backend.VOLCANO], ...],
    BeforeValidator(_split_names),
    Field(min_length=1),
]


class Common(BaseModel):
    """Settings of both processes."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid", frozen=True)

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: Names = ()
    leader_elect: bool = True
    leader_elect_namespace: str = DEFAULT_NAMESPACE
    metrics_bind_address: Address = ":8080"
    health_probe_bind_address: Address = ":8081"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"

    def common_arguments(self) -> dict[str, Any]:
        """The keyword arguments that both processes' settings have."""
        return self.model_dump(include=set(Common.model_fields) - {"log_level", "log_format"})


class OperatorConfig(Common):
    """``covey operator``."""

    metrics_workload_limit: int = Field(500, ge=0)
    backends: Backends = (Backend.EXTENDER,)
    autoscaler_taints: Names = AUTOSCALERS
    evacuation_taints: Names = ()
    avoid_node_after: int = Field(3, ge=0)
    avoid_node_seconds: float = Field(600.0, ge=1, le=86400)
    probe_namespace: str = ""
    probe_image: str = Field(PROBE_IMAGE, min_length=1)
    capacity_provider: Provider | Literal["None"] = "None"
    capacity_class: str = Field(ATOMIC, min_length=1)
    capacity_after_seconds: float = Field(30.0, ge=0, le=86400)
    capacity_wait_seconds: float = Field(900.0, ge=1, le=86400)
    capacity_surplus: bool = True
    job_gangs: bool = False
    native_groups: bool = False
    leader_worker_sets: bool = False
    compute_domains: bool = False
    inference_pools: bool = False

    def settings(self) -> OperatorSettings:
        """The settings that the process takes."""
        return OperatorSettings(
            **self.common_arguments(),
            metrics_workload_limit=self.metrics_workload_limit,
            backends=self.backends,
            autoscaler_taints=self.autoscaler_taints,
            evacuation_taints=self.evacuation_taints,
            avoid_node_after=self.avoid_node_after,
            avoid_node_seconds=self.avoid_node_seconds,
            probe_namespace=self.probe_namespace,
            probe_image=self.probe_image,
            capacity=Capacity(
                self.capacity_provider,
                self.capacity_class,
                self.capacity_after_seconds,
                self.capacity_wait_seconds,
                self.capacity_surplus,
            )
            if isinstance(self.capacity_provider, Provider)
            else None,
            job_gangs=self.job_gangs,
            native_groups=self.native_groups,
            leader_worker_sets=self.leader_worker_sets,
            compute_domains=self.compute_domains,
            inference_pools=self.inference_pools,
        )


class SchedulerConfig(Common):
    """``covey scheduler``."""

    bind_address: Address = "127.0.0.1:8890"
    endpoint_mode: EndpointMode = EndpointMode.SIDECAR
    tls_cert_file: str | None = None
    tls_private_key_file: str | None = None
    client_ca_file: str | None = None
    kube_scheduler_ca_file: str = CallerFiles().ca_file
    kube_scheduler_cert_file: str = CallerFiles().cert_file
    kube_scheduler_key_file: str = CallerFiles().key_file
    scheduler_name: Profiles = (DEFAULT_SCHEDULER_NAME,)
    client_name: ClientNames = (CLIENT_NAME,)
    yield_to_priority: int = SYSTEM_PRIORITY
    guarded_resource: Resources = GUARDED
    pod_name: str = ""
    pod_namespace: str = ""
    native_groups: bool = False
    reserve_after: Seconds = 300.0
    max_hold: Seconds = MAX_HOLD
    max_reservations: int = Field(MAX_RESERVATIONS, ge=0)
    max_reservations_per_namespace: int = Field(MAX_RESERVATIONS_PER_NAMESPACE, ge=0)
    max_reserved_percent: int = Field(MAX_RESERVED_PERCENT, ge=0, le=100)
    max_preemptions_per_minute: int = Field(MAX_PREEMPTIONS_PER_MINUTE, ge=0)
    max_min_run: Seconds = MAX_MIN_RUN
    preempt_ordinary_pods: OrdinaryPods = OrdinaryPods.NEVER

    def settings(self) -> SchedulerSettings:
        """The settings that the process takes.

        Raises:
            InputError: a certificate without its key, or a pod without its namespace, or the other way round.
        """
        if bool(self.pod_name) != bool(self.pod_namespace):
            raise InputError("--pod-name", "a pod is found by its name and its namespace", "give --pod-namespace too")
        files = (self.tls_cert_file, self.tls_private_key_file)
        if any(files) != all(files) or (self.client_ca_file and not all(files)):
            raise InputError("--tls-cert-file", "TLS needs both a certificate and its key", "give both, or neither")
        tls = Tls(files[0], files[1], self.client_ca_file) if files[0] and files[1] else None
        return SchedulerSettings(
            **self.common_arguments(),
            bind_address=self.bind_address,
            endpoint_mode=self.endpoint_mode,
            tls=tls,
            caller_files=CallerFiles(
                self.kube_scheduler_ca_file, self.kube_scheduler_cert_file, self.kube_scheduler_key_file
            ),
            scheduler_names=self.scheduler_name,
            client_names=self.client_name,
            yields_to=self.yield_to_priority,
            guarded_resources=self.guarded_resource,
            pod_name=self.pod_name,
            pod_namespace=self.pod_namespace,
            native_groups=self.native_groups,
            reserve_after=self.reserve_after,
            max_hold=self.max_hold,
            max_reservations=self.max_reservations,
            max_reservations_per_namespace=self.max_reservations_per_namespace,
            max_reserved_percent=self.max_reserved_percent,
            max_preemptions_per_minute=self.max_preemptions_per_minute,
            max_min_run=self.max_min_run,
            preempt_ordinary_pods=self.preempt_ordinary_pods,
        )

    def check_endpoint(self) -> None:
        """Make sure that nobody but kube-scheduler can have pods bound; need not be so to print a configuration.

        Raises:
            InputError: a Service without mutual TLS, or a sidecar that others can reach.
        """
        mutual = all((self.tls_cert_file, self.tls_private_key_file, self.client_ca_file))
        files = "give --tls-cert-file, --tls-private-key-file and --client-ca-file"
        if self.endpoint_mode is EndpointMode.SERVICE and not mutual:
            raise InputError("--endpoint-mode", "behind a Service both sides must show a certificate", files)
        host, _ = parse_address(self.bind_address)
        if not mutual and host not in _LOOPBACK:
            raise InputError(
                "--bind-address", "whoever can reach the extender could have pods bound", f"{files}, or 127.0.0.1"
            )

    def check_files(self) -> None:
        """Make sure that the process can serve with its TLS files; they need not be there to print a configuration.

        Raises:
            InputError: one cannot be read, or is not what it should be.
        """
        named = {
            "--tls-cert-file": self.tls_cert_file,
            "--tls-private-key-file": self.tls_private_key_file,
            "--client-ca-file": self.client_ca_file,
        }
        for flag, file in named.items():
            try:
                Path(file or os.devnull).read_bytes()
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise InputError(flag, f"{file} cannot be read: {reason}", "check the path") from None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        if self.tls_cert_file:
            try:
                context.load_cert_chain(self.tls_cert_file, self.tls_private_key_file, password="")
            except (ssl.SSLError, ValueError):
                what = f"{self.tls_cert_file} and {self.tls_private_key_file} are no certificate and its key in PEM"
                raise InputError("--tls-cert-file", what, "give a pair, with a key that has no password") from None
        if self.client_ca_file:
            try:
                context.load_verify_locations(self.client_ca_file)
            except ssl.SSLError:
                what = f"{self.client_ca_file} holds no certificate in PEM"
                raise InputError("--client-ca-file", what, "give the authority's certificate") from None


C = TypeVar("C", bound=Common)


def effective(model: type[C], config: str | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> C:
    """The settings in force.

    Args:
        model: of the process.
        config: path of a YAML file, if one was named.
        environment: variables; those without the prefix, or of no setting, are somebody else's.
        flags: values by field name, None or empty where a flag was not given.

    Raises:
        InputError: with a line for every bad setting, under the name by which it was given.
    """
    values: dict[str, Any] = {}
    sources: dict[str, Place | str] = {}
    for key, value in (read_plain(config) if config else {}).items():
        values[str(key)] = value
        sources[str(key)] = Place(config or "", field=str(key))
    for name, field in model.model_fields.items():
        flag = FLAGS.get(name, name)
        key = field.alias or name
        variable = f"{_PREFIX}{flag.upper()}"
        if environment.get(variable):
            values[key], sources[key] = environment[variable], variable
        if flags.get(name) not in (None, ()):
            values[key], sources[key] = flags[name], f"--{flag.replace('_', '-')}"
    try:
        return model.model_validate(values)
    except ValidationError as errors:
        known = ", ".join(sorted(field.alias or name for name, field in model.model_fields.items()))
        raise InputError.of(
            [
                Problem(sources.get(path.partition(".")[0].partition("[")[0], path), *_words(what, remedy, known))
                for path, what, remedy in in_words(errors)
            ]
        ) from None


def _words(what: str, remedy: str, known: str) -> tuple[str, str]:
    if what.startswith("extra inputs"):
        return "there is no such setting", f"use one of {known}"
    return what.removeprefix("value error, "), remedy
