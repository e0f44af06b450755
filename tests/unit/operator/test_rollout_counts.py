"""Rollouts and evacuations are counted once for each change of the status, whoever writes it; what happens is told in tests/stories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import llama
from covey.observability import metrics, operator_metrics
from covey.operator.model.claimed import RootClaim
from covey.operator.rolling.rollout_status import read_progress
from covey.operator.status.departures import Departures
from covey.operator.status.rollout_counts import RolloutCounts, find_counts
from scrapes import Scrape
from unit.operator.test_claim_storm import victim
from unit.operator.world import World


def counted() -> Counter[str]:
    """Evacuations and victims since the process began."""
    scrape = Scrape.parse(metrics.render().decode())
    found = Counter({each: int(scrape(f"covey_evacuations_{each}_total")) for each in ("started", "finished")})
    found.update({kind: int(count) for kind, count in scrape.by("kind", "covey_victims_total").items()})
    return found


def rollout(target: str | None, *conditions: tuple[str, str], ready: int = 3) -> dict[str, Any]:
    """A status in a rollout to a revision, with conditions that are True."""
    told = [{"type": kind, "status": "True", "reason": reason} for kind, reason in conditions]
    roles = [{"name": "decode", "ready": ready, "replicas": 3}]
    return {"conditions": told, "roles": roles, **({"rollout": {"toRevision": target}} if target else {})}


@pytest.mark.parametrize(
    ("before", "after", "labels"),
    [
        pytest.param(rollout("here"), rollout(None), ["Completed"], id="all of it is Ready"),
        pytest.param(rollout("here"), rollout(None, ready=2), ["Unready"], id="the last one is not Ready in time"),
        pytest.param(
            rollout("other"), rollout("here"), ["Superseded", "Spec"], id="another one was asked for meanwhile"
        ),
    ],
)
def test_a_rollout_ends_with_a_result(before: dict[str, Any], after: dict[str, Any], labels: list[str]) -> None:
    verdict = World.settled(llama()).judge()
    for status in (before, after):
        if status.get("rollout", {}).get("toRevision") == "here":
            status["rollout"]["toRevision"] = verdict.wanted.hash
    assert [label for _, (label,) in find_counts(verdict, before, after)] == labels


def test_a_watch_that_lags_makes_nothing_count_twice() -> None:
    """Two writes within a moment: the watch shows the first one when the second is written already, and it is again."""
    verdict, begun = World.settled(llama()).judge(), counted()
    moving, moved = rollout(None, ("Evacuating", "NodeLeaving")), rollout(None)
    counting = RolloutCounts()
    counting.count_status("uid", verdict, moved, moving)
    for stale in (moving, moving):
        counting.count_status("uid", verdict, stale, moved)
    assert counted() - begun == {"started": 1, "finished": 1}
    counting.forget("uid")
    counting.count_status("uid", verdict, moving, moved)
    assert counted() - begun == {"started": 1, "finished": 2}


rollouts = st.none() | st.tuples(
    st.sampled_from("ab"), st.none() | st.tuples(st.sampled_from(["Nodes", "Readiness"]), st.integers(1, 3))
)


@given(st.lists(rollouts, max_size=12))
def test_who_was_begun_is_finished_once_or_still_on_its_way(drawn: Sequence[Any]) -> None:
    world = World.settled(llama())
    verdict = world.judge()
    status: dict[str, Any] = {}
    tally: Counter[object] = Counter()
    changes = 0
    for each in drawn:
        after: dict[str, Any] = {"conditions": []}
        if each is not None:
            after["rollout"] = {"toRevision": each[0]}
            if each[1] is not None:
                after["rollout"]["hold"] = {"gate": each[1][0], "since": str(each[1][1])}
        changes += bool(after.get("rollout", {}).get("hold")) and after.get("rollout") != status.get("rollout")
        tally.update(counter for counter, _ in find_counts(verdict, status, after))
        assert not list(find_counts(verdict, after, after)), "a new operator counts nothing again"
        status = after
    assert tally[operator_metrics.ROLLOUTS_STARTED] - tally[operator_metrics.ROLLOUTS_FINISHED] == ("rollout" in status)
    assert tally[operator_metrics.ROLLOUT_HOLDS] == changes


def test_what_gives_way_is_counted_once_for_each_replica() -> None:
    world = World.serving(llama(replicas=2))
    alone = victim(world, next(name for name in world.pods if "-0-decode-2-" in name), whole=False)
    whole = victim(world, next(name for name in world.pods if "-1-decode-0-" in name), whole=True)
    world.claims = (RootClaim("root", "prod", "chat", "Preemption", (alone, whole)),)
    begun = counted()
    for _ in range(2):
        planned = world.plan()
        departures = Departures(planned)
        for step in list(world.steps(planned.actions)):
            step()
        for item in planned.actions.delete_pods:
            departures.count_deletion(item)
        # The next pass is of an operator that knows of nothing.
        world.forget()
        # Two of prefill and three of decode are a unit; decode/2 of the other one is none of its minimum.
        assert counted() - begun == {"Replica": 1, "Unit": 5}


def test_hold_when_new_replicas_have_no_nodes_is_counted_under_its_former_name_too() -> None:
    before = Scrape.parse(metrics.render().decode())
    hold = {"gate": "Nodes", "since": "2026-01-01T00:00:00Z"}
    status = {"rollout": {"toRevision": "b", "hold": hold}}
    RolloutCounts().count_status("uid", World.settled(llama()).judge(), {}, status)
    after, name = Scrape.parse(metrics.render().decode()), "covey_rollout_holds_total"
    assert [after(name, gate=gate) - before(name, gate=gate) for gate in ("Nodes", "Room", "Budget")] == [1, 1, 0]


def test_progress_when_a_former_release_wrote_it_still_waits_for_nodes() -> None:
    hold = {"gate": "Room", "since": "2026-01-01T00:00:00Z", "message": "1 of a"}
    rollout = {"toRevision": "b", "progressedAt": "2026-01-01T00:00:00Z", "hold": hold}
    progress = read_progress({"rollout": rollout})
    assert progress is not None
    assert progress.hold is not None
    assert (progress.hold.gate.value, progress.hold.reason) == ("Nodes", "1 of a")
