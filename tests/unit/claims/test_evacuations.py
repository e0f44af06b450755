"""Replicas of several nodes that leave one of them, with both processes at work and a kill after any write of either.

Room that is kept for a successor goes to it, or to a unit before it (``Realm`` judges each placement); it is kept no
longer than something drains.
"""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders.inferences import CONTAINER, inference, role
from covey.api.inference import DisaggregatedInference
from unit.claims.realm import Realm
from unit.claims.test_laws import CLASSES, Asked, asked, check_rest, end, happen

#: Priority class; replicas, size and GPUs of decode; seconds of draining.
Wide = tuple[str, int, int, int, int]
wide = st.tuples(
    st.sampled_from(["high", "middle", "low"]),
    st.integers(2, 3),
    st.integers(2, 3),
    st.sampled_from([8, 8, 4]),
    st.sampled_from([0, 20, 20]),
)
event = st.tuples(
    st.sampled_from(
        [
            *("work", "work", "cordon") * 3,
            *("kill operator", "kill scheduler", "create", "finish") * 2,
            *("schedule", "uncordon", "delete"),
        ]
    ),
    st.integers(0, 40),
    asked,
)
#: A claim that took another replica than the one that had gone for it before it was made anew.
MADE_ANEW: list[tuple[str, int, Asked]] = [
    *[("operate", 0, ("high", 1, 1, 4, 0, 1, 0))] * 11,
    ("create", 0, ("high", 4, 2, 4, 0, 2, 0)),
    ("create", 0, ("middle", 1, 1, 8, 1, 2, 0)),
]


def spread(number: int, wish: Wide) -> DisaggregatedInference:
    """A resource of one unit whose replicas lie on several nodes; it needs one of them."""
    priority, replicas, size, gpus, drain = wish
    container: dict[str, Any] = {**CONTAINER, "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    template = {"spec": {"containers": [container]}}
    part = role("decode", template=template, drainSeconds=drain, replicas=replicas, minReplicas=1, size=size)
    name = f"w{number}"
    return inference(part, name=name, uid=f"uid-{name}", priorityClassName=priority)


@settings(settings.get_profile("storm"))
@given(
    st.sampled_from([1, 1, 1, 0, 2]),
    st.lists(wide, min_size=1, max_size=2),
    st.integers(0, 4),
    st.lists(event, max_size=20),
)
@example(0, [("low", 3, 2, 4, 20), ("low", 3, 2, 4, 20)], 20, MADE_ANEW)
def test_room_for_successors_goes_to_them_and_is_kept_no_longer_than_needed(
    spare: int, first: list[Wide], cordoned: int, happened: list[tuple[str, int, Asked]]
) -> None:
    """So many nodes are free at first, and one is cordoned."""
    pods = sum(replicas * size * gpus for _, replicas, size, gpus, _ in first)
    realm = Realm(pods // 8 + spare, CLASSES)
    for number, wish in enumerate(first):
        realm.create(spread(number, wish))
        for _ in range(2):
            realm.schedule()
    if cordoned < len(realm.nodes):
        realm.cordon(cordoned, closed=True)
    for _ in range(4 * (cordoned < len(realm.nodes))):
        happen(realm, "work", 0, ("low", 1, 1, 4, 0, 1, 0))
    for kind, number, asks in happened:
        happen(realm, kind, number, asks)
    end(realm)
    check_rest(realm)
