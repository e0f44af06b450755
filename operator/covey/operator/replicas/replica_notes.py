"""Events about replicas that come, go and are replaced: one for many, so that Events are not used up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from covey.api import constants as names
from covey.compile import Slot
from covey.model import podstate
from covey.operator.model.actions import DeletePod, Note
from covey.operator.replicas.replace import ReplicaActions


def count_of(count: int) -> str:
    """``1 replica``, ``2 replicas``."""
    return "1 replica" if count == 1 else f"{count} replicas"


def by_role(roles: Iterable[str]) -> str:
    """``1 replica of decode, 2 replicas of prefill``, from the role of each; empty where there is none."""
    return ", ".join(f"{count_of(count)} of {role}" for role, count in sorted(Counter(roles).items()))


def removal_notes(deletions: Sequence[DeletePod], reason: str, *, but: int | None = None) -> Iterator[Note]:
    """Make the Event for replicas that go without being replaced.

    Args:
        deletions: their pods.
        reason: of the Event.
        but: a unit that is reported otherwise.
    """
    labels = (names.LABEL_UNIT, names.LABEL_ROLE, names.LABEL_REPLICA)
    replicas = {tuple(deletion.pod.metadata.label(label) or "?" for label in labels) for deletion in deletions}
    listed = by_role(role for unit, role, _ in replicas if unit != str(but))
    if listed:
        yield Note(reason, f"removing {listed}", "ScaleDown")


def describe_growth(plans: Iterable[ReplicaActions], created: Collection[Slot]) -> str:
    """Describe new replicas, not replaced ones, as ``creating 2 replicas of decode``; empty where there are none."""
    new = {
        (creation.slot.unit, creation.slot.role, creation.slot.replica)
        for plan in plans
        for creation in plan.create
        if not creation.replaces and creation.slot in created
    }
    listed = by_role(role for _, role, _ in new)
    return f"creating {listed}" if listed else ""


def replacement_notes(plans: Iterable[ReplicaActions], created: Collection[Slot]) -> Iterator[Note]:
    """Make one Event for all replicas of a role that share a fate."""
    fates: dict[tuple[str, bool, bool], list[ReplicaActions]] = {}
    for plan in plans:
        again = next(
            (creation.slot.role for creation in plan.create if creation.replaces and creation.slot in created), None
        )
        if again is not None:
            released = any(podstate.is_released(deletion.pod) for deletion in plan.delete)
            fates.setdefault((again, released, plan.recreated), []).append(plan)
    for (role, released, recreated), alike in fates.items():
        first = alike[0].create[0].slot
        where = (
            f"replica {first.replica} of {role} in unit {first.unit}"
            if len(alike) == 1
            else f"{len(alike)} replicas of {role}"
        )
        if released:
            yield Note("Released", _describe_released(where, alike), "Replace")
        elif recreated:
            lost = "a pod of it was lost; the whole replica is recreated"
            cause = lost if len(alike) == 1 else "a pod of each was lost; they are recreated whole"
            yield Note("ReplicaReplaced", f"{where}: {cause}", "Replace", warning=True)
        else:
            pods = sum(creation.replaces for plan in alike for creation in plan.create)
            cause = "its pod is replaced" if pods == 1 else f"{pods} pods are replaced"
            yield Note("ReplicaReplaced", f"{where}: {cause}", "Replace")


def _describe_released(where: str, plans: Iterable[ReplicaActions]) -> str:
    pods = [deletion.pod for plan in plans for deletion in plan.delete if podstate.is_released(deletion.pod)]
    reasons = ", ".join(sorted({pod.metadata.annotation(names.ANNOTATION_RELEASE) or "" for pod in pods} - {""}))
    return f"{len(pods)} pods of {where} gave up their nodes: {reasons}"
