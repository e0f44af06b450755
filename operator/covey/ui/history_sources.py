"""The sources of a story: objects with the times that the rest of Covey has no use for."""

from __future__ import annotations

from dataclasses import dataclass

from covey.api import core
from covey.operator.model.objects import Inference
from covey.ui.contract import Denied


class TimedPod(core.Pod, frozen=True):
    """A pod with its times; unlike ``core.Pod`` it keeps what it is told of containers."""

    def __post_init__(self) -> None:
        """Keep everything."""


class Regarding(core.Read, frozen=True):
    """The object that an Event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class EventRepetition(core.Read, frozen=True):
    """Repetitions."""

    count: int = 0
    last_observed_time: str | None = None


class StoredEvent(core.Read, frozen=True):
    """An Event; those of older programs have the deprecated fields alone."""

    metadata: core.Meta
    regarding: Regarding = Regarding()
    type: str = "Normal"
    reason: str = ""
    note: str = ""
    action: str = ""
    event_time: str | None = None
    series: EventRepetition | None = None
    deprecated_first_timestamp: str | None = None
    deprecated_last_timestamp: str | None = None
    deprecated_count: int = 0


@dataclass(frozen=True, slots=True)
class HistorySources:
    """All that is read for one story."""

    inference: Inference
    pods: tuple[TimedPod, ...] = ()
    groups: tuple[core.Group, ...] = ()
    events: tuple[StoredEvent, ...] = ()
    preemptions: tuple[core.Preemption, ...] = ()
    denied: tuple[Denied, ...] = ()
