"""Quota of queues in the process: charges as they are now, what they let a unit have, and who sleeps until they change.

A unit is charged when it is assessed, and as soon as places are decided for it. One that its queue has no room for sleeps
until charges, queues or the unit change; no node helps it. Where no Queue is, nothing is counted and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from covey.admission.charges import Ground, Land, charge_left, charges, charges_of_pods
from covey.admission.entitlement import (
    FIRST,
    Entitlement,
    Lane,
    PodsTogether,
    QueueError,
    charged_queue,
    describe,
    fit,
    lane_of,
    lower_in_queue,
    queue_of,
)
from covey.admission.entry import Entry, QueueStage, waiting_since
from covey.admission.ledger import Amounts, Charge, Ledger, Policy, Pool
from covey.admission.losses import Hold
from covey.admission.nodes import Key
from covey.admission.reclaim import Right
from covey.admission.rights import Promise, Promises, charges_by_flavor
from covey.admission.tree import Unit
from covey.admission.victims import is_ours
from covey.admission.wishes import (
    confine_gang,
    count_room,
    first_choice,
    judge_gang,
    minimum_shapes,
    shapes_of,
    surplus_pods,
)
from covey.api import core
from covey.api.constants import FOR_OTHERS, LABEL_DRAINING, REASON_OVER_QUOTA
from covey.model import podstate
from covey.model.podstate import place_of
from covey.placement.model import Gang, Shape
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.holding import Holding
from covey.scheduler.plugin import CycleState, Plugin, Rejection
from covey.scheduler.queue import NO_ORDER

_NOTHING: Final[Amounts] = {}
#: A unit in an exchange: replicas wanted by role, and UIDs of the pods that give way.
Swap = tuple[Key, Mapping[str, int], Collection[str]]
_PLANNED: Final = frozenset({QueueStage.MINIMUM, QueueStage.SURPLUS})


@dataclass(frozen=True, slots=True)
class Wish:
    """The wish of a unit of a queue: amounts, and of a minimum since when (seconds since the epoch)."""

    amounts: Amounts
    since: float | None = None


class Quotas(Plugin):
    """The charges of all units, and the judge of their wishes.

    Args:
        cache: queues, namespaces, nodes, pods.
        priority: of a root.
    """

    def __init__(self, cache: Cache, priority: Callable[[core.Group], int]) -> None:
        self._cache = cache
        self._priority = priority
        self._held: Callable[[Key], Sequence[Hold]] = lambda _root: ()
        self.ledger = Ledger({})
        #: By queue.
        self.wishes: dict[str, dict[Key, Wish]] = {}
        self._lands: dict[str, Land] = {}
        self._queues: dict[Key, str] = {}
        self._problems: dict[Key, QueueError] = {}
        self._asleep: dict[Key, Entitlement] = {}
        #: The queue where each unit is charged, and UIDs of its pods; those whose groups are gone; units of which one changed.
        self._pods: dict[Key, tuple[str, set[str]]] = {}
        self._left: dict[str, Key] = {}
        self._torn: set[Key] = set()
        self._promises = Promises()
        self._eased = False
        self._stale = True
        #: Grows with each charge and each change of nodes; the last judgement of each unit, with what it was about.
        self._version = 0
        self._judged: dict[Key, tuple[tuple[object, ...], Gang, Entitlement | None]] = {}
        #: Units that were woken as there was quota for them, and how many beyond those for whom there is are woken next time.
        self._woken: set[Key] = set()
        self._beyond, self._is_left = 0, False
        #: Units that were not charged since queues have changed.
        self._uncounted: set[Key] = set()
        self._changed: list[Callable[[], None]] = []
        cache.subscribe(Listener(node=self._on_node, pod=self._on_pod, gone=self._on_pod, quota=self._on_quota))

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back when charges, wishes or queues have changed."""
        self._changed.append(callback)

    def follow(self, holding: Holding) -> None:
        """Charge units for their pods that are being deleted and will get successors, and for the room that is held then."""
        self._held = holding.holds_of

    def queue_of(self, root: Key) -> str | None:
        """The queue that a unit uses; None for none."""
        return self._queues.get(root)

    def shares_queue(self, root: Key, other: Key) -> bool:
        """Tell whether a unit uses, or is charged to, the queue that another one uses; or neither has one."""
        charged = (charge.queue for charge in self.ledger.of(root))
        return self.queue_of(other) == (self.queue_of(root) or next(charged, None))

    def observe(self, unit: Unit) -> None:
        """Charge a unit for what it has now."""
        self.refresh()
        root, policies = unit.key, self.ledger.policies
        self._problems.pop(root, None)
        found = self._cache.namespaces.store.get(("", root.namespace))
        labels = (found.metadata.labels or {}) if found else {}
        try:
            name = charged = queue_of(unit.root, labels, policies) if policies or unit.root.spec.queue else None
        except QueueError as error:
            self._problems[root], name = error, None
            charged = charged_queue(labels, policies)
        if name is None:
            self._queues.pop(root, None)
        else:
            self._queues[root] = name
        self._charge(root, charged, unit)
        self._note_counted(root)

    def is_counted(self) -> bool:
        """Tell whether every unit is charged as the queues are now."""
        self.refresh()
        return not self._uncounted

    def _note_counted(self, root: Key) -> None:
        if root in self._uncounted:
            self._uncounted.discard(root)
            if not self._uncounted:
                self._tell()

    def forget(self, root: Key) -> None:
        """A unit is gone; what is left of its pods is charged until it is."""
        self._note_counted(root)
        self._judged.pop(root, None)
        self._problems.pop(root, None)
        self._asleep.pop(root, None)
        self._promise(root, None)
        for each in self.wishes.values():
            each.pop(root, None)
        self._queues.pop(root, None)
        self._charge(root, self._pods.get(root, ("",))[0], None)

    def note_entry(self, root: Key, entry: Entry) -> None:
        """Take notice of a unit's wish."""
        name = self._queues.get(root)
        before = [found for each in self.wishes.values() if (found := each.pop(root, None)) is not None]
        now: list[Wish] = []
        if name is not None and entry.gang is not None and entry.stage in _PLANNED:
            shapes = (
                minimum_shapes(entry.gang) if entry.stage is QueueStage.MINIMUM else shapes_of(surplus_pods(entry.gang))
            )
            since = waiting_since(entry.unit.root) if entry.stage is QueueStage.MINIMUM else None
            now = [Wish(first_choice(self.ledger.policies[name], shapes), since)]
            self.wishes.setdefault(name, {})[root] = now[0]
        self._promise(root, self._promise_of(root, entry))
        if now != before:
            self._tell()

    def _promise(self, root: Key, now: Promise | None) -> None:
        """Take a promise to a unit for the one before; claims that rest on it are judged anew, or they would take for nothing."""
        before = self._promises.enter(root, now)
        if before == now:
            return
        self._eased |= before is not None
        for other in self._promises.find_behind(root, min(each.order for each in (before, now) if each is not None)):
            self.handle.queue.requeue(other)

    def _promise_of(self, root: Key, entry: Entry) -> Promise | None:
        claim, name = entry.decision.claim, self._queues.get(root)
        if claim is None or claim.purpose not in FOR_OTHERS or not claim.victims or name is None or entry.gang is None:
            return None
        if entry.stage is not QueueStage.MINIMUM:
            return None
        return Promise.of(root, claim, self.ledger.policies[name], entry.gang, self._lands[name].flavor.get)

    def assess(self, entry: Entry, before: Entry | None) -> Entry:  # noqa: ARG002 - as every plugin
        """Say of a unit that wants nothing why it may use no queue."""
        problem = self._problems.get(entry.unit.key)
        if problem is None or entry.stage is not QueueStage.NOTHING:
            return entry
        return replace(entry, decision=replace(entry.decision, reason=problem.reason, message=problem.message))

    def judge(self, entry: Entry) -> Entitlement | None:
        """The part of a unit's wish that may be planned now; None where no queue counts it.

        What is given back to a minimum is for it, or for a minimum within nominal that is before it in the order.
        """
        root, name, gang = entry.unit.key, self._queues.get(entry.unit.key), entry.gang
        if name is None or gang is None:
            return None
        question = (entry.stage, name, self._version, self._promises.version, self._held(root))
        known = self._judged.get(root)
        if known is None or known[0] != question or known[1] is not gang:
            known = self._judged[root] = (question, gang, self._judge(entry, name, gang))
        return known[2]

    def _judge(self, entry: Entry, name: str, gang: Gang) -> Entitlement | None:
        free, surplus = bool(self._lands[name].nodes.get(None)), entry.stage is not QueueStage.MINIMUM
        kept = [] if surplus else [hold for hold in self._held(entry.unit.key) if hold.unbroken]
        ledger = self._with_holds(entry.unit, name, kept)
        borrows = self._gives_back(entry.unit)
        judge = partial(judge_gang, ledger, name, entry.unit.key, gang, surplus=surplus, free=free, borrows=borrows)
        if not surplus:
            with self._promises.charge_others(ledger, entry.unit.key, gang.order):
                found = judge()
            if found is not None and found.inside:
                return found
        with self._promises.charge_others(ledger, entry.unit.key):
            return judge()

    @staticmethod
    def _gives_back(unit: Unit) -> bool:
        """Tell whether what a unit borrows can be taken back; what cannot, does not borrow."""
        owner = unit.root.metadata.controller
        return is_ours(unit.root) or (owner is not None and owner.kind == "Job")

    def _with_holds(self, unit: Unit, name: str, kept: Sequence[Hold]) -> Ledger:
        """The ledger on which a unit is charged for no room that is held for its lost pods but some: the rest it takes anew.

        Surplus takes anew all that it lost. A minimum comes back in any case for what it was charged without a break.
        """
        if len(kept) == len(self._held(unit.key)):
            return self.ledger
        ledger = self.ledger.copy()
        ledger.enter(unit.key, charges(unit, replace(self._ground(unit.key, name, unit), held=kept)))
        return ledger

    def refusal(self, entry: Entry, entitled: Entitlement | None) -> QueueError | None:
        """The reason for which nothing of a unit's wish may be planned; it sleeps until it is entitled to more."""
        root = entry.unit.key
        self._asleep.pop(root, None)
        if root in self._problems:
            return self._problems[root]
        if entitled is None:
            return None
        if entitled.closed or entitled.short or not entitled.taken:
            self._asleep[root] = entitled
        if entitled.taken or entitled.short is None:
            return None
        surplus = entry.stage is QueueStage.SURPLUS
        return QueueError(REASON_OVER_QUOTA, describe(self.ledger, self._queues[root], entitled.short, surplus=surplus))

    def pre_filter(self, state: CycleState) -> Rejection | None:
        """Confine a unit to the part of its wish for which there is quota, or refuse it where there is none."""
        entitled = self.judge(state.entry)
        if why := self.refusal(state.entry, entitled):
            return Rejection(why.reason, why.message)
        state.gang = self.confine(state.entry, state.gang, entitled)
        state.borrows = entitled is not None and not entitled.inside
        state.entitled = entitled
        return None

    def confine(self, entry: Entry, gang: Gang, entitled: Entitlement | None) -> Gang:
        """The part of a gang for which there is quota, on the nodes where there is."""
        name = self._queues.get(entry.unit.key)
        if entitled is None or name is None:
            return gang
        return confine_gang(gang, entitled, self._lands[name].nodes, surplus=entry.stage is QueueStage.SURPLUS)

    def still_allows(self, state: CycleState, entry: Entry) -> bool:
        """Tell whether a plan by an entitlement may be carried out still."""
        now, entitled = self.judge(entry), state.entitled
        if now is None or not isinstance(entitled, Entitlement):
            return now is entitled and entry.unit.key not in self._problems
        return entitled.taken <= now.taken and now.closed <= entitled.closed

    def reserve(self, entry: Entry, nodes: Collection[str]) -> None:  # noqa: ARG002 - as every plugin
        """Charge a unit for what it has taken."""
        self.observe(entry.unit)

    def bounds_minimums(self, coming: Sequence[Entry]) -> bool:
        """Tell whether a Queue says what some of these may have."""
        return any(self.queue_of(entry.unit.key) for entry in coming)

    def tier(self, entry: Entry) -> Lane:
        """The place of a unit among those of other queues."""
        entitled, root = self.judge(entry), entry.unit.key
        if entitled is None:
            return FIRST
        return lane_of(self.ledger, self._queues[root], entitled, surplus=entry.stage is QueueStage.SURPLUS)

    def is_asleep(self, root: Key) -> bool:
        """Tell whether a unit waits for quota."""
        return root in self._asleep or root in self._problems

    async def wake(self) -> None:
        """Requeue units that wait for quota, if there may be more of it."""
        torn, self._torn = self._torn, set()
        for root in torn & self._pods.keys():
            self._charge(root, self._pods[root][0], self._cache.index.unit(root))
        eased, self._eased = self._eased, False
        if not eased:
            return
        self.handle.queue.renew_tiers()
        known = [(root, entry) for root in self._asleep if (entry := self.handle.queue.get(root)) is not None]
        known.sort(key=lambda pair: (pair[1].order if pair[1].gang is not None else NO_ORDER, pair[0]))
        # Chosen at once: while others have their turn, charges change.
        for root, entry in list(self._choose_woken(known)):
            if self._is_better_off(root, entry):
                self.handle.queue.requeue(root)
            await self.handle.fair_loop.share()

    async def tick(self) -> None:
        """Say the numbers as they are in the refusals of units that wait for quota."""
        for root in list(self._asleep):
            entry = self.handle.queue.get(root)
            words = self._words(root, entry) if entry is not None else ""
            if entry is not None and words and words != entry.decision.message:
                self.handle.queue.amend(root, replace(entry, decision=replace(entry.decision, message=words)))
            await self.handle.fair_loop.share()

    def _choose_woken(self, waiting: Iterable[tuple[Key, Entry]]) -> Iterator[tuple[Key, Entry]]:
        """The units of those that wait for quota for whom there may be some: as many as it does for, in their order.

        Where some of these found no nodes, so that what they were woken for is left, others are tried, twice as many each
        time (``note_unschedulable``).
        """
        self._woken.clear()
        self._beyond = max(1, 2 * self._beyond) if self._is_left else 0
        beyond, self._is_left = self._beyond, False
        rooms: dict[str, tuple[Amounts, dict[Pool, int]]] = {}
        for root, entry in waiting:
            name = self._queues.get(root)
            wish = self.wishes.get(name or "", {}).get(root)
            if name is None or wish is None or wish.since is None or self.ledger.of(root):
                yield root, entry
                continue
            policy = self.ledger.policies[name]
            if name not in rooms:
                rooms[name] = (self.ledger.room(name), self.ledger.room(name))
            room, left = rooms[name]
            if len(policy.flavors) == 1 and any(amount > left.get(pool, 0) for pool, amount in wish.amounts.items()):
                if beyond <= 0 or any(amount > room.get(pool, 0) for pool, amount in wish.amounts.items()):
                    continue
                beyond -= 1
            for pool, amount in wish.amounts.items():
                left[pool] = left.get(pool, 0) - amount
            self._woken.add(root)
            yield root, entry

    def note_unschedulable(self, root: Key) -> None:
        """A unit that was woken for quota has found no nodes: what it would have used is there for others."""
        if root in self._woken:
            self._woken.discard(root)
            self._is_left = self._eased = True

    def _is_better_off(self, root: Key, entry: Entry) -> bool:
        """Tell whether more of a unit could be planned than when it was last judged."""
        if entry.stage not in _PLANNED:
            self._asleep.pop(root, None)
            return False
        before, now = self._asleep.get(root), self.judge(entry)
        return before is None or now is None or bool(now.taken - before.taken) or bool(before.closed - now.closed)

    def _words(self, root: Key, entry: Entry) -> str:
        """The refusal of a unit that waits for quota, with the numbers as they are; empty where it is not refused."""
        before = self._asleep.get(root)
        why = None if before is None or before.taken else self.refusal(entry, self.judge(entry))
        return why.message if why is not None else ""

    def room_for(self, root: Key, shapes: Sequence[Shape]) -> int | None:
        """The most further replicas of these pods that quota leaves to a unit, whatever nodes there are; None for any."""
        name = self._queues.get(root)
        if name is None:
            return 0 if root in self._problems else None
        return count_room(self.ledger, name, shapes, free=bool(self._lands[name].nodes.get(None)))

    def refuse_exchange(self, swaps: Sequence[Swap], models: Mapping[str, Sequence[Shape]]) -> str:
        """Say why there is no quota for all that come to a unit in an exchange; empty where there is.

        Args:
            swaps: of other units, to which theirs was promised, and then of this one.
            models: by role: the shapes of the pods of a further replica.
        """
        ledger = self.ledger.copy()
        with self._promises.charge_others(ledger, swaps[-1][0]):
            return [self._carry_out(ledger, each, models) for each in swaps][-1]

    def _carry_out(self, ledger: Ledger, swap: Swap, models: Mapping[str, Sequence[Shape]]) -> str:
        """Charge a unit for what it has after an exchange; returns why there is no quota for that."""
        root, wanted, gone = swap
        unit, name = self._cache.index.unit(root), self._queues.get(root)
        if unit is None or name is None:
            return self._problems[root].message if root in self._problems else ""
        # What comes takes the room that is held for what has gone.
        ground = replace(self._ground(root, name, unit), held=())
        land, policy = self._lands[name], ledger.policies[name]

        def stay(pod: core.Pod) -> str | None:
            leaves = pod.metadata.uid in gone or pod.metadata.label(LABEL_DRAINING) == "true"
            return None if leaves else ground.place(pod)

        shapes: list[Shape] = []
        for role in unit.roles:
            there = sum(any(map(stay, replica.pods)) for replica in role.replicas)
            shapes += [*models.get(role.name, ())] * (wanted.get(role.name, there) - there)
        kept = charges(unit, replace(ground, place=stay))
        ledger.enter(root, kept)
        found = fit(policy, [PodsTogether(shapes)], ledger.room(name), free=bool(land.nodes.get(None)))
        said = describe(ledger, name, found.short, surplus=True) if shapes and found.short and not found.taken else ""
        opened = replace(policy, flavors=tuple(each for each in policy.flavors if each not in found.closed))
        ledger.enter(root, (*kept, Charge(name, root, ("", 0), tuple(first_choice(opened, shapes).items()))))
        return f"without what gives way, {said}" if said and gone else said

    def has_right(self, entry: Entry) -> bool:
        """Tell whether a unit waits for a minimum within nominal, so that it may reclaim."""
        return entry.stage is QueueStage.MINIMUM and (found := self.judge(entry)) is not None and found.right

    def rights(self, entry: Entry) -> Iterator[Right]:
        """The rights of a minimum by which others must give way, on one flavor after another."""
        name, gang = self._queues.get(entry.unit.key), entry.gang
        if name is None or gang is None or not self.has_right(entry):
            return
        wishes = charges_by_flavor(self.ledger.policies[name], minimum_shapes(gang))
        yield from (found for each in wishes if (found := self.right(entry, each)) is not None)

    def has_lower(self, entry: Entry) -> bool:
        """Tell whether a minimum's own queue has charges of a lower priority."""
        name, gang = self._queues.get(entry.unit.key), entry.gang
        if name is None or gang is None or entry.stage is not QueueStage.MINIMUM:
            return False
        lowest = self.ledger.lowest_priority(name)
        return lowest is not None and lowest < gang.priority

    def claims_inside(self, entry: Entry) -> Iterator[Right]:
        """What may give way to a minimum in a full queue, which is its own: those of a lower priority, by flavor."""
        name, gang = self._queues.get(entry.unit.key), entry.gang
        if name is None or gang is None or not self.has_lower(entry):
            return
        for amounts in charges_by_flavor(self.ledger.policies[name], minimum_shapes(gang)):
            right = self.right(entry, amounts)
            order = tuple(lower_in_queue(right.ledger, right.mine)) if right is not None else ()
            if right is not None and order:
                yield replace(right, order=order, is_borrowed=False)

    def right(self, entry: Entry, amounts: Amounts = _NOTHING, claim: core.Claim | None = None) -> Right | None:
        """The right of a minimum, to amounts, on a copy of the ledger where those before it have what is promised.

        ``claim``: of which the victims may be taken to be gone, where it is not that of the entry.
        """
        root, index, claim = entry.unit.key, self._cache.index, claim or entry.decision.claim
        name, gang = self._queues.get(root), entry.gang
        if name is None or gang is None:
            return None
        named = (uid for victim in (claim.victims if claim is not None else ()) for uid in victim.pods)
        pods = [*index.ending(), *filter(None, map(index.pod, (*named, *self._promises.find_victims())))]
        roots = filter(None, {index.root_of_pod(pod) for pod in pods})
        charged = self._with_holds(entry.unit, name, ())
        charge_of = charges_of_pods(filter(None, map(index.unit, roots)), charged)
        charge = Charge(name, root, None, tuple(sorted(amounts.items())), priority=gang.priority)
        ledger = self._promises.keep_for_others(charged, root, gang.order, charge_of)
        own = next((each for each in charged.of(root) if each.member is None), None)
        nodes = {flavor: frozenset(found) for flavor, found in self._lands[name].nodes.items()}
        return Right(ledger, charge, minimum_shapes(gang), own, nodes, charge_of)

    def count_free_nodes(self, name: str) -> tuple[int, int]:
        """Nodes of no flavor of a queue, and all nodes."""
        return len((nodes := self._lands[name].nodes).get(None, ())), sum(map(len, nodes.values()))

    def _charge(self, root: Key, name: str | None, unit: Unit | None) -> None:
        """Charge a unit for what it has, and for its pods that are in no group any more, until they are gone."""
        (_, before), own = self._pods.pop(root, ("", set[str]())), set[str]()
        for uid in before:
            self._left.pop(uid, None)
        now: tuple[Charge, ...] = ()
        if name and name in self._lands:
            ground = self._ground(root, name, unit)
            if unit is not None:
                now, own = charges(unit, ground), {pod.metadata.uid for pod in unit.pods()}
            left = [pod for uid in before - own if (pod := self._cache.index.pod(uid)) and podstate.counts(pod)]
            now += charge_left(root, left, ground)
            self._left |= dict.fromkeys([pod.metadata.uid for pod in left], root)
            own.update(pod.metadata.uid for pod in left)
            self._pods |= {root: (name, own)} if own else {}
        if self.ledger.policies:
            self._enter(root, now)

    def _ground(self, root: Key, name: str, unit: Unit | None) -> Ground:
        land, capacity = self._lands[name], self._cache.capacity
        return Ground(
            self.ledger.policies[name],
            place=lambda pod: place_of(pod, capacity.assumed),
            flavor=land.flavor.get,
            requests=lambda pod: capacity.shape(pod).requests,
            held=self._held(root),
            priority=self._priority(unit.root) if unit is not None else 0,
        )

    def _enter(self, root: Key, now: tuple[Charge, ...]) -> None:
        before = self.ledger.of(root)
        if self.ledger.enter(root, now):
            self._version += 1
            self._eased = self._eased or not set(before) <= set(now)
            self._tell()

    def refresh(self) -> None:
        """Take over queues that have changed."""
        if not self._stale:
            return
        self._stale = False
        policies = {each.metadata.name: Policy.of(each) for each in self._cache.queues.store.values()}
        alike = {policy.flavors: Land(policy.flavors) for policy in policies.values()}
        self._lands = {name: alike[policy.flavors] for name, policy in policies.items()}
        for node in self._cache.nodes.store.values() if alike else ():
            for land in alike.values():
                land.file_node(node.metadata.name, node.metadata.labels or {})
        if policies or self.ledger.policies:
            self.ledger = Ledger(policies)
        self._queues = {root: name for root, name in self._queues.items() if name in policies}
        self.wishes = {name: each for name, each in self.wishes.items() if name in policies}
        self._torn.update(self._left.values())
        self._uncounted = set(self._cache.index.roots())
        self._version += 1
        self._eased = True
        self._tell()

    def _on_pod(self, pod: core.Pod) -> None:
        if (root := self._left.get(pod.metadata.uid)) is not None:
            self._torn.add(root)

    def _on_quota(self) -> None:
        """Queues, or labels of namespaces, have changed; every unit is assessed anew."""
        self._stale = True

    def _on_node(self, name: str) -> None:
        if self._stale or not self._lands:
            return
        self._version += 1
        node = self._cache.node(name)
        state = self._cache.capacity.room.nodes.get(name)
        # Pods may have been there before the node, as it was gone when this process began: they are charged from now on.
        taken, moved = state is not None and bool(state.held), False
        for land in {id(land): land for land in self._lands.values()}.values():
            if node is None:
                land.drop(name)
            else:
                moved |= (taken and name not in land.flavor) | land.file_node(name, node.metadata.labels or {})
        self._eased = True
        if moved:
            self._cache.tell_quota()

    def _tell(self) -> None:
        for callback in self._changed:
            callback()
