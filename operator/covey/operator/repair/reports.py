"""Reports of failures: Events, and remarks for conditions while something has to be done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.annotations import Avoided
from covey.operator.model.actions import Note
from covey.operator.model.outcome import Remark
from covey.operator.repair.failure_log import Failure

#: Reason of ``Degraded``, and of the Event when it begins.
REASON_EXHAUSTED: Final = "RestartsExhausted"


#: Reason of ``NodesAvoided``.
REASON_AVOIDED: Final = "NodeAvoided"


#: Nodes that are named in one message.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A replica that is left failed; ``is_new``: from now on.

    ``until``: it serves again, and is forgiven then if that lasts (seconds since the epoch).
    """

    unit: int
    role: str
    number: int
    failures: int
    most: int
    is_new: bool
    until: float | None = None

    def __str__(self) -> str:
        """The replica, its failures in a row and the limit, as a sentence."""
        return (
            f"replica {self.number} of {self.role} in unit {self.unit} failed {self.failures} times in a row, and "
            f"restart.maxRestarts is {self.most}"
        )


def tell_failures(new: Sequence[Failure], exhausted: Sequence[Exhausted]) -> Iterator[Note]:
    """Make one Event for all failures of a role for one reason: those of a rack must not use up the Events."""
    for (role, why), group in groupby(sorted(new, key=_role_and_why), key=_role_and_why):
        failures = list(group)
        nodes = sorted({node for failure in failures for node in failure.nodes})
        where = f" on {', '.join(nodes[:_NAMED])}{' and others' if len(nodes) > _NAMED else ''}" if nodes else ""
        what = _text(failures[0]) if len(failures) == 1 else f"{len(failures)} replicas of {role}"
        detail = f" ({failures[0].detail})" if failures[0].detail else ""
        row = (
            f", {failures[0].past.failures} times in a row"
            if len(failures) == 1 and failures[0].past.failures > 1
            else ""
        )
        yield Note("ReplicaFailed", f"{what} failed{where}: {why}{detail}{row}", "Restart", warning=True)
    for first in [entry for entry in exhausted if entry.is_new][:1]:
        yield Note(REASON_EXHAUSTED, f"{first}: it is left as it is", "Restart", warning=True)


def remark_failures(exhausted: Sequence[Exhausted], avoided: Sequence[Avoided]) -> Iterator[Remark]:
    """Remarks that hold until somebody acts, or time has passed: exhausted restarts, avoided nodes."""
    if exhausted:
        first = min(exhausted, key=lambda entry: entry.until is not None)
        more = f" (and {len(exhausted) - 1} more)" if len(exhausted) > 1 else ""
        what = (
            f"it serves again, and is forgiven at {core.rfc3339(first.until)} if that lasts"
            if first.until is not None
            else f"raise spec.roles[{first.role}].restart.maxRestarts, delete its failed pods for one more try, or roll out a "
            "template that works"
        )
        yield Remark(names.DEGRADED, REASON_EXHAUSTED, f"{first}: it is left as it is{more}; {what}")
    if avoided:
        texts = [f"{entry} until {core.rfc3339(entry.until)} ({entry.reason})" for entry in avoided[:_NAMED]]
        rest = f"; and {len(avoided) - _NAMED} more" if len(avoided) > _NAMED else ""
        message = f"new pods keep off {'; '.join(texts)}{rest}: see what is wrong there, and cordon what is broken"
        yield Remark(names.NODES_AVOIDED, REASON_AVOIDED, message)


def _role_and_why(failure: Failure) -> tuple[str, str]:
    return failure.replica.partition("/")[0], failure.why


def _text(failure: Failure) -> str:
    role, _, number = failure.replica.partition("/")
    number, _, index = number.partition("/")
    return f"{f'pod {index} of ' if index else ''}replica {number} of {role} in unit {failure.unit}"
