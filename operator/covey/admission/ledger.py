"""Quota of queues: what is charged to whom, what of it is borrowed, and how much more anybody may have. Pure.

A *charge* is the minimum of a unit as far as it has nodes, or a surplus replica that has them; a replica is charged whole
as soon as one of its pods has a node. A *pool* is one resource on the nodes of one flavor. Nothing is stored: charges
follow from pods, groups and nodes, and which of them are within nominal is computed: minimums before surplus, then by
priority, then by the age of the admission, each that fits whole into what those before it have left. All others are
borrowed, and so is the surplus of a unit whose minimum is. Taking any of those away changes nothing for the rest, so they
may be reclaimed one by one, and a unit that goes whole has nothing within nominal.

A queue may use beyond its nominal what others of its cohort neither use nor keep back (``lend``), up to ``borrow``.
Minimums do so only where the queue says so.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import Final, NamedTuple

from covey.admission.nodes import Key
from covey.admission.roles import Member
from covey.api import core
from covey.placement.cluster import resources

#: The labels of a flavor's nodes, sorted; none for all nodes.
Flavor = tuple[tuple[str, str], ...]
Amounts = Mapping["Pool", int]
#: Charges in a block.
_MOST: Final = 256
#: The age of an admission that no status tells yet: the youngest.
NOT_YET: Final = "~"


class Pool(NamedTuple):
    """A resource on the nodes of a flavor."""

    flavor: Flavor
    resource: str


class Grant(NamedTuple):
    """The part of a queue in a pool; ``borrow`` and ``lend`` are None for all there is."""

    nominal: int
    borrow: int | None = None
    lend: int | None = None

    @property
    def lendable(self) -> int:
        """The most that others may have of it."""
        return self.nominal if self.lend is None else min(self.lend, self.nominal)


@dataclass(frozen=True, slots=True)
class Policy:
    """A Queue as it is reckoned with. ``cohort`` is empty for a queue that neither borrows nor lends."""

    name: str
    cohort: str = ""
    weight: int = 1
    borrow_minimums: bool = False
    flavors: tuple[Flavor, ...] = ()
    grants: Mapping[Pool, Grant] = field(default_factory=dict)
    selector: core.LabelSelector | None = None

    @classmethod
    def of(cls, queue: core.Queue) -> Policy:
        """The policy that a Queue states."""
        spec = queue.spec
        grants: dict[Pool, Grant] = {}
        flavors = [tuple(sorted((each.nodes or {}).items())) for each in spec.flavors]
        for flavor, stated in zip(flavors, spec.flavors, strict=True):
            for each in stated.resources:
                grants[Pool(flavor, each.name)] = _grant(each, lends=bool(spec.cohort))
        selector = spec.namespaces.selector if spec.namespaces else None
        cohort, name = spec.cohort or "", queue.metadata.name
        return cls(name, cohort, spec.weight, spec.borrow_minimums, tuple(flavors), grants, selector)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a namespace with these labels may use the queue."""
        if self.selector is None:
            return False
        return core.selects(self.selector, labels)

    def chargeable(self, flavor: Flavor, requests: Iterable[tuple[str, int]]) -> Iterator[tuple[Pool, int]]:
        """The part of some requests that is charged on nodes of a flavor."""
        for name, amount in requests:
            pool = Pool(flavor, name)
            if amount > 0 and pool in self.grants:
                yield pool, amount


def flavor_of(flavors: Iterable[Flavor], labels: Mapping[str, str]) -> Flavor | None:
    """The flavor that a node with these labels belongs to: the first that selects it."""
    return next((flavor for flavor in flavors if all(labels.get(key) == value for key, value in flavor)), None)


def _grant(stated: core.QueueResource, *, lends: bool) -> Grant:
    def read(quantity: str | int | None) -> int | None:
        return None if quantity is None else resources.amount(stated.name, quantity)

    return Grant(read(stated.nominal) or 0, read(stated.borrow) if lends else 0, read(stated.lend) if lends else 0)


