"""Laws of kept room, whatever happens: it arrives, it survives a restart, it is bounded, and no two gangs count on the same."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from builders.members import GATE, cache, drop, group, member, node, pod, put, role_groups
from covey.admission.nodes import Key
from covey.api import core
from covey.api.annotations import NodesAsked
from covey.api.constants import ANNOTATION_CAPACITY_ASKED
from covey.placement.model import Gang
from covey.scheduler.reservations import Limits
from scheduler_loop import Loop, labels

RACKS, NODES = 3, 4
WISH = {"topology": [{"level": "rack", "mode": "Required"}]}
WAITED = {"type": "Admitted", "status": "False", "reason": "Infeasible", "lastTransitionTime": "2020-01-01T00:00:00Z"}
#: Passes after which all that a step has changed has been looked at.
_PASSES = 8
#: Seconds of patience with each node; no number of steps of time is as long.
WAIT = 900.0
LIMITS = Limits(cluster=2, namespace=1, percent=100)

#: Namespace, pods of the minimum, priority, whether it has waited for long, and whether nodes are on their way to it.
Wanted = tuple[int, int, int, bool, bool]
Step = tuple[str, int]

wanted = st.tuples(st.integers(0, 2), st.integers(1, NODES), st.integers(0, 1), st.booleans(), st.booleans())
steps = st.tuples(
    st.sampled_from(["free", "take", "come", "turn", "later", "restart", "arrive", "leave"]), st.integers(0, 30)
)


@dataclass
class Cluster:
    """Objects as the API server has them, and a scheduler process that may be another one after each step."""

    objects: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    gangs: int = 0
    now: float = 0.0

    def __post_init__(self) -> None:
        for rack in range(RACKS):
            for number in range(NODES):
                self.put(node(f"n{rack}-{number}", labels=labels(f"r{rack}")))
                self.take(rack * NODES + number)
        self.start()

    def start(self) -> None:
        """A process begins with what is written."""
        self.loop = Loop(cache(*self.objects.values()), limits=LIMITS)
        self.loop.now = self.now

    def put(self, found: Any) -> None:
        key = (type(found).__name__, found.metadata.namespace, found.metadata.name)
        before = self.objects.get(key)
        self.objects[key] = found
        if hasattr(self, "loop"):
            put(self.loop.cache, found, before)

    def remove(self, found: Any) -> None:
        del self.objects[type(found).__name__, found.metadata.namespace, found.metadata.name]
        drop(self.loop.cache, found)

    def take(self, number: int) -> None:
        rack, index = divmod(number % (RACKS * NODES), NODES)
        place = f"n{rack}-{index}"
        if not any(type(each) is core.Pod and each.spec.node_name == place for each in self.objects.values()):
            self.put(pod(f"taken-{place}", node=place, gpus=8))

    def free(self, number: int) -> None:
        taken = sorted(each.metadata.name for each in self.objects.values() if each.metadata.name.startswith("taken-"))
        if taken:
            self.remove(self.objects["Pod", "ns", taken[number % len(taken)]])

    def arrive(self, number: int) -> None:
        """A node has come, in one of two racks that there were not."""
        place, created = f"new-{number % (2 * NODES)}", core.rfc3339(time.time() + self.now)
        if ("Node", "", place) not in self.objects:
            self.put(node(place, labels=labels(f"new{number % 2}"), created=created))

    def leave(self, number: int) -> None:
        """Such a node has gone again, unless it is in use."""
        place = f"new-{number % (2 * NODES)}"
        used = any(type(each) is core.Pod and each.spec.node_name == place for each in self.objects.values())
        if ("Node", "", place) in self.objects and not used:
            self.remove(self.objects["Node", "", place])

    def come(self, asked: Wanted) -> None:
        namespace, pods, priority, waited, asks = asked
        name, self.gangs = f"g{self.gangs}", self.gangs + 1
        status = {"conditions": [WAITED]} if waited else None
        made = [
            group(
                name, composite=True, minimum=1, desired=1, schedulingConstraints=WISH, status=status, priority=priority
            ),
            *role_groups("w", replicas=pods, minimum=pods, size=1, root=name),
            *(member("w", number, root=name, gates=(GATE,), gpus=8) for number in range(pods)),
        ]
        notes = {ANNOTATION_CAPACITY_ASKED: NodesAsked(0.0, WAIT).dump()} if asks else {}
        for each in made:
            meta = msgspec.structs.replace(each.metadata, namespace=f"ns-{namespace}")
            if each is made[0]:
                meta = msgspec.structs.replace(meta, annotations=notes)
            self.put(msgspec.structs.replace(each, metadata=meta))

    # What is said

    @property
    def gangs_by_root(self) -> dict[Key, Gang]:
        return {root: entry.gang for root, entry in self.loop.queue.entries() if entry.gang is not None}

    @property
    def claims(self) -> dict[Key, tuple[str, ...]]:
        """The nodes that are kept, by root."""
        return {root: claim.nodes for root, claim in self.loop.claims().items() if claim is not None and claim.nodes}

    def domain(self, root: Key) -> tuple[str | None, ...] | None:
        """The domain in which nodes are kept for a root."""
        claim = self.loop.queue.decision(root).claim
        return tuple(claim.path) if claim is not None else None

    def turn(self) -> None:
        """Passes until nothing changes; all that comes of each is written and bound."""
        for _ in range(_PASSES):
            before, domains = self.claims, {root: self.domain(root) for root in self.claims}
            placed = asyncio.run(self.loop.turn())
            # Who has changed over to another domain has left this one to others.
            self.check_arrival(
                {root: nodes for root, nodes in before.items() if self.domain(root) == domains[root]}, placed
            )
            for name, place in placed.items():
                self._bind(name, place)
            self._write()
            if not placed and self.claims == before:
                break
        self.check_claims()

    def _bind(self, name: str, place: str) -> None:
        found = next(each for key, each in self.objects.items() if key[0] == "Pod" and key[2] == name)
        spec = msgspec.structs.replace(found.spec, node_name=place, scheduling_gates=())
        self.put(msgspec.structs.replace(found, spec=spec))

    def _write(self) -> None:
        for root, claim in self.loop.claims().items():
            found = self.objects["Group", root.namespace, root.name]
            if found.status.claim != claim:
                said = msgspec.structs.replace(found.status, claim=claim)
                self.put(msgspec.structs.replace(found, status=said))

    # The laws

    def check_arrival(self, before: dict[Key, tuple[str, ...]], placed: dict[str, str]) -> None:
        """What comes free of a claim's nodes goes to its gang, or to one before it."""
        gangs = self.gangs_by_root
        for name, place in placed.items():
            [who] = [gang for root, gang in gangs.items() if name.startswith(f"{root.name}-")]
            for root, nodes in before.items():
                if place in nodes and root in self.claims:
                    assert who.order <= gangs[root].order, f"{name} is placed on {place}, kept for {root.name}"

    def check_claims(self) -> None:
        """Few, of few namespaces, no wider than the gang, on no nodes of another, and closed to nobody who comes before."""
        claims, gangs = self.claims, self.gangs_by_root
        before = {gang.uid: gang.order for gang in gangs.values()}
        for gang in gangs.values():
            closed = self.loop.reservations.confine(gang, surplus=False)[1]
            assert all(before[uid] < gang.order for uid in closed), f"{gang.name} waits for who comes later"
        # Whom others give way to waits for no turn.
        waiting = [root for root in claims if not self.loop.queue.decision(root).claim.victims]
        assert len(waiting) <= LIMITS.cluster
        assert len({root.namespace for root in waiting}) == len(waiting)
        kept = [node for nodes in claims.values() for node in nodes]
        assert len(set(kept)) == len(kept), f"kept twice: {claims}"
        for root, nodes in claims.items():
            pods = sum(len(role.replicas) for role in self.gangs_by_root[root].roles)
            assert len(nodes) <= pods, f"{pods} pods of {root.name} would lie on {nodes}"
            claim = self.loop.queue.decision(root).claim
            assert claim is not None
            if claim.purpose == "Capacity":
                assert all(place.startswith("new-") for place in nodes), "what was there before is closed to nobody"
            gone = [place for place in nodes if ("Node", "", place) not in self.objects]
            assert not gone, f"kept for {root.name} although they are gone: {gone}"


