"""The gates at which a rollout waits: for nodes, readiness, a partition or a budget, or because it is paused or failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from covey.rollout.model import Stage, UnitState, UnitStep, serving
from covey.rollout.step import is_fresh


class Gate(StrEnum):
    """Reasons for which a rollout waits, the most important first."""

    #: Nothing has got any further for ``progressDeadlineSeconds``.
    FAILED = "Failed"
    PAUSED = "Paused"
    #: What is asked for cannot be brought in beside what runs.
    UNSUPPORTED = "Unsupported"
    #: New replicas have no nodes, and old ones are not given up for them.
    NODES = "Nodes"
    #: New replicas are not Ready.
    READINESS = "Readiness"
    #: A partition keeps what is left.
    PARTITION = "Partition"
    #: No more may be missing.
    BUDGET = "Budget"


@dataclass(frozen=True, slots=True)
class GateHold:
    """The reason for which a rollout does nothing now, since when (seconds since the epoch)."""

    gate: Gate
    reason: str
    since: float


def find_gates(units: Mapping[int, tuple[UnitState, UnitStep]]) -> Iterator[tuple[Gate, str]]:
    """Find the gates at which the units of a resource wait, each with its reason."""
    gates_of = {number: list(_waits(unit, step)) for number, (unit, step) in units.items()}
    rolled = {number for number, (unit, _) in units.items() if any(state.outdated for state in unit.roles.values())}
    # A unit that goes on is not held by the partition of another.
    held = all(any(gate is Gate.PARTITION for gate, _ in gates_of[number]) for number in rolled)
    for number, gates in gates_of.items():
        where = f"unit {number}: " if len(units) > 1 else ""
        yield from ((gate, f"{where}{text}") for gate, text in gates if held or gate is not Gate.PARTITION)


def _waits(unit: UnitState, step: UnitStep) -> Iterator[tuple[Gate, str]]:
    """The gates at which a unit waits; none when it has just been given something to do."""
    roles = unit.roles
    new = {name: state.updated for name, state in roles.items()}
    if unit.blocked and any(state.outdated for state in roles.values()) and not is_fresh(unit):
        yield Gate.UNSUPPORTED, unit.blocked
        return
    waiting = {
        name: sum(replica.stage is Stage.WAITING for replica in replicas.values()) for name, replicas in new.items()
    }
    if any(waiting.values()):
        refusals = dict.fromkeys(state.refusal for name, state in roles.items() if waiting[name] and state.refusal)
        why = f": {'; '.join(refusals)}" if refusals else ""
        yield Gate.NODES, f"{_join_counts(waiting)} of the new revision without nodes{why}"
        return
    starting = {name: len(replicas) - serving(replicas) for name, replicas in new.items()}
    if any(starting.values()):
        yield Gate.READINESS, f"{_join_counts(starting)} of the new revision not Ready yet"
        return
    if any(
        {number: revision.hash for number, revision in step.roles[name].items()}
        != {number: replica.revision.hash for number, replica in state.alive.items()}
        for name, state in roles.items()
    ):
        return
    left = {name: len(state.outdated) for name, state in roles.items() if state.outdated}
    if not left:
        return
    if any(roles[name].budget.partition for name in left):
        yield Gate.PARTITION, f"the partition keeps {_join_counts(left)} of other revisions"
    else:
        yield Gate.BUDGET, f"{_join_counts(left)} of other revisions, of which none may be missing now"


def _join_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {name}" for name, count in counts.items() if count)
