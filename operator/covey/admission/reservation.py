"""Nodes kept for gangs which have waited for too long, to whom they are closed, and which are chosen: pure.

A gang that does not fit blocks nobody behind it, so a large one could be starved by small ones for ever. What comes
free on the nodes that are kept for it goes to it, or to gangs before it: gangs behind it are planned without those
nodes, and so is surplus of its priority and of lower ones, where it is growth (``growth``). A gang that has members
placed may always replace what it lost.

The domain to wait for is the one that can serve a gang soonest, by what is known. Looked at are the domains of the
finest level at which one of them could take the whole minimum if it were empty, and there what has to end before it
does: the fewest pods whose end nobody knows; then the earliest end of those of which it is known (they are terminating,
or have a deadline); then the least important pods; then those that have run longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, NamedTuple, TypeVar

from covey.admission.fit_counts import room_for
from covey.admission.growth import Footprint
from covey.admission.hints import EVERYWHERE, Need, QueueingHint, demand_of
from covey.admission.nodes import number
from covey.admission.order import Order
from covey.api import core
from covey.api.constants import (
    ADMITTED,
    LABEL_INFERENCE,
    LABEL_UNIT,
    PURPOSE_CAPACITY,
    PURPOSE_EVACUATION,
    PURPOSE_EXCHANGE,
    PURPOSE_SUCCESSION,
)
from covey.placement.cluster import resources
from covey.placement.cluster.domains import DomainNode, NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import sum_requests, with_terms
from covey.placement.model import Gang, Path, Shape
from covey.placement.question.demands import common_domain, followers, minimum_demands, placed_paths
from covey.placement.refusal.exclusions import RESERVED

N = TypeVar("N", bound=tuple[str, ...] | str)


#: Purposes of claims of a unit that serves, on replicas of its own.
OF_SERVING: Final = frozenset({PURPOSE_EXCHANGE, PURPOSE_EVACUATION, PURPOSE_SUCCESSION})
#: Purposes of claims that end when there is no need of them any more.
BY_NEED: Final = frozenset({PURPOSE_CAPACITY, PURPOSE_EVACUATION, PURPOSE_SUCCESSION})


def claims_room(root: core.Group) -> bool:
    """Tell whether a root waits, or serves and exchanges or moves replicas."""
    if root.status.claim is not None and root.status.claim.purpose in OF_SERVING:
        return True
    admitted = core.condition(root.status.conditions, ADMITTED)
    return admitted is None or admitted.status != "True"


@dataclass(frozen=True, slots=True)
class Kept:
    """Nodes, the gang that they are kept for, and the resource that it waits for: without one, any is.

    They are closed to all that borrows, whatever its priority, and where they were borrowed from its queue
    (``reclaims``) to all surplus. ``serves``: its minimum has its places; it is no gang that waits, and is not counted
    as one. ``came``: nobody had these nodes before. ``takes``: others give way to it there, so that nobody who takes
    nothing comes before it, whatever the priority.
    """

    gang: Gang
    nodes: frozenset[str]
    resource: str = ""
    reclaims: bool = False
    serves: bool = False
    came: bool = False
    takes: bool = False

    @property
    def rank(self) -> tuple[bool, Order]:
        """Sort key: who comes first on the same nodes."""
        return (not self.takes, self.gang.order)


class Reservations(Generic[N]):
    """Kept nodes by the gang that waits for them, under any name."""

    def __init__(self) -> None:
        self._kept: dict[N, Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: N) -> Kept | None:
        """The nodes that are kept for one gang."""
        return self._kept.get(name)

    def items(self) -> Collection[tuple[N, Kept]]:
        """The nodes that are kept for each gang."""
        return self._kept.items()

    def keep(self, name: N, kept: Kept) -> bool:
        """Keep nodes for somebody, instead of any others; returns whether some are kept no longer."""
        before = self._kept.get(name)
        self._kept[name] = kept
        return before is not None and not before.nodes <= kept.nodes

    def drop(self, name: N) -> bool:
        """Keep nothing for somebody; returns whether anything was."""
        return self._kept.pop(name, None) is not None

    def closed_to(
        self, gang: Gang, *, surplus: bool, borrows: bool = False, gives_way: bool = False, takes: bool = False
    ) -> Iterator[Kept]:
        """The claims whose nodes are closed to a gang.

        Args:
            gang: the gang.
            surplus: whether it asks for surplus, and for its minimum otherwise.
            borrows: whether its queue would borrow for that.
            gives_way: whether all of it gives way to others.
            takes: whether others give way to it.
        """
        if (
            not surplus
            and not gives_way
            and any(pod.node for role in gang.roles for replica in role.replicas for pod in replica.pods)
        ):
            return
        for other in self._kept.values():
            first = other.rank < (not takes, gang.order)
            before = other.takes or other.gang.priority >= gang.priority if surplus else first
            before = before or gives_way or borrows or (surplus and other.reclaims)
            if before and other.gang.uid != gang.uid and _asks_for(gang, other.resource):
                yield other


def _asks_for(gang: Gang, resource: str) -> bool:
    """A pod without a place asks for a resource."""
    pods = (pod for role in gang.roles for replica in role.replicas for pod in replica.pods)
    return not resource or any(pod.node is None and dict(pod.shape.requests).get(resource, 0) > 0 for pod in pods)


def confine(
    gang: Gang,
    kept: Reservations[N],
    *,
    surplus: bool,
    borrows: bool = False,
    gives_way: bool = False,
    takes: bool = False,
) -> tuple[Gang, frozenset[str]]:
    """A gang as it may be planned, without the nodes that are kept for gangs before it, and the UIDs of those gangs."""
    others = list(kept.closed_to(gang, surplus=surplus, borrows=borrows, gives_way=gives_way, takes=takes))
    nodes = dict.fromkeys((node for each in others for node in each.nodes), RESERVED)
    asked = replace(gang, excluded_nodes={**nodes, **gang.excluded_nodes}) if nodes else gang
    return asked, frozenset(each.gang.uid for each in others)


#: Nodes that are looked at between two chances for others.
_STEP: Final = 50
#: Seconds by which another domain must be earlier for a gang to wait there instead.
EARLIER: Final = 60.0


class Ending(NamedTuple):
    """The known end of a pod: seconds until it (None: nothing), its priority, seconds that it has run."""

    seconds: float | None
    priority: int = 0
    ran: float = 0.0


class Wait(NamedTuple):
    """The pods that have to end before a domain can serve: the lowest is the soonest.

    ``pods``: how many pods whose end is not known. ``seconds``: until the last of the others ends. ``priority``: of all
    of them, summed up. ``ran``: how long they have run, negated.
    """

    pods: int
    seconds: float
    priority: int
    ran: float

    def sooner(self, other: Wait) -> bool:
        """So much sooner than another that it is worth changing over."""
        return self.pods < other.pods or (self.pods == other.pods and self.seconds + EARLIER < other.seconds)


@dataclass(frozen=True, slots=True)
class Choice:
    """A domain, what it waits for, and the resource that is waited for."""

    path: Path
    wait: Wait
    resource: str
    nodes: tuple[str, ...] = ()


def count_taken(victims: Iterable[core.Victim], root: core.Group) -> Footprint | None:
    """Count the replicas of a unit that are among some victims, by role; None where all of the unit is."""
    found: Counter[str] = Counter()
    named = (root.metadata.namespace, root.metadata.label(LABEL_INFERENCE), number(root.metadata.label(LABEL_UNIT)))
    for victim in victims:
        if victim.kind == "Pod" or (victim.namespace, victim.name, victim.unit) != named:
            continue
        if victim.kind == "Unit":
            return None
        found[victim.role] += 1
    return found


def scarce(shape: Shape) -> str:
    """The resource that a shape is most likely to lack: what it is measured by, or the first of what every node has."""
    asked = {name: amount for name, amount in shape.requests if amount > 0}
    return measured if (measured := resources.measure(asked)) in asked else min(asked, key=resources.rank, default="")


def choose(
    ask: QueueingHint,
    inventory: Inventory,
    ending: Callable[[str], Ending],
    current: Path | None = None,
    *,
    excluded: Container[str] = (),
    before: Container[str] = (),
) -> Generator[None, None, Choice | None]:
    """The domain to wait for, found with pauses; None when there is no such domain.

    Args:
        ask: what the gang waits for.
        inventory: the nodes.
        ending: of a holder, by its key.
        current: the domain that the gang waits for by now; another one must be sooner by something that counts.
        excluded: nodes that the gang may not use, or that are kept for gangs before it.
        before: nodes that are kept for it by now; of two that are as good one of these is kept.
    """
    need = _largest(ask)
    tree = inventory.trees.get(ask.topology)
    if need is None or tree is None:
        return None
    for depth in range(len(tree.topology.levels) - 1, max(need.depth, 0) - 1, -1):
        found: list[Choice] = []
        for domain in list(tree.at(depth)):
            choice = yield from _choice(need, domain, ending, excluded, before)
            yield
            if choice is not None:
                found.append(choice)
        if found:
            best = min(found, key=lambda each: (each.wait, [value or "" for value in each.path]))
            held = next((each for each in found if each.path == current), None)
            return held if held is not None and not best.wait.sooner(held.wait) else best
    return None


def _largest(ask: QueueingHint) -> Need | None:
    """The finest of the needs that hold for all the gang; else that of the largest part."""
    needs = [need for part in ask.parts or () for need in part.needs]
    return max(needs, key=lambda need: (need.count, need.depth), default=None)


def _choice(
    need: Need, domain: DomainNode, ending: Callable[[str], Ending], excluded: Container[str], before: Container[str]
) -> Generator[None, None, Choice | None]:
    """Find what has to end before a domain can take the pods, and on which nodes; None when it never can."""
    slots: list[tuple[Wait, bool, str]] = []
    for count, (name, state) in enumerate(list(domain.nodes.items()), start=1):
        if count % _STEP == 0:
            yield
        if name not in excluded:
            slots += [(wait, name not in before, name) for wait in _slots(need.shape, state, ending)]
    if len(slots) < need.count:
        return None
    resource = scarce(need.shape)
    slots.sort()
    chosen = [wait for wait, _, _ in slots[: need.count]]
    wait = Wait(
        sum(each.pods for each in chosen),
        max((each.seconds for each in chosen), default=0.0),
        sum(each.priority for each in chosen),
        sum(each.ran for each in chosen),
    )
    kept = {name for _, _, name in slots[: max(need.count, _slots_for_all(need, resource))]}
    return Choice(domain.path, wait, resource, tuple(sorted(kept)))


def _slots_for_all(need: Need, resource: str) -> int:
    """Slots of the most demanding pod that hold as much of a resource as all pods ask for together."""
    one, all_of_them = dict(need.shape.requests).get(resource, 0), dict(need.sums).get(resource, 0)
    return -(-all_of_them // one) if one else need.count


def _slots(shape: Shape, state: NodeState, ending: Callable[[str], Ending]) -> Sequence[Wait]:
    """Waits for each pod of the shape that a node could take if it were empty: what has to end before."""
    if state.static_cause(shape) is not None:
        return ()
    wanted = [(name, amount) for name, amount in shape.requests if amount > 0]
    free = dict(state.free)
    found: list[Wait] = []
    pods, seconds, priority, ran = 0, 0.0, 0, 0.0
    holders = sorted(
        ((key, ending(key)) for key in state.held),
        key=lambda each: (each[1].seconds is None, each[1].seconds or 0.0, each[1].priority, -each[1].ran),
    )
    taken = 0

    def count() -> int:
        return min((free.get(name, 0) // amount for name, amount in wanted), default=0)

    while True:
        while count() > taken:
            taken += 1
            found.append(Wait(pods, seconds, priority, ran))
            pods, priority, ran = 0, 0, 0.0
        if not holders:
            return found
        key, end = holders.pop(0)
        asked = dict(state.held[key].shape.requests)
        if not any(name in asked and free.get(name, 0) < (taken + 1) * amount for name, amount in wanted):
            continue  # nothing of what is short comes from it
        for name, amount in asked.items():
            free[name] = free.get(name, 0) + amount
        pods += end.seconds is None
        seconds = max(seconds, end.seconds or 0.0)
        priority += end.priority
        ran -= end.ran


def choose_arrived(
    gang: Gang, inventory: Inventory, came: Mapping[str, bool], current: Path | None = None
) -> tuple[Path, list[str]]:
    """Choose nodes that a waiting minimum needs of those that came for it: in the domain where most of it finds room.

    Args:
        gang: the gang, without the nodes that it may not use.
        inventory: the nodes.
        came: names of nodes, in the order in which they came, and whether more are expected after each.
        current: the domain in which it waits by now; another one must have room for more of it.

    Returns:
        The domain of the level that the gang requires, and the nodes; none where nothing more is expected.
    """
    topology = inventory.topologies.get(gang.topology)
    told = with_terms(gang, inventory.terms)
    missing = Counter(pod.shape for demand in minimum_demands(told) for pod in demand.missing)
    if topology is None or not missing:
        return (), []
    depth = EVERYWHERE if gang.required is None else topology.depth(gang.required)
    anchor = common_domain(placed_paths(gang, inventory, followers(gang)), depth)
    domains: dict[Path, list[NodeState]] = {}
    for state in (inventory.nodes[name] for name in came if name in inventory.nodes):
        head = inventory.path(gang.topology, state.name)[: depth + 1]
        if state.name not in gang.excluded_nodes and anchor in {None, head} and (depth < 0 or head[-1] is not None):
            domains.setdefault(head, []).append(state)
    shut = {shape: inventory.kept_off(shape) for shape in missing}
    best: tuple[tuple[int, bool], Path, list[str]] = ((0, False), (), [])
    for head, states in domains.items():
        left = Counter(missing)
        nodes = [state.name for state in states if _take_room(state, left, shut)]
        found = missing.total() - left.total(), head == current
        if found > best[0] and any(came[name] for name in nodes):
            best = (found, head, nodes)
    if not any(shape.exclusive_clique for shape in missing):
        return best[1:]
    # Others would join a clique before it is all there.
    kept = inventory.clique_mates(best[2]).difference(gang.excluded_nodes).union(best[2])
    return best[1], [name for name in came if name in kept]


def _take_room(state: NodeState, left: Counter[Shape], shut: Mapping[Shape, Container[str]]) -> bool:
    """Take the room of a node for pods, the most demanding first; returns whether it has any."""
    free, before = dict(state.free), left.total()
    measured = resources.measure(sum_requests(left))
    for shape in sorted(+left, key=lambda shape: demand_of(shape, measured), reverse=True):
        slots = [free.get(name, 0) // amount for name, amount in shape.requests if amount > 0]
        count = 0 if state.name in shut[shape] else min(left[shape], room_for(state, shape), *slots)
        left[shape] -= count
        for name, amount in shape.requests:
            free[name] = free.get(name, 0) - amount * count
    return left.total() < before


__all__ = [
    "BY_NEED",
    "OF_SERVING",
    "Choice",
    "Ending",
    "Kept",
    "Reservations",
    "Wait",
    "choose",
    "choose_arrived",
    "claims_room",
    "confine",
    "count_taken",
    "scarce",
]
