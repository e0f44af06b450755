"""Events that follow from a change of status: what a person would ask about, once for each change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from covey.api import constants as names
from covey.operator.model.actions import Note
from covey.operator.status.conditions import REASON_DEADLINE, REASON_ROLLED_BACK
from covey.operator.status.ready import REASON_COMPLETE

#: Reasons that are on the way to something better, not worth a warning.
_EXPECTED = frozenset({names.REASON_WAITING, names.REASON_SUSPENDED, names.REASON_DELETING})


#: Each of them means that those before it were reached; of several at once only the last is reported.
_STAGES = (names.ADMITTED, names.SCHEDULED, names.AVAILABLE)


def find_transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Note]:
    """Events about what differs between two statuses."""
    old, new = _conditions(before), _conditions(after)
    changed = {kind for kind, condition in new.items() if _word(old.get(kind)) != _word(condition)}
    reached = [kind for kind in _STAGES if kind in changed and new[kind]["status"] == "True"]
    for kind in (kind for kind in new if kind in changed and kind not in reached[:-1]):
        was, condition = old.get(kind), new[kind]
        note = _note(kind, was, condition)
        if note is not None and not (kind == names.PROGRESSING and _says(new.get(names.ADMITTED), note)):
            yield note


def _word(condition: Mapping[str, Any] | None) -> tuple[str, str] | None:
    return None if condition is None else (condition["status"], condition["reason"])


def _says(condition: Mapping[str, Any] | None, note: Note) -> bool:
    """Tell whether a condition says the same as a note: then its own note is enough."""
    return condition is not None and (condition["reason"], condition["message"]) == (note.reason, note.message)


def _note(kind: str, was: Mapping[str, Any] | None, now: Mapping[str, Any]) -> Note | None:
    status, reason, message = now["status"], now["reason"], now["message"]
    if kind == names.ADMITTED:
        if status == "True":
            return Note("Admitted", message, "Admit")
        if reason == names.REASON_DELETING or (reason == names.REASON_WAITING and was is None):
            return None
        return Note(reason, message or reason, "Admit", warning=reason not in _EXPECTED)
    if kind in {names.SCHEDULED, names.AVAILABLE}:
        return Note(kind, message, "Bind" if kind == names.SCHEDULED else "Start") if status == "True" else None
    if kind == names.DEGRADED:
        return Note("Unavailable", message, "Start", warning=True) if status == "True" else None
    if kind in {names.PREEMPTING, names.PREEMPTED} and status == "True":
        return Note(kind, message, "Preempt")
    if kind == names.CAPACITY_ASKED:
        return Note(kind, message, "Ask", warning=status != "True")
    if kind == names.EVACUATION_BLOCKED and status == "True":
        return Note(kind, message, "Evacuate", warning=True)
    if kind == names.PROGRESSING and status == "False" and reason not in {REASON_COMPLETE, *_EXPECTED}:
        action = "Rollout" if reason in {REASON_DEADLINE, REASON_ROLLED_BACK} else "Reconcile"
        return Note(reason, message, action, warning=True)
    return None


def _conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {condition["type"]: condition for condition in status.get("conditions") or ()}
