"""Answers to Evictions of a resource's pods: how far the move of each replica has come, or why it cannot be moved.

Of a pod the first that holds is said:

===================================================  ====================================================================
it is being deleted                                  it goes, when its grace period ends at the latest
its replica is marked                                it goes when it has no requests left, at its deadline at the latest
it has no node, or does not fill its place           nothing is to be moved: completed
its replica cannot leave                             why, as ``EvacuationBlocked`` has it; completed once it has been so
                                                     for ``disruption.evacuateAfterSeconds``
its unit, or its replica, is moved                   a successor comes first
===================================================  ====================================================================

Who completes without having moved a pod lets the next responder try, in the end the eviction that budgets decide about.
"""

from __future__ import annotations

from collections.abc import Mapping

from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import Slot
from covey.model import podstate
from covey.operator.intent import Intent
from covey.operator.model.eviction import EvictionAnswer
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import soonest
from covey.operator.rolling.evacuate import describe_move, find_stuck, is_arriving
from covey.operator.rolling.leaving import find_leaving

NOT_KEPT_UP = "its resource is not kept up: nothing of it is moved (`kubectl covey explain` says why)"
_NOWHERE = "the pod has no node, so there is nothing to move"
_FORMER = "the pod does not fill its place any more, so there is nothing to move"


def find_answers(
    spec: DisaggregatedInferenceSpec, observed: Observed, intent: Intent | None
) -> tuple[dict[str, EvictionAnswer], float | None]:
    """Answer the Evictions of a resource's pods.

    Args:
        spec: what is kept up.
        observed: the snapshot.
        intent: what becomes of its replicas; None where nothing of it is kept up.

    Returns:
        The answers by UID of the pod; and seconds after which time alone changes one.
    """
    if not observed.evictions:
        return {}, None
    leaving = find_leaving(spec, observed)
    stuck = find_stuck(spec, leaving, intent) if intent is not None else {}
    fills = {pod.metadata.uid: slot for slot, pod in observed.current.items()}
    answers: dict[str, EvictionAnswer] = {}
    ends: list[float | None] = []
    for pod in observed.every_pod():
        uid = pod.metadata.uid
        eviction = observed.evictions.get(uid)
        if eviction is None or not eviction.is_due or not eviction.is_wanted:
            continue
        slot = fills.get(uid)
        if intent is None:
            answers[uid] = EvictionAnswer(NOT_KEPT_UP, completes=True)
        elif podstate.is_terminating(pod):
            until = core.seconds(pod.metadata.deletion_timestamp)
            answers[uid] = EvictionAnswer("the pod is being deleted", until=until)
        elif podstate.is_draining(pod):
            until = podstate.drain_deadline(pod)
            answers[uid] = EvictionAnswer(
                "its replica gets no more requests, and goes when it has none left", until=until
            )
        elif not podstate.is_bound(pod):
            answers[uid] = EvictionAnswer(_NOWHERE, completes=True)
        elif slot is None:
            answers[uid] = EvictionAnswer(_FORMER, completes=True)
        else:
            answered = eviction.answered
            since = core.seconds(answered.start_time if answered is not None else None)
            left = (observed.now if since is None else since) + leaving.patience - observed.now
            answers[uid] = _answer(slot, stuck, intent, left)
            if left > 0 and slot[:2] in stuck:
                ends.append(left)
    return answers, soonest(ends)


def _answer(
    slot: Slot, stuck: Mapping[tuple[int, str], tuple[str, str]], intent: Intent, left: float
) -> EvictionAnswer:
    """Answer for a pod that serves; ``left``: seconds for which it is waited for what is short."""
    move = intent.move
    if move is not None and move.unit == slot.unit and is_arriving(move, intent):
        return EvictionAnswer(describe_move(move, intent))
    replica = f"replica {slot.replica} of {slot.role} in unit {slot.unit}"
    if slot[:2] in stuck:
        _, why = stuck[slot.unit, slot.role]
        return EvictionAnswer(f"{replica} cannot leave: {why}", completes=left <= 0)
    return EvictionAnswer(f"{replica} is moved as a whole: a successor first, where there is capacity for one")