@dataclass(frozen=True, slots=True)
class Charge:
    """The minimum of a unit, or one surplus replica (``member``), charged to a queue.

    ``spare``: what of the amounts is for pods that have no node yet, or again. ``since``: when it was admitted.
    """

    queue: str
    unit: Key
    member: Member | None
    amounts: tuple[tuple[Pool, int], ...]
    spare: tuple[tuple[Pool, int], ...] = ()
    priority: int = 0
    since: str = NOT_YET

    def __hash__(self) -> int:
        return hash((self.unit, self.member))

    @property
    def rank(self) -> tuple[bool, int, str, Key, Member]:
        """Sort key: what is within nominal before others."""
        return (self.member is not None, -self.priority, self.since, self.unit, self.member or ("", -1))


def _rank(charge: Charge) -> tuple[bool, int, str, Key, Member]:
    return charge.rank


class _Block:
    """Charges that follow each other, with the sum and the least of their amounts, so that few are looked at one by one."""

    def __init__(self, line: list[Charge]) -> None:
        self.line = line
        self.total = Counter[Pool]()
        for each in line:
            self.total.update(dict(each.amounts))
        amounts = [dict(each.amounts) for each in line]
        self.least = {pool: min(each.get(pool, 0) for each in amounts) for pool in self.total}
        self.units = frozenset(each.unit for each in line)

    def take(self, left: dict[Pool, int], whole: set[Key]) -> None:
        """Take what fits whole from what is left, and add the units of minimums that do not to ``whole``.

        Of surplus, what is of a unit in ``whole`` takes nothing.
        """
        surplus = self.line[0].member is not None
        if any(amount > left.get(pool, 0) for pool, amount in self.least.items()):
            whole |= self.units if not surplus else frozenset()
        elif all(amount <= left.get(pool, 0) for pool, amount in self.total.items()) and (
            not surplus or self.units.isdisjoint(whole)
        ):
            for pool, amount in self.total.items():
                left[pool] -= amount
        else:
            for each in self.line:
                if any(amount > left.get(pool, 0) for pool, amount in each.amounts):
                    whole |= {each.unit} if not surplus else frozenset()
                elif not surplus or each.unit not in whole:
                    for pool, amount in each.amounts:
                        left[pool] -= amount


class _Line:
    """Charges of one queue in the order of their ranks, minimums or surplus, in blocks."""

    def __init__(self, blocks: Iterable[_Block] = ()) -> None:
        self.blocks = list(blocks)

    def __iter__(self) -> Iterator[Charge]:
        return (each for block in self.blocks for each in block.line)

    def find(self, rank: tuple[bool, int, str, Key, Member]) -> int:
        """The number of the block where a charge of this rank is, or belongs."""
        return bisect_left(self.blocks, rank, hi=max(0, len(self.blocks) - 1), key=lambda each: each.line[-1].rank)

    def change(self, charge: Charge, *, add: bool) -> None:
        """Put in a charge, or take it out."""
        at = self.find(charge.rank)
        line = list(self.blocks[at].line) if self.blocks else []
        if add:
            insort(line, charge, key=_rank)
        else:
            del line[line.index(charge, bisect_left(line, charge.rank, key=_rank))]
        half = len(line) // 2 if len(line) > _MOST else 0
        self.blocks[at : at + 1] = [_Block(each) for each in (line[:half], line[half:]) if each]


