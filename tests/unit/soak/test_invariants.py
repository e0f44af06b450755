"""The checker of the soak against histories made by hand: what breaks an invariant is found, what does not is not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from soak.facts import read_pod, read_resource
from soak.invariants import TORN
from soak.world import GRACE
from unit.soak.histories import GATED, STARTED, UID, History, node, pod, resource, role


class TestHalfBound:
    def test_bound_while_another_is_gated(self) -> None:
        history = History(role("decode", size=2))
        history.see("0/decode/0/0", size=2)
        history.see("0/decode/0/1", size=2, gates=GATED)
        assert history.see("0/decode/0/0", size=2, node="n0") == ["half bound"]

    def test_bound_while_another_does_not_exist(self) -> None:
        history = History(role("decode", size=2))
        history.see("0/decode/0/0", size=2)
        assert history.see("0/decode/0/0", size=2, node="n0") == ["half bound"]

    def test_one_after_the_other_is_whole(self) -> None:
        history = History(role("decode", size=2))
        for index in "01":
            history.see(f"0/decode/0/{index}", size=2)
        assert [history.see(f"0/decode/0/{index}", size=2, node="n0") for index in "01"] == [[], []]

    def test_the_order_of_starts_is_no_part(self) -> None:
        history = History(role("decode", size=2))
        history.see("0/decode/0/0", size=2)
        history.see("0/decode/0/1", size=2, gates=STARTED)
        assert history.see("0/decode/0/0", size=2, node="n0") == []
        assert history.wait(TORN + 1) == []

    @pytest.mark.parametrize(("later", "found"), [(1.0, []), (GRACE + 1, ["half bound"])])
    def test_who_was_lost_a_moment_ago_excuses(self, later: float, found: list[str]) -> None:
        history = History(role("decode", size=2))
        for index in "01":
            history.see(f"0/decode/0/{index}", size=2)
        history.delete("0/decode/0/1", size=2)
        history.wait(later)
        assert history.see("0/decode/0/0", size=2, node="n0") == found


class TestTorn:
    def torn(self) -> History:
        history = History(role("decode", size=2))
        for index in "01":
            history.see(f"0/decode/0/{index}", size=2, node="n0")
        history.delete("0/decode/0/1", size=2, node="n0", by_operator=False)
        return history

    def test_for_long(self) -> None:
        history = self.torn()
        history.wait(GRACE + 1)
        assert history.wait(TORN - 1) == []
        assert [each.rule for each in history.wait(2)] == ["torn"]
        assert history.wait(1) == []

    def test_until_it_is_whole_again(self) -> None:
        history = self.torn()
        history.wait(TORN)
        history.see("0/decode/0/1", uid="again", size=2, node="n0")
        assert history.wait(TORN + 1) == []


class TestMinimumFirst:
    ROLES = (role("prefill"), role("decode", 2))

    def test_surplus_before_the_minimum_of_another_role(self) -> None:
        history = History(*self.ROLES)
        history.see("0/prefill/0/0", gates=GATED)
        history.see("0/decode/0/0", node="n0")
        history.wait()
        history.see("0/decode/1/0", gates=GATED)
        assert history.see("0/decode/1/0") == ["minimum first"]

    def test_the_minimum_itself(self) -> None:
        history = History(*self.ROLES)
        for place in ("0/prefill/0/0", "0/decode/0/0"):
            history.see(place, gates=GATED)
        assert [history.see(place) for place in ("0/prefill/0/0", "0/decode/0/0")] == [[], []]

    def test_surplus_after_the_minimum(self) -> None:
        history = History(*self.ROLES)
        for place in ("0/prefill/0/0", "0/decode/0/0"):
            history.see(place, node="n0")
        history.see("0/decode/1/0", gates=GATED)
        assert history.see("0/decode/1/0") == []

    def test_the_minimum_comes_together_with_it(self) -> None:
        history = History(role("prefill", 2), role("decode", 2))
        history.see("0/prefill/0/0", node="n0")
        history.wait()
        together = {"labels": {"scheduling.covey.dev/together": "new"}}
        for place in ("0/prefill/1/0", "0/decode/1/0"):
            history.see(place, gates=GATED, **together)
        assert history.see("0/prefill/1/0", **together) == []

    def test_another_unit_is_another_matter(self) -> None:
        history = History(*self.ROLES, replicas=2)
        for place in ("0/prefill/0/0", "0/decode/0/0"):
            history.see(place, node="n0")
        history.see("1/prefill/0/0", gates=GATED)
        history.see("0/decode/1/0", gates=GATED)
        assert history.see("0/decode/1/0") == []


class TestBudget:
    def serving(self, count: int = 3, **fields: Any) -> History:
        history = History(role("decode", count, **fields))
        for number in range(count):
            history.see(f"0/decode/{number}/0", node=f"n{number}", ready=True)
        history.wait()
        return history

    def delete(self, history: History, number: int, **fields: Any) -> list[str]:
        return history.delete(f"0/decode/{number}/0", node=f"n{number}", ready=True, **fields)

    def test_a_serving_replica_too_many(self) -> None:
        assert self.delete(self.serving(), 0) == ["budget"]

    def test_its_deletion_has_only_begun(self) -> None:
        history = self.serving()
        history.checker.world.condemned.add(("soak", "0/decode/0/0"))
        assert history.see("0/decode/0/0", node="n0", ready=True, going=True) == ["budget"]

    def test_it_is_only_told_to_drain(self) -> None:
        history = self.serving()
        draining = {"labels": {"covey.dev/draining": "true"}}
        assert history.see("0/decode/0/0", node="n0", ready=True, **draining) == ["budget"]
        history.wait()
        assert self.delete(history, 0, **draining) == []

    def test_it_is_updated_in_place(self) -> None:
        history = self.serving(update={"maxUnavailable": 1})
        open_ = {"annotations": {"covey.dev/in-place": "{}"}}
        found = [history.see(f"0/decode/{n}/0", node=f"n{n}", ready=True, **open_) for n in (0, 1)]
        assert found == [[], ["budget"]]

    def test_by_somebody_else(self) -> None:
        assert self.delete(self.serving(), 0, by_operator=False) == []

    def test_within_the_budget(self) -> None:
        history = self.serving(update={"maxUnavailable": 1})
        assert [self.delete(history, number) for number in (0, 1)] == [[], ["budget"]]

    def test_a_successor_serves(self) -> None:
        history = self.serving()
        history.see("0/decode/3/0", node="n3", ready=True)
        assert self.delete(history, 0) == []

    def test_a_successor_that_does_not_serve(self) -> None:
        history = self.serving()
        history.see("0/decode/3/0", node="n3")
        assert self.delete(history, 0) == ["budget"]

    def test_one_that_did_not_serve(self) -> None:
        history = self.serving()
        history.see("0/decode/0/0", node="n0", ready=False)
        history.wait()
        assert history.delete("0/decode/0/0", node="n0") == []

    def test_fewer_are_wanted(self) -> None:
        history = self.serving()
        history.wanted(role("decode", 2), generation=2)
        assert [self.delete(history, number) for number in (0, 1)] == [[], ["budget"]]

    def test_more_are_wanted_again_a_moment_later(self) -> None:
        history = self.serving()
        history.wanted(role("decode", 2), generation=2)
        history.wanted(role("decode", 3), generation=3)
        assert self.delete(history, 0) == []
        history = self.serving()
        history.wanted(role("decode", 2), generation=2)
        history.wanted(role("decode", 3), generation=3)
        history.wait()
        assert self.delete(history, 0) == ["budget"]

    def test_what_others_took_a_moment_ago_is_not_ours(self) -> None:
        history = self.serving(update={"maxUnavailable": 1})
        self.delete(history, 1, by_operator=False)
        assert self.delete(history, 0) == []
        history = self.serving(update={"maxUnavailable": 1})
        self.delete(history, 1, by_operator=False)
        history.wait()
        assert self.delete(history, 0) == ["budget"]

    def test_without_room_the_minimum_is_the_floor(self) -> None:
        history = self.serving()
        history.wanted(role("decode", 3), hold="Room")
        assert [self.delete(history, number) for number in (0, 1, 2)] == [[], [], ["budget"]]

    @pytest.mark.parametrize(("later", "found"), [(1.0, []), (GRACE + 1, ["budget"])])
    def test_it_had_no_room_a_moment_ago(self, later: float, found: list[str]) -> None:
        history = self.serving()
        history.wanted(role("decode", 3), hold="Room")
        history.wait()
        history.wanted(role("decode", 3))
        history.wait(later)
        assert self.delete(history, 0) == found

    @pytest.mark.parametrize(("later", "found"), [(1.0, []), (GRACE + 1, ["budget"])])
    def test_it_has_said_that_it_escalates(self, later: float, found: list[str]) -> None:
        said = {"type": "Escalating", "status": "True", "reason": "GivesUpRole"}
        history = self.serving()
        history.wanted(role("decode", 3), conditions=(said,))
        history.wait()
        assert self.delete(history, 0) == []
        history.wait()
        history.wanted(role("decode", 3))
        history.wait(later)
        assert self.delete(history, 1) == found

    def test_suspended(self) -> None:
        history = self.serving()
        history.wanted(role("decode", 3), suspend=True)
        assert self.delete(history, 0) == []

    def test_one_unit_fewer(self) -> None:
        history = History(role("decode"), replicas=2)
        for unit in "01":
            history.see(f"{unit}/decode/0/0", node="n0", ready=True)
        history.wait()
        history.wanted(role("decode"), replicas=1)
        assert history.delete("1/decode/0/0", node="n0", ready=True) == []
        assert history.delete("0/decode/0/0", node="n0", ready=True) == ["budget"]

    def test_a_spec_that_is_not_accepted_changes_nothing(self) -> None:
        history = self.serving()
        history.wanted(role("decode", 2), topology={"preferred": "nowhere"})
        history.wait()
        assert len(history.checker.world.wanted(read_resource(resource()).owner, history.at)) == 2


class TestDouble:
    def test_two_bound_in_one_place(self) -> None:
        history = History(role("decode"))
        history.see("0/decode/0/0", uid="one", node="n0")
        assert history.see("0/decode/0/0", uid="two", node="n1") == ["double"]

    def test_a_successor_of_one_that_goes(self) -> None:
        history = History(role("decode"))
        history.see("0/decode/0/0", uid="one", node="n0", going=True)
        assert history.see("0/decode/0/0", uid="two", node="n1") == []

    def test_two_with_one_address(self) -> None:
        history = History(role("decode"))
        labels = {"covey.dev/address": "true"}
        history.see("0/decode/0/0", uid="one", node="n0", going=True, labels=labels)
        assert history.see("0/decode/0/0", uid="two", labels=labels) == ["double"]

    def test_one_that_only_looks_alike(self) -> None:
        history = History(role("decode"))
        history.see("0/decode/0/0", uid="one", node="n0", owned=False)
        assert history.see("0/decode/0/0", uid="two", node="n1") == []


class TestNodes:
    def test_more_than_a_node_has(self) -> None:
        history = History(role("decode", 3))
        found = [history.see(f"0/decode/{number}/0", node="n0") for number in range(3)]
        assert found == [[], [], ["overcommitted"]]

    def test_what_has_ended_takes_nothing(self) -> None:
        history = History(role("decode", 3))
        for number in range(2):
            history.see(f"0/decode/{number}/0", node="n0")
        history.see("0/decode/0/0", node="n0", phase="Failed")
        assert history.see("0/decode/2/0", node="n0") == []

    @pytest.mark.parametrize(("later", "found"), [(0.5, []), (GRACE + 1, ["overcommitted"])])
    def test_a_stranger_that_came_a_moment_ago(self, later: float, found: list[str]) -> None:
        history = History(role("decode", 3))
        history.see("0/decode/8/0", uid="stranger", owned=False, scheduler="other", gpus=8, node="n0")
        history.wait(later)
        assert history.see("0/decode/0/0", node="n0") == found

    @pytest.mark.parametrize(("later", "found"), [(0.5, []), (GRACE + 1, ["unfit"])])
    def test_a_node_that_is_cordoned(self, later: float, found: list[str]) -> None:
        history = History(role("decode"))
        history.see("0/decode/0/0")
        history.checker.take("Node", "MODIFIED", node("n0", cordoned=True), history.at)
        history.wait(later)
        assert history.see("0/decode/0/0", node="n0") == []
        assert [each.rule for each in history.wait()] == found

    def test_a_node_that_is_well_again_before_its_watch_tells(self) -> None:
        history = History(role("decode"))
        history.see("0/decode/0/0")
        history.checker.take("Node", "MODIFIED", node("n0", cordoned=True), history.at)
        history.wait()
        history.see("0/decode/0/0", node="n0", version=7)
        history.checker.take("Node", "MODIFIED", node("n0", version=6), history.at)
        assert history.wait() == []

    @pytest.mark.parametrize(
        ("taints", "found"),
        [
            ([("node.kubernetes.io/unreachable", "NoExecute")], []),
            (
                [("node.kubernetes.io/unreachable", "NoExecute"), ("node.kubernetes.io/unreachable", "NoSchedule")],
                ["unfit"],
            ),
            ([("maintenance", "NoExecute")], ["unfit"]),
        ],
    )
    def test_a_node_that_has_failed_and_is_ready_again(self, taints: list[tuple[str, str]], found: list[str]) -> None:
        """Its NoExecute is the last to go, and all pods tolerate it for a time: ordinary ones may be bound by then."""
        history = History(role("decode"))
        seen = {"uid": "stranger", "owned": False, "node": "n0"}
        history.see("0/decode/0/0", **{**seen, "node": ""})
        history.checker.take("Node", "MODIFIED", node("n0", cordoned=True, version=5), history.at)
        history.wait()
        tainted = node("n0", version=6)
        tainted["spec"]["taints"] = [{"key": key, "effect": effect} for key, effect in taints]
        history.checker.take("Node", "MODIFIED", tainted, history.at)
        history.see("0/decode/0/0", **seen, version=7)
        history.checker.take("Node", "MODIFIED", node("n0", version=8), history.at)
        assert [each.rule for each in history.wait()] == found

    def test_a_replica_in_two_racks(self) -> None:
        history = History(role("decode", size=2, topology={"required": "rack"}))
        for index in "01":
            history.see(f"0/decode/0/{index}", size=2)
        assert history.see("0/decode/0/0", size=2, node="n0") == []
        assert history.see("0/decode/0/1", size=2, node="n1") == ["astray"]

    @pytest.mark.parametrize(("other", "found"), [("n2", []), ("n1", ["astray"])])
    def test_a_label_that_is_missing_moves_no_node(self, other: str, found: list[str]) -> None:
        history = History(role("decode", size=2, topology={"required": "rack"}))
        for index in "01":
            history.see(f"0/decode/0/{index}", size=2)
        nameless = node("n0")
        del nameless["metadata"]["labels"]["cloud.provider.com/topology-rack"]
        history.checker.take("Node", "MODIFIED", nameless, history.at)
        assert history.see("0/decode/0/0", size=2, node="n0") == []
        assert history.see("0/decode/0/1", size=2, node=other) == found

    def test_a_unit_in_two_racks(self) -> None:
        history = History(role("decode", 2), topology={"required": "rack"})
        assert history.see("0/decode/0/0", node="n0") == []
        assert history.see("0/decode/1/0", node="n1") == ["astray"]
        assert history.see("1/decode/0/0", node="n1") == []

    def test_a_unit_whose_first_replica_was_told_to_go(self) -> None:
        history = History(role("decode", 2), topology={"required": "rack"})
        assert history.see("0/decode/0/0", node="n0") == []
        assert history.see("0/decode/0/0", node="n0", labels={"covey.dev/draining": "true"}) == []
        assert history.see("0/decode/1/0", node="n1") == []


def test_what_was_not_seen_is_not_judged() -> None:
    history = History(role("decode", size=2))
    history.checker.take_unseen("Pod", "MODIFIED", pod("0/decode/0/0", size=2, node="n0"), history.at)
    assert not history.checker.violations
    assert history.checker.world.pods["0/decode/0/0"].node == "n0"


def test_a_pod_without_a_readable_place_is_nobodys() -> None:
    body = pod("0/decode/0/0")
    body["metadata"]["labels"]["covey.dev/unit"] = "x"
    assert read_pod(body).replica is None
    assert dataclasses.asdict(read_pod(body))["owner_uid"] == UID
