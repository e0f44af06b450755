"""Head-room: replicas of a role that could have places now, all else as it is. Pure, asked of the planner itself.

Replicas that nobody has asked for yet are added to the units as the resource would spread them, each like the youngest
that exists. The answer is the greatest number that the scheduler process would give places if it were asked for now; it
is never less than what has places already. What else waits in the resource is left as it is: it waits because it found
no room.

A number is given only with a proof that one more would wait: the planner's *Infeasible*. Where its search meets its
limit there is no number. ``docs/decisions/0032-head-room.md`` says why it is counted so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from covey.admission.fit_counts import room_for
from covey.admission.growth import Own, Site, template
from covey.api import core
from covey.api.constants import LABEL_UNIT
from covey.compile.layout import shares
from covey.placement.cluster.domains import NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import with_terms
from covey.placement.model import PodRequest, Refusal, ReplicaRequest, Shape, Verdict
from covey.placement.overlay import Overlay, overlay
from covey.placement.planner import plan_minimum, plan_surplus
from covey.placement.question.demands import common_domain, followers, placed_paths

#: Further replicas of a role, in each unit, that are looked for.
MOST: Final = 256
#: Plans that one answer may cost.
PLANS: Final = 400
#: Units of a resource that has an answer: each costs a plan by itself, and one with the others at least.
UNITS: Final = PLANS // 2

#: What is said where there is no number.
NONE_YET: Final = "no replica of it exists, so nobody knows what one asks for"
NO_UNITS: Final = "there is no unit of it"
NO_QUOTA: Final = "the quota of its queue leaves nothing for more"
LIMIT_MET: Final = "the search for nodes met its limit before it was known how many fit"


class UnknownError(Exception):
    """No number can be given; the text says why."""


@dataclass(frozen=True, slots=True)
class HeadroomAnswer:
    """Replicas of a role that could have places, over all units; None where that is not known.

    ``is_floor``: there may be capacity for more, which nobody has looked for. ``message``: why there is no number, or why
    it is not greater where that is not for want of room.
    """

    role: str
    replicas: int | None
    is_floor: bool = False
    message: str = ""


def most_feasible(
    role: str,
    sites: Sequence[Site],
    inventory: Inventory,
    *,
    is_shared: bool,
    shape: Callable[[PodRequest], Shape] = lambda pod: pod.shape,
    pause: Callable[[], None] = lambda: None,
) -> HeadroomAnswer:
    """Find how many replicas of a role could have places.

    Args:
        role: its name.
        sites: the units of the resource.
        inventory: what is free; nobody else may look at it meanwhile, and it is as it was afterwards.
        is_shared: replicas are asked for as a sum over all units; else every unit has as many.
        shape: of the pod of a further replica, from that of one that exists.
        pause: called between two plans; what it raises ends the search.
    """
    try:
        return _HeadroomSearch(role, sites, inventory, is_shared=is_shared, shape=shape, pause=pause).answer()
    except UnknownError as error:
        return HeadroomAnswer(role, None, message=str(error))


def within_quota(
    answer: HeadroomAnswer,
    sites: Iterable[Site],
    room_for: Callable[[Sequence[Shape]], int | None],
    *,
    is_shared: bool,
    shape: Callable[[PodRequest], Shape] = lambda pod: pod.shape,
) -> HeadroomAnswer:
    """An answer of no more than quota leaves, wherever the replicas would lie.

    Args:
        answer: by room.
        sites: the units of the resource.
        room_for: the further replicas of some pods that quota has room for; None for any number.
        is_shared: as of `most_feasible`.
        shape: as of `most_feasible`.
    """
    own = [Own.of(request) for site in sites if (request := site.request(answer.role))]
    like = template([own_part.request for own_part in own], shape)
    if answer.replicas is None or like is None:
        return answer
    room, placed = room_for([pod.shape for pod in like.pods]), sum(own_part.placed for own_part in own)
    most = placed + room if room is not None else answer.replicas
    if not is_shared:  # every unit has as many
        most -= most % len(own)
    if most >= answer.replicas:
        return answer
    return replace(answer, replicas=max(most, placed), is_floor=False, message=NO_QUOTA)


@dataclass(slots=True)
class _UnitRoom:
    """One unit of the resource, and what it could take of the role if the others took none.

    ``room``: how many more. ``is_cut``: more were not looked for. ``refused``: replicas of which one found no place.
    """

    site: Site
    own: Own
    room: int = 0
    is_cut: bool = False
    refused: Sequence[ReplicaRequest] = ()


class _HeadroomSearch:
    """One role of one resource."""

    def __init__(
        self,
        role: str,
        sites: Sequence[Site],
        inventory: Inventory,
        *,
        is_shared: bool,
        shape: Callable[[PodRequest], Shape],
        pause: Callable[[], None],
    ) -> None:
        self._role = role
        units = [_UnitRoom(site, Own.of(request)) for site in sites if (request := site.request(role))]
        if not units:
            raise UnknownError(NO_UNITS)
        like = template([unit.own.request for unit in units], shape)
        if like is None:
            raise UnknownError(NONE_YET)
        self._template = like
        # Units of lower number get the remainder of a sum.
        self._units = sorted(units, key=lambda unit: unit.site.gang.unit)
        self._inventory = inventory
        self._is_shared = is_shared
        self._pause = pause
        self._plans = 0
        self._shapes = self._shapes_of_further()

    def answer(self) -> HeadroomAnswer:
        there = sum(unit.own.placed for unit in self._units)
        for each in self._units:
            if each.site.is_open:
                self._ask_alone(each)
        goal = self._goal()
        reached = goal
        if self._total(goal) > there and sum(need > 0 for need in self._needs(goal)) > 1:
            reached = self._together(goal)
        total = max(there, self._total(reached))
        stuck = [unit for unit, need in zip(self._units, self._needs(goal + 1), strict=True) if need > unit.room]
        is_floor = reached == goal and bool(stuck) and all(unit.is_cut for unit in stuck)
        if reached < goal:
            self._fits(reached + 1, prove=True)
        elif not is_floor:
            self._prove_any(stuck)
        return HeadroomAnswer(self._role, total, is_floor, _why(stuck) if total == there else "")

    def _ask_alone(self, unit: _UnitRoom) -> None:
        """Find out how many more a unit could take if the others took none."""
        bound = self._bound([unit])
        most = min(bound, MOST)
        many = len(unit.own.waiting) + most
        if not many:
            return
        placed = self._plan_candidates(unit, unit.own.candidates(many, self._like(unit)))
        unit.room = len(placed)
        if len(placed) < many:
            unit.refused = [*placed, unit.own.clone(many, self._like(unit))]
        else:
            unit.is_cut = bound > most

    def _prove_any(self, stuck: Sequence[_UnitRoom]) -> None:
        """Make sure that one of these units can take no more than it was found to take by itself.

        Raises:
            UnknownError: each of them may.
        """
        # Neither refused nor cut: more may not come before its minimum, or its nodes are counted out.
        if not stuck or any(not unit.refused and not unit.is_cut for unit in stuck):
            return
        for unit in stuck:
            if unit.refused:
                with suppress(UnknownError):
                    self._prove(unit, unit.refused)
                    return
        raise UnknownError(LIMIT_MET)

    def _prove(self, unit: _UnitRoom, candidates: Sequence[ReplicaRequest]) -> None:
        """Make sure that so many have no places.

        Raises:
            UnknownError: they may have.
        """
        self._count()
        gang = unit.own.asking(unit.site, candidates, must=True)
        answer = plan_minimum(gang, self._inventory)
        if not isinstance(answer, Refusal) or answer.verdict is not Verdict.INFEASIBLE:
            raise UnknownError(LIMIT_MET)

    def _goal(self) -> int:
        """The greatest number whose shares no unit is too small for by itself, nor all nodes together."""
        most = [unit.own.placed + unit.room for unit in self._units]
        low, high = 0, sum(most) if self._is_shared else min(most)
        bound = self._bound(self._units) + sum(len(unit.own.waiting) for unit in self._units)
        while low < high:
            middle = (low + high + 1) // 2
            needs = self._needs(middle)
            fits = all(need <= unit.room for need, unit in zip(needs, self._units, strict=True))
            enough = sum(max(0, need) for need in needs) <= bound
            low, high = (middle, high) if fits and enough else (low, middle - 1)
        return low

    def _together(self, goal: int) -> int:
        """The greatest number, up to a goal, that all units can have at once: they may want the same nodes."""
        if self._fits(goal):
            return goal
        low, high = 0, goal
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(middle) else (low, middle)
        return low

    def _fits(self, number: int, *, prove: bool = False) -> bool:
        """Tell whether a number of replicas have places, the units being planned one by one as the scheduler process does.

        With ``prove`` it makes sure of a no.
        """
        asked = zip(self._units, self._needs(number), strict=True)
        with overlay(self._inventory) as changes:
            for unit, need in sorted(asked, key=lambda pair: pair[0].site.gang.order):
                if need <= 0:
                    continue
                candidates = unit.own.candidates(need, self._like(unit))
                if len(self._plan_candidates(unit, candidates, changes)) < need:
                    if prove:
                        self._prove(unit, candidates)
                    return False
        return True

    def _plan_candidates(
        self, unit: _UnitRoom, candidates: Sequence[ReplicaRequest], changes: Overlay | None = None
    ) -> list[ReplicaRequest]:
        """Those of some candidates that get their places, which count as taken in an overlay."""
        self._count()
        gang = unit.own.asking(unit.site, candidates)
        plan = plan_surplus(gang, self._inventory)
        nodes = {assignment.pod: assignment.node for assignment in plan.assignments}
        placed = [candidate for candidate in candidates if all(pod.node or pod.key in nodes for pod in candidate.pods)]
        for pod in (pod for replica in placed for pod in replica.pods if pod.node is None):
            if changes is not None:
                changes.hold(f"headroom/{gang.unit}/{gang.uid}/{pod.key}", nodes[pod.key], pod.shape, pod.meta)
        return placed

    def _needs(self, number: int) -> list[int]:
        """Replicas that each unit has to take for a total of ``number``."""
        minimum = max(other.own.request.minimum for other in self._units)
        count = len(self._units)
        wanted = shares(number, count, minimum) if self._is_shared else [number] * count
        return [total - unit.own.placed for total, unit in zip(wanted, self._units, strict=True)]

    def _total(self, number: int) -> int:
        return number if self._is_shared else number * len(self._units)

    def _bound(self, units: Sequence[_UnitRoom]) -> int:
        """No more further replicas than this find room in some units, each node looked at by itself."""
        nodes = {state.name: state for unit in units for state in self._nodes(unit)}.values()
        return min(sum(room_for(state, shape) for state in nodes) // count for shape, count in self._shapes.items())

    def _shapes_of_further(self) -> Counter[Shape]:
        """The shapes of a further replica's pods, told which anti-affinity terms speak of them."""
        first = self._units[0]
        further = first.own.clone(0, self._template)
        gang = with_terms(first.own.asking(first.site, [further]), self._inventory.terms)
        (role,) = [role for role in gang.roles if role.name == self._role]
        return Counter(
            pod.shape for replica in role.replicas if replica.replica == further.replica for pod in replica.pods
        )

    def _nodes(self, unit: _UnitRoom) -> Iterable[NodeState]:
        """The nodes on which more of a unit may come."""
        gang = unit.site.gang
        tree = self._inventory.trees.get(gang.topology)
        if tree is None or not unit.own.request.follow_unit or gang.required is None:
            return self._inventory.nodes.values()
        paths = placed_paths(gang, self._inventory, followers(gang))
        path = common_domain(paths, tree.topology.depth(gang.required))
        domain = tree.by_path.get(path) if path is not None else None
        return (domain.nodes if domain is not None else self._inventory.nodes).values()

    def _like(self, unit: _UnitRoom) -> ReplicaRequest:
        """The model of a further replica, as a pod of this unit: labels tell whose it is."""

        def of_unit(meta: core.Meta) -> core.Meta:
            label = {LABEL_UNIT: str(unit.site.gang.unit)} if meta.label(LABEL_UNIT) else {}
            return msgspec.structs.replace(meta, labels={**(meta.labels or {}), **label})

        pods = tuple(replace(pod, meta=of_unit(pod.meta)) if pod.meta else pod for pod in self._template.pods)
        return replace(self._template, pods=pods)

    def _count(self) -> None:
        if self._plans:
            self._pause()
        self._plans += 1
        if self._plans > PLANS:
            raise UnknownError(LIMIT_MET)


def _why(stuck: Iterable[_UnitRoom]) -> str:
    """The reason for no further places, where that is not for want of room."""
    closed = ", ".join(str(unit.site.gang.unit) for unit in stuck if not unit.site.is_open)
    return f"unit {closed} has no nodes for its own minimum yet, and gets no more before it has" if closed else ""
