"""The right of a gang to its places by quota: the nodes that are open to it, its turn, and who gives way to it. Pure.

The planner is asked only for what quota has room for, wherever on the nodes that are left to it the pods will lie: on
each flavor there is room for all that could go there, or its nodes are closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from covey.admission.ledger import Charge, Flavor, Ledger, Policy, Pool
from covey.api import core
from covey.api.constants import REASON_QUEUE_AMBIGUOUS, REASON_QUEUE_DENIED, REASON_QUEUE_NOT_FOUND
from covey.placement.cluster import resources
from covey.placement.model import Shape

#: The place of a unit before its priority and age: the lowest is first.
Lane = tuple[int, Fraction]
#: Minimums within nominal, and everything that no queue counts; then minimums that borrow, surplus within nominal, and
#: surplus that borrows.
FIRST: Final[Lane] = (0, Fraction(0))
_BORROWING, _SURPLUS, _BORROWED = 1, 2, 3


class QueueError(Exception):
    """A unit may use no queue. ``reason`` is a reason of ``Admitted``, the text is for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def queue_of(root: core.Group, labels: Mapping[str, str], policies: Mapping[str, Policy]) -> str | None:
    """The queue that a root uses: the one it names, else the only one that selects its namespace; None for none.

    Args:
        root: of a unit.
        labels: of its namespace.
        policies: of all queues, by name.

    Raises:
        QueueError: it names one that does not exist or is not for it, or several are and it names none.
    """
    named, namespace = root.spec.queue, root.metadata.namespace
    if not named:
        selecting = sorted(policy.name for policy in policies.values() if policy.selects(labels))
        if len(selecting) > 1:
            several = f"queues {', '.join(selecting)} all select namespace {namespace}: name one in spec.queue"
            raise QueueError(REASON_QUEUE_AMBIGUOUS, several)
        return selecting[0] if selecting else None
    if named not in policies:
        raise QueueError(REASON_QUEUE_NOT_FOUND, f"there is no Queue {named}: create it, or name another in spec.queue")
    if not policies[named].selects(labels):
        raise QueueError(REASON_QUEUE_DENIED, f"queue {named} does not select namespace {namespace}: name another one")
    return named


def charged_queue(labels: Mapping[str, str], policies: Mapping[str, Policy]) -> str | None:
    """The queue that is charged for the places of a unit that may use none, or a wrong name would set quota free."""
    return min((policy.name for policy in policies.values() if policy.selects(labels)), default=None)


class PodsTogether(NamedTuple):
    """Pods that are wanted together or not at all; ``spare``: what is charged for them already.

    ``keeps``: that much comes back even where the queue uses too much.
    """

    shapes: Sequence[Shape]
    spare: Mapping[Pool, int] = {}
    keeps: bool = False


class Short(NamedTuple):
    """The quota that a gang lacks."""

    pool: Pool
    amount: int


@dataclass(frozen=True, slots=True)
class Entitlement:
    """The part of a gang that may be planned: numbers of its groups, and the flavors whose nodes are closed to it.

    ``inside``: it is within nominal. ``right``: it is a minimum that would be, so that it may reclaim. ``short``: why
    some of it may not.
    """

    taken: frozenset[int]
    closed: frozenset[Flavor] = frozenset()
    inside: bool = True
    right: bool = False
    short: Short | None = None


def may_lie(shape: Shape, flavor: Flavor) -> bool:
    """Tell whether a pod of a shape may lie on nodes of a flavor, as far as their labels say."""
    labels = dict(flavor)
    if any(labels.get(key, value) != value for key, value in shape.node_selector):
        return False
    terms = shape.node_affinity.node_selector_terms if shape.node_affinity else ()
    return not terms or any(
        all(_may_hold(expression, labels) for expression in term.match_expressions or ()) for term in terms
    )


def _may_hold(requirement: core.Requirement, labels: Mapping[str, str]) -> bool:
    known = requirement.operator in {"In", "NotIn", "Exists", "DoesNotExist"} and requirement.key in labels
    return not known or core.holds(requirement, labels[requirement.key])


