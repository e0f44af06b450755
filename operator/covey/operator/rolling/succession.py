"""Old replicas that go for their successors: what is asked of those who refuse places, and what is proven by them.

A replica that serves is given up in a rollout only where that places its successor. Who refuses says so:

==================  ====================================================================================================
scheduler process   the question stands on the unit's root (``api.succession``), and names those that wait and those that
                    may go for them; the answer names those whose going gives the places, and keeps these. It counts as
                    long as the question is the same one: other pods, another that serves, another budget make another
ResourceQuotas      what the old pods are charged, against what those that are still to be created are. The planner never
                    saw these, so it counts only where they ask for nothing else than the old ones, whose nodes they get.
                    What goes of one unit or role is counted for the next, as quotas have not seen it go yet
other schedulers    nobody can be asked. Where kube-scheduler or Volcano lacks nothing but capacity for a pod, and has for
                    a while, old replicas make room one after another
anybody else        the API server, or kube-scheduler for another reason: nothing goes, whatever the planner has proven. So
                    answers the scheduler process, too, where kube-scheduler refused nodes that would hold the successor
==================  ====================================================================================================

``maxUnavailable``, where it is set, is the law of windows and asks nobody. Where only images change, and in the pods that
run, any no is enough: the successor needs no places then.

A drain has to end. What leaves and is beyond the minimum goes also where it is proven that its successor has no places
whatever goes; but not where somebody refuses who may change his mind.

One at a time: nothing is asked for while something of the unit goes, nor for a role whose last successor does not serve
yet. All that one answer clears goes in one step, or nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.succession import (
    Predecessors,
    SuccessionQuestion,
    Successor,
    dump_question,
    read_question,
)
from covey.compile import Layout, ReplicaKey, Slot
from covey.compile.identity import group_name
from covey.compile.revision import RoleRevision
from covey.kube.resources import COMPOSITE_POD_GROUPS
from covey.operator.model.actions import Annotate
from covey.operator.model.observed import Observed
from covey.operator.model.refusals import OVER_BUDGET, describe_refusal
from covey.rollout import RoleState, Stage, UnitState, UnitStep, next_step
from covey.rollout.model import serving
from covey.rollout.step import is_fresh, order_of_loss

#: Reasons of an answer that prove that no places are there, whatever goes.
_PROVEN: Final = frozenset({names.REASON_INFEASIBLE, names.REASON_OVER_QUOTA})
#: Fields of a pod's spec, and of a container's, that do not decide where it may go, nor what quotas charge for it.
_POD_FIELDS: Final = frozenset(
    {"terminationGracePeriodSeconds", "serviceAccountName", "securityContext", "imagePullSecrets", "restartPolicy"}
)
_CONTAINER_FIELDS: Final = frozenset({"name", "resources", "ports", "restartPolicy"})

#: Replicas (role and number) that come together or not at all.
Set = tuple[tuple[str, int], ...]


#: What quotas lack, in words, for some replicas where others are gone; empty for nothing.
Shortage = Callable[[Collection[ReplicaKey], Collection[ReplicaKey]], str]


@dataclass(frozen=True, slots=True)
class Cleared:
    """Old replicas, by role, that may go for one set of successors; ``whole``: all of them or none."""

    numbers: Mapping[str, frozenset[int]]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Spent:
    """Replicas that come, and those that go for them, as long as quotas know of neither; ``units``: the layout of theirs."""

    units: Mapping[int, Mapping[str, Mapping[int, RoleRevision]]] = field(default_factory=dict)
    coming: tuple[ReplicaKey, ...] = ()
    gone: tuple[ReplicaKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """A unit with what was refused to it, what may go for it, and the question that is to stand on its root.

    ``spent``: what goes for quotas, of this unit and of those before it.
    """

    state: UnitState
    cleared: tuple[Cleared, ...] = ()
    question: SuccessionQuestion | None = None
    spent: Spent = field(default_factory=Spent)

    def next_step(self) -> tuple[UnitState, UnitStep]:
        """Take the next step of the unit, and return it as it was taken; of what one answer clears all goes or nothing."""
        cleared = self.cleared
        while True:
            state = _with_cleared(self.state, cleared)
            step = next_step(state)
            done = tuple(each for each in cleared if not each.whole or _is_done(each, state, step))
            if len(done) == len(cleared):
                return state, step
            cleared = done


@dataclass(frozen=True)
class Successions:
    """The judge of what waits and what may go for it.

    Args:
        inference: the name of the resource.
        observed: the snapshot.
        shortage: for a layout, tells what quotas lack for replicas that are to be created while others are gone.
        asks: whether the scheduler process is there to be asked.
        is_kept_waiting: whether a replica has waited long enough where nobody can be asked.
        has_stood: whether nothing has come or gone in the rollout for as long.
        others_lack: whether another unit lacks replicas, of whose going quotas may not know yet.
        spent: what goes of other units for quotas.
    """

    inference: str
    observed: Observed
    shortage: Callable[[Layout], Shortage]
    asks: bool
    is_kept_waiting: Callable[[ReplicaKey], bool] = lambda _place: True
    has_stood: Callable[[], bool] = lambda: True
    others_lack: bool = False
    spent: Spent = field(default_factory=Spent)

    def judge(self, unit: int, state: UnitState, *, arrives: bool = False) -> Judged:
        """Judge a unit; ``arrives``: it is to take the place of another one, and nothing of it is given up."""
        found = _Unit(self, unit, state, arrives=arrives, spent=self.spent)
        return found.judge()

    def root(self, unit: int) -> core.GroupStatus | None:
        """The status of a unit's root."""
        owned = self.observed.objects.get((COMPOSITE_POD_GROUPS.type, group_name(self.inference, unit)))
        return owned.status if owned is not None else None


