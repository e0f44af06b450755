"""Who looks after the gangs of a view: the processes that lead, and what to say where nobody does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from covey.api.constants import LEASE_SCHEDULER, OPERATOR
from covey.operator.model.objects import Inference
from covey.ui import contract
from covey.ui.gangs import read_inference
from covey.watching.advice import Advice
from covey.watching.presence import Lease, find_absences, find_leader

_PROCESSES: Final = {OPERATOR: "operator", LEASE_SCHEDULER: "scheduler process"}


def draw_leaders(leases: Sequence[Lease] | None, now: float) -> tuple[contract.LeaderView, ...]:
    """The processes that lead.

    Args:
        leases: Covey's, in all namespaces; None where they may not be read.
        now: seconds since the epoch.
    """
    leaders = ((process, find_leader(leases or (), name, now)) for name, process in _PROCESSES.items())
    return tuple(
        contract.LeaderView(
            *(process, f"{leader.namespace}/{leader.name}", leader.holder, leader.since, leader.version),
            leader.namespaces,
        )
        for process, leader in leaders
        if leader is not None and not leader.is_expired
    )


def find_all_absences(stored: Iterable[Inference], leases: Sequence[Lease] | None, now: float) -> tuple[Advice, ...]:
    """Who does not look after some of these resources, each sentence once; arguments as of `draw_leaders`."""
    inferences = (inference for body in stored if (inference := read_inference(body)[0]) is not None)
    return tuple(dict.fromkeys(advice for inference in inferences for advice in find_absences(inference, leases, now)))
