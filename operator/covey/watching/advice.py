"""Advice on a resource: what its reasons mean and what a person can do, by the table of ``covey.api.reasons``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from covey.api import constants as names
from covey.api import core, reasons
from covey.api.inference import DisaggregatedInference
from covey.api.model import StatusCondition
from covey.model import podstate

#: Those of conditions that say of all others what they come to.
_SUMS = (names.STALLED, names.READY)


class Advice(msgspec.Struct, frozen=True):
    """A reason, what it means, and what to do; ``remedy`` is empty where there is nothing to do."""

    reason: str
    meaning: str
    remedy: str = ""


def advise(inference: DisaggregatedInference, pods: Iterable[core.Pod]) -> tuple[Advice, ...]:
    """Collect the advice on a resource, the gravest first; none for one that is as it should be.

    Args:
        inference: the resource.
        pods: of its namespace; others than its own are left out.
    """
    advice: dict[reasons.Explanation, Advice] = {}
    own = [pod for pod in pods if (owner := pod.metadata.controller) and owner.uid == inference.metadata.uid]
    for reason in [*_container_reasons(own), *_status_reasons(inference), *_release_reasons(own)]:
        explained = reasons.explain(reason)
        if explained is not None:
            advice.setdefault(explained, Advice(reason, explained.meaning, explained.remedy))
    return tuple(advice.values())


def _status_reasons(inference: DisaggregatedInference) -> Iterator[str]:
    status = inference.status
    if status is None:
        return
    conditions = sorted(status.conditions, key=lambda condition: condition.type not in _SUMS)
    given = [condition.reason for condition in conditions if is_wrong(condition)]
    if status.rollout is not None and status.rollout.hold is not None:
        given.append(status.rollout.hold.gate)
    given += [unit.reason for unit in status.unit_statuses if unit.reason != names.READY]
    # What follows from a decision waits for it; that nothing was decided yet is true only where nothing else is.
    decided = [reason for reason in given if reason != names.REASON_WAITING]
    yield from decided or given


def describe_unseen(inference: DisaggregatedInference) -> str:
    """Say that no operator has seen the spec of a resource; empty where one has."""
    if not was_seen(inference):
        return "no operator has looked at it yet"
    status = inference.status
    seen = status.observed_generation if status is not None else None
    return "" if seen is None or seen >= inference.metadata.generation else "no operator has looked at its new spec yet"


def was_seen(inference: DisaggregatedInference) -> bool:
    """Tell whether an operator has ever written the status of a resource."""
    status = inference.status
    return status is not None and bool(status.conditions or (status.observed_generation or -1) >= 0)


def is_wrong(condition: StatusCondition) -> bool:
    """Tell whether a condition says that something is not, or not yet, as it should be."""
    if condition.type in reasons.GOOD:
        done = condition.type != names.PROGRESSING or condition.reason == "Complete"
        return condition.status != "True" or not done
    return condition.status != "False"


def _container_reasons(pods: Iterable[core.Pod]) -> Iterator[str]:
    """Yield what keeps containers of bound pods from running: more nodes would not help them."""
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        trouble = core.container_trouble(pod) if podstate.is_bound(pod) and not podstate.is_ready(pod) else None
        if trouble is not None:
            yield trouble.reason


def _release_reasons(pods: Iterable[core.Pod]) -> Iterator[str]:
    """Yield the reasons why pods that are still there have given up their places."""
    for pod in pods:
        if podstate.is_released(pod):
            yield pod.metadata.annotation(names.ANNOTATION_RELEASE) or ""