def put_questions(
    inference: str, questions: Mapping[int, SuccessionQuestion | None], observed: Observed
) -> Iterator[Annotate]:
    """Write the questions on the roots, and take away those that are not asked any more."""
    for unit, root in observed.find_roots(inference, questions):
        question = questions[unit]
        wanted = dump_question(question) if question is not None else None
        if root.metadata.annotation(names.ANNOTATION_SUCCESSION) != wanted:
            change = {names.ANNOTATION_SUCCESSION: wanted}
            yield Annotate(COMPOSITE_POD_GROUPS.type, root.metadata.name, root.metadata.uid, change)


@dataclass
class _Unit:
    """One unit, while it is judged."""

    by: Successions
    number: int
    state: UnitState
    arrives: bool
    spent: Spent
    #: Why replicas wait, by role, and the roles for which it is proven that there are no places.
    refusals: dict[str, str] = field(default_factory=dict)
    starved: set[str] = field(default_factory=set)
    cleared: list[Cleared] = field(default_factory=list)

    def judge(self) -> Judged:
        going = any(each.stage is Stage.GOING for role in self.state.roles.values() for each in role.replicas.values())
        sets = [] if going else [*self._changing_sets(), *self._leaving_sets()]
        question = self._kept_question() if going else self._question(sets)
        answers = self._answers(question) if question is not None and not going else {}
        for members in sets:
            self._judge_set(members, question, answers.get(members[0]))
        roles = {
            name: replace(role, refusal=self.refusals.get(name) or self._refusal_of(name), starved=name in self.starved)
            for name, role in self.state.roles.items()
        }
        return Judged(replace(self.state, roles=roles), tuple(self.cleared), question, self.spent)

    @cached_property
    def _rolled(self) -> frozenset[str]:
        """The roles that another revision is brought into now, window by window."""
        if self.state.is_held or is_fresh(self.state):
            return frozenset()
        return frozenset(name for name, role in self.state.roles.items() if role.outdated)

    def _changing_sets(self) -> Iterator[Set]:
        """The next successor of each role that is rolled; while a revision arrives, of all its roles as one set."""
        new = {name: self.state.roles[name].new for name in self.state.roles if name in self._rolled}
        waiting = {name: sorted(n for n in found if found[n].stage is Stage.WAITING) for name, found in new.items()}
        first = [name for name in new if waiting[name] and len(waiting[name]) == len(new[name])]
        arriving = [
            name
            for name in new
            if self.state.roles[name].wanted
            and not any(each.stage > Stage.WAITING for each in self.state.roles[name].updated.values())
        ]
        if len(arriving) > 1 and set(arriving) <= set(first):
            yield tuple((name, waiting[name][0]) for name in arriving)
        last = [name for name in new if len(self.state.roles[name].old) == 1 and self.state.roles[name].wanted > 1]
        ready = {
            name: waiting[name][0]
            for name, replicas in new.items()
            if waiting[name] and not any(Stage.WAITING < each.stage < Stage.SERVING for each in replicas.values())
            if not (len(arriving) > 1 and name in arriving)
        }
        yield from (((name, number),) for name, number in ready.items() if name not in last)
        # The last old ones of all roles go in one step, or none of them.
        ends = [name for name in new if name in ready or serving(new[name]) < self.state.roles[name].wanted]
        if ends and set(ends) <= set(last) & ready.keys():
            yield tuple((name, ready[name]) for name in ends)

    def _leaving_sets(self) -> Iterator[Set]:
        """The next successor of each role of which something leaves; of a unit that arrives, of each that waits."""
        for name, role in self.state.roles.items():
            if name not in self._rolled and (role.leaving or self.arrives):
                waiting = (n for n, each in self.state.staying(name).items() if each.stage is Stage.WAITING)
                first = min(waiting, default=None)
                if first is not None:
                    yield ((name, first),)

    def _predecessors(self, name: str) -> Predecessors | None:
        """The old replicas of a role that may go for a successor; None where the budget of windows says all."""
        role = self.state.roles[name]
        if role.budget.unavailable is not None or self.arrives:
            return None
        alive = role.alive
        order = [n for n in order_of_loss(self.state, name) if alive[n].stage > Stage.WAITING]
        if name in self._rolled:
            kept = max(role.budget.partition, int(any(each.budget.partition for each in self.state.roles.values())))
            # Until the last one goes no revision lacks a role.
            last = 1 if len(role.old) > 1 and role.wanted > 1 else 0
            least, bound = role.minimum, len(role.old) - max(min(kept, len(role.old)), last)
        else:
            order = [n for n in order if alive[n].leaving and not alive[n].patient]
            least, bound = self._least_left(role), min(len(order), self._count_beyond(role))
        idle = tuple(n for n in order if alive[n].stage is not Stage.SERVING)[: max(0, bound)]
        serve = tuple(n for n in order if alive[n].stage is Stage.SERVING)
        stay = sorted(n for n, each in alive.items() if each.stage > Stage.WAITING and n not in {*idle, *serve})
        return Predecessors(idle, serve, max(0, min(serving(alive) - least, bound - len(idle))), tuple(stay))

    def _question(self, sets: Sequence[Set]) -> SuccessionQuestion | None:
        """The question for the sets whose pods are there; None where there is nobody to ask, or nothing."""
        named = [tuple(map(self._successor, members)) for members in sets]
        there = [tuple(each for each in members if each is not None) for members in named if None not in members]
        if not self.by.asks or not there:
            return None
        roles = dict.fromkeys(member.role for members in there for member in members)
        predecessors = {name: found for name in roles if (found := self._predecessors(name)) is not None}
        return SuccessionQuestion(tuple(there), predecessors)

    def _successor(self, member: tuple[str, int]) -> Successor | None:
        pod = self._pods.get(Slot(self.number, *member, 0))
        return Successor(*member, pod.metadata.uid) if pod is not None else None

    @cached_property
    def _pods(self) -> Mapping[Slot, core.Pod]:
        return self.by.observed.in_unit(self.number)

    def _kept_question(self) -> SuccessionQuestion | None:
        """The question on the root, while something goes: as long as those wait for which it was asked, places are kept."""
        owned = dict(self.by.observed.find_roots(self.by.inference, [self.number])).get(self.number)
        asked = read_question(owned.metadata.annotation(names.ANNOTATION_SUCCESSION)) if owned is not None else None
        members = [member for members in asked.sets for member in members] if asked is not None else []
        return asked if members and any(self._waits(member) for member in members) else None

    def _waits(self, member: Successor) -> bool:
        role = self.state.roles.get(member.role)
        found = role.replicas.get(member.replica) if role is not None else None
        pod = self._pods.get(Slot(self.number, member.role, member.replica, 0))
        is_same = pod is not None and pod.metadata.uid == member.uid
        return found is not None and found.stage is Stage.WAITING and is_same

    def _answers(self, question: SuccessionQuestion) -> Mapping[tuple[str, int], core.SuccessorStatus]:
        """The answers to this very question, by the first of each set."""
        status = self.by.root(self.number)
        told = status.succession if status is not None else None
        if told is None or told.asked != question.asked:
            return {}
        return {(each.role, each.replica): each for each in told.successors}

    def _judge_set(
        self, members: Set, question: SuccessionQuestion | None, answer: core.SuccessorStatus | None
    ) -> None:
        """Judge one set by whoever has refused it."""
        rolled = all(name in self._rolled for name, _ in members)
        gone: Mapping[str, frozenset[int]] | None = None
        refused = proven = False
        spent = self.spent
        # 1. Quotas: pods that do not exist are seen by nobody else.
        if any((self.number, *member) in self.by.observed.unfit for member in members):
            refused = proven = True
            gone, spent, why = self._judge_by_quota(members)
        # 2. Other schedulers: who refuses a pin knows more than the planner that chose it.
        elif self._is_unschedulable(members):
            why = "; ".join(dict.fromkeys(filter(None, map(self._unschedulable, members))))
            refused, waited = True, all(self.by.is_kept_waiting((self.number, *member)) for member in members)
            if not self.by.asks and waited and self._lacks_capacity(members):
                proven, gone = True, self._first_ones(members)
        # 3. The scheduler process.
        elif answer is not None and answer.reason != names.REASON_WAITING:
            refused, proven, why = bool(answer.reason or answer.victims), answer.reason in _PROVEN, answer.message
            gone = self._read_victims(answer, question) if answer.victims else None
        else:
            return
        for name, _ in members:
            self.refusals[name] = why
            self.starved |= {name} if proven else set()
        if not refused or self.arrives:
            return
        # What is updated in place needs no places.
        turned = [self._first_updatable(name) for name, _ in members] if rolled else []
        if turned and None not in turned:
            self.cleared.append(
                Cleared({name: frozenset({n}) for (name, _), n in zip(members, turned, strict=True) if n is not None})
            )
        elif gone:
            self.cleared.append(Cleared(gone))
            self.spent = spent
        elif proven and not rolled:
            self._shrink(members)

    def _read_victims(
        self, answer: core.SuccessorStatus, question: SuccessionQuestion | None
    ) -> Mapping[str, frozenset[int]] | None:
        """Read who goes; None where it is not who was asked for, with the very pods that it had."""
        found: dict[str, set[int]] = {}
        for victim in answer.victims:
            told = question.predecessors.get(victim.role) if question is not None else None
            live = {
                pod.metadata.uid
                for slot, pod in self._pods.items()
                if (slot.role, slot.replica) == (victim.role, victim.replica)
            }
            if told is None or victim.replica not in {*told.idle, *told.serving} or live != set(victim.pods):
                return None
            found.setdefault(victim.role, set()).add(victim.replica or 0)
        return {name: frozenset(numbers) for name, numbers in found.items()}

    def _first_updatable(self, name: str) -> int | None:
        role = self.state.roles[name]
        found = self._predecessors(name)
        numbers = (*found.idle, *found.serving[: found.most]) if found is not None else ()
        return next((n for n in numbers if role.replicas[n].updatable), None)

    def _first_ones(self, members: Set) -> Mapping[str, frozenset[int]] | None:
        """One old replica of each role; None where one has none that may go."""
        found: dict[str, frozenset[int]] = {}
        for name, _ in members:
            told = self._predecessors(name)
            numbers = (*told.idle, *told.serving[: told.most]) if told is not None else ()
            if not numbers:
                return None
            found[name] = frozenset(numbers[:1])
        return found

    def _shrink(self, members: Set) -> None:
        """Let what leaves go without successors: one for each of those that wait."""
        for name, _ in members:
            role = self.state.roles[name]
            leaving = [n for n in order_of_loss(self.state, name) if role.replicas[n].leaving]
            urgent = [n for n in leaving if not role.replicas[n].patient]
            waiting = sum(each.stage is Stage.WAITING for each in self.state.staying(name).values())
            if going := urgent[: min(waiting, self._count_beyond(role))]:
                self.cleared.append(Cleared({name: frozenset(going)}, whole=False))

    def _least_left(self, role: RoleState) -> int:
        """The replicas of a role that a drain leaves it."""
        return 0 if role.yields else role.minimum

    def _count_beyond(self, role: RoleState) -> int:
        """Count the replicas with places that a drain may take: what serves nobody is part of the minimum all the same."""
        placed = sum(each.stage > Stage.WAITING for each in role.alive.values())
        return max(0, placed - self._least_left(role))

    def _judge_by_quota(self, members: Set) -> tuple[Mapping[str, frozenset[int]] | None, Spent, str]:
        """Find the fewest old replicas without which quotas have room for a set, what goes then, and what they lack."""
        spent, units = self.spent, {**self.spent.units}
        units[self.number] = {name: _revisions(role) for name, role in self.state.roles.items()}
        shortage = self.by.shortage(Layout(units))
        mine = [(self.number, *member) for member in members if (self.number, *member) in self.by.observed.unfit]
        coming = (*spent.coming, *mine)
        short = shortage(coming, spent.gone)
        if not short and self.by.observed.quotas:
            return None, spent, "other replicas come before them in the quota"
        why = short or OVER_BUDGET
        told = {name: self._predecessors(name) or Predecessors() for name, _ in members}
        lines = [[(name, n) for n in (*each.idle, *each.serving[: each.most])] for name, each in told.items()]
        order = [old for turn in zip_longest(*lines) for old in turn if old is not None]
        # What was given up is counted until quotas have seen it go.
        lacks = self.by.others_lack or any(is_lacking(self.state.roles[name]) for name, _ in members)
        if lacks and not self.by.has_stood():
            return None, spent, why
        if not all(self._asks_alike(name) for name, _ in members):
            return (
                None,
                spent,
                f"{why}; what the new pods ask for is not what the old ones have, so that nobody can say where they fit",
            )
        # Of the budget of roles that are scaled together each has as much as its successor asks for.
        for count in range(1 if short else len(mine), len(order) + 1):
            gone = (*spent.gone, *((self.number, *old) for old in order[:count]))
            if not shortage(coming, gone):
                found: dict[str, set[int]] = {}
                for name, n in order[:count]:
                    found.setdefault(name, set()).add(n)
                numbers = {name: frozenset(each) for name, each in found.items()}
                return numbers, Spent(units, coming, gone), why
        return None, spent, why

    def _asks_alike(self, name: str) -> bool:
        """Tell whether the pods of the target ask for the same places as those of each old replica."""
        role = self.state.roles[name]
        return all(_asks_of(each.revision) == _asks_of(role.target) for each in role.old.values())

    def _is_unschedulable(self, members: Set) -> bool:
        return any(map(self._unschedulable, members))

    def _unschedulable(self, member: tuple[str, int]) -> str:
        """The words with which a scheduler has no node for a pod of a replica; empty where it has not said so."""
        return describe_refusal(
            (pod for slot, pod in self._pods.items() if (slot.role, slot.replica) == member), planner=""
        )

    def _lacks_capacity(self, members: Set) -> bool:
        """Tell whether capacity alone is what a scheduler lacks for a set."""
        said = [why for member in members if (why := self._unschedulable(member))]
        alike = all(self._asks_alike(name) for name, _ in members)
        return all(_names_capacity(why) and (alike or not _names_constraint(why)) for why in said)

    def _refusal_of(self, name: str) -> str:
        """The words of whoever has refused what waits of a role, where nothing was asked for it."""
        role = self.state.roles[name]
        waiting = [n for n, each in role.alive.items() if each.stage is Stage.WAITING]
        if not waiting or is_fresh(self.state):
            return ""
        status = self.by.root(self.number)
        told = core.condition(status.conditions, names.SURPLUS_ADMITTED) if status is not None else None
        pods = (pod for slot, pod in self._pods.items() if slot.role == name and slot.replica in waiting)
        return describe_refusal(pods, told.message if told is not None and told.status == "False" else "")


