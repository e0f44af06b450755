"""The sources of a story: objects with the times that the rest of Covey has no use for."""

from __future__ import annotations

from dataclasses import dataclass

from covey.api import core
from covey.operator.model.objects import Inference
from covey.ui.contract import Denied


class Terminated(core.Read, frozen=True):
    """The end of a container."""

    reason: str = ""
    exit_code: int = 0
    finished_at: str | None = None


class ContainerState(core.ContainerState, frozen=True):
    """State of a container, with how it ended."""

    terminated: Terminated | None = None


class ContainerStatus(core.ContainerStatus, frozen=True):
    """Status of a container, with how it ended, and how it did before."""

    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodStatus(core.PodStatus, frozen=True):
    """Status of a pod, with the ends of its containers."""

    container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(core.Pod, frozen=True):
    """A pod with its times; unlike ``core.Pod`` it keeps what it is told of containers."""

    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        """Keep everything."""


class Regarding(core.Read, frozen=True):
    """The object that an Event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Series(core.Read, frozen=True):
    """Repetitions."""

    count: int = 0
    last_observed_time: str | None = None


class Event(core.Read, frozen=True):
    """An Event; those of older programs have the deprecated fields alone."""

    metadata: core.Meta
    regarding: Regarding = Regarding()
    type: str = "Normal"
    reason: str = ""
    note: str = ""
    action: str = ""
    event_time: str | None = None
    series: Series | None = None
    deprecated_first_timestamp: str | None = None
    deprecated_last_timestamp: str | None = None
    deprecated_count: int = 0


@dataclass(frozen=True, slots=True)
class Chronicle:
    """All that is read for one story."""

    inference: Inference
    pods: tuple[Pod, ...] = ()
    groups: tuple[core.Group, ...] = ()
    events: tuple[Event, ...] = ()
    denied: tuple[Denied, ...] = ()
