"""The outcome of one look at a resource. Every feature gives one, and a plan is their sum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any

from covey.operator.terms.actions import Actions, DeletePod
from covey.operator.terms.remark import Remark


@dataclass(frozen=True, slots=True)
class Outcome:
    """Actions, remarks to report, and the seconds after which time alone changes something."""

    actions: Actions = field(default_factory=Actions)
    remarks: tuple[Remark, ...] = ()
    again: float | None = None


def summed(outcomes: Iterable[Outcome]) -> Outcome:
    """Sum up outcomes.

    Of remarks of one type the first is reported, so the order counts. A pod is deleted once, for the first reason, and
    none that is deleted is let go.
    """
    found = (Outcome(), *outcomes)
    actions = Actions(**{each.name: _joined([getattr(part.actions, each.name) for part in found]) for each in _FIELDS})
    deleted = tuple(_once(actions.delete_pods))
    gone = {item.pod.metadata.uid for item in deleted}
    return Outcome(
        replace(
            actions,
            delete_pods=deleted,
            ungate=tuple(item for item in actions.ungate if item.pod.metadata.uid not in gone),
        ),
        tuple(chain.from_iterable(part.remarks for part in found)),
        soonest(part.again for part in found),
    )


def soonest(times: Iterable[float | None]) -> float | None:
    """The least of the times that are not None; None without any."""
    return min((each for each in times if each is not None), default=None)


_FIELDS = fields(Actions)


def _joined(values: list[Any]) -> Any:
    """Join the values of one field: tuples one after the other, otherwise the first that is not None."""
    if isinstance(values[0], tuple):
        return tuple(chain.from_iterable(values))
    return next((each for each in values if each is not None), None)


def _once(deletions: Iterable[DeletePod]) -> Iterator[DeletePod]:
    found: dict[str, DeletePod] = {}
    for item in deletions:
        found.setdefault(item.pod.metadata.uid, item)
    return iter(found.values())
