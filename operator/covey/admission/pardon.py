"""Victims of a claim that are needed no longer, since other room has come free: pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from covey.admission.preemption import PLANS
from covey.admission.reclaim import Right, RightJudge
from covey.admission.reprieve import Judge, OutOfPlansError, least_of, put_back, room_of
from covey.admission.victims import measure_taking, sum_held
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan
from covey.placement.overlay import overlay
from covey.placement.planner import LIMIT


@dataclass(frozen=True, slots=True)
class Standing:
    """A claim as it stands: the victims that are needed still, those that are not, and whether there is a plan at all.

    ``nodes`` are those of the minimum; none where it is not ``feasible``.
    """

    feasible: bool
    needed: tuple[core.Victim, ...] = ()
    pardoned: tuple[core.Victim, ...] = ()
    nodes: tuple[str, ...] = ()
    unproven: bool = False


def still_needed(
    gang: Gang,
    inventory: Inventory,
    victims: Sequence[core.Victim],
    *,
    freeing: Collection[str] = (),
    ending: Collection[str] = (),
    right: Right | None = None,
) -> Standing:
    """Find the victims of a claim that are needed on the inventory as it is now.

    Args:
        gang: the gang that they give way to.
        inventory: what is free; as of `search`.
        victims: of the claim. Those of which a pod is in ``freeing`` or holds nothing cannot be pardoned any more: what
            is left of them goes.
        freeing: keys of holders whose room comes free anyway.
        ending: keys of holders that drain or are being deleted: others are pardoned before them.
        right: of the gang, where it reclaims: quota is asked too.
    """
    judge = Judge(least_of(gang), inventory, LIMIT, PLANS)
    gone_anyway = set(freeing)

    def leaves(victim: core.Victim) -> bool:
        return any(key in gone_anyway or inventory.hold_of(key) is None for key in victim.pods)

    there = [victim for victim in victims if not leaves(victim)]
    gone = gone_anyway.union(*(victim.pods for victim in victims if leaves(victim)))
    if right is not None:
        judge = RightJudge(judge.gang, inventory, LIMIT, PLANS, right=right, freeing=gone)
    ends, resource = frozenset(ending), measure_taking(judge.gang, inventory)
    order = sorted(
        there,
        key=lambda victim: (
            not ends.isdisjoint(victim.pods),
            victim.kind != "Unit",
            -sum_held(victim.pods, inventory)[resource],
        ),
    )

    def suffices(kept: Sequence[core.Victim]) -> bool:
        return isinstance(judge.plan(key for victim in kept for key in victim.pods), Plan)

    with overlay(inventory) as changes:
        changes.remove(gone)
        try:
            if not suffices(order):
                return Standing(feasible=False, unproven=judge.unknown)
            kept, unproven = put_back(order, suffices), judge.unknown
        except OutOfPlansError:
            kept, unproven = order, True
        plan = judge.answer_for(key for victim in kept for key in victim.pods)
    needed = tuple(victim for victim in there if victim in kept)
    pardoned = tuple(victim for victim in there if victim not in kept)
    nodes = room_of(plan)[0] if isinstance(plan, Plan) else ()
    return Standing(feasible=True, needed=needed, pardoned=pardoned, nodes=nodes, unproven=unproven)
