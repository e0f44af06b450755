"""Rollouts, evacuations and what is given up are counted once for each change of the status, whoever writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import llama, template
from covey.observability import metrics
from covey.operator.model import podstate
from covey.operator.model.claimed import RootClaim
from covey.operator.model.node_drain import Notice
from covey.operator.status.lives import Milestones, find_milestones
from covey.operator.status.metrics import Departures
from scrapes import Scrape
from unit.operator import test_loss
from unit.operator.test_claim_storm import victim
from unit.operator.world import World

NEW = template(nodeSelector={"new": "yes"})
OTHER = template(nodeSelector={"other": "yes"})

LABELS = {
    "covey_rollouts_started_total": "cause",
    "covey_rollouts_finished_total": "result",
    "covey_rollout_holds_total": "gate",
    "covey_evacuations_started_total": "",
    "covey_evacuations_finished_total": "",
    "covey_evacuations_blocked_total": "reason",
    "covey_replicas_evacuated_total": "",
    "covey_gang_escalations_total": "step",
    "covey_victims_total": "kind",
}


def counted() -> Counter[str]:
    """Everything, as ``started Spec``."""
    scrape, found = Scrape.parse(metrics.render().decode()), Counter[str]()
    for metric, label in LABELS.items():
        what = metric.removeprefix("covey_").removesuffix("_total").replace("_", " ")
        for value, count in scrape.by(label, metric).items() if label else (("", scrape(metric)),):
            found[f"{what} {value}".rstrip()] += int(count)
    return +found


class Story:
    """A world with an operator that counts; each pass may be another one's."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._before = counted()

    def seen(self) -> dict[str, int]:
        """What was counted since this was asked last."""
        now = counted()
        found, self._before = now - self._before, now
        return dict(found)

    def act(self) -> None:
        """One pass: done, told, and what terminates is gone after it."""
        world = self.world
        verdict, before = world.judge(), world.status
        planned, after = world.plan(), world.tell()
        departures = Departures(verdict.inference.spec, world.observe(), planned)
        for step in list(world.steps(planned.actions)):
            step()
        for item in planned.actions.delete_pods:
            departures.count_deletion(item)
        # Each pass may be another operator's.
        Milestones().count_status("uid", verdict, before, after)
        world.finish()

    def serve(self) -> None:
        for name, pod in list(self.world.pods.items()):
            if not podstate.is_dead(pod):
                self.world.bind(name, pod.spec.node_name or f"node-{name}")
                self.world.ready(name)

    def roll(self, passes: int = 12) -> None:
        for _ in range(passes):
            self.act()
            self.serve()


@pytest.fixture
def story() -> Story:
    world = World.settled(llama())
    made = Story(world)
    made.serve()
    made.act()
    assert made.seen() == {}, "a resource that starts is no rollout"
    return made


def test_a_hold_is_counted_when_it_begins(story: Story) -> None:
    story.world.inference = llama({"template": NEW}, rollout={"paused": True})
    story.roll(3)
    assert story.seen() == {"rollouts started Spec": 1, "rollout holds Paused": 1}
    story.world.inference = llama({"template": NEW}, rollout={"progressDeadlineSeconds": 60})
    story.act()
    story.act()
    story.seen()
    story.world.now += 61
    story.act()
    story.act()
    assert story.seen() == {"rollout holds Failed": 1}


def test_a_change_in_the_middle_and_one_that_is_taken_back(story: Story) -> None:
    story.world.inference = llama({"template": NEW})
    story.act()
    story.world.inference = llama({"template": OTHER})
    story.act()
    seen = story.seen()
    assert (seen["rollouts started Spec"], seen["rollouts finished Superseded"]) == (2, 1)
    story.world.inference = llama()
    story.roll()
    seen = story.seen()
    assert sum(count for key, count in seen.items() if key.startswith("rollouts finished")) >= 1
    assert "rollout" not in story.world.status


def test_what_ends_without_all_of_it_ready(story: Story) -> None:
    """Nothing of the revision before is left, and the last of the new one does not get Ready in time."""
    before = {"rollout": {"toRevision": "x", "fromRevision": "y"}, "conditions": []}
    after = {"conditions": [], "roles": [{"name": "decode", "ready": 2, "replicas": 3}]}
    verdict = story.world.judge()
    assert verdict.accepted is not None
    before["rollout"]["toRevision"] = verdict.accepted.revision.hash  # type: ignore[index, call-overload] # a dict
    assert results(find_milestones(verdict, before, after)) == ["Unready"]


