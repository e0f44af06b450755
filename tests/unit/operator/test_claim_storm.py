"""Claims that come, shrink and go among losses, scales and kills: only what a stored claim names goes, and whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.compile.identity import slot_of
from covey.model import podstate
from covey.operator.model.claimed import WHOLE_UNIT, RootClaim
from unit.operator.test_convergence import assert_is_wanted
from unit.operator.world import World

Pods = Mapping[str, core.Pod]
Place = tuple[int, str, int]

_CLAIMS = ("claim", "claim", "claim unit", "shrink", "drop")
_HAPPENS = ("fail", "vanish", "finish", "serve", "serve", "time", "replicas")
event = st.tuples(
    st.sampled_from((*_CLAIMS, *_HAPPENS, "restart", "crash", "act", "act", "act", "act")), st.integers(0, 60)
)


def resource(sizes: tuple[int, int], drains: tuple[int, int], minimum: int) -> DisaggregatedInference:
    prefill = role("prefill", replicas=2, minReplicas=1, size=sizes[0], drainSeconds=drains[0])
    decode = role("decode", replicas=3, minReplicas=minimum, size=sizes[1], drainSeconds=drains[1])
    return inference(prefill, decode, replicas=2)


def happen(world: World, kind: str, number: int) -> None:
    """Whatever others do, the scheduler process among them."""
    pods, claims = sorted(world.pods), world.claims
    name = pods[number % len(pods)] if pods else ""
    match kind:
        case "claim" | "claim unit" if pods:
            found = victim(world, name, whole=kind == "claim unit")
            if found.pods:
                world.claims = with_victim(claims, found, number)
        case "shrink" | "drop" if claims:
            chosen = claims[number % len(claims)]
            left = replace(chosen, victims=chosen.victims[1:]) if kind == "shrink" else None
            rest = tuple(each for each in claims if each is not chosen)
            world.claims = (*rest, left) if left is not None and left.victims else rest
        case "fail" | "vanish" if pods:
            {"fail": World.fail, "vanish": World.vanish}[kind](world, name)
        case "finish":
            world.finish()
        case "serve":
            world.serve()
        case "time":
            world.now += number
        case "replicas":
            stored = world.inference.as_object()
            decode = stored["spec"]["roles"][1]
            decode["replicas"] = max(decode["minReplicas"], number % 5)
            world.inference = DisaggregatedInference.model_validate(stored)
        case _:
            pass


def with_victim(claims: tuple[RootClaim, ...], found: core.Victim, number: int) -> tuple[RootClaim, ...]:
    """A claim more, or one that names another one, too."""
    uid = f"root-{number % 3}"
    known = next((each for each in claims if each.uid == uid), RootClaim(uid, "prod", "chat", "Preemption", ()))
    rest = tuple(each for each in claims if each.uid != uid)
    return (*rest, replace(known, victims=(*known.victims, found)))


def victim(world: World, name: str, *, whole: bool) -> core.Victim:
    """The replica of a pod, or its unit, as the scheduler process names it."""
    place = place_of(world.pods[name])
    of = (pod for pod in world.pods.values() if place_of(pod)[: 1 if whole else 3] == place[: 1 if whole else 3])
    uids = tuple(pod.metadata.uid for pod in of if podstate.is_bound(pod))
    unit, role_, replica = place
    meta = world.inference.metadata
    named = (meta.namespace, meta.name, unit)
    return core.Victim("Unit", *named, pods=uids) if whole else core.Victim("Replica", *named, role_, replica, uids)


def place_of(pod: core.Pod) -> Place:
    slot = slot_of(pod.spec.hostname)
    assert slot is not None
    return slot[:3]


def check(spec: Any, claims: tuple[RootClaim, ...], before: Pods, after: Pods) -> None:
    """Laws of one write of the operator's, from the pods before and after it.

    Args:
        spec: of the resource.
        claims: as they are stored.
        before: pods by name.
        after: the same.
    """
    sizes = {each.name: each.size for each in spec.roles}
    minimums = {each.name: each.min_replicas for each in spec.roles}
    check_names(spec, claims, before, after)
    laws = _Laws(claims, before, sizes)
    for name, pod in before.items():
        place, now = place_of(pod), after.get(name)
        if podstate.is_dead(pod) or place in laws.torn:
            continue
        goes = now is None or podstate.is_terminating(now)
        if goes and podstate.claimed_by(pod):
            others = [each for each in before.values() if place_of(each) == place and not podstate.is_dead(each)]
            assert all(podstate.claimed_by(each) for each in others), f"{name} goes before its replica is marked"
        is_marked = now is not None and podstate.claimed_by(now) and not podstate.claimed_by(pod)
        if is_marked and place in laws.placed and not laws.is_whole(place):
            kept = [each for each in _Laws(claims, after, sizes).placed if each[:2] == place[:2]]
            least = minimums[place[1]]
            assert len(kept) >= least, f"{name} is marked, and {place[1]} keeps {kept} of {least}"
    for name in after.keys() - before.keys():
        unit = place_of(after[name])[0]
        assert unit not in laws.emptying, f"{name} is made while unit {unit} gives way"


def check_names(spec: Any, claims: tuple[RootClaim, ...], before: Pods, after: Pods) -> None:
    """The law that holds however little a process knows: a claim names all that is marked, and all that goes by a mark."""
    laws = _Laws(claims, before, {each.name: each.size for each in spec.roles})
    for name, pod in before.items():
        place, now = place_of(pod), after.get(name)
        if podstate.is_dead(pod) or place in laws.torn:
            continue
        goes = (now is None or podstate.is_terminating(now)) and podstate.claimed_by(pod)
        is_marked = now is not None and podstate.claimed_by(now) and not podstate.claimed_by(pod)
        if is_marked or (goes and not _is_remnant(spec, place[0], before, laws)):
            assert laws.is_named(place), f"{name} {'goes' if goes else 'is marked'}, and no claim names it"


def _is_remnant(spec: Any, unit: int, pods: Pods, laws: _Laws) -> bool:
    """Tell whether all that is left of a unit was marked for a claim, and is less than its minimum."""
    there = [pod for pod in pods.values() if place_of(pod)[0] == unit and podstate.is_bound(pod)]
    left = {place_of(pod)[:3] for pod in there if not podstate.is_dead(pod)} - laws.torn
    lacks = any(sum(place[1] == each.name for place in left) < each.min_replicas for each in spec.roles)
    return lacks and all(podstate.claimed_by(pod) for pod in there if not podstate.is_dead(pod))


def _stays(pod: core.Pod) -> bool:
    """Tell whether a pod has its node and stays, or counts for nothing since another one has its place."""
    return podstate.is_dead(pod) or (podstate.is_bound(pod) and not podstate.is_draining(pod))


class _Laws:
    """The replicas that there are, and what claims say of them."""

    def __init__(self, claims: tuple[RootClaim, ...], pods: Pods, sizes: Mapping[str, int]) -> None:
        replicas: dict[Place, list[core.Pod]] = {}
        for pod in pods.values():
            replicas.setdefault(place_of(pod), []).append(pod)
        victims = [each for claim in claims for each in claim.victims]
        whole = {uid for each in victims if each.kind == WHOLE_UNIT for uid in each.pods}
        alone = {uid for each in victims if each.kind != WHOLE_UNIT for uid in each.pods}
        self.emptying = {place[0] for place, found in replicas.items() if any(p.metadata.uid in whole for p in found)}
        self._named = {place for place, found in replicas.items() if any(p.metadata.uid in alone for p in found)}
        #: Replicas that lack a pod, or of which one that goes is deleted.
        self.torn = {
            place
            for place, found in replicas.items()
            if any(podstate.is_dead(pod) and podstate.is_draining(pod) for pod in found)
            or sum(not podstate.is_dead(pod) for pod in found) < sizes[place[1]]
        }
        #: Replicas that have all their nodes, and stay.
        self.placed = {place for place, found in replicas.items() if place not in self.torn and all(map(_stays, found))}

    def is_whole(self, place: Place) -> bool:
        return place[0] in self.emptying

    def is_named(self, place: Place) -> bool:
        return place in self._named or self.is_whole(place)


def act(world: World, writes: int | None = None) -> None:
    """A pass of the operator's, killed after so many writes."""
    for step in islice(list(world.steps(world.plan().actions)), writes):
        before = dict(world.pods)
        step()
        check(world.inference.spec, world.claims, before, world.pods)
        world.check()


