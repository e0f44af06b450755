"""Counts of rollouts, evacuations and answers of autoscalers, once for each change between two statuses.

A change counts when the later status is written. The status is the record. What it said before was counted by the
process that wrote it, so a restarted operator counts nothing again, and what happened while none ran is counted by the
next one. Within one process the status that was written last counts, for the watch may still show the one before that.

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
from covey.api import core
from covey.observability import operator_metrics as metrics
from covey.operator.validation import AcceptedSpec

#: A counter and the values of its labels.
Count = tuple[Counter, tuple[str, ...]]

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


class RolloutCounts:
    """Counts for the resources that this operator has looked at."""

    def __init__(self) -> None:
        self._written: dict[str, Mapping[str, Any]] = {}

    def count_status(
        self, owner: str, verdict: AcceptedSpec, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        """Count what is new in the status of a resource that has been written.

        Args:
            owner: UID of the resource.
            verdict: what is kept up of it.
            before: the status until now; it counts for what this process sees for the first time.
            after: the status that was written.
        """
        for counter, labels in find_counts(verdict, self._written.get(owner, before), after):
            (counter.labels(*labels) if labels else counter).inc()
            if len(labels) == 1 and labels[0] in metrics.FORMER:
                counter.labels(metrics.FORMER[labels[0]]).inc()
        seconds = find_seconds_to_nodes(self._written.get(owner, before), after)
        if seconds is not None:
            metrics.CAPACITY_SECONDS.observe(seconds)
        self._written[owner] = after

    def forget(self, owner: str) -> None:
        """Forget a resource that is gone."""
        self._written.pop(owner, None)


def find_counts(verdict: AcceptedSpec, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Count]:
    """Find what is counted between two statuses.

    Args:
        verdict: what is kept up of the resource.
        before: the status until now.
        after: the one that follows it.
    """
    yield from _of_rollout(verdict, before.get("rollout") or {}, after)
    yield from _of_evacuation(_true(before), _true(after))
    was, now = (_find_condition(status, names.CAPACITY_ASKED).get("reason") for status in (before, after))
    if now and now != was:
        yield metrics.CAPACITY_ANSWERS, (str(now),)


def find_seconds_to_nodes(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Find how long nodes were asked for that have come: everything is admitted now, and was not; None otherwise."""
    asked, admitted = _find_condition(before, names.CAPACITY_ASKED), _find_condition(after, names.ADMITTED)
    if (
        asked.get("reason") != names.REASON_COMING
        or admitted.get("status") != "True"
        or _find_condition(after, asked["type"])
    ):
        return None
    if _find_condition(before, names.ADMITTED).get("status") == "True":
        return None
    begun, ended = (core.seconds(condition.get("lastTransitionTime")) for condition in (asked, admitted))
    return max(0.0, ended - begun) if begun is not None and ended is not None else None


def _find_condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((condition for condition in status.get("conditions") or () if condition["type"] == kind), {})


def _of_rollout(verdict: AcceptedSpec, old: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Count]:
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


def _result(verdict: AcceptedSpec, target: str, after: Mapping[str, Any]) -> Result:
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


def _of_evacuation(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Count]:
    was, now = (any(kind in reasons for kind in _EVACUATES) for reasons in (old, new))
    if now and not was:
        yield metrics.EVACUATIONS_STARTED, ()
    if was and not now:
        yield metrics.EVACUATIONS_FINISHED, ()
    if names.EVACUATION_BLOCKED in new and names.EVACUATION_BLOCKED not in old:
        yield metrics.EVACUATIONS_BLOCKED, (new[names.EVACUATION_BLOCKED],)


def _true(status: Mapping[str, Any]) -> dict[str, str]:
    conditions = status.get("conditions") or ()
    return {condition["type"]: condition["reason"] for condition in conditions if condition["status"] == "True"}