class Ledger:
    """The charges of all queues.

    Args:
        policies: by name.
        charged: as they are now; ``enter`` keeps them up to date.
    """

    def __init__(self, policies: Mapping[str, Policy], charged: Iterable[Charge] = ()) -> None:
        self.policies = policies
        self._of: dict[Key, tuple[Charge, ...]] = {}
        #: Minimums, and surplus.
        self._in: dict[str, tuple[_Line, _Line]] = {name: (_Line(), _Line()) for name in policies}
        self._used: dict[str, Counter[Pool]] = {name: Counter() for name in policies}
        self._splits: dict[str, dict[Charge, frozenset[Pool]]] = {}
        self._left: dict[tuple[str, bool], dict[Pool, int]] = {}
        self._cohorts: dict[str, list[str]] = {}
        for policy in policies.values():
            self._cohorts.setdefault(policy.cohort or f"/{policy.name}", []).append(policy.name)
        #: What a cohort has idle, and what its queues have lent, by cohort and pool, until a charge changes.
        self._idle: dict[str, dict[Pool, int]] = {}
        self._lent: dict[str, dict[Pool, Mapping[str, int]]] = {}
        by_unit: dict[Key, list[Charge]] = {}
        for each in charged:
            by_unit.setdefault(each.unit, []).append(each)
        for unit, own in by_unit.items():
            self.enter(unit, tuple(own))

    def enter(self, unit: Key, now: tuple[Charge, ...]) -> frozenset[str]:
        """Charge a unit for what it has now; returns the queues of which something has changed."""
        before = self._of.pop(unit, ())
        if now:
            self._of[unit] = now
        if now == before:
            return frozenset()
        for sign, each in (*((-1, each) for each in before), *((1, each) for each in now)):
            if each.queue in self._in:
                self._splits.pop(each.queue, None)
                for sums in (self._idle, self._lent):
                    sums.pop(self._cohort_of(each.queue), None)
                for minimums in (True, False):
                    self._left.pop((each.queue, minimums), None)
                self._used[each.queue].update({pool: sign * amount for pool, amount in each.amounts})
                self._in[each.queue][each.member is not None].change(each, add=sign > 0)
        return frozenset(each.queue for each in (*before, *now)) & self._in.keys()

    def copy(self) -> Ledger:
        """The same charges, to be changed by somebody else."""
        found = Ledger(self.policies)
        found._of = dict(self._of)
        found._in = {name: (_Line(one.blocks), _Line(other.blocks)) for name, (one, other) in self._in.items()}
        found._used = {name: Counter(each) for name, each in self._used.items()}
        found._splits, found._left = dict(self._splits), dict(self._left)
        return found

    def give_up(self, gone: Collection[Charge]) -> dict[Key, tuple[Charge, ...]]:
        """Charge these no longer; returns the charges of their units before."""
        before = {each.unit: self.of(each.unit) for each in gone}
        for unit, charged in before.items():
            self.enter(unit, tuple(each for each in charged if each not in gone))
        return before

    def of(self, unit: Key) -> tuple[Charge, ...]:
        """The charges of a unit."""
        return self._of.get(unit, ())

    def charges_of(self, queue: str) -> Iterable[Charge]:
        """The charges of a queue."""
        return chain(*self._in[queue])

    def lowest_priority(self, queue: str) -> int | None:
        """The lowest priority of a queue's charges; None where it has none."""
        lines = (line for line in self._in[queue] if line.blocks)
        return min((line.blocks[-1].line[-1].priority for line in lines), default=None)

    def use_of(self, queue: str, pool: Pool) -> int:
        """The amount of a pool that is charged to a queue."""
        return self._used[queue][pool]

    def cohort(self, queue: str) -> Sequence[str]:
        """The queues that lend to each other, this one included."""
        return self._cohorts[self._cohort_of(queue)]

    def _cohort_of(self, queue: str) -> str:
        """A queue of no cohort is one by itself, with a name that none can have."""
        return self.policies[queue].cohort or f"/{queue}"

    def excess_of(self, queue: str, pool: Pool) -> int:
        """The amount of a pool that a queue has beyond its nominal."""
        return max(0, self.use_of(queue, pool) - self.policies[queue].grants[pool].nominal)

    def idle(self, queue: str, pool: Pool) -> int:
        """The amount of a pool that the cohort neither uses nor keeps back; negative where it uses more than it has."""
        known = self._idle.setdefault(self._cohort_of(queue), {})
        if pool not in known:
            grants = {name: self.policies[name].grants[pool] for name in self._having(queue, pool)}
            known[pool] = sum(
                grant.lendable - max(0, self.use_of(name, pool) - (grant.nominal - grant.lendable))
                for name, grant in grants.items()
            )
        return known[pool]

    def lent(self, queue: str, pool: Pool) -> int:
        """The part of a queue's nominal that others of its cohort have, taken from all lenders by what each could lend."""
        known = self._lent.setdefault(self._cohort_of(queue), {})
        if pool not in known:
            known[pool] = self._share_out(sorted(self._having(queue, pool)), pool)
        return known[pool].get(queue, 0)

    def _having(self, queue: str, pool: Pool) -> Iterator[str]:
        """The queues of a cohort that have something of a pool."""
        return (name for name in self.cohort(queue) if pool in self.policies[name].grants)

    def _share_out(self, names: Sequence[str], pool: Pool) -> Mapping[str, int]:
        """What each queue of a cohort has lent of a pool."""
        grants = {name: self.policies[name].grants[pool] for name in names}
        could = {
            name: min(grant.lendable, max(0, grant.nominal - self.use_of(name, pool))) for name, grant in grants.items()
        }
        total = sum(could.values())
        taken = min(total, sum(self.excess_of(name, pool) for name in names))
        shares = {name: taken * each // total if total else 0 for name, each in could.items()}
        rest = taken - sum(shares.values())
        for name in [name for name in names if could[name] > shares[name]][:rest]:
            shares[name] += 1
        return shares

    def share(self, queue: str, less: Amounts | None = None) -> Fraction:
        """The largest part that a queue has borrowed, for its nominal and its weight; ``less`` some of what it uses."""
        policy, taken = self.policies[queue], less or {}
        return max(
            (
                Fraction(max(0, self.use_of(queue, pool) - taken.get(pool, 0) - grant.nominal), max(grant.nominal, 1))
                for pool, grant in policy.grants.items()
            ),
            default=Fraction(0),
        ) / max(policy.weight, 1)

    def split(self, queue: str, more: Charge | None = None) -> Mapping[Charge, frozenset[Pool]]:
        """Pools in which each charge is borrowed, none for what is within nominal.

        Args:
            queue: whose.
            more: a minimum that is reckoned with as if it was charged, behind all minimums that are.
        """
        if more is None and queue in self._splits:
            return self._splits[queue]
        found, whole = dict[Charge, frozenset[Pool]](), dict[Key, frozenset[Pool]]()
        left = {pool: grant.nominal for pool, grant in self.policies[queue].grants.items()}
        minimums, surplus = self._in[queue]
        for each in chain(minimums, () if more is None else (more,), surplus):
            over = frozenset([pool for pool, amount in each.amounts if amount > left.get(pool, 0)])
            found[each] = over = over | whole.get(each.unit, over)
            if over and each.member is None:
                whole[each.unit] = over
            for pool, amount in () if over else each.amounts:
                left[pool] -= amount
        if more is None:
            self._splits[queue] = found
        return found

    def nominal_left(self, queue: str, *, minimums: bool) -> Amounts:
        """The rest of a queue's nominal beside the charges that are within it: those of minimums alone, or all."""
        if (queue, minimums) not in self._left:
            left = {pool: grant.nominal for pool, grant in self.policies[queue].grants.items()}
            whole = set[Key]()
            for line in self._in[queue][: 1 if minimums else 2]:
                for block in line.blocks:
                    block.take(left, whole)
            self._left[queue, minimums] = left
        return self._left[queue, minimums]

    def is_within_nominal(self, minimum: Charge) -> bool:
        """Tell whether the charge of a minimum is within the nominal of its queue."""
        left = {pool: grant.nominal for pool, grant in self.policies[minimum.queue].grants.items()}
        (line, _), whole = self._in[minimum.queue], set[Key]()
        for block in line.blocks[: line.find(minimum.rank) + 1]:
            block.take(left, whole)
        return minimum.unit not in whole

    def room(self, queue: str) -> dict[Pool, int]:
        """The further amount of each pool that a queue may use; negative where it uses too much."""
        found: dict[Pool, int] = {}
        for pool, grant in self.policies[queue].grants.items():
            used = self.use_of(queue, pool)
            most = max(0, grant.nominal - grant.lendable - used) + self.idle(queue, pool)
            found[pool] = most if grant.borrow is None else min(most, grant.nominal + grant.borrow - used)
        return found
