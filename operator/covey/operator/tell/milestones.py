"""Counts of rollouts and evacuations: one for each change between two statuses, when the later one is written.

The status is the record. What it said before was counted by the process that wrote it, so a restarted operator counts
nothing again, and what happened while none ran is counted by the next one. Within one process the status that was
written last counts, for the watch may still show the one before that.

=============================  ===================================================================================
a rollout (``status.rollout``)
appears, or has another target it has *started*: by the spec, or, when the spec's revision was given up, as a step back
disappears, or has another     it has *finished*: completed, unready, rolled back, superseded, or withdrawn
has a hold of another time     it has begun to wait at the hold's gate
-----------------------------  -----------------------------------------------------------------------------------
an evacuation (conditions ``Evacuating``, ``EvacuationBlocked``)
the first becomes True         it has started
none is True any more          it has finished
EvacuationBlocked becomes True it is blocked
=============================  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from prometheus_client import Counter

from covey.api import constants as names
from covey.observability import operator_metrics as metrics
from covey.operator.judge.verdict import Verdict

#: A counter and the values of its labels.
Milestone = tuple[Counter, tuple[str, ...]]

_EVACUATES: Final = (names.EVACUATING, names.EVACUATION_BLOCKED)


class Start(StrEnum):
    """Cause for which a rollout has begun."""

    SPEC = "Spec"
    STEP_BACK = "StepBack"


class Result(StrEnum):
    """Result with which a rollout has ended."""

    COMPLETED = "Completed"
    UNREADY = "Unready"
    ROLLED_BACK = "RolledBack"
    SUPERSEDED = "Superseded"
    WITHDRAWN = "Withdrawn"


class Milestones:
    """Counts for the resources that this operator has looked at."""

    def __init__(self) -> None:
        self._written: dict[str, Mapping[str, Any]] = {}

    def written(self, owner: str, verdict: Verdict, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Count what is new in the status of a resource that has been written.

        Args:
            owner: UID of the resource.
            verdict: what is kept up of it.
            before: the status until now; it counts for what this process sees for the first time.
            after: the status that was written.
        """
        for counter, labels in find_milestones(verdict, self._written.get(owner, before), after):
            (counter.labels(*labels) if labels else counter).inc()
        self._written[owner] = after

    def forget(self, owner: str) -> None:
        """Forget a resource that is gone."""
        self._written.pop(owner, None)


def find_milestones(verdict: Verdict, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Milestone]:
    """Find the milestones between two statuses.

    Args:
        verdict: what is kept up of the resource.
        before: the status until now.
        after: the one that follows it.
    """
    yield from _of_rollout(verdict, before.get("rollout") or {}, after)
    yield from _of_evacuation(_true(before), _true(after))


def _of_rollout(verdict: Verdict, old: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Milestone]:
    new = after.get("rollout") or {}
    was, now = old.get("toRevision"), new.get("toRevision")
    if was and was != now:
        yield metrics.ROLLOUTS_FINISHED, (_result(verdict, str(was), after),)
    if now and was != now:
        cause = Start.STEP_BACK if verdict.failed and now != verdict.wanted.hash else Start.SPEC
        yield metrics.ROLLOUTS_STARTED, (cause,)
    hold = new.get("hold")
    if hold and (was != now or _begun(hold) != _begun(old.get("hold") or {})):
        yield metrics.ROLLOUT_HOLDS, (str(hold["gate"]),)


def _result(verdict: Verdict, target: str, after: Mapping[str, Any]) -> Result:
    accepted = verdict.accepted
    if verdict.failed and target == verdict.wanted.hash:
        return Result.ROLLED_BACK
    if accepted is None or verdict.inference.spec.suspend:
        return Result.WITHDRAWN
    if accepted.revision.hash != target:
        return Result.SUPERSEDED
    lacks = any(role["ready"] < role["replicas"] for role in after.get("roles", ()))
    return Result.UNREADY if lacks else Result.COMPLETED


def _begun(hold: Mapping[str, Any]) -> tuple[object, object]:
    return hold.get("gate"), hold.get("since")


def _of_evacuation(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Milestone]:
    was, now = (any(kind in found for kind in _EVACUATES) for found in (old, new))
    if now and not was:
        yield metrics.EVACUATIONS_STARTED, ()
    if was and not now:
        yield metrics.EVACUATIONS_FINISHED, ()
    if names.EVACUATION_BLOCKED in new and names.EVACUATION_BLOCKED not in old:
        yield metrics.EVACUATIONS_BLOCKED, (new[names.EVACUATION_BLOCKED],)


def _true(status: Mapping[str, Any]) -> dict[str, str]:
    """The reasons of the conditions that are True."""
    return {each["type"]: each["reason"] for each in status.get("conditions") or () if each["status"] == "True"}