def fit(policy: Policy, groups: Sequence[PodsTogether], room: Mapping[Pool, int], *, free: bool) -> Entitlement:
    """Fit in as many groups as there is room for, one after another.

    Args:
        policy: of the queue.
        groups: in order.
        room: what may be used of each pool.
        free: whether there are nodes of no flavor.
    """
    left = dict(room)
    opened, closed, taken = set[Flavor](), set[Flavor](), set[int]()
    short: Short | None = None
    for number, group in enumerate(groups):
        needs, choices = _needs(policy, group)
        bad = {number for number, need in needs.items() if any(amount > left[pool] for pool, amount in need.items())}
        rest = set(policy.flavors) - closed - bad
        if bad & opened or not (free or all(choice & rest for choice in choices)):
            short = short or _shortage(needs, left)
            continue
        taken.add(number)
        closed |= bad
        for flavor, need in needs.items():
            if flavor in rest and need:
                opened.add(flavor)
                for pool, amount in need.items():
                    left[pool] -= amount
    return Entitlement(frozenset(taken), frozenset(closed), short=short)


def _needs(policy: Policy, group: PodsTogether) -> tuple[dict[Flavor, Counter[Pool]], list[set[Flavor]]]:
    """The further charge of a group on each flavor, and the flavors for each kind of its pods."""
    needs: dict[Flavor, Counter[Pool]] = {flavor: Counter() for flavor in policy.flavors}
    choices: list[set[Flavor]] = []
    for shape, count in Counter(group.shapes).items():
        choice = {flavor for flavor in policy.flavors if may_lie(shape, flavor)}
        for flavor in choice:
            for pool, amount in policy.chargeable(flavor, shape.requests):
                needs[flavor][pool] += amount * count
        if any(True for flavor in policy.flavors for _ in policy.chargeable(flavor, shape.requests)):
            choices.append(choice)
    spare = group.spare
    further = {
        flavor: Counter({pool: max(0, amount - spare.get(pool, 0)) for pool, amount in need.items()})
        for flavor, need in needs.items()
    }
    return {flavor: +need for flavor, need in further.items()} if group.keeps else further, choices


def _shortage(needs: Mapping[Flavor, Mapping[Pool, int]], left: Mapping[Pool, int]) -> Short | None:
    """The shortage on the flavor where it is smallest."""
    worst = [
        max((Short(pool, amount - left[pool]) for pool, amount in need.items()), key=lambda short: short.amount)
        for need in needs.values()
        if need
    ]
    return min((short for short in worst if short.amount > 0), key=lambda short: short.amount, default=None)


def judge_minimum(
    ledger: Ledger, queue: str, shapes: Sequence[Shape], own: Charge | None, *, free: bool, borrows: bool = True
) -> Entitlement:
    """Judge whether the minimum of a unit may have its places.

    Args:
        ledger: all charges.
        queue: of the unit.
        shapes: of the pods of its minimum that have no nodes.
        own: what is charged for its minimum by now.
        free: whether there are nodes of no flavor.
        borrows: whether it gives back what is borrowed: else it has nothing beyond nominal.
    """
    policy, group = ledger.policies[queue], [PodsTogether(shapes, dict(own.spare) if own else {}, keeps=True)]
    left, room = ledger.nominal_left(queue, minimums=True), ledger.room(queue)
    is_nominal = own is None or ledger.is_within_nominal(own)
    right = is_nominal and bool(fit(policy, group, left, free=free).taken)
    within = fit(policy, group, {pool: min(amount, left[pool]) for pool, amount in room.items()}, free=free)
    if within.taken:
        return Entitlement(within.taken, within.closed, inside=is_nominal, right=right)
    verdict = fit(policy, group, room, free=free)
    if verdict.taken and policy.borrow_minimums and borrows:
        return Entitlement(verdict.taken, verdict.closed, inside=False, right=right)
    return Entitlement(frozenset(), inside=right, right=right, short=verdict.short or within.short)


def judge_surplus(
    ledger: Ledger, queue: str, groups: Mapping[int, tuple[str, PodsTogether]], *, free: bool, borrows: bool = True
) -> Entitlement:
    """Choose the surplus that may have its places: all within nominal, else of each role the first, which may borrow.

    Args:
        ledger: all charges.
        queue: of the unit.
        groups: by number, in order: the role, and its pods without nodes.
        free: whether there are nodes of no flavor.
        borrows: as of `judge_minimum`.
    """
    policy, numbers = ledger.policies[queue], list(groups)
    left, room = ledger.nominal_left(queue, minimums=False), ledger.room(queue)
    nominal = {pool: min(amount, left[pool]) for pool, amount in room.items()}
    within = fit(policy, [group for _, group in groups.values()], nominal, free=free)
    if within.taken or not borrows:
        return _renumber(within, numbers, inside=True)
    firsts = list({role: number for number, (role, _) in reversed(list(groups.items()))}.values())[::-1]
    verdict = fit(policy, [groups[number][1] for number in firsts], room, free=free)
    return _renumber(verdict, firsts, inside=False)


