"""The hierarchy that Covey's gates hold: the minimum of a unit goes together, its surplus after it is bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference, role
from covey.api.inference import DisaggregatedInference
from covey.backends import Release, ReleaseFacts, ReplicaProgress
from covey.backends.kubernetes.gates import release
from covey.backends.seam import Owned, OwnedMeta
from covey.compile import Slot
from covey.compile.identity import group_name

WANTED = inference(role("prefill", replicas=9, size=2), role("decode", replicas=9))


@dataclass
class Places:
    """A room that has so many places for pods."""

    free: int
    asked: list[tuple[Slot, ...]] = field(default_factory=list)

    def lacks(self, inference: DisaggregatedInference, replicas: Sequence[ReplicaProgress]) -> str | None:
        assert inference is WANTED
        slots = tuple(slot for each in replicas for slot in each.slots if not each.is_bound)
        self.asked.append(slots)
        if len(slots) > self.free:
            return f"{len(slots)} places are needed, {self.free} are free"
        self.free -= len(slots)
        return None

    def domain_labels(self, slot: Slot) -> Mapping[str, str]:
        return {"rack": f"r{slot.index}"} if slot.role == "prefill" else {}


def replica(
    name: str,
    number: int = 0,
    *,
    unit: int = 0,
    minimum: bool = True,
    state: str = "complete",
) -> ReplicaProgress:
    size = 2 if name == "prefill" else 1
    slots = tuple(Slot(unit, name, number, index) for index in range(size))
    at = ("missing", "complete", "let go", "bound").index(state)
    return ReplicaProgress(slots, minimum, at >= 1, at >= 2, at >= 3)


def decide(
    *replicas: ReplicaProgress, free: int | None = 99, atomic: bool = False, met: Mapping[str, int] | None = None
) -> Release:
    """Decide; ``met``: minimums that the groups of unit 0 have, by role."""
    objects = {}
    for name, count in (met or {}).items():
        key = ("groups", group_name(WANTED.metadata.name, 0, name))
        objects[key] = Owned(OwnedMeta(name=key[1]), {"schedulingPolicy": {"gang": {"minCount": count}}})
    units: dict[int, list[ReplicaProgress]] = {}
    for each in replicas:
        units.setdefault(each.slots[0].unit, []).append(each)
    room = None if free is None else Places(free)
    return release(ReleaseFacts(WANTED, units, objects, room), atomic=atomic, groups="groups")


def going(found: Release) -> set[tuple[int, str, int]]:
    return {(slot.unit, slot.role, slot.replica) for slot in found.slots}


def test_the_minimum_of_all_roles_goes_together_the_largest_replica_first() -> None:
    found = decide(replica("decode"), replica("prefill"))
    assert [slot.role for slot in found.slots] == ["prefill", "prefill", "decode"]
    assert not found.waits


def test_it_goes_where_there_is_room_for_the_whole() -> None:
    """kube-scheduler never goes back: of several domains it might take the one that another replica needs."""
    found = decide(replica("decode"), replica("prefill"))
    assert found.confined == {Slot(0, "prefill", 0, index): {"rack": f"r{index}"} for index in range(2)}


def test_surplus_goes_by_whole_replicas_the_emptiest_role_first() -> None:
    bound = [replica("prefill", state="bound"), replica("decode", state="bound")]
    surplus = [replica(name, number, minimum=False) for name in ("prefill", "decode") for number in (1, 2)]
    assert going(decide(*bound, *surplus, free=3)) == {(0, "decode", 1), (0, "prefill", 1)}
    # A replica of two pods does not fit, single pods do.
    assert going(decide(*bound, *surplus, free=1)) == {(0, "decode", 1)}


def test_a_group_that_one_gate_keeps_has_no_surplus_pods_with_a_gate() -> None:
    surplus = [replica("decode", 1, minimum=False, state="missing"), replica("prefill", 1, minimum=False)]
    before = decide(replica("prefill"), replica("decode"), *surplus, atomic=True)
    assert before.withheld == {Slot(0, "decode", 1, 0)}, "a replica of several pods has a group of its own"
    after = decide(replica("prefill", state="bound"), replica("decode", state="bound"), *surplus, atomic=True)
    assert not after.withheld
    there = replica("decode", 1, minimum=False)
    found = decide(replica("prefill", state="bound"), replica("decode", state="bound"), there, free=0, atomic=True)
    assert going(found) == {(0, "decode", 1)}, "it would keep the next replacement of its role from the queue"


THERE = [replica("prefill", state="bound"), replica("decode", state="bound")]
RAISED = [replica("decode", number) for number in (2, 3)]


def test_what_was_lost_when_a_minimum_was_raised_comes_back_before_the_rest() -> None:
    met = {"decode": 2}
    found = decide(*THERE, replica("decode", 1), *RAISED, free=1, met=met)
    assert going(found) == {(0, "prefill", 0), (0, "decode", 0), (0, "decode", 1)}
    assert not found.waits
    later = decide(*THERE, replica("decode", 1, state="let go"), *RAISED, free=9, met=met)
    assert not going(later)
    assert later.waits[0].message == "2 replicas of the raised minimum wait: what the unit has lost comes back first"
    back = decide(*THERE, replica("decode", 1, state="bound"), *RAISED, free=2, met=met)
    assert going(back) >= {(0, "decode", 2), (0, "decode", 3)}


def test_what_was_lost_of_another_role_when_a_minimum_was_raised_comes_back_before_the_rest() -> None:
    decodes = [replica("decode", number, state="bound") for number in (0, 1)]
    found = decide(replica("prefill"), *decodes, *RAISED, free=2, met={"decode": 2})
    assert (0, "prefill", 0) in going(found)
    assert going(found).isdisjoint({(0, "decode", 2), (0, "decode", 3)})


def test_what_was_lost_when_a_minimum_was_raised_is_kept_by_no_pod_that_waits_in_its_group() -> None:
    items = [*THERE, replica("decode", 1), replica("decode", 2)]
    assert decide(*items, free=1, atomic=True, met={"decode": 2}).withheld == {Slot(0, "decode", 2, 0)}
    assert not decide(*items, free=1, met={"decode": 2}).withheld


def test_what_was_lost_when_no_minimum_was_raised_or_nothing_is_left_comes_back_whole() -> None:
    lost = [replica("prefill"), *(replica("decode", number) for number in (0, 1))]
    assert not going(decide(*lost, free=3, met={"decode": 1}))
    assert not going(decide(*THERE, replica("decode", 1), *RAISED, free=2))
    assert not going(decide(*THERE, replica("decode", 1), *RAISED, free=2, met={"decode": 4}))


replicas = st.builds(
    replica,
    st.sampled_from(["prefill", "decode"]),
    st.integers(0, 4),
    unit=st.integers(0, 2),
    minimum=st.booleans(),
    state=st.sampled_from(["missing", "complete", "let go", "bound"]),
)


@given(st.lists(replicas, max_size=14, unique_by=lambda each: each.slots), st.integers(0, 20))
def test_never_a_part_of_a_minimum_and_never_surplus_before_it(found: list[ReplicaProgress], free: int) -> None:
    let_go = set(decide(*found, free=free).slots)
    for unit in {each.slots[0].unit for each in found}:
        mine = [each for each in found if each.slots[0].unit == unit]
        minimum = [each for each in mine if each.in_minimum]
        waiting = [slot for each in minimum if not each.is_let_go for slot in each.slots]
        assert let_go.isdisjoint(waiting) or let_go.issuperset(waiting)
        if not all(each.is_bound for each in minimum):
            assert let_go.isdisjoint(slot for each in mine if not each.in_minimum for slot in each.slots)
    assert all(set(each.slots) <= let_go or let_go.isdisjoint(each.slots) for each in found), "whole replicas"
