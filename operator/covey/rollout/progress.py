"""The report of a rollout, and its memory: since when, and how far it had come.

All memory is what the status of the resource says. Where that is lost a clock begins again, and nothing else happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from covey.rollout.gates import Gate, GateHold, find_gates
from covey.rollout.model import RoleState, UnitState, UnitStep, serving


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of ``spec.rollout``. ``deadline`` in seconds; it does not run before ``runs_from`` (since the epoch)."""

    paused: bool = False
    deadline: float = 1800.0
    runs_from: float = 0.0


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """A rollout on its way; it is its own memory for the next pass.

    ``ready`` are replicas of the new revision that serve, ``outdated`` those of others, ``since`` is when either got
    better last. ``wave`` is the window that the new revision has reached, from 1.
    """

    target: str
    wave: int
    ready: int
    outdated: int
    since: float
    hold: GateHold | None = None

    @property
    def done(self) -> bool:
        """Everything that may be replaced is."""
        return self.hold is not None and self.hold.gate is Gate.PARTITION

    @property
    def failed(self) -> bool:
        """True where it has not got any further for too long."""
        return self.hold is not None and self.hold.gate is Gate.FAILED

    def is_behind(self, ready: int, outdated: int) -> bool:
        """Tell whether the rollout is further now."""
        return ready > self.ready or outdated < self.outdated

    def is_late(self, settings: Settings, now: float) -> bool:
        """The deadline has passed."""
        return not settings.paused and not self.done and now >= self._ends(settings)

    def _ends(self, settings: Settings) -> float:
        """Time of the deadline. One that has passed does not come back because the clock stands still later."""
        since = self.since if self.failed else max(self.since, settings.runs_from)
        return since + settings.deadline

    def next_change_after(self, settings: Settings, now: float) -> float | None:
        """Seconds after which time alone changes something."""
        if settings.paused or self.done or self.failed:
            return None
        end = self._ends(settings)
        return end - now if end > now else None


def resume_progress(
    last: RolloutProgress | None, target: str, settings: Settings, now: float
) -> RolloutProgress | None:
    """The part of a stored progress that counts: that of this very target, its clock beginning again after a pause."""
    if last is None or last.target != target:
        return None
    paused = last.hold is not None and last.hold.gate is Gate.PAUSED
    if paused and not settings.paused:
        return RolloutProgress(target, last.wave, last.ready, last.outdated, now)
    return last


def tell(
    units: Mapping[int, tuple[UnitState, UnitStep]],
    target: str,
    last: RolloutProgress | None,
    settings: Settings,
    now: float,
) -> RolloutProgress | None:
    """The rollout that is on its way; None when there is none.

    Args:
        units: as they are, and as they shall be.
        target: the hash of the revision that is brought in.
        last: as ``resume_progress`` gives it.
        settings: of the resource.
        now: seconds since the epoch.
    """
    states = [state for unit, _ in units.values() for state in unit.roles.values()]
    ready = sum(serving(state.updated) for state in states)
    outdated = sum(len(state.outdated) for state in states)
    lacking = any(
        serving(state.updated) < state.wanted or any(replica.updating for replica in state.updated.values())
        for state in states
    )
    if not outdated and (last is None or not lacking or last.is_late(settings, now)):
        return None
    better = last is None or last.is_behind(ready, outdated)
    wave = max((_wave(state, step.roles[name]) for unit, step in units.values() for name, state in unit.roles.items()))
    gates = list(find_gates(units))
    done = bool(gates) and all(gate is Gate.PARTITION for gate, _ in gates)
    # When a partition lets more go, that is a beginning, however long it has held.
    since = now if last is None or better or (last.done and not done) else last.since
    progress = RolloutProgress(target, wave, ready, outdated, since)
    # One that had failed stays so until it gets further.
    counted = last if last is not None and since == last.since else progress
    if not done and counted.is_late(settings, now):
        gates = [(Gate.FAILED, f"no progress for {settings.deadline:.0f} s; {gates[0][1]}" if gates else "no progress")]
    if settings.paused:
        gates = [(Gate.PAUSED, "spec.rollout.paused is true: set it to false to go on")]
    if not gates:
        return progress
    by_importance = tuple(Gate)
    gate, reason = min(gates, key=lambda entry: by_importance.index(entry[0]))
    same = last is not None and last.hold is not None and last.hold.gate is gate and not better
    held = GateHold(gate, reason, last.hold.since if same and last is not None and last.hold is not None else now)
    return replace(progress, hold=held)


def describe_partition(units: Iterable[UnitState], target: str) -> str:
    """Describe how far a rollout has come that a partition holds, role by role; ``target`` is the hash of its revision."""
    there, wanted = Counter[str](), Counter[str]()
    partitions: dict[str, int] = {}
    for unit in units:
        for name, state in unit.roles.items():
            if state.outdated:
                there[name] += len(state.updated)
                wanted[name] += len(state.alive)
                partitions[name] = state.budget.partition
    counts = (
        f"{there[name]} of {wanted[name]} replicas of {name}{f' (partition {kept})' if kept else ''}"
        for name, kept in partitions.items()
    )
    return f"partitioned roll out complete: {', '.join(counts)} are of revision {target}"


def _wave(state: RoleState, step: Mapping[int, object]) -> int:
    new = sum(getattr(revision, "hash", None) == state.target.hash for revision in step.values())
    width = max(1, state.budget.surge + (state.budget.unavailable or 0))
    return -(-new // width) if state.outdated else 0
