"""Roles that are scaled together: a vector is taken as a whole or not at all, within devices, minimums and a budget."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders.inferences import CONTAINER, inference, role
from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.api.exchange import read_question
from covey.api.inference import DisaggregatedInference
from covey.compile.identity import slot_of
from covey.kube.resources import COMPOSITE_POD_GROUPS
from covey.model import podstate
from covey.operator.model.claimed import RootClaim
from unit.operator.world import World

GPU = "nvidia.com/gpu"
NAME = "llama.together"
SIZES = {"prefill": 2, "decode": 1}


def exchanged(name: str, replicas: int, minimum: int = 1, drain: int = 0) -> dict[str, Any]:
    """A role that is scaled together with others, whose pods ask for a device."""
    container = {**CONTAINER, "resources": {"limits": {GPU: "1"}}}
    fields = {"replicas": replicas, "minReplicas": minimum, "size": SIZES[name], "drainSeconds": drain}
    return role(name, **fields, template={"spec": {"containers": [container]}}, scaling={"mode": "Together"})


def resource(
    prefill: int = 2, decode: int = 3, *, units: int = 1, budget: int | None = None, drain: int = 0
) -> DisaggregatedInference:
    fields: dict[str, Any] = {"scaling": {"budget": {"resource": GPU, "max": budget}}} if budget is not None else {}
    roles = (exchanged("prefill", prefill, drain=drain), exchanged("decode", decode, drain=drain))
    return inference(*roles, replicas=units, **fields)


class Room:
    """Stands in for the scheduler process: a unit may have so many devices, and each question gets an answer."""

    def __init__(self, world: World, capacity: int) -> None:
        self.world = world
        self.capacity = capacity
        world.notes = True

    def answer(self) -> None:
        """Answer what is asked, keep claims as long as somebody asks, and give places to what waits."""
        world = self.world
        for key, root in list(world.objects.items()):
            if key[0] != COMPOSITE_POD_GROUPS.type or root.spec.get("parentCompositePodGroupName"):
                continue
            unit = int(root.metadata.label(names.LABEL_UNIT) or 0)
            question = read_question(root.metadata.annotation(names.ANNOTATION_EXCHANGE))
            status = root.status
            if question is None:
                status = msgspec.structs.replace(status, claim=None)
            elif status.exchange is None or status.exchange.asked != question.asked:
                fits = sum(SIZES[name] * count for name, count in question.roles.items()) <= self.capacity
                told = core.GroupExchange(question.asked, fits, rfc3339(world.now), "no room", ("decode=1,prefill=1",))
                claim = core.Claim(
                    (), rfc3339(world.now), purpose="Exchange", victims=self.donors(unit, question.roles)
                )
                status = msgspec.structs.replace(status, exchange=told, claim=claim if fits else status.claim)
            world.objects[key] = msgspec.structs.replace(root, status=status)
        world.claims = tuple(
            RootClaim(root.metadata.uid, "ml", "llama", "Exchange", root.status.claim.victims)
            for root in world.objects.values()
            if root.status.claim is not None and root.status.claim.victims
        )
        for name, pod in list(world.pods.items()):
            if pod.metadata.deletion_timestamp is None and self.held() + 1 <= self.capacity * self.units():
                world.bind(name)
                world.ready(name)

    def donors(self, unit: int, wanted: dict[str, int] | Any) -> tuple[core.Victim, ...]:
        found: list[core.Victim] = []
        for name, count in wanted.items():
            there: dict[int, list[str]] = {}
            for pod in self.world.pods.values():
                slot = slot_of(pod.spec.hostname)
                if (
                    slot
                    and (slot.unit, slot.role) == (unit, name)
                    and podstate.is_bound(pod)
                    and not podstate.is_terminating(pod)
                ):
                    there.setdefault(slot.replica, []).append(pod.metadata.uid)
            lowest = sorted(there)[: max(0, len(there) - count)]  # not those that would go anyway
            named = (("Replica", "ml", "llama", unit, name, number, tuple(there[number])) for number in lowest)
            found += [core.Victim(*each) for each in named]
        return tuple(found)

    def units(self) -> int:
        return self.world.inference.spec.replicas

    def held(self) -> int:
        return sum(podstate.is_bound(pod) for pod in self.world.pods.values())

    def settle(self, passes: int = 16) -> None:
        for _ in range(passes):
            for step in list(self.world.steps(self.world.plan().actions)):
                step()
            self.answer()
            self.world.finish()
            self.world.tell()
            self.world.now += 1


def serving(room: int = 7, **fields: Any) -> tuple[World, Room]:
    world = World(resource(**fields))
    found = Room(world, room)
    found.settle(6)
    return world, found


def aim(world: World, **targets: int) -> None:
    """A planner writes a vector."""
    stored = world.scalers[NAME]
    metadata = msgspec.structs.replace(stored.metadata, generation=stored.metadata.generation + 1)
    world.scalers[NAME] = msgspec.structs.replace(stored, metadata=metadata, spec={"targets": targets})


def told(world: World) -> tuple[str, str, dict[str, int]]:
    status = world.scalers[NAME].status
    (condition,) = status["conditions"]
    return condition["status"], condition["reason"], status["committed"]


def replicas(world: World) -> Counter[str]:
    found = {slot[:3] for pod in world.pods.values() if (slot := slot_of(pod.spec.hostname)) is not None}
    return Counter(name for _, name, _ in found)


def test_one_unit_without_a_plan_keeps_all_where_they_are() -> None:
    world, room = serving(room=8, prefill=2, decode=3, units=2)
    before = set(world.pods)
    aim(world, prefill=4, decode=9)  # 4 + 5 devices, and 4 + 4
    room.settle()
    assert told(world)[:2] == ("False", "NoPlan")
    assert set(world.pods) == before


def test_question_when_several_roles_drain_gives_time_for_one_after_the_other() -> None:
    world, room = serving(room=7, drain=4000)
    aim(world, prefill=1, decode=4)
    room.world.act()
    root = world.objects[COMPOSITE_POD_GROUPS.type, "llama-0"]
    question = read_question(root.metadata.annotation(names.ANNOTATION_EXCHANGE))
    assert question is not None
    assert question.seconds > 2 * 4000


vectors = st.tuples(st.integers(0, 4), st.integers(0, 7))
event = st.tuples(st.sampled_from(("aim", "act", "act", "act", "crash", "answer", "answer", "time", "finish")), vectors)


#: The donors are deleted, and not gone yet, when the receivers are looked at.
SLOW_END = [("aim", (1, 5)), *((kind, (0, 0)) for kind in ("act", "answer", "act", "act", "act"))]


@settings(settings.get_profile("storm"))
@given(st.lists(event, max_size=30), st.integers(5, 9), st.sampled_from([0, 5]), st.sampled_from([None, 8]))
@example(SLOW_END, 7, 0, None)
@example(SLOW_END, 7, 5, 8)
@example([*SLOW_END, ("aim", (2, 3)), *SLOW_END[1:]], 7, 0, None)
def test_laws(events: list[tuple[str, tuple[int, int]]], capacity: int, drain: int, budget: int | None) -> None:
    world, room = serving(room=max(7, capacity), drain=drain, budget=budget)
    room.capacity = max(7, capacity)
    most = devices(world)
    for kind, (prefill, decode) in events:
        match kind:
            case "aim":
                aim(world, prefill=prefill, decode=decode)
            case "act" | "crash":
                steps = list(world.steps(world.plan().actions))
                for step in islice(steps, prefill if kind == "crash" else None):
                    step()
                    most = check(world, most, budget)
                if kind == "crash":
                    world.forget()
            case "answer":
                room.answer()
            case "time":
                world.now += 30
            case "finish":
                world.finish()
            case _:
                pass
        most = check(world, most, budget)
    # What was asked for last is had, or nothing but what is in force.
    for _ in range(3):
        world.now += 61
        room.settle(16)
    status, _, committed = told(world)
    assert replicas(world) == Counter(committed)
    targets = world.scalers[NAME].spec["targets"]
    wanted = sum(SIZES[name] * count for name, count in targets.items())
    fits = wanted <= min(room.capacity, budget or wanted) and all(count >= 1 for count in targets.values())
    assert (status, committed) == (("True", targets) if fits else ("False", committed))


def devices(world: World) -> int:
    return len(world.pods)


def check(world: World, most: int, budget: int | None) -> int:
    """X1 and X4: devices, and minimums; returns what there may be from now on."""
    world.check()
    committed = world.scalers[NAME].status["committed"]
    aimed = sum(SIZES[name] * count for name, count in committed.items())
    assert devices(world) <= max(most, aimed), (devices(world), most, aimed)
    assert budget is None or devices(world) <= budget
    staying: Counter[tuple[str, int]] = Counter()
    for pod in world.pods.values():
        slot = slot_of(pod.spec.hostname)
        if (
            slot is not None
            and podstate.is_bound(pod)
            and not podstate.is_terminating(pod)
            and not podstate.is_draining(pod)
        ):
            staying[slot.role, slot.replica] += 1
    for name, size in SIZES.items():
        assert any(role_ == name and count == size for (role_, _), count in staying.items()), (name, staying)
    return devices(world)
