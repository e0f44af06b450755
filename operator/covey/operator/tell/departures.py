"""Counts of pods that the operator takes away: replicas that leave their nodes, units that are given up.

A pod goes once: counted is what this process has asked for and the API server has taken, of pods that were not on their
way out already. So neither a repeated pass nor a restarted operator counts anything again.
"""

from __future__ import annotations

from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import slot_of
from covey.observability import operator_metrics as metrics
from covey.operator.plan import Plan
from covey.operator.rolling.leaving import find_leaving
from covey.operator.snapshot.observed import Observed
from covey.operator.terms.actions import DeletePod


class Departures:
    """The deletions of one pass.

    Args:
        spec: what is kept up.
        observed: the snapshot.
        plan: what was planned from it.
    """

    def __init__(self, spec: DisaggregatedInferenceSpec, observed: Observed, plan: Plan) -> None:
        #: Replicas whose nodes are to be empty and that have no place any more.
        self._leaving = frozenset(
            (unit, role, replica)
            for unit, role, replica in find_leaving(spec, observed).places
            if replica not in plan.layout.units.get(unit, {}).get(role, {})
        )
        self._given_up = {item.pod.metadata.uid for item in plan.loss.delete}
        self._steps = {unit: found.step for unit, found in plan.loss.announced.items()}

    def deleted(self, item: DeletePod) -> None:
        """Count a deletion that the API server has accepted."""
        slot, metadata = slot_of(item.pod.spec.hostname), item.pod.metadata
        if slot is None or metadata.deletion_timestamp is not None:
            return
        # Its first pod stands for a replica: each has one.
        if slot.index == 0 and (slot.unit, slot.role, slot.replica) in self._leaving:
            metrics.REPLICAS_EVACUATED.inc()
        step = self._steps.pop(slot.unit, None) if metadata.uid in self._given_up else None
        if step is not None:
            metrics.GANG_ESCALATIONS.labels(step).inc()