def _renumber(verdict: Entitlement, numbers: Sequence[int], *, inside: bool) -> Entitlement:
    return Entitlement(
        frozenset(numbers[number] for number in verdict.taken), verdict.closed, inside=inside, short=verdict.short
    )


def lane_of(ledger: Ledger, queue: str, verdict: Entitlement, *, surplus: bool) -> Lane:
    """The place of a unit among those of other queues."""
    if verdict.inside:
        return (_SURPLUS, Fraction(0)) if surplus else FIRST
    return (_BORROWED if surplus else _BORROWING, ledger.share(queue))


def describe(ledger: Ledger, queue: str, short: Short, *, surplus: bool) -> str:
    """Say in a sentence why a gang may not have its places by quota."""
    policy, pool, name = ledger.policies[queue], short.pool, short.pool.resource
    grant = policy.grants[pool]

    def text(amount: int) -> str:
        return resources.text(name, amount)

    nodes = ",".join(f"{key}={value}" for key, value in pool.flavor) if len(policy.flavors) > 1 else ""
    sentence = f"{text(ledger.use_of(queue, pool))} of {text(grant.nominal)} {name} of queue {queue} are in use"
    sentence += f" on nodes {nodes}" if nodes else ""
    sentence += f"; {text(short.amount)} short"
    if not policy.cohort:
        return f"{sentence}; {queue} is in no cohort that it could borrow from"
    if not surplus and not policy.borrow_minimums:
        return f"{sentence}; minimums of {queue} do not borrow"
    most = "" if grant.borrow is None else f" {text(grant.borrow)}"
    return f"{sentence}; {queue} may borrow{most}, its cohort has {text(max(0, ledger.idle(queue, pool)))} idle"


def has_right(ledger: Ledger, mine: Charge) -> bool:
    """Tell whether a minimum may reclaim: it fits into what its queue has left of nominal beside its minimums."""
    left = ledger.nominal_left(mine.queue, minimums=True)
    return all(amount <= left.get(pool, 0) for pool, amount in mine.amounts)


def _find_borrowed(ledger: Ledger, mine: Charge, queue: str) -> Iterator[Charge]:
    """The charges of a queue that must give way to a minimum: borrowed, of something it asks for.

    In its own queue a minimum is before all surplus, but before another minimum by its priority alone.
    """
    pools, own = {pool for pool, _ in mine.amounts}, queue == mine.queue
    for charge, over in ledger.split(queue, mine if own else None).items():
        behind = charge.member is not None or charge.priority < mine.priority or not own
        if behind and charge.unit != mine.unit and not over.isdisjoint(pools):
            yield charge


def victims(ledger: Ledger, mine: Charge) -> Iterator[Charge]:
    """The charges that must give way to a minimum, in their order.

    Surplus is before units; then, as each is taken, the largest share first; of one queue the lowest priority, and of
    that the youngest.
    """
    borrowed = [charge for queue in ledger.cohort(mine.queue) for charge in _find_borrowed(ledger, mine, queue)]
    for minimums in (False, True):
        taken: dict[str, Counter[Pool]] = {}
        if minimums:
            for charge in borrowed:
                if charge.member is not None:
                    taken.setdefault(charge.queue, Counter()).update(dict(charge.amounts))
        lines: dict[str, list[Charge]] = {}
        for charge in sorted((e for e in borrowed if (e.member is None) == minimums), key=_gives_way):
            lines.setdefault(charge.queue, []).append(charge)
        lines = {name: lines[name] for name in sorted(lines)}
        shares = {name: ledger.share(name, taken.get(name)) for name in lines}
        while lines:
            queue = max(lines, key=shares.__getitem__)
            yield (given := lines[queue].pop())
            taken.setdefault(queue, Counter()).update(dict(given.amounts))
            shares[queue] = ledger.share(queue, taken[queue])
            if not lines[queue]:
                del lines[queue]


def lower_in_queue(ledger: Ledger, mine: Charge) -> Iterator[Charge]:
    """The charges of a minimum's own queue that have a lower priority, of something it asks for.

    Surplus is before units; of both the lowest priority, and of that the youngest.
    """
    pools = {pool for pool, _ in mine.amounts}
    for charge in reversed([*ledger.charges_of(mine.queue)]):
        if charge.priority < mine.priority and charge.unit != mine.unit and any(p in pools for p, _ in charge.amounts):
            yield charge


def _gives_way(charge: Charge) -> tuple[int, tuple[str, str, str, str, str]]:
    """Sort key of which the last gives way first."""
    member = charge.member or ("", 0)
    return (-charge.priority, (charge.since, *charge.unit, f"{member[0]}/{member[1]:+06d}"))
