"""The state and the clients that the parts of one scheduler process share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.events import EventRecorder
from covey.scheduler.admission_times import AdmissionTimes
from covey.scheduler.cache import Cache
from covey.scheduler.fair_loop import FairLoop
from covey.scheduler.writer import PodWriter


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Context:
    """The cluster as it is seen, the ways to write to it, and the time, for all parts of the lease's holder."""

    cache: Cache
    client: Client
    writer: PodWriter
    recorder: EventRecorder
    clock: Clock
    #: The times of each unit, for metrics.
    admission_times: AdmissionTimes
    #: Whether this process may decide and write decisions now.
    leads: Callable[[], bool] = _always
    #: Turns of the event loop that long work gives to others.
    fair_loop: FairLoop = field(default_factory=FairLoop)
