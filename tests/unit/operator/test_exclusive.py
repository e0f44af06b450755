"""``rollout.routing: Exclusive``: a router that knows no pairing never mixes revisions."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.compile import Layout
from covey.model import podstate
from covey.operator.model.actions import Actions
from covey.operator.model.problem import Blocked
from covey.operator.routing.exclusive import choose_shown
from covey.operator.routing.pairing import Member, Pairings
from screener import Route, find_blind_routes
from unit.operator.test_edit_storm import ROLES, Event
from unit.operator.test_execute import DENIED, Server, execute
from unit.operator.test_pairing import Judged, changes
from unit.operator.world import World

EXCLUSIVE: dict[str, Any] = {"rollout": {"routing": "Exclusive"}}
PAIRINGS: Pairings = {"new": {"prefill": "p2", "decode": "d2"}, "old": {"prefill": "p1", "decode": "d1"}}
OLD = (("prefill", "p1"), ("decode", "d1"))
NEW = (("prefill", "p2"), ("decode", "d2"))


def members(counts: Mapping[str, int], going: str = "") -> list[Member]:
    """So many Ready replicas of each revision; those of ``going`` do not stay."""
    return [
        Member(
            {"p": "prefill", "d": "decode"}[revision[0]],
            number,
            revision,
            ready=True,
            pairing=None,
            stays=revision != going,
        )
        for revision, count in counts.items()
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("counts", "going", "shown", "chosen"),
    [
        ({"p1": 2, "d1": 2}, "", OLD, "old"),
        ({"p1": 2, "d1": 2, "p2": 1, "d2": 1}, "", OLD, "old"),
        ({"p1": 2, "d1": 2, "p2": 2, "d2": 1}, "", OLD, "old"),
        ({"p1": 2, "d1": 2, "p2": 2, "d2": 2}, "", OLD, "new"),
        # The minimum is not asked for: the old one has no more either.
        ({"p1": 1, "d1": 1, "p2": 1, "d2": 1}, "", OLD, "new"),
        ({"p1": 1, "d1": 2, "p2": 3, "d2": 1}, "", OLD, "old"),
        # The old one is not whole any more without what goes.
        ({"p1": 1, "d1": 1, "p2": 1, "d2": 1}, "d1", OLD, "new"),
        ({"p1": 1, "d1": 1, "p2": 1}, "d1", OLD, "old"),
        # What has taken over stays, and goes back only for one that is whole, or that has two more of a role.
        ({"p1": 2, "d1": 2, "p2": 1, "d2": 1}, "", NEW, "new"),
        ({"p1": 2, "d1": 3, "p2": 2, "d2": 1}, "", NEW, "old"),
        ({"p1": 2, "d1": 2, "p2": 1}, "", NEW, "old"),
        ({"p1": 2, "p2": 1}, "", NEW, "new"),
        ({}, "", (), "new"),
        # Of none that is whole, the one that has more.
        ({"p1": 2, "p2": 1}, "", OLD, "old"),
        ({"p1": 2, "p2": 1, "d2": 0}, "p1", OLD[1:], "new"),
    ],
)
def test_the_new_revision_takes_over_with_as_many_ready(
    counts: Mapping[str, int], going: str, shown: tuple[tuple[str, str], ...], chosen: str
) -> None:
    assert choose_shown(members(counts, going), shown, PAIRINGS, "new") == chosen


class Blind(Judged):
    """Edits and losses, and a router that takes any Ready endpoint of each role after every write."""

    def wanted(self) -> Any:
        found = super().wanted().as_object()
        for each in found["spec"]["roles"]:
            # It is refused together with updates in place.
            each.get("update", {}).pop("inPlace", None)
        return DisaggregatedInference.model_validate({**found, "spec": {**found["spec"], **EXCLUSIVE}})

    def judge(self) -> set[Route]:
        routes = find_blind_routes(self.pods())
        assert routes <= self.allowed, f"{routes - self.allowed} could be paired"
        return routes

    def act(self, writes: int | None = None) -> None:
        before = bool(self.judge())
        steps = list(self.world.steps(self.world.plan().actions))
        for step in islice(steps, writes):
            step()
            self.judge()
        after = bool(self.judge())
        # Where several roles change there is no pair for some writes, never at the end of a pass.
        assert after or not before or 2 in self.updates or writes is not None, "503"
        self.world.tell()


@settings(settings.get_profile("storm"))
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(*[st.sampled_from([0, 2])] * 2),
    st.integers(1, 2),
    st.lists(changes, max_size=24),
)
def test_no_request_is_mixed_while_revisions_roll(
    replicas: tuple[int, int], updates: tuple[int, int], units: int, happened: list[Event]
) -> None:
    storm = Blind(replicas, updates, units)
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
    assert {pod.metadata.label(names.LABEL_ENDPOINT) for pod in storm.world.pods.values()} == {"true"}


class Sharing(Blind):
    """Two revisions in turn, and units that get no nodes: how much of what is Ready takes requests after each pass."""

    def __init__(self, replicas: tuple[int, int], updates: tuple[int, int], units: int, *, waits: bool) -> None:
        self.waiting = str(units - 1) if waits else None
        super().__init__(replicas, updates, units)

    def wanted(self) -> Any:
        wanted = super().wanted().as_object()
        for made in wanted["spec"]["roles"]:
            made["minReplicas"] = -(-made["replicas"] // 2)
        return DisaggregatedInference.model_validate(wanted)

    def serve(self, name: str) -> None:
        if self.world.pods[name].metadata.label(names.LABEL_UNIT) != self.waiting:
            super().serve(name)

    def act(self, writes: int | None = None) -> None:
        planned = self.world.plan()
        for step in islice(self.world.steps(planned.actions), writes):
            step()
        if writes is None:
            self.judge_share(planned.intent.layout)
        self.world.tell()

    def judge_share(self, layout: Layout) -> None:
        """Judge what neither drains, nor goes, nor is replaced or scaled away."""
        ready, taking = Counter[tuple[str, int]](), Counter[str]()
        for slot, pod in self.world.observe().current.items():
            revision = layout.revision_of(slot)
            stays = revision is not None and revision.hash == pod.metadata.label(names.LABEL_REVISION)
            going = podstate.is_draining(pod) or podstate.is_terminating(pod)
            if slot.index == 0 and stays and podstate.is_ready(pod) and not going:
                ready[slot.role, int(pod.spec.containers[0].image.removeprefix("engine:"))] += 1
                taking[slot.role] += pod.metadata.label(names.LABEL_ENDPOINT) == "true"
        wanted = dict(zip(ROLES, self.images, strict=True))
        new = {name: ready[name, wanted[name]] for name in ROLES}
        old = {name: ready[name, 1 - wanted[name]] for name in ROLES}
        if not all(old.values()) and not all(new.values()):
            return
        shares = {name: taking[name] - (new[name] + old[name]) // 2 for name in ROLES}
        assert max(shares.values()) >= 0, f"less than half of every role takes requests: {taking} of {ready}"
        # With a role gone the old revision serves nobody, whatever is left of the others.
        assert not all(old.values()) or all(
            share >= 0 or taking[name] >= old[name] for name, share in shares.items()
        ), f"less than the old revision had: {taking} of {ready}"


@given(
    st.tuples(st.integers(1, 8), st.integers(1, 8)),
    st.tuples(*[st.sampled_from([0, 2])] * 2),
    st.sampled_from([(1, False), (2, False), (2, True), (3, True)]),
    st.lists(
        st.one_of(
            st.tuples(st.just("edit all"), st.integers(0, 1)),
            st.tuples(st.sampled_from(["replicas", "serve", "fail", "finish", "crash"]), st.integers(0, 60)),
            st.tuples(st.just("pass"), st.integers(1, 6)),
        ),
        max_size=24,
    ),
)
@example((8, 8), (0, 0), (2, True), [("pass", 6)])
@settings(settings.get_profile("storm"))
def test_half_of_what_is_ready_takes_requests_while_revisions_roll(
    replicas: tuple[int, int], updates: tuple[int, int], units: tuple[int, bool], happened: list[Event]
) -> None:
    storm = Sharing(replicas, updates, units[0], waits=units[1])
    for kind, number in [("edit all", 1), *happened]:
        storm.happen(kind, number)
        for _ in range(number if kind == "pass" else 0):
            storm.act()
            storm.world.finish()
            for name in list(storm.world.pods):
                storm.serve(name)


def endpoints(world: World, *, ready: bool) -> set[str | None]:
    """Whether the pods that are Ready, or are not, take requests."""
    found = (pod for pod in world.pods.values() if podstate.is_ready(pod) == ready)
    return {pod.metadata.label(names.LABEL_ENDPOINT) for pod in found}


def pair(image: int, *others: dict[str, Any], **fields: Any) -> DisaggregatedInference:
    """Two roles of an image."""
    made = template({"name": "engine", "image": f"engine:{image}"})
    roles = [role(name, template=made, **fields) for name in ("prefill", "decode")]
    return inference(*roles, *others, **EXCLUSIVE)


def test_it_says_who_has_the_requests_and_when_there_was_no_room_for_both() -> None:
    fields = {"replicas": 2, "minReplicas": 2, "update": {"maxSurge": 0, "maxUnavailable": 1}}
    world = World.serving(pair(1, **fields))
    world.inference = pair(2, **fields)
    said: list[str] = []
    for _ in range(40):
        found = world.plan()
        said += [each.reason for each in found.remarks if each.type == names.ROUTING_HELD]
        if not found.actions:
            break
        world.carry_out()
        world.finish()
        world.tell()
        for name, pod in list(world.pods.items()):
            if not podstate.is_bound(pod):
                world.bind(name, f"node-{name}")
            world.run(name)
    assert list(dict.fromkeys(said)) == ["AwaitingMinimum", "NoNodesForBoth"]
    assert endpoints(world, ready=True) == {"true"}
    assert not endpoints(world, ready=False)


@pytest.mark.parametrize("seconds", [0, 60])
@pytest.mark.parametrize("routing", [EXCLUSIVE, {}])
async def test_nothing_that_takes_requests_is_rolled_out_while_others_may_not_be_shown(
    seconds: int, routing: dict[str, Any]
) -> None:
    """The new decode is Ready and hidden, and its label is denied for ever; also where the field was taken away."""

    def wanted(image: int, **spec: Any) -> DisaggregatedInference:
        made = template({"name": "engine", "image": f"engine:{image}"})
        return inference(role("prefill"), role("decode", drainSeconds=seconds, template=made), **spec)

    world = World.serving(wanted(1, **EXCLUSIVE))
    (old,) = (name for name, pod in world.pods.items() if pod.metadata.label(names.LABEL_ROLE) == "decode")
    world.inference = wanted(2, **EXCLUSIVE)
    world.carry_out()
    world.serve()
    (new,) = (name for name, pod in world.pods.items() if pod.metadata.label(names.LABEL_ENDPOINT) == "false")
    world.inference = wanted(2, **routing)
    for denied in (True, False):
        server = Server(world)
        server.denied = {("patch", new): DENIED} if denied else {}
        found = world.plan().actions
        actions = Actions(relabel=found.relabel, pair=found.pair, drain=found.drain, delete_pods=found.delete_pods)
        with pytest.raises(Blocked) if denied else contextlib.nullcontext():
            await execute(world, server, actions)
        assert (old in [*server.patched, *server.deleted]) != denied


def test_a_role_without_replicas_does_not_count() -> None:
    encode = role("encode", replicas=0, minReplicas=0, serves="Prefill")
    world = World.serving(pair(1, encode))
    world.inference = pair(2, encode)
    world.carry_out()
    assert (endpoints(world, ready=True), endpoints(world, ready=False)) == ({"true"}, {"false"})