def is_lacking(role: RoleState) -> bool:
    """Tell whether fewer replicas of a role have places than are wanted."""
    return sum(each.stage > Stage.WAITING for each in role.alive.values()) < role.wanted


def _revisions(role: RoleState) -> Mapping[int, RoleRevision]:
    return {number: replica.revision for number, replica in role.alive.items()}


def _with_cleared(state: UnitState, cleared: Collection[Cleared]) -> UnitState:
    if not cleared:
        return state
    numbers = {name: frozenset(n for each in cleared for n in each.numbers.get(name, ())) for name in state.roles}
    return replace(state, roles={name: replace(role, cleared=numbers[name]) for name, role in state.roles.items()})


def _is_done(cleared: Cleared, state: UnitState, step: UnitStep) -> bool:
    """Tell whether all that is cleared goes in a step, or becomes another revision."""
    return all(
        number not in step.roles[name] or step.roles[name][number] != state.roles[name].replicas[number].revision
        for name, numbers in cleared.numbers.items()
        for number in numbers
    )


def _names_capacity(said: str) -> bool:
    return "Insufficient" in said or "Too many pods" in said


def _names_constraint(said: str) -> bool:
    """kube-scheduler counts nodes by reasons; all but those for want of capacity speak of ``node(s)``."""
    return "node(s)" in said.partition("preemption:")[0]


def _asks_of(revision: RoleRevision) -> object:
    """All of a revision's pods by which places and quotas are decided, and perhaps more."""
    return (
        revision.size,
        {key: value for key, value in revision.rolled.items() if key not in {"template", "leaderTemplate"}},
        [_asks_of_template(revision.template_of(index)) for index in range(min(revision.size, 2))],
    )


def _asks_of_template(template: Mapping[str, object]) -> object:
    metadata, spec = template.get("metadata"), template.get("spec")
    assert isinstance(spec, Mapping), "the API has checked it"
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    asks = {key: value for key, value in spec.items() if key not in _POD_FIELDS}
    for key in ("containers", "initContainers"):
        asks[key] = [
            {field: value for field, value in container.items() if field in _CONTAINER_FIELDS}
            for container in asks.get(key) or ()
        ]
    return labels, asks
