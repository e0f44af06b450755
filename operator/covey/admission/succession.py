"""Replicas of a unit that go for others of it: the proof that these have places then, asked of the planner. Pure.

A rollout brings replicas that wait beside old ones that serve. Where they have no places, an old one is given up only if
that places its successor. So the planner is asked for each set of successors in turn:

1. as things are, with the room of what ends already;
2. with all gone that may ever go: where it does not fit even then, nothing that goes would help, and the planner's
   sentence says why;
   The same is so where it would have places on nodes that kube-scheduler has refused: it does not lack capacity;
3. without one of them, then without more, as few as it takes and the roles of a set in turn: what fits still fits when
   more is gone, so those that are needed are found one after another by halving, and none of them is needless.

Whatever a plan gives an earlier set counts as taken for the later ones. No search without a proof counts as an answer:
where the planner meets its limit the answer is that nobody knows, and nothing goes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice, product, zip_longest
from typing import Final

from covey.admission.elsewhere import tell_elsewhere
from covey.admission.growth import is_draining
from covey.api.constants import REASON_INFEASIBLE, REASON_UNKNOWN, REASON_UNSCHEDULABLE, REASON_WAITING
from covey.api.succession import Predecessors, SuccessionQuestion, Successor
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Reason, Refusal, ReplicaRequest, RoleRequest, Verdict
from covey.placement.overlay import overlay
from covey.placement.planner import plan_minimum
from covey.placement.refusal.exclusions import RESERVED

#: Plans that the answer for one set may cost, and those of them for a single replica that would be enough.
PLANS: Final = 64
SINGLES: Final = 16
#: A replica that may go, and its role.
Old = tuple[str, ReplicaRequest]
#: Said of a set for which room comes free by itself, and of one whose pods are not all there.
COMES_FREE: Final = "pods that end leave it capacity"
NOT_THERE: Final = "its pods are not all there yet"
#: Said where the operator has not seen yet what has its places here, or has seen it go.
OTHERS_PLACED: Final = "more replicas are assigned nodes than the operator knows of"
#: Said before why it does not fit beside all that must stay.
STAYS: Final = "what may go for it does not leave it enough capacity"
LIMIT_MET: Final = "the search met its limit before it was known what would have to go"


@dataclass(frozen=True, slots=True)
class Proof:
    """The answer for one set of successors: they have ``places`` (node by pod) once ``victims`` are gone; else why not.

    ``reason`` is empty where they have places, or where room comes free by itself.
    """

    first: Successor
    victims: tuple[Old, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Succession:
    """The answers, and the nodes where all that have places would lie."""

    proofs: tuple[Proof, ...] = ()
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ending:
    """Keys of holders whose room comes free by itself: of the unit's own, which is held for it, and of others."""

    own: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()


class _LimitError(Exception):
    """The plans of an answer are used up."""


