"""The memory of a rollout: it stands in ``status.rollout`` and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from covey.api import core
from covey.api.status import RolloutHold, RolloutStatus
from covey.rollout.gates import Gate, GateHold
from covey.rollout.progress import RolloutProgress

#: Gates as former releases called them.
_FORMER: Final = {"Room": Gate.NODES.value}


def read_progress(before: Mapping[str, Any]) -> RolloutProgress | None:
    """Read the progress of a rollout from a status; None when it says nothing that can be understood."""
    rollout = before.get("rollout")
    if not isinstance(rollout, Mapping):
        return None
    since, target = core.seconds(_text(rollout.get("progressedAt"))), _text(rollout.get("toRevision"))
    ready, outdated, wave = (rollout.get(key, 0) for key in ("ready", "outdated", "wave"))
    if since is None or target is None or not all(isinstance(count, int) for count in (ready, outdated, wave)):
        return None
    return RolloutProgress(target, wave, ready, outdated, since, _read_hold(rollout.get("hold")))


def _read_hold(hold: object) -> GateHold | None:
    if not isinstance(hold, Mapping):
        return None
    gate, since = _FORMER.get(str(hold.get("gate")), hold.get("gate")), core.seconds(_text(hold.get("since")))
    if gate not in {gate.value for gate in Gate} or since is None:
        return None
    return GateHold(Gate(gate), _text(hold.get("message")) or "", since)


def rollout_status(progress: RolloutProgress, former: str) -> RolloutStatus:
    """The value of ``status.rollout``; ``former`` is the revision that is left."""
    hold = progress.hold
    return RolloutStatus(
        from_revision=former,
        to_revision=progress.target,
        wave=progress.wave,
        ready=progress.ready,
        outdated=progress.outdated,
        progressed_at=core.rfc3339(progress.since),
        hold=None
        if hold is None
        else RolloutHold(gate=hold.gate.value, message=hold.reason, since=core.rfc3339(hold.since)),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
