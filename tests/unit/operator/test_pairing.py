"""Pairings: a router that keeps to one value of the label never mixes revisions, and is never without a whole one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.model import podstate
from covey.operator.objects.revisions import HISTORY
from covey.operator.routing.pairing import Member, Pairings, choose_pairings, find_late, find_unexplained_pairings
from screener import Route, find_routes
from unit.operator.test_edit_storm import Event, Storm
from unit.operator.world import World

OLD_NEW: Pairings = {"new": {"prefill": "p2", "decode": "d1"}, "old": {"prefill": "p1", "decode": "d1"}}


def prefill(old: int, new: int) -> list[Member]:
    """Ready replicas of a role that changes."""
    return [
        Member("prefill", number, "p1" if number < old else "p2", ready=True, pairing="old" if number < old else "new")
        for number in range(old + new)
    ]


def decode(*pairings: str | None, ready: bool = True) -> list[Member]:
    """Replicas of a role that does not change."""
    return [Member("decode", number, "d1", ready, pairing) for number, pairing in enumerate(pairings)]


def relabelled(members: Iterable[Member], wanted: Mapping[tuple[str, int], str]) -> list[Member]:
    return [replace(each, pairing=wanted.get(each.which, each.pairing)) if each.stays else each for each in members]


def whole(members: Iterable[Member], roles: Iterable[str]) -> set[str]:
    """The pairings that a router could use."""
    ready = {(each.pairing, each.role) for each in members if each.ready}
    return {name for name, _ in ready if name is not None and all((name, role) in ready for role in roles)}


ROLES = ("encode", "prefill", "decode")
parts = st.tuples(*(st.integers(0, 2) for _ in ROLES))


@st.composite
def states(draw: Any) -> tuple[list[Member], Pairings]:
    """Any replicas of two or three roles with any labels that are true, and up to four combinations of revisions."""
    roles = ROLES[: draw(st.integers(2, 3))]
    combinations = draw(st.lists(parts, min_size=1, max_size=4, unique_by=lambda each: each[: len(roles)]))
    pairings = {f"w{n}": dict(zip(roles, map(str, each), strict=False)) for n, each in enumerate(combinations)}
    members = []
    for name in roles:
        for number in range(draw(st.integers(0, 4))):
            revision = str(draw(st.integers(0, 2)))
            true = [each for each, found in pairings.items() if found[name] == revision]
            pairing = draw(st.sampled_from([None, *true]))
            members.append(Member(name, number, revision, draw(st.booleans()), pairing, draw(st.integers(0, 3)) > 0))
    return members, pairings


@given(states(), st.randoms(use_true_random=False))
def test_whatever_the_order_of_writes_some_pairing_stays_whole(
    found: tuple[list[Member], Pairings], random: Any
) -> None:
    """R2 and R4 after every single write."""
    members, pairings = found
    roles = {each.role for each in members}
    wanted = choose_pairings(members, pairings)
    late = find_late(members, wanted, pairings)
    last = {which for turn in late for which in turn}
    for each in members:
        if each.stays and each.which in wanted:
            assert pairings[wanted[each.which]][each.role] == each.revision
    then = relabelled(members, wanted)
    kept = whole(members, roles) and whole([each for each in then if each.stays], roles)
    # Of two roles with one replica of their revision each, neither can be in two pairings.
    ready = Counter(each.part for each in members if each.ready)
    moving = [
        each for each in members if each.stays and each.ready and wanted.get(each.which, each.pairing) != each.pairing
    ]
    possible = sum(ready[each.part] == 1 for each in moving) < 2
    now = {each.which: each for each in members}
    for turn in ([which for which in wanted if which not in last], *late):
        random.shuffle(turn)
        for which in turn:
            now[which] = replace(now[which], pairing=wanted[which])
            assert not (kept and possible) or whole(now.values(), roles)
    assert list(now.values()) == then
    # It is done, and does not come back.
    assert choose_pairings(then, pairings) == wanted
    assert not find_late(then, wanted, pairings)


@given(states())
def test_what_could_serve_does_once_all_is_written(found: tuple[list[Member], Pairings]) -> None:
    members, pairings = found
    staying = [each for each in members if each.stays]
    roles = {each.role for each in members}
    there = {(each.role, each.revision) for each in staying if each.ready}
    able = any({(role, of[role]) for role in roles} <= there for of in pairings.values())
    then = relabelled(members, choose_pairings(members, pairings))
    assert bool(whole([each for each in then if each.stays], roles)) == (able and bool(roles))


class Judged(Storm):
    """Edits and losses, and a router that looks after every write of the operator."""

    def __init__(self, replicas: tuple[int, int], updates: tuple[int, int], units: int) -> None:
        self.allowed: set[Route] = set()
        self.units = units
        super().__init__(replicas, (1, 1), updates=updates)

    def wanted(self) -> Any:
        self.allowed.add((f"engine:{self.images[0]}", f"engine:{self.images[1]}"))
        found = super().wanted().as_object()
        return DisaggregatedInference.model_validate({**found, "spec": {**found["spec"], "replicas": self.units}})

    def pods(self) -> list[dict[str, Any]]:
        """The pods with the images that they really run."""
        found = []
        for pod in self.world.pods.values():
            body = msgspec.to_builtins(pod)
            for status in self.world.statuses.get(pod.metadata.uid, ()):
                body["status"]["containerStatuses"] = [{"image": status.image_id}]
            found.append(body)
        return found

    def act(self, writes: int | None = None) -> None:
        before = self.judge()
        for step in islice(list(self.world.steps(self.world.plan().actions)), writes):
            step()
            after = self.judge()
            # Where one of one may be missing, nobody is left for a while.
            assert after or not before or 2 in self.updates, "503"
            before = after
        self.world.tell()

    def judge(self) -> set[Route]:
        routes = find_routes(self.pods())
        assert routes <= self.allowed, f"{routes - self.allowed} could be paired"
        return routes


changes = st.tuples(
    st.sampled_from(["edit", "edit", "edit all", "replicas", "serve", "run", "finish", "crash"] + ["act"] * 6),
    st.integers(0, 60),
)


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(*[st.integers(0, 2)] * 2),
    st.integers(1, 2),
    st.lists(changes, max_size=24),
)
def test_no_request_is_mixed_or_refused_while_revisions_roll(
    replicas: tuple[int, int], updates: tuple[int, int], units: int, happened: list[Event]
) -> None:
    """R1, R2 and R4, through the whole plan."""
    storm = Judged(replicas, updates, units)
    for kind, number in happened:
        storm.happen(kind, number)
        storm.judge()
    for _ in range(60):
        for name in list(storm.world.pods):
            storm.serve(name)
        if not storm.world.plan().actions:
            break
        storm.act()
        storm.world.finish()
    storm.world.finish()
    assert storm.judge() == {tuple(f"engine:{image}" for image in storm.images)}
    assert {pod.metadata.label(names.LABEL_PAIRING) for pod in storm.world.pods.values()} == {
        storm.world.judge().wanted.hash
    }


def test_two_roles_that_do_not_change_are_handed_over_one_replica_after_the_others() -> None:
    """Moved all at once, prefill could be gone from the old pairing while nobody of encode is in the new one yet."""
    parts = {"encode": "e1", "decode": "d1"}
    pairings = {"new": {**parts, "prefill": "p2"}, "old": {**parts, "prefill": "p1"}}
    encode = [Member("encode", number, "e1", ready=True, pairing="old") for number in range(2)]
    going = [replace(each, stays=each.revision == "p2") for each in prefill(1, 1)]
    members = [*going, *encode, *decode("old", "old")]
    late = find_late(members, choose_pairings(members, pairings), pairings)
    assert late == [[("decode", 0), ("encode", 0)]]


def test_labels_that_somebody_wrote_make_few_pairings() -> None:
    """Each of them would be looked at for each replica of decode, in the process that serves everybody."""
    forged = [Member("prefill", number, f"p{number}", ready=True, pairing=f"x{number}") for number in range(50)]
    members = [*forged, *decode(*(f"x{number}" for number in range(50)), *["x49"] * 9)]
    found = find_unexplained_pairings(members, OLD_NEW)
    assert len(found) == HISTORY
    assert found["x49"] == {"prefill": "p49", "decode": "d1"}


PORTS = {"network": {"ports": [{"name": "bootstrap", "port": 8998}]}}


def engine(serves: tuple[str | None, str | None] = (None, None), **spec: Any) -> Any:
    """Two roles whose names say nothing, with a router."""
    roles = [
        role(name, drainSeconds=60, **({"serves": each} if each else {}))
        for name, each in zip("pd", serves, strict=True)
    ]
    return inference(roles[0] | PORTS, roles[1], role("router", minReplicas=0), **spec)


def test_the_bootstrap_port_is_told_and_follows_the_spec() -> None:
    world = World.serving(engine(("Prefill", "Decode")))

    def told() -> dict[str, str | None]:
        key = names.ANNOTATION_BOOTSTRAP_PORT
        return {pod.metadata.label(names.LABEL_ROLE) or "": pod.metadata.annotation(key) for pod in world.pods.values()}

    assert told() == {"p": "8998", "d": None, "router": None}
    changed = engine(("Prefill", "Decode")).as_object()
    changed["spec"]["roles"][0]["network"]["ports"][0]["port"] = 9000
    before = set(world.pods)
    world.inference = type(world.inference).model_validate(changed)
    world.settle()
    assert (told()["p"], set(world.pods)) == ("9000", before)


def test_in_flight_is_read_once_the_gate_says_that_nothing_comes() -> None:
    """R3: the label goes first, then the gate, and only then is a pod taken at its word."""
    gate = template(readinessGates=[{"conditionType": names.GATE_SERVING}])
    world = World.serving(inference(role("prefill", replicas=2, drainSeconds=60, template=gate), role("decode")))
    world.carry_out()
    world.inference = inference(role("prefill", replicas=1, drainSeconds=60, template=gate), role("decode"))
    for step in world.steps(replace(world.plan().actions, serve=())):
        step()
    (name,) = (name for name, pod in world.pods.items() if podstate.is_draining(pod))
    world.annotate(name, {names.ANNOTATION_IN_FLIGHT: "0"})
    assert not world.plan().actions.delete_pods
    world.carry_out()
    assert [each.pod.metadata.name for each in world.plan().actions.delete_pods] == [name]