@dataclass
class _Search:
    gang: Gang
    question: SuccessionQuestion
    inventory: Inventory
    ending: Ending
    unrefused: Gang | None = None
    plans: int = 0
    #: Keys of holders that are given up for earlier sets, and the members of these.
    gone: set[str] = field(default_factory=set)
    coming: tuple[Successor, ...] = ()
    nodes: frozenset[str] = frozenset()

    def prove(self, members: tuple[Successor, ...], spent: Sequence[tuple[str, int]]) -> Proof:
        """Find what has to go for one set; ``spent`` has to go in any case, for quota."""
        self.plans = 0
        first = members[0]
        waiting = {(role.name, replica.replica): replica for role in self.gang.roles for replica in role.replicas}
        if any(member[:2] not in waiting for member in members):
            return Proof(first, reason=REASON_WAITING, message=NOT_THERE)
        if any(map(self._differs, {member.role for member in members})):
            return Proof(first, reason=REASON_WAITING, message=OTHERS_PLACED)
        coming = (*self.coming, *(waiter for waiter in members if not waiting[waiter[:2]].placed))
        candidates = self._candidates(members)
        must = [candidate for candidate in candidates if (candidate[0], candidate[1].replica) in spent]
        # 1. As things are, but for what has to go.
        answer = self._plan(coming, must)
        if isinstance(answer, Plan):
            return self._accept(first, coming, must, answer)
        if not must and self.ending.others and isinstance(self._plan(coming, (), self.ending.others), Plan):
            return Proof(first, message=COMES_FREE)
        if (words := self._find_rejection(coming, must)) is not None:
            return Proof(first, reason=REASON_UNSCHEDULABLE, message=words)
        # 2. With all of them gone, also those of which some must stay.
        relaxed = self._plan(coming, candidates) if candidates else answer
        if isinstance(relaxed, Refusal):
            refused = answer if answer.verdict is Verdict.INFEASIBLE else relaxed
            return Proof(first, reason=_reason_of(relaxed), message=refused.message)
        # 3. Without as few as it takes.
        fewest = self._find_fewest(coming, candidates, must)
        if fewest is None:
            return Proof(first, reason=_reason_of(answer), message=f"{STAYS}: {answer.message}")
        return self._accept(first, coming, *fewest)

    def _find_rejection(self, coming: Sequence[Successor], must: Sequence[Old]) -> str | None:
        """The words of kube-scheduler about nodes that would hold all that come; None where it is not what is in the way."""
        if self.unrefused is None:
            return None
        answer = self._plan(coming, must, self.ending.others, gang=self.unrefused)
        if not isinstance(answer, Plan):
            return None
        nodes = (assignment.node for assignment in answer.assignments)
        words = {node: self.gang.excluded_nodes[node] for node in nodes if node in self.gang.excluded_nodes}
        return "; ".join(f"kube-scheduler does not take node {node}: {why}" for node, why in sorted(words.items()))

    def _find_fewest(
        self, coming: Sequence[Successor], candidates: Sequence[Old], must: Sequence[Old]
    ) -> tuple[list[Old], Plan] | None:
        for single in islice(candidates if not must else (), SINGLES):
            chosen = self._within_bounds([single])
            if chosen and isinstance(answer := self._plan(coming, chosen), Plan):
                return chosen, answer
        asked = set[frozenset[tuple[str, int]]]()
        for left in self._choices([old for old in candidates if old not in must], must):
            key = frozenset((role, replica.replica) for role, replica in left)
            if key not in asked and self._fits(coming, [*must, *left]):
                return self._reduce(coming, [*must], left)
            asked.add(key)
        return None

    def _choices(self, candidates: Sequence[Old], must: Sequence[Old]) -> Iterator[list[Old]]:
        """Sets that may go together, as large as they may be: first in the order of preference, then node by node, then all."""
        yield [old for old in self._within_bounds([*must, *candidates]) if old not in must]
        nodes = {pod.node: None for _, replica in candidates for pod in replica.pods}
        for node in nodes:
            first = sorted(candidates, key=lambda old: all(pod.node != node for pod in old[1].pods))
            yield [old for old in self._within_bounds([*must, *first]) if old not in must]
        serving: dict[str, list[Old]] = {}
        for old in self._serving(candidates):
            serving.setdefault(old[0], []).append(old)
        taken = Counter(role for role, _ in self._serving(must))
        idle = [old for old in candidates if old[1].replica in self.question.predecessors[old[0]].idle]
        most = {role: self.question.predecessors[role].most - taken[role] for role in serving}
        lines = (combinations(olds, max(0, min(most[role], len(olds)))) for role, olds in serving.items())
        for chosen in product(*lines):
            yield [*idle, *chain.from_iterable(chosen)]

    def _serving(self, olds: Iterable[Old]) -> Iterator[Old]:
        return (old for old in olds if old[1].replica not in self.question.predecessors[old[0]].idle)

    def _reduce(self, coming: Sequence[Successor], needed: list[Old], left: list[Old]) -> tuple[list[Old], Plan]:
        """Those of some replicas that are needed, beside those that go in any case."""
        while not isinstance(answer := self._plan(coming, needed), Plan):
            # Of the fewest in their order that are enough the last is needed.
            enough = bisect_left(range(len(left)), 1, key=lambda count: self._fits(coming, [*needed, *left[:count]]))
            needed.append(left[enough - 1])
            left = left[: enough - 1]
        return needed, answer

    def _fits(self, coming: Sequence[Successor], chosen: Sequence[Old]) -> bool:
        return isinstance(self._plan(coming, chosen), Plan)

    def _accept(self, first: Successor, coming: tuple[Successor, ...], chosen: Sequence[Old], plan: Plan) -> Proof:
        self.gone |= set(_keys(replica for _, replica in chosen))
        self.coming = coming
        self.nodes = frozenset(assignment.node for assignment in plan.assignments)
        return Proof(first, tuple(chosen), {assignment.pod: assignment.node for assignment in plan.assignments})

    def _differs(self, role: str) -> bool:
        """Tell whether more replicas are assigned nodes than the question knows of: one of them may be gone already."""
        predecessors = self.question.predecessors.get(role)
        return predecessors is not None and not predecessors.placed.issuperset(
            replica.replica
            for own in self.gang.roles
            if own.name == role
            for replica in own.replicas
            if replica.placed and not is_draining(replica) and self.ending.own.isdisjoint(_keys([replica]))
        )

    def _candidates(self, members: Iterable[Successor]) -> list[Old]:
        """The replicas that may go for a set and are assigned nodes."""
        there = {
            (role.name, replica.replica): replica
            for role in self.gang.roles
            for replica in role.replicas
            if replica.placed and not is_draining(replica) and self.gone.isdisjoint(_keys([replica]))
        }
        return [(old[0], there[old]) for old in order_predecessors(self.question, members) if old in there]

    def _within_bounds(self, candidates: Sequence[Old]) -> list[Old]:
        """Those of some candidates that may go together, the first ones of each role."""
        allowed = within_bounds(self.question, ((role, replica.replica) for role, replica in candidates))
        return [old for old in candidates if (old[0], old[1].replica) in allowed]

    def _plan(
        self,
        coming: Sequence[Successor],
        chosen: Iterable[Old],
        also: Collection[str] = (),
        *,
        gang: Gang | None = None,
    ) -> Plan | Refusal:
        """Plan all that come so far without those that are chosen; ``also`` are keys of others that are gone."""
        if self.plans >= PLANS:
            raise _LimitError
        self.plans += 1
        gone = self.gone | self.ending.own | set(_keys(replica for _, replica in chosen))
        with overlay(self.inventory) as changes:
            changes.remove(gone.union(also))
            return plan_minimum(_asking(gang or self.gang, {member[:2] for member in coming}, gone), self.inventory)


