"""How many replicas of a role could have places now, all else as it is: pure, asked of the planner itself.

Replicas that nobody has asked for yet are added to the units as the resource would spread them, each like the youngest
that exists. The answer is the greatest number that the scheduler process would give places if it were asked for now; it
is never less than what has places already. What else waits in the resource is left as it is: it waits because it found
no room.

A number is given only with a proof that one more would wait: the planner's *Infeasible*. Where its search meets its
limit there is no number. ``docs/decisions/0032-head-room.md`` says why it is counted so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from covey.admission.further import Own, Site, youngest
from covey.admission.slots import room_for
from covey.compile.layout import shares
from covey.placement.cluster.domains import NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import with_terms
from covey.placement.model import (
    PodRequest,
    Refusal,
    ReplicaRequest,
    RoleRequest,
    Shape,
    Verdict,
)
from covey.placement.planner import plan_minimum, plan_surplus
from covey.placement.question.demands import common_domain, followers, placed_paths

#: Further replicas of a role, in each unit, that are looked for.
MOST: Final = 256
#: Plans that one answer may cost.
PLANS: Final = 400

#: What is said where there is no number.
NONE_YET: Final = "no replica of it exists, so nobody knows what one asks for"
NO_UNITS: Final = "there is no unit of it"
LIMIT_MET: Final = "the search for places met its limit before it was known how many fit"


class UnknownError(Exception):
    """There is no number; the text says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How many replicas of a role could have places, over all units; None where that is not known.

    ``is_floor``: there may be room for more, which nobody has looked for. ``message``: why there is no number, or why it
    is not greater where that is not for want of room.
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
) -> Answer:
    """How many replicas of a role could have places.

    Args:
        role: its name.
        sites: the units of the resource.
        inventory: what is free; nobody else may look at it meanwhile, and it is as it was afterwards.
        is_shared: replicas are asked for as a sum over all units; else every unit has as many.
        shape: of the pod of a further replica, from that of one that exists.
        pause: called between two plans; what it raises ends the search.
    """
    try:
        return _Search(role, sites, inventory, is_shared=is_shared, shape=shape, pause=pause).answer()
    except UnknownError as error:
        return Answer(role, None, message=str(error))


