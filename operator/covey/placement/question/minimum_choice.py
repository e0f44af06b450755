"""Choices of the replicas of a minimum that leaves them open: one after another, as far as they are few.

Replicas that are alike, or numbered, have an order: bound ones, then the lowest. Of others any ``minimum`` will do, so
one choice that does not fit proves nothing about the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Final

from covey.placement.model import Gang, Part, Plan, Refusal, ReplicaRequest, RoleRequest, Shape, Verdict
from covey.placement.question.demands import Demand
from covey.placement.question.readiness import guessed_refusal

#: Choices that are tried one after another; each costs a plan.
CHOICES: Final = 16
#: Kinds of replicas that choices tell apart; with more there are more choices than are tried in any case.
GROUPS: Final = 100
#: Rules over several replicas that the exact method takes: each doubles its tables.
RULES: Final = 4
#: Kinds of replicas up to which surplus under rules is looked at as a whole.
KINDS: Final = 8


def choose_plan(gang: Gang, ask: Callable[[Gang, bool], Plan | Refusal]) -> Plan | Refusal:
    """The plan of the first choice that has one: of those alike the one that keeps the most preferences.

    Without one the first refusal; *Unknown* where another choice than those tried may have a plan.

    Args:
        gang: the gang.
        ask: plans a choice; its second argument says whether a refusal's reasons will be read.
    """
    tried = 0
    first: Refusal | None = None
    best: Plan | None = None
    for choice in islice(_choices(gang), CHOICES):
        tried += 1
        answer = ask(choice, first is None and best is None)
        if isinstance(answer, Plan):
            if best is None or count_achieved(answer) > count_achieved(best):
                best = answer
            if count_achieved(best) == len(best.preferred):
                return best
        elif first is None or answer.verdict is Verdict.UNKNOWN:
            first = answer
    if best is not None:
        return best
    assert first is not None, "there is always one choice"
    open_ = next(islice(_choices(gang), tried, None), None) is not None
    names = [*gang.guessed, *(role.name for role in gang.roles if role.free and open_)]
    return guessed_refusal(first, names) if names and first.verdict is Verdict.INFEASIBLE else first


def count_achieved(plan: Plan) -> int:
    """Count the preferences that a plan reaches."""
    return sum(preference.achieved for preference in plan.preferred)


def _choices(gang: Gang) -> Iterator[Gang]:
    """The gang with each choice of the replicas that come first."""
    options = [list(islice(_firsts(role), CHOICES + 1)) for role in gang.roles]
    for firsts in product(*options):
        pairs = zip(gang.roles, firsts, strict=True)
        roles = tuple(role if first is None else replace(role, first=first) for role, first in pairs)
        yield gang if all(first is None for first in firsts) else replace(gang, roles=roles)


def _firsts(role: RoleRequest) -> Iterator[frozenset[int] | None]:
    touched = sum(any(pod.node is not None for pod in replica.pods) for replica in role.replicas)
    untouched = [r.replica for r in role.replicas if all(pod.node is None for pod in r.pods)]
    wanted = role.minimum - touched
    if not role.free or wanted <= 0 or wanted >= len(untouched):
        yield None
        return
    looks = {replica.replica: look(replica) for replica in role.replicas}
    kinds: dict[object, list[int]] = {}
    for number in untouched:
        kinds.setdefault(looks[number], []).append(number)
    groups = list(kinds.values())
    groups = [*groups[:GROUPS], *([[n for group in groups[GROUPS:] for n in group]] if groups[GROUPS:] else [])]
    first = set(untouched[:wanted])
    yield frozenset(first)
    known = tuple(sum(number in first for number in group) for group in groups)
    for counts in _counts([len(group) for group in groups], wanted):
        if counts != known:
            yield frozenset(n for group, count in zip(groups, counts, strict=True) for n in group[:count])


def _counts(sizes: Sequence[int], wanted: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to take that many out of groups of these sizes."""
    if not sizes:
        yield ()
        return
    for take in range(min(sizes[0], wanted), max(0, wanted - sum(sizes[1:])) - 1, -1):
        for rest in _counts(sizes[1:], wanted - take):
            yield (take, *rest)


def look(replica: ReplicaRequest) -> object:
    """Return a key that is the same for replicas that ask for the same."""
    shapes = {pod.key: pod.shape for pod in replica.pods}

    def inside(parts: Sequence[Part]) -> frozenset[tuple[object, int]]:
        required_parts = ((part.required, pods(part.pods), inside(part.parts)) for part in parts)
        return frozenset(Counter(required_parts).items())

    def pods(keys: Iterable[str]) -> frozenset[tuple[Shape, int]]:
        return frozenset(Counter(shapes[key] for key in keys).items())

    return pods(shapes), inside(replica.parts)


def count_costly_rules(gang: Gang, demands: Sequence[Demand]) -> int:
    """Count the rules on these demands that cost tables: over several of them, or with pods that are placed."""
    members = {(gang.roles[demand.role].name, demand.replica.replica) for demand in demands}
    placed = {(role.name, r.replica) for role in gang.roles for r in role.replicas if any(pod.node for pod in r.pods)}
    return sum(
        len(members.intersection(rule.members)) > 1
        or (
            not members.isdisjoint(rule.members)
            and (not placed.isdisjoint(rule.members) or any(pod.node for pod in rule.beside))
        )
        for rule in gang.rules
    )


def too_many(gang: Gang, demands: Sequence[Demand]) -> bool:
    """Tell whether rules make so different replicas that surplus is better placed one after another."""
    rules: dict[tuple[str, int], list[int]] = {}
    for number, rule in enumerate(gang.rules):
        for member in rule.members:
            rules.setdefault(member, []).append(number)
    if not rules:
        return False
    kinds = {
        (
            gang.roles[d.role].required,
            tuple(rules.get((gang.roles[d.role].name, d.replica.replica), ())),
            look(d.replica),
        )
        for d in demands
    }
    return count_costly_rules(gang, demands) > RULES or len(kinds) > KINDS


def without_rules(gang: Gang, demands: Sequence[Demand]) -> list[Demand]:
    """The demands that are under no rule over several replicas."""
    members = {member for rule in gang.rules for member in rule.members}
    return [d for d in demands if (gang.roles[d.role].name, d.replica.replica) not in members]
