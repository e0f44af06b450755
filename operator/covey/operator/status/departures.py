"""Counts of pods that the operator takes away: replicas that leave their nodes, units that are given up.

A pod goes once: counted is what this process has asked for and the API server has taken, of pods that were not on their
way out already. So neither a repeated pass nor a restarted operator counts anything again.
"""

from __future__ import annotations

from covey.compile.identity import slot_of
from covey.observability import operator_metrics as metrics
from covey.operator.model.actions import DeletePod
from covey.operator.plan import Plan


class Departures:
    """The deletions of one pass.

    Args:
        plan: what was planned.
    """

    def __init__(self, plan: Plan) -> None:
        #: Replicas whose nodes are to be empty and that have no place any more.
        self._leaving = frozenset(
            (unit, role, replica)
            for unit, role, replica in plan.intent.leaving.places
            if replica not in plan.intent.layout.units.get(unit, {}).get(role, {})
        )
        self._claimed = plan.intent.preempted
        self._escalated = plan.status.escalated
        self._given_up: set[int] = set()

    def count_deletion(self, deletion: DeletePod) -> None:
        """Count a deletion that the API server has accepted."""
        slot, metadata = slot_of(deletion.pod.spec.hostname), deletion.pod.metadata
        if slot is None or metadata.deletion_timestamp is not None:
            return
        # Its first pod stands for a replica: each has one.
        if slot.index == 0 and (slot.unit, slot.role, slot.replica) in self._leaving:
            metrics.REPLICAS_EVACUATED.inc()
        claimed = self._claimed.get((slot.unit, slot.role, slot.replica)) if slot.index == 0 else None
        if claimed is not None:
            metrics.VICTIMS.labels(claimed.claim.purpose, claimed.kind).inc()
        step = self._escalated.get(metadata.uid)
        if step is not None and slot.unit not in self._given_up:
            self._given_up.add(slot.unit)
            metrics.GANG_ESCALATIONS.labels(step).inc()
