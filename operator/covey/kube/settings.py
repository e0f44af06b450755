"""Settings of a process: each is one field of a pydantic model.

The field's name makes its key in the file (``metricsBindAddress``), its variable (``COVEY_METRICS_BIND_ADDRESS``) and its
flag (``--metrics-bind-address``). Its type, default and docstring make the help, the reference and the comment in the
chart's values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from covey.api.constants import DEFAULT_NAMESPACE
from covey.api.durations import parse_duration
from covey.observability.addresses import is_off, parse_address


@dataclass(frozen=True, slots=True)
class Metavar:
    """What stands for a value in the help."""

    text: str


class SettingError(ValueError):
    """A setting that does not go with the others, or with what is there.

    Args:
        field: of the model, which somebody should correct.
        what: what is wrong with it.
        remedy: what to do.
    """

    def __init__(self, field: str, what: str, remedy: str) -> None:
        super().__init__(f"{field}: {what}; {remedy}")
        self.field, self.what, self.remedy = field, what, remedy


def _read_seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    seconds = parse_duration(value.strip())
    try:
        return float(value) if seconds is None else seconds
    except ValueError:
        raise ValueError("is no duration; write 300s or 5m") from None


def _split_names(value: object) -> object:
    """Names with commas, in a list or not, each of them once."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        return value
    return tuple(dict.fromkeys(name.strip() for part in parts for name in part.split(",") if name.strip()))


def _check_address(address: str, *, is_optional: bool) -> str:
    if not (is_optional and is_off(address)):
        parse_address(address)
    return address


File = Annotated[str, Metavar("FILE")]
Name = Annotated[str, Metavar("NAME")]
Namespace = Annotated[str, Metavar("NS")]
#: Where a server listens.
Address = Annotated[str, AfterValidator(partial(_check_address, is_optional=False)), Metavar("ADDRESS")]
#: Likewise; ``""`` and ``"0"`` switch it off.
OptionalAddress = Annotated[str, AfterValidator(partial(_check_address, is_optional=True)), Metavar("ADDRESS")]
#: ``300s``, ``5m``, ``1h30m``, or plain seconds.
Seconds = Annotated[float, BeforeValidator(_read_seconds), Field(ge=0), Metavar("DURATION")]
SPLIT_NAMES: Final = BeforeValidator(_split_names)
Names = Annotated[tuple[Name, ...], SPLIT_NAMES]
Namespaces = Annotated[tuple[Namespace, ...], SPLIT_NAMES]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "console"]


class ProcessSettings(BaseModel):
    """Settings of every process: the cluster, and what is logged."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )
    #: What the names of variables begin with.
    prefix: ClassVar[str] = "COVEY_"

    kubeconfig: File | None = None
    """The kubeconfig. Without: $KUBECONFIG, then ~/.kube/config, then the pod's own account."""
    context: Name | None = None
    """A context of the kubeconfig. Without: its current one."""
    log_level: LogLevel = "info"
    """What is logged, from this level on."""
    log_format: LogFormat = "json"
    """The form of what is logged."""


class LeaderSettings(ProcessSettings):
    """Settings of the operator and the scheduler process, one of whose replicas leads."""

    namespaces: Namespaces = ()
    """Namespaces to look after, which must exist; empty means all. The scheduler process watches pods and nodes of the
    whole cluster in any case, since everybody's pods take capacity."""
    leader_elect: bool = True
    """Take a Lease first."""
    leader_elect_namespace: Namespace = DEFAULT_NAMESPACE
    """Where the Lease lies."""
    metrics_bind_address: OptionalAddress = ":8080"
    """Where metrics are served; 0 serves none."""
    health_probe_bind_address: OptionalAddress = ":8081"
    """Where the kubelet's probes are answered; 0 serves none."""
    native_groups: bool = False
    """Plan the groups of scheduling.k8s.io (Kubernetes 1.37) whose pods have Covey's scheduler and gate, whatever
    controller made them, and replace their pods that lost their nodes."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A field as people meet it.

    Attributes:
        field: its name in the model.
        key: in the file.
        variable: in the environment.
        flag: on the command line.
        choices: all values that there are; empty where there are many.
        metavar: what stands for a value.
        default: as one would write it; empty where nothing is set.
        text: what it is for.
        is_list: it may be given more than once, and with commas.
        is_switch: it may be given without a value, for ``true``.
    """

    field: str
    key: str
    variable: str
    flag: str
    choices: tuple[str, ...]
    metavar: str
    default: str
    text: str
    is_list: bool
    is_switch: bool


def settings_of(model: type[ProcessSettings]) -> Iterator[Setting]:
    """Read the settings from the fields of a model, in their order."""
    for field, info in model.model_fields.items():
        key = info.alias or field
        # As kubectl has it; every other name is that of the key.
        flag = "namespace" if key == "namespaces" else re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", key)
        parts = [*info.metadata, *_parts_of(info.annotation)]
        choices = tuple(str(part) for part in parts if isinstance(part, str))
        metavars = [part.text for part in parts if isinstance(part, Metavar)]
        yield Setting(
            field=field,
            key=key,
            variable=model.prefix + flag.replace("-", "_").upper(),
            flag=f"--{flag}",
            choices=choices,
            metavar=metavars[0] if metavars else "|".join(choices) or ("BOOL" if bool in parts else "N"),
            default=_write(info.default),
            text=" ".join((info.description or "").split()),
            is_list=get_origin(info.annotation) is tuple,
            is_switch=info.annotation is bool,
        )


def _parts_of(annotation: Any) -> Iterator[Any]:
    """The types, marks and choices that an annotation is made of."""
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        yield from annotation
    elif arguments := get_args(annotation):
        for argument in arguments:
            yield from _parts_of(argument)
    else:
        yield annotation


def _write(default: object) -> str:
    """Write a default as it could be given."""
    match default:
        case None:
            return ""
        case bool():
            return str(default).lower()
        case float():
            return f"{default:g}s"
        case tuple():
            return ", ".join(default)
    return str(default)
