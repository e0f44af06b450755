"""Which gated pods say by an Event that their unit, or their role's surplus, was refused: the first thing that people look at.

One pod for a refused unit, and one for each role whose replicas beyond the minimum are refused, when a refusal is new or
has another reason: its words change with every pod that goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from covey.admission.expected import is_expected
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import ADMITTED, LABEL_INFERENCE, REFUSALS, SURPLUS_ADMITTED
from covey.model import podstate


class RefusedPod(NamedTuple):
    """A gated pod, and the Event about it: a reason and a sentence."""

    pod: core.Pod
    reason: str
    note: str


def find_refused_pods(unit: Unit, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[RefusedPod]:
    """Find the pods to which a new status of their root is worth an Event.

    Args:
        unit: the unit.
        before: the root's status so far.
        after: the one that was written.
    """
    name = unit.root.metadata.label(LABEL_INFERENCE) or unit.root.metadata.name
    title = f"unit {unit.index} of {name}"
    firsts = [
        (role.name, gated[0])
        for role in unit.roles
        if (gated := [pod for replica in role.replicas for pod in replica.pods if _waits(pod)])
    ]
    if (refused := _new_refusal(ADMITTED, before, after)) is not None:
        for _, pod in firsts[:1]:
            yield RefusedPod(pod, refused["reason"], f"{title} waits for nodes: {refused['message']}")
    elif (refused := _new_refusal(SURPLUS_ADMITTED, before, after)) is not None:
        for role, pod in firsts:
            what = f"replicas of {role} beyond the minimum of {title} wait for nodes"
            yield RefusedPod(pod, refused["reason"], f"{what}: {refused['message']}")


def _waits(pod: core.Pod) -> bool:
    """Tell whether a pod is there, and gated."""
    return podstate.is_gated(pod) and not is_expected(pod)


def _new_refusal(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Mapping[str, Any] | None:
    old, new = _condition(kind, before), _condition(kind, after)
    if new is None or new["status"] != "False" or new["reason"] not in REFUSALS:
        return None
    return None if old is not None and (old["status"], old["reason"]) == ("False", new["reason"]) else new


def _condition(kind: str, status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((each for each in status.get("conditions") or () if each["type"] == kind), None)