def results(found: Any) -> list[str]:
    return [" ".join(labels) for _, labels in found]


def conditions(*true: tuple[str, str]) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "reason": reason} for kind, reason in true]}


def test_a_watch_that_lags_makes_nothing_count_twice(story: Story) -> None:
    """Two writes within a moment: the watch shows the first one when the second is written already, and it is again."""
    verdict, moving, moved = story.world.judge(), conditions(("Evacuating", "NodeLeaving")), conditions()
    counting = Milestones()
    counting.count_status("uid", verdict, conditions(), moving)
    for stale in (moving, moving):
        counting.count_status("uid", verdict, stale, moved)
    assert story.seen() == {"evacuations started": 1, "evacuations finished": 1}
    counting.forget("uid")
    counting.count_status("uid", verdict, moving, moved)
    assert story.seen() == {"evacuations finished": 1}


def test_what_is_given_up_is_counted_once() -> None:
    world = test_loss.serving()
    test_loss.lose(world, "decode")
    test_loss.movable(world, "Unit")
    story = Story(world)
    for _ in range(2):
        test_loss.age(world)
        story.act()
    assert story.seen() == {}
    world.now += 60
    story.act()
    assert story.seen() == {"gang escalations Unit": 1}
    story.act()
    assert story.seen() == {}


def test_a_pod_that_goes_already_is_not_counted_again(story: Story) -> None:
    """A restarted operator asks once more for the deletion of what still terminates."""
    world = test_loss.serving()
    test_loss.lose(world, "decode")
    test_loss.movable(world, "Unit")
    test_loss.act(world)
    world.now += 60
    planned = world.plan()
    assert planned.loss.delete
    for item in planned.loss.delete:
        world.delete(item.pod.metadata.name)
    world.forget()
    again = world.plan()
    departures = Departures(world.inference.spec, world.observe(), again)
    story.seen()
    for item in again.loss.delete:
        departures.count_deletion(item)
    assert story.seen() == {}


rollouts = st.none() | st.tuples(
    st.sampled_from("ab"), st.none() | st.tuples(st.sampled_from(["Room", "Readiness"]), st.integers(1, 3))
)


@given(st.lists(rollouts, max_size=12))
def test_who_was_begun_is_finished_once_or_still_on_its_way(drawn: Sequence[Any]) -> None:
    world = World.settled(llama())
    verdict = world.judge()
    status: dict[str, Any] = {}
    tally: Counter[str] = Counter()
    changes = 0
    for each in drawn:
        after: dict[str, Any] = {"conditions": []}
        if each is not None:
            after["rollout"] = {"toRevision": each[0]}
            if each[1] is not None:
                after["rollout"]["hold"] = {"gate": each[1][0], "since": str(each[1][1])}
        changes += bool(after.get("rollout", {}).get("hold")) and after.get("rollout") != status.get("rollout")
        for counter, labels in find_milestones(verdict, status, after):
            tally[f"{counter._name} {' '.join(labels)}"] += 1
        assert not list(find_milestones(verdict, after, after)), "a new operator counts nothing again"
        status = after
    started = sum(count for key, count in tally.items() if "started" in key)
    finished = sum(count for key, count in tally.items() if "finished" in key)
    assert started - finished == ("rollout" in status)
    assert sum(count for key, count in tally.items() if "holds" in key) == changes


def test_an_evacuation(story: Story) -> None:
    world = story.world
    leaves = next(pod.spec.node_name for pod in world.pods.values() if pod.metadata.label("covey.dev/role") == "decode")
    world.notices = {leaves or "": Notice("cordoned")}
    story.act()
    assert story.seen() == {"evacuations started": 1}
    story.roll(4)
    assert story.seen() == {"replicas evacuated": 1, "evacuations finished": 1}
    story.roll(3)
    assert story.seen() == {}


def test_what_gives_way_is_counted_once_for_each_replica(story: Story) -> None:
    world = story.world
    world.inference = llama(replicas=2)
    story.roll()
    story.seen()
    alone = victim(world, next(name for name in world.pods if "-0-decode-2-" in name), whole=False)
    whole = victim(world, next(name for name in world.pods if "-1-decode-0-" in name), whole=True)
    world.claims = (RootClaim("root", "prod", "chat", "Preemption", (alone, whole)),)
    story.act()
    # Two of prefill and three of decode are a unit; decode/2 of the other one is none of its minimum.
    assert story.seen() == {"victims Replica": 1, "victims Unit": 5}
    world.forget()
    story.act()
    assert story.seen() == {}
