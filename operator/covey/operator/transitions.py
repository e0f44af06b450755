"""Events that follow from a change of status: what a person would ask about, once for each change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from covey.api import constants as names
from covey.operator.actions import Note
from covey.operator.conditions import REASON_COMPLETE, REASON_ROLLOUT_HELD

#: Reasons that are on the way to something better, not worth a warning.
_EXPECTED = frozenset({names.REASON_WAITING, names.REASON_SUSPENDED})


def find_transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Note]:
    """What has become different between two statuses."""
    old, new = _conditions(before), _conditions(after)
    for kind, condition in new.items():
        was = old.get(kind)
        if was is not None and (was["status"], was["reason"]) == (condition["status"], condition["reason"]):
            continue
        note = _note(kind, was, condition)
        if note is not None and not (kind == names.PROGRESSING and _says(new.get(names.ADMITTED), note)):
            yield note


def _says(condition: Mapping[str, Any] | None, note: Note) -> bool:
    """The condition tells the same, so its own note does."""
    return condition is not None and (condition["reason"], condition["message"]) == (note.reason, note.message)


def _note(kind: str, was: Mapping[str, Any] | None, now: Mapping[str, Any]) -> Note | None:
    status, reason, message = now["status"], now["reason"], now["message"]
    if kind == names.ADMITTED:
        if status == "True":
            return Note("Admitted", message, "Admit")
        if reason == names.REASON_WAITING and was is None:
            return None
        return Note(reason, message or reason, "Admit", warning=reason not in _EXPECTED)
    if kind in {names.SCHEDULED, names.AVAILABLE}:
        return Note(kind, message, "Bind" if kind == names.SCHEDULED else "Start") if status == "True" else None
    if kind == names.DEGRADED:
        return Note("Unavailable", message, "Start", warning=True) if status == "True" else None
    if kind == names.PROGRESSING and status == "False" and reason not in {REASON_COMPLETE, *_EXPECTED}:
        return Note(reason, message, "Rollout" if reason == REASON_ROLLOUT_HELD else "Reconcile", warning=True)
    return None


def _conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {item["type"]: item for item in status.get("conditions") or ()}
