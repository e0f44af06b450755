"""The counts that tell the barrier when to look: never too low, and the whole is looked at seldom."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from builders.members import GATE, RELEASE, START, group, member, pod, role_groups, root_key, unit
from covey.admission.tree import Unit
from covey.api import core
from covey.scheduler.barrier import Call, releasable
from covey.scheduler.barrier_counts import BarrierCounts

ROOT = root_key("root")
TOGETHER = {"scheduling.covey.dev/together": "t"}

#: States of a pod, as far as the barrier tells them apart.
STATES: list[dict[str, Any] | None] = [
    None,
    {"gates": (GATE,)},
    {"pin": "n1"},
    {"pin": "n1", "gates": (START,)},
    {"pin": "n1", "node": "n1"},
    {"pin": "n1", "node": "n2"},
    {"pin": "n1", "deleted": True},
    {"pin": "n1", "annotations": {RELEASE: "Timeout"}},
    {"node": "n1", "phase": "Failed"},
    {"pin": "n1", "node": "n1", "deleted": True},
]
#: A pod's place: role, replica, index, size of the replica, and which of two rivals for the place.
PLACES = [
    *[("decode", replica, index_, 2, 0) for replica in range(2) for index_ in range(2)],
    ("decode", 0, 0, 2, 1),
    *[("router", replica, 0, 1, 0) for replica in range(3)],
]


def made(place: int, state: dict[str, Any], labels: dict[str, str], *, numbered: bool) -> core.Pod:
    role, replica, number, size, rival = PLACES[place]
    name = f"{role}-{replica}-{number}-{rival}"
    if not numbered and size > 1:
        return pod(name, group=f"root-{role}-{replica}", labels=labels, **state)
    return member(role, replica, number, size=size, name=name, labels=labels, **state)


def assembled(pods: dict[int, core.Pod], groups: list[core.Group]) -> Unit:
    return unit(groups[0], groups[1:], list(pods.values()))


events = st.tuples(
    st.integers(0, len(PLACES) - 1), st.one_of(st.integers(0, len(STATES) - 1), st.just("call"), st.just("hang up"))
)


@given(
    history=st.lists(events, min_size=1, max_size=40),
    minimum=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    kind=st.sampled_from(["plain", "marked", "foreign"]),
)
@example(history=[(5, 4), (5, "call"), (5, 2)], minimum=(0, 0), kind="plain")
def test_nothing_may_go_that_the_counts_did_not_tell(
    history: list[tuple[int, int | str]], minimum: tuple[int, int], kind: str
) -> None:
    groups = [
        group("root", composite=True, minimum=sum(each > 0 for each in minimum) or None, desired=2),
        *role_groups("decode", replicas=2, minimum=minimum[0], size=2),
        *role_groups("router", replicas=3, minimum=minimum[1], size=1),
    ]
    if kind == "foreign":  # some of a group's pods are enough
        leaves = {"root-decode-0", "root-decode-1"}
        groups = [each for each in groups if each.metadata.name not in leaves]
        groups += [group(name, parent="root-decode", minimum=1, desired=2) for name in sorted(leaves)]
    pods: dict[int, core.Pod] = {}
    calls: dict[str, Call] = {}
    known = assembled(pods, groups)
    progress = BarrierCounts(known, (), calls)
    looked: set[str] = set()
    for turn, (place, event) in enumerate(history):
        labels = TOGETHER if kind == "marked" and PLACES[place][1] else {}
        before = pods.get(place)
        told = False
        if isinstance(event, int):
            state = STATES[event]
            if before is not None and before.spec.node_name and state is not None and "node" not in state:
                continue  # nobody takes a node from a pod
            if state is None:
                if before is not None:
                    del pods[place]
                    calls.pop(before.metadata.uid, None)
                    told = progress.drop(before.metadata.uid)
            else:
                pods[place] = made(place, state, labels, numbered=kind != "foreign")
                told = progress.change(pods[place])
        elif before is not None and event == "call":
            uid = before.metadata.uid
            calls[uid] = Call(uid, "ns", before.metadata.name, "n1", ROOT, turn, 0.0)
            told = progress.change(before, called=True)
        elif before is not None and calls.pop(before.metadata.uid, None) is not None:
            told = progress.change(before)
        known = assembled(pods, groups)
        may_go = {each.metadata.uid for each in releasable(known, calls)}
        if not told:
            assert may_go <= looked
            continue
        if progress.stale:
            progress = BarrierCounts(known, pods.values(), calls)
        assert progress.may_go() or not may_go
        looked = may_go