def end(world: World) -> None:
    """Serve and wait until nothing is left to be done."""
    for _ in range(12):
        act(world)
        world.finish()
        world.serve()
        world.now += 61


@settings(settings.get_profile("storm"))
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from([(0, 0), (30, 0), (0, 30), (30, 20)]),
    st.integers(0, 2),
    st.lists(event, max_size=24),
)
def test_only_what_is_named_goes_and_whole(
    sizes: tuple[int, int], drains: tuple[int, int], minimum: int, happened: list[tuple[str, int]]
) -> None:
    world = World(resource(sizes, drains, minimum))
    world.settle()
    world.serve()
    for kind, number in happened:
        if kind == "restart":
            world.forget()
        elif kind == "crash":
            act(world, number % 13)
            world.forget()
        elif kind == "act":
            act(world)
        else:
            happen(world, kind, number)
        world.tell()
    end(world)
    marked = [name for name in world.pods if podstate.claimed_by(world.pods[name])]
    assert not marked, "what could go has gone, and what stays has no marks"
    assert not world.plan().actions
    world.claims = ()
    end(world)
    world.tell()
    assert_is_wanted(world)
    assert not list(_conditions(world, names.PREEMPTED))


def _conditions(world: World, kind: str) -> Iterator[Mapping[str, Any]]:
    yield from (each for each in world.status["conditions"] if each["type"] == kind)
