"""What is told of Preemptions to people: a sentence for each, the last first."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from covey.api import core


def describe_preemptions(roots: Collection[str], preemptions: Iterable[core.Preemption]) -> list[str]:
    """Describe what others have given up for these roots (UIDs), or are about to."""
    own = (preemption for preemption in preemptions if preemption.spec.beneficiary.uid in roots)
    ordered = sorted(own, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name), reverse=True)
    return [_describe(preemption) for preemption in ordered]


def _describe(preemption: core.Preemption) -> str:
    spec, status = preemption.spec, preemption.status
    head = f"{spec.beneficiary.name}: {spec.summary}, {spec.reason}, {status.progress or '0'} gone"
    if status.outcome:
        return f"{head}; {status.outcome} at {status.end_time}: {status.message}"
    return f"{head}; given up at {status.deadline} if it comes no nearer" if status.deadline else head