class _Search:
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
        # Units of lower number get the remainder of a sum.
        self._sites = sorted((each for each in sites if each.request(role)), key=lambda each: each.gang.unit)
        self._inventory = inventory
        self._is_shared = is_shared
        self._pause = pause
        self._plans = 0
        if not self._sites:
            raise UnknownError(NO_UNITS)
        self._own = [Own.of(request) for site in self._sites if (request := site.request(role))]
        self._template = _model([own.request for own in self._own], shape)
        self._shapes = self._told()
        #: By UID of a unit's root: replicas of which not all had places when it was asked by itself.
        self._refused: dict[str, list[ReplicaRequest]] = {}
        #: Of each unit: how many more it could take by itself, and whether more were not looked for.
        self._room = [0] * len(self._own)
        self._cut = [False] * len(self._own)

    def answer(self) -> Answer:
        there = sum(own.placed for own in self._own)
        for number, (site, own) in enumerate(zip(self._sites, self._own, strict=True)):
            if site.is_open:
                self._room[number], self._cut[number] = self._alone(site, own)
        goal = self._goal()
        reached = goal
        if self._total(goal) > there and sum(need > 0 for need in self._needs(goal)) > 1:
            reached = self._together(goal)
        total = max(there, self._total(reached))
        stuck = [number for number, need in enumerate(self._needs(goal + 1)) if need > self._room[number]]
        is_floor = reached == goal and bool(stuck) and all(self._cut[number] for number in stuck)
        if reached < goal:
            self._fits(reached + 1, prove=True)
        elif not is_floor:
            self._prove_any(stuck)
        return Answer(self._role, total, is_floor, self._why(stuck, total=total, there=there))

    def _alone(self, site: Site, own: Own) -> tuple[int, bool]:
        """How many more a unit could take if the others took none, and whether more were not looked for."""
        bound = self._bound([site])
        most = min(bound, MOST)
        many = len(own.waiting) + most
        if not many:
            return 0, False
        found = self._planned(site, own, own.candidates(many, self._template))
        if len(found) < many:
            self._refused[site.gang.uid] = [*found, own.clone(many, self._template)]
        return len(found), len(found) == many and bound > most

    def _prove_any(self, stuck: Sequence[int]) -> None:
        """Make sure that one of these units can take no more than it was found to take by itself.

        Raises:
            UnknownError: each of them may.
        """
        open_to_doubt = []
        for number in stuck:
            candidates = self._refused.get(self._sites[number].gang.uid)
            if candidates is None and not self._cut[number]:
                return  # it may take no more, or its nodes are counted out
            if candidates is not None:
                open_to_doubt.append((self._sites[number], self._own[number], candidates))
        for site, own, candidates in open_to_doubt:
            with suppress(UnknownError):
                self._prove(site, own, candidates)
                return
        if open_to_doubt:
            raise UnknownError(LIMIT_MET)

    def _prove(self, site: Site, own: Own, candidates: Sequence[ReplicaRequest]) -> None:
        """Make sure that so many have no places.

        Raises:
            UnknownError: they may have.
        """
        self._count()
        answer = plan_minimum(own.asking(site, candidates, must=True), self._inventory, forbidden=site.forbidden)
        if not isinstance(answer, Refusal) or answer.verdict is not Verdict.INFEASIBLE:
            raise UnknownError(LIMIT_MET)

    def _goal(self) -> int:
        """The greatest number whose shares no unit is too small for by itself, nor all nodes together."""
        most = [own.placed + room for own, room in zip(self._own, self._room, strict=True)]
        low, high = 0, sum(most) if self._is_shared else min(most)
        bound = self._bound(self._sites) + sum(len(own.waiting) for own in self._own)
        while low < high:
            middle = (low + high + 1) // 2
            needs = self._needs(middle)
            fits = all(need <= room for need, room in zip(needs, self._room, strict=True))
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
        """Whether so many have places, the units being planned one after another as the scheduler process does.

        With ``prove`` it makes sure of a no.
        """
        needs = self._needs(number)
        order = sorted(range(len(self._sites)), key=lambda each: self._sites[each].gang.order)
        with _held(self._inventory) as hold:
            for each in order:
                if needs[each] <= 0:
                    continue
                site, own = self._sites[each], self._own[each]
                candidates = own.candidates(needs[each], self._template)
                if len(self._planned(site, own, candidates, hold)) < needs[each]:
                    if prove:
                        self._prove(site, own, candidates)
                    return False
        return True

    def _planned(
        self, site: Site, own: Own, candidates: Sequence[ReplicaRequest], hold: _Hold | None = None
    ) -> list[ReplicaRequest]:
        """Those of some candidates that get their places."""
        self._count()
        plan = plan_surplus(own.asking(site, candidates), self._inventory, forbidden=site.forbidden)
        nodes = {each.pod: each.node for each in plan.assignments}
        found = [each for each in candidates if all(pod.node or pod.key in nodes for pod in each.pods)]
        if hold is not None:
            for pod in (pod for each in found for pod in each.pods if pod.node is None):
                hold(pod, nodes[pod.key])
        return found

    def _needs(self, number: int) -> list[int]:
        """How many more each unit has to take for so many."""
        minimum = max((own.request.minimum for own in self._own), default=0)
        count = len(self._own)
        wanted = shares(number, count, minimum) if self._is_shared else [number] * count
        return [each - own.placed for each, own in zip(wanted, self._own, strict=True)]

    def _total(self, number: int) -> int:
        return number if self._is_shared else number * len(self._own)

    def _why(self, stuck: Sequence[int], *, total: int, there: int) -> str:
        closed = [str(self._sites[number].gang.unit) for number in stuck if not self._sites[number].is_open]
        if total > there or not closed:
            return ""
        return f"unit {', '.join(closed)} has no places for its own minimum yet, and gets no more before it has"

    def _bound(self, sites: Sequence[Site]) -> int:
        """No more further replicas than this find room in some units, each node looked at by itself."""
        nodes = {state.name: state for site in sites for state in self._nodes(site)}.values()
        return min(sum(room_for(state, shape) for state in nodes) // count for shape, count in self._shapes.items())

    def _told(self) -> Counter[Shape]:
        """The shapes of a further replica's pods, told which anti-affinity terms speak of them."""
        further = self._own[0].clone(0, self._template)
        gang = with_terms(self._own[0].asking(self._sites[0], [further]), self._inventory.terms)
        (role,) = [each for each in gang.roles if each.name == self._role]
        return Counter(pod.shape for each in role.replicas if each.replica == further.replica for pod in each.pods)

    def _nodes(self, site: Site) -> Iterable[NodeState]:
        """The nodes on which more of a unit may come."""
        gang, tree = site.gang, self._inventory.trees.get(site.gang.topology)
        role = site.request(self._role)
        if tree is None or role is None or not role.follow_unit or gang.required is None:
            return self._inventory.nodes.values()
        paths = placed_paths(gang, self._inventory, followers(gang))
        path = common_domain(paths, tree.topology.depth(gang.required))
        domain = tree.by_path.get(path) if path is not None else None
        return (domain.nodes if domain is not None else self._inventory.nodes).values()

    def _count(self) -> None:
        if self._plans:
            self._pause()
        self._plans += 1
        if self._plans > PLANS:
            raise UnknownError(LIMIT_MET)


def _model(requests: Sequence[RoleRequest], shape: Callable[[PodRequest], Shape]) -> ReplicaRequest:
    """What a further replica would be like, as somebody asks for it alone.

    Raises:
        UnknownError: there is none.
    """
    found = youngest(requests)
    if found is None:
        raise UnknownError(NONE_YET)
    pods = tuple(replace(pod, node=None, shape=shape(pod)) for pod in found.pods)
    return replace(found, pods=pods, together=None, after=())


_Hold = Callable[[PodRequest, str], None]


@contextmanager
def _held(inventory: Inventory) -> Iterator[_Hold]:
    """Places count as taken meanwhile."""
    keys: list[str] = []

    def hold(pod: PodRequest, node: str) -> None:
        keys.append(f"headroom/{len(keys)}")
        inventory.hold(keys[-1], node, pod.shape, pod.meta)

    try:
        yield hold
    finally:
        for key in keys:
            inventory.release(key)


__all__ = ["MOST", "Answer", "Site", "UnknownError", "most_feasible"]