#: What comes with a step that brings no gang.
NOBODY: Wanted = (0, 1, 0, False, False)


# Nodes come for a gang that was at the back of the line: whoever has its turn meanwhile could preempt, and finds nobody.
@example(
    [(1, 2, 0, False, True), (1, 1, 0, False, False)],
    [((step, number), NOBODY) for step, number in (("later", 23), ("restart", 0), ("later", 1), ("arrive", 0))],
)
@example(
    [(0, 2, 0, False, True), (1, 3, 0, False, True), (2, 1, 0, False, False)],
    [
        ((step, number), NOBODY)
        for step, number in (("later", 23), ("restart", 0), ("arrive", 0), ("later", 1), ("arrive", 1))
    ],
)
@given(st.lists(wanted, min_size=1, max_size=5), st.lists(st.tuples(steps, wanted), max_size=12))
def test_kept_room_arrives_is_bounded_and_outlives_a_restart(
    waiting: list[Wanted], happened: list[tuple[Step, Wanted]]
) -> None:
    world = Cluster()
    for each in waiting:
        world.come(each)
    world.turn()
    for (step, number), asked in happened:
        match step:
            case "free":
                world.free(number)
            case "take":
                world.take(number)
            case "come":
                world.come(asked)
            case "arrive":
                world.arrive(number)
            case "leave":
                world.leave(number)
            case "later":
                world.now += number * 40.0
                world.loop.now = world.now
            case "restart":
                # As every minute, what is kept is looked at again: less may be in the way elsewhere by now.
                for root in world.gangs_by_root:
                    world.loop.queue.requeue(root)
                world.turn()
                before = world.claims
                world.start()
                world.turn()
                assert world.claims == before
            case _:
                pass
        world.turn()
