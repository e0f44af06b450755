"""The outcome of one look at a resource: every feature gives one, and a plan is their sum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any

from covey.operator.model.actions import Actions, DeletePod


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that holds now, and what a person can do about it.

    ``type`` is the condition that is True while it holds, False where it only has to be told; of several of one type the
    first is reported. ``Degraded`` is a type like any other. ``message`` is a sentence, ``reason`` one word for programs.
    """

    type: str
    reason: str
    message: str
    holds: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """Actions, remarks to report, and the seconds after which time alone changes something."""

    actions: Actions = field(default_factory=Actions)
    remarks: tuple[Remark, ...] = ()
    again: float | None = None


def sum_outcomes(outcomes: Iterable[Outcome]) -> Outcome:
    """Sum up outcomes.

    Of remarks of one type the first is reported, so the order counts. A pod is deleted once, for the first reason, and
    none that is deleted is let go.
    """
    summed = (Outcome(), *outcomes)
    actions = Actions(
        **{field.name: _join([getattr(part.actions, field.name) for part in summed]) for field in _FIELDS}
    )
    deleted = tuple(_once(actions.delete_pods))
    gone = {deletion.pod.metadata.uid for deletion in deleted}
    return Outcome(
        replace(
            actions,
            delete_pods=deleted,
            ungate=tuple(ungate for ungate in actions.ungate if ungate.pod.metadata.uid not in gone),
        ),
        tuple(chain.from_iterable(part.remarks for part in summed)),
        soonest(part.again for part in summed),
    )


def soonest(times: Iterable[float | None]) -> float | None:
    """The least of the times that are not None; None without any."""
    return min((time for time in times if time is not None), default=None)


_FIELDS = fields(Actions)


def _join(values: list[Any]) -> Any:
    """Join the values of one field: tuples one after the other, otherwise the first that is not None."""
    if isinstance(values[0], tuple):
        return tuple(chain.from_iterable(values))
    return next((value for value in values if value is not None), None)


def _once(deletions: Iterable[DeletePod]) -> Iterator[DeletePod]:
    by_uid: dict[str, DeletePod] = {}
    for deletion in deletions:
        by_uid.setdefault(deletion.pod.metadata.uid, deletion)
    return iter(by_uid.values())