def order_predecessors(question: SuccessionQuestion, members: Iterable[Successor]) -> list[tuple[str, int]]:
    """The replicas (role and number) that may go for a set, of each role in turn, in the order in which they would."""
    lines = []
    for name in dict.fromkeys(member.role for member in members):
        predecessors = question.predecessors.get(name, Predecessors())
        lines.append([(name, number) for number in (*predecessors.idle, *predecessors.serving)])
    return [old for turn in zip_longest(*lines) for old in turn if old is not None]


def within_bounds(question: SuccessionQuestion, olds: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those of some replicas (role and number) that may go together, the first ones of each role."""
    ordered: list[tuple[str, int]] = []
    serving = Counter[str]()
    for role, number in olds:
        predecessors = question.predecessors[role]
        serves = number not in predecessors.idle
        if not serves or serving[role] < predecessors.most:
            serving[role] += serves
            ordered.append((role, number))
    return ordered


def find_succession(
    gang: Gang,
    question: SuccessionQuestion,
    inventory: Inventory,
    ending: Ending | None = None,
    spent: Mapping[Successor, Sequence[tuple[str, int]]] | None = None,
    unrefused: Gang | None = None,
) -> Succession:
    """Find which replicas would have to go for others of their unit to have places.

    Args:
        gang: the unit as its surplus would be planned now.
        question: the successors, and those that may go for them.
        inventory: what is free; nobody else may look at it meanwhile, and it is as it was afterwards.
        ending: whose room comes free by itself.
        spent: by the first of a set, replicas (role and number) that have to go for it whatever the nodes say.
        unrefused: the unit as it would be planned had kube-scheduler refused it no nodes; None where it has refused none.
    """
    search = _Search(gang, question, inventory, ending or Ending(), unrefused)
    proofs: list[Proof] = []
    for members in question.sets:
        try:
            proofs.append(search.prove(members, (spent or {}).get(members[0], ())))
        except _LimitError:
            proofs.append(Proof(members[0], reason=REASON_UNKNOWN, message=LIMIT_MET))
    return Succession(tuple(proofs), search.nodes)


def split_surplus(gang: Gang, question: SuccessionQuestion, kept: Collection[str]) -> tuple[Gang, Gang]:
    """The unit with the successors that are asked about and no other surplus, and with all other surplus elsewhere.

    Args:
        gang: the unit as its surplus may be planned.
        question: what is asked for it.
        kept: nodes that are kept for the successors: what goes there goes for them, and for nobody else of the unit.
    """
    named = {member[:2] for members in question.sets for member in members}

    def only(role: RoleRequest, *, successors: bool) -> RoleRequest:
        replicas = (r for r in role.replicas if r.placed or ((role.name, r.replica) in named) is successors)
        return replace(role, replicas=tuple(replicas))

    first, rest = (
        replace(gang, roles=tuple(only(role, successors=successors) for role in gang.roles))
        for successors in (True, False)
    )
    return first, replace(rest, excluded_nodes={**dict.fromkeys(kept, RESERVED), **rest.excluded_nodes})


def explain_surplus(gang: Gang, inventory: Inventory) -> Refusal | None:
    """Explain why surplus has no places: the refusal of the first replica of each role that waits, or of its set.

    Where another domain would hold the whole unit the last reason says so. None where nothing of it waits, or none is refused by itself.
    """
    reasons: list[Reason] = []
    seen: set[str] = set()
    for role in gang.roles:
        first = next((replica for replica in role.replicas if not replica.placed and not replica.after), None)
        if first is None or (first.together is not None and first.together in seen):
            continue
        seen |= {first.together} if first.together is not None else set()
        members = {
            (other.name, replica.replica)
            for other in gang.roles
            for replica in other.replicas
            if replica is first
            or (first.together is not None and replica.together == first.together and not replica.placed)
        }
        answer = plan_minimum(_asking(gang, members, ()), inventory)
        if isinstance(answer, Refusal):
            if answer.verdict is Verdict.UNKNOWN:
                return answer
            reasons += answer.reasons
    if reasons and (elsewhere := tell_elsewhere(gang, inventory)):
        reasons[-1] = replace(reasons[-1], message=f"{reasons[-1].message}; {elsewhere}")
    return Refusal(Verdict.INFEASIBLE, tuple(reasons)) if reasons else None


def _asking(gang: Gang, coming: Collection[tuple[str, int]], gone: Collection[str]) -> Gang:
    """The gang with what has its places and stays, and with those that come, all of which must be placed."""

    def of(role: RoleRequest) -> RoleRequest:
        replicas: list[ReplicaRequest] = []
        for replica in role.replicas:
            if (role.name, replica.replica) in coming and not replica.placed:
                replicas.append(replace(replica, together=None, after=()))
            elif pods := tuple(pod for pod in replica.pods if pod.node is not None and pod.key not in gone):
                parts = replica.parts if len(pods) == len(replica.pods) else ()
                replicas.append(replace(replica, pods=pods, together=None, parts=parts, after=()))
        count = len(replicas)
        return replace(role, replicas=tuple(replicas), minimum=count, desired=count, missing=None, free=False)

    return replace(gang, roles=tuple(map(of, gang.roles)))


def _keys(replicas: Iterable[ReplicaRequest]) -> Iterator[str]:
    yield from (pod.key for replica in replicas for pod in replica.pods if pod.node is not None)


def _reason_of(refusal: Refusal) -> str:
    return REASON_INFEASIBLE if refusal.verdict is Verdict.INFEASIBLE else REASON_UNKNOWN
