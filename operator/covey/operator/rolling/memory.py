"""The memory of a rollout: it stands in ``status.rollout`` and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covey.api import times
from covey.rollout.told import Gate, Hold, Progress


def read_progress(before: Mapping[str, Any]) -> Progress | None:
    """Read the progress of a rollout from a status; None when it says nothing that can be understood."""
    told = before.get("rollout")
    if not isinstance(told, Mapping):
        return None
    since, target = times.seconds(_text(told.get("progressedAt"))), _text(told.get("toRevision"))
    ready, outdated, wave = (told.get(key, 0) for key in ("ready", "outdated", "wave"))
    if since is None or target is None or not all(isinstance(each, int) for each in (ready, outdated, wave)):
        return None
    return Progress(target, wave, ready, outdated, since, _read_hold(told.get("hold")))


def _read_hold(told: object) -> Hold | None:
    if not isinstance(told, Mapping):
        return None
    gate, since = told.get("gate"), times.seconds(_text(told.get("since")))
    if gate not in {each.value for each in Gate} or since is None:
        return None
    return Hold(Gate(gate), _text(told.get("message")) or "", since)


def written(progress: Progress, former: str) -> dict[str, Any]:
    """The value of ``status.rollout``; ``former`` is the revision that is left."""
    told: dict[str, Any] = {
        "fromRevision": former,
        "toRevision": progress.target,
        "wave": progress.wave,
        "ready": progress.ready,
        "outdated": progress.outdated,
        "progressedAt": times.rfc3339(progress.since),
    }
    if progress.hold is not None:
        hold = progress.hold
        told["hold"] = {"gate": hold.gate.value, "message": hold.reason, "since": times.rfc3339(hold.since)}
    return told


def read_complete(before: Mapping[str, Any]) -> str:
    """The hash of the revision that was complete last, as a status remembers it; empty where it says none."""
    return _text(before.get("completeRevision")) or ""


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
