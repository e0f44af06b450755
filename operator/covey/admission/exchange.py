"""An exchange in one unit: replicas of some roles come in the places of those of others. Pure, asked of the planner.

The numbers of a vector say how many replicas of a role give way; the plan says which. Those that would go first if
nobody asked are tried first, and the first set with which all that are to come have places is taken. The sets are tried
one by one where there are few; where there are many, those come next whose nodes a plan without any of them would use.
A set larger than the numbers ask for is never taken, and no plan without a proof counts as a refusal: where a search met
its limit, the answer is no, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, product
from typing import Final

from covey.admission.growth import Own, Site, is_draining, rename_pods
from covey.api.constants import ANNOTATION_CLAIMED_BY
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, PodRequest, ReplicaRequest, RoleRequest, Verdict
from covey.placement.overlay import overlay
from covey.placement.planner import plan_minimum

#: Plans that one answer may cost, and those of them that are left for the nearest vectors.
PLANS: Final = 64
SPARE: Final = 24
#: The nearest vectors that an answer names.
NEAREST: Final = 4
#: Said of a unit that has no room to exchange anything.
NOT_OPEN: Final = "its minimum is not assigned nodes yet"
NONE_YET: Final = "no replica of {role} exists, so nobody knows what one asks for"
LIMIT_MET: Final = "the search met its limit before it was known whether it fits"

#: Sorts replicas that may give way: those that go first have the lowest.
Rank = Callable[[ReplicaRequest], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Donor:
    """A replica that gives way; ``pods`` are the keys of its pods."""

    role: str
    replica: int
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer to whether a unit can have the replicas that are asked for.

    ``donors``: those that give way. ``nodes``: where those that come would lie. ``nearest``: vectors that would do.
    """

    feasible: bool
    donors: tuple[Donor, ...] = ()
    nodes: frozenset[str] = frozenset()
    message: str = ""
    nearest: tuple[Mapping[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ExchangeTerms:
    """The surroundings of a judgement.

    Args:
        templates: the model of a further replica of each role, where there is one.
        rank: sorts replicas that may give way.
        pause: called between two plans; what it raises ends the search.
    """

    templates: Mapping[str, ReplicaRequest] = field(default_factory=dict)
    rank: Rank = lambda _replica: ()
    pause: Callable[[], None] = lambda: None


class _ExchangeLimitError(Exception):
    """The plans of an answer are used up."""


def judge_exchange(site: Site, wanted: Mapping[str, int], inventory: Inventory, terms: ExchangeTerms) -> Judgement:
    """Judge whether a unit can have so many replicas of each role.

    Args:
        site: the unit as its surplus would be planned now.
        wanted: replicas by role, of those that are scaled together.
        inventory: what is free; nobody else may look at it meanwhile, and it is as it was afterwards.
        terms: see `Terms`.
    """
    if not site.is_open:
        return Judgement(feasible=False, message=NOT_OPEN)
    judge = _Judge(site, inventory, terms)
    return judge.find(wanted) or judge.refuse(wanted)


@dataclass(frozen=True, slots=True)
class _Side:
    """One role: replicas that hold places and may stay or go, those that go in any case, and those that lack a place."""

    request: RoleRequest
    placed: tuple[ReplicaRequest, ...]
    leaving: tuple[ReplicaRequest, ...]
    own: Own

    @classmethod
    def of(cls, request: RoleRequest, root: str, rank: Rank) -> _Side:
        """Sort the replicas of a role; what gives way to this very root can be pardoned, and goes first again."""
        holding = [replica for replica in request.replicas if any(pod.node for pod in replica.pods)]
        leaving = tuple(replica for replica in holding if is_draining(replica) and not _gives_way_to(replica, root))
        staying = [replica for replica in holding if replica not in leaving and replica.placed]
        staying.sort(key=lambda replica: (not is_draining(replica), *rank(replica), -replica.replica))
        return cls(request, tuple(staying), leaving, Own.of(request))


class _Judge:
    """One unit, and the plans that are made for it."""

    def __init__(self, site: Site, inventory: Inventory, terms: ExchangeTerms) -> None:
        self._site = site
        self._inventory = inventory
        self._terms = terms
        self._plans = 0
        self._is_unknown = False
        root = site.gang.uid
        self._sides = {role.name: _Side.of(role, root, terms.rank) for role in site.gang.roles}

    def find(self, wanted: Mapping[str, int], most: int = PLANS - SPARE) -> Judgement | None:
        """Find the replicas that give way; None where none are found."""
        if self.describe_obstacle(wanted):
            return None
        with overlay(self._inventory) as changes:
            changes.remove(_keys(replica for side in self._sides.values() for replica in side.leaving))
            try:
                return self._find(wanted, most)
            except _ExchangeLimitError:
                self._is_unknown = True
                return None

    def describe_obstacle(self, wanted: Mapping[str, int]) -> str:
        """Say why a vector cannot be planned at all; empty where it can."""
        for name, number in wanted.items():
            side = self._sides.get(name)
            if side is None:
                return f"there is no role {name}"
            if number < side.request.minimum:
                return f"{name} needs {side.request.minimum} at least"
            lacks = number - len(side.placed) - len(side.own.waiting)
            if lacks > 0 and name not in self._terms.templates:
                return NONE_YET.format(role=name)
        return ""

    def refuse(self, wanted: Mapping[str, int]) -> Judgement:
        """Say why not, and the nearest vectors that would do."""
        obstacle = self.describe_obstacle(wanted)
        if obstacle:
            return Judgement(feasible=False, message=obstacle)
        unknown, nearest = self._is_unknown, tuple(islice(self._find_nearest(wanted), NEAREST))
        short = ", ".join(f"{count} {name}" for name, count in self._more(wanted).items() if count > 0)
        message = LIMIT_MET if unknown else f"no capacity for {short}"
        return Judgement(feasible=False, message=message, nearest=nearest)

    def _find(self, wanted: Mapping[str, int], most: int) -> Judgement | None:
        more = self._more(wanted)
        giving = {name: -count for name, count in more.items() if count < 0}
        coming = {name: count for name, count in more.items() if count > 0}
        if not coming:
            return Judgement(feasible=True, donors=_donors(giving, next(self._sets(giving, ()))))
        every = [replica for name in giving for replica in self._sides[name].placed]
        # With all of them gone it must fit, or no choice of them helps; where it would lie then says who is in the way.
        relaxed = self._try(coming, every, most)
        if relaxed is None:
            return None
        tried: set[frozenset[str]] = set()
        for nodes in (frozenset(), relaxed):
            for chosen in islice(self._sets(giving, nodes), most // 2):
                gone = [replica for part in chosen for replica in part]
                if (mark := frozenset(_keys(gone))) in tried:
                    continue
                tried.add(mark)
                lies = self._try(coming, gone, most)
                if lies is not None:
                    return Judgement(feasible=True, donors=_donors(giving, chosen), nodes=lies)
            self._is_unknown |= len(tried) >= most // 2
        return None

    def _sets(
        self, giving: Mapping[str, int], nodes: Collection[str]
    ) -> Iterator[tuple[tuple[ReplicaRequest, ...], ...]]:
        """Yield sets of those that give way: in the order in which they would go, or those on these nodes first."""
        pools = [
            sorted(self._sides[name].placed, key=lambda replica: not any(pod.node in nodes for pod in replica.pods))
            for name in giving
        ]
        yield from product(*(combinations(pool, count) for pool, count in zip(pools, giving.values(), strict=True)))

    def _try(self, coming: Mapping[str, int], gone: Sequence[ReplicaRequest], most: int) -> frozenset[str] | None:
        """Nodes of those that come, if some were gone; None where they have no places."""
        if self._plans >= most:
            raise _ExchangeLimitError
        if self._plans:
            self._terms.pause()
        self._plans += 1
        keys = set(_keys(gone))
        with overlay(self._inventory) as changes:
            changes.remove(keys)
            answer = plan_minimum(self._grow(coming, keys), self._inventory, reasons=False)
        if isinstance(answer, Plan):
            return frozenset(assignment.node for assignment in answer.assignments)
        self._is_unknown |= answer.verdict is not Verdict.INFEASIBLE
        return None

    def _grow(self, coming: Mapping[str, int], gone: Collection[str]) -> Gang:
        """The gang with the replicas that come, all of which must have places, and without those that are gone."""
        left = {name: _without(side, gone) for name, side in self._sides.items()}
        gang = replace(self._site.gang, roles=tuple(left[role.name] for role in self._site.gang.roles))
        site = replace(self._site, gang=gang)
        roles, rules = dict(left), {number: set(rule.members) for number, rule in enumerate(gang.rules)}
        for name, lacking in coming.items():
            own = Own.of(left[name])
            template = self._terms.templates.get(name)
            candidates = list(own.waiting[:lacking])
            if template is not None:
                first = max((replica.replica for replica in self._sides[name].request.replicas), default=-1) + 1
                candidates += [
                    rename_pods(own.clone(first + n, template), f"{name}/".__add__)
                    for n in range(lacking - len(candidates))
                ]
            asked = own.asking(site, candidates, must=True)
            roles[name] = next(role for role in asked.roles if role.name == name)
            for place, rule in enumerate(asked.rules):
                rules[place] |= set(rule.members)
        for name in roles.keys() - coming.keys():
            roles[name] = _only(roles[name], tuple(replica for replica in roles[name].replicas if replica.placed))
        return replace(
            gang,
            roles=tuple(roles[role.name] for role in gang.roles),
            rules=tuple(replace(rule, members=tuple(sorted(rules[n]))) for n, rule in enumerate(gang.rules)),
        )

    def _find_nearest(self, wanted: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
        """Yield vectors that would do: fewer that come first, then more that go."""
        more = self._more(wanted)
        for name in sorted(wanted, key=lambda name: more[name] <= 0):
            least = wanted[name] - more[name] if more[name] > 0 else self._sides[name].request.minimum
            for number in range(wanted[name] - 1, least - 1, -1):
                if self._plans >= PLANS:
                    return
                vector = {**wanted, name: number}
                if self.find(vector, PLANS) is not None:
                    yield vector
                    break

    def _more(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Replicas that come, by role; those that give way are below zero."""
        return {name: number - len(self._sides[name].placed) for name, number in wanted.items()}


def _donors(giving: Mapping[str, int], chosen: Sequence[Sequence[ReplicaRequest]]) -> tuple[Donor, ...]:
    return tuple(
        Donor(name, replica.replica, tuple(pod.key for pod in replica.pods))
        for name, part in zip(giving, chosen, strict=True)
        for replica in part
    )


def _without(side: _Side, gone: Collection[str]) -> RoleRequest:
    """A role without those that are gone, or leave in any case; what gives way to this root may come back."""
    left = tuple(
        _pardon(replica)
        for replica in side.request.replicas
        if replica not in side.leaving and not any(pod.key in gone for pod in replica.pods)
    )
    return _only(side.request, left)


def _only(role: RoleRequest, replicas: tuple[ReplicaRequest, ...]) -> RoleRequest:
    return replace(role, replicas=replicas, minimum=min(role.minimum, len(replicas)), missing=None)


def _pardon(replica: ReplicaRequest) -> ReplicaRequest:
    """A replica as if nobody looked at its labels: one that gives way counts as one that stays."""
    return (
        replace(replica, pods=tuple(replace(pod, meta=None) for pod in replica.pods))
        if is_draining(replica)
        else replica
    )


def _keys(replicas: Iterator[ReplicaRequest] | Sequence[ReplicaRequest]) -> Iterator[str]:
    yield from (pod.key for replica in replicas for pod in replica.pods if pod.node is not None)


def _gives_way_to(replica: ReplicaRequest, root: str) -> bool:
    return all(_claimant(pod) in {None, root} for pod in replica.pods) and any(_claimant(pod) for pod in replica.pods)


def _claimant(pod: PodRequest) -> str | None:
    return pod.meta.annotation(ANNOTATION_CLAIMED_BY) if pod.meta is not None else None
