"""A gang's readiness is observed once, by the times of the API; what is lost afterwards is counted as lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builders.inferences import inference, role
from covey.api import core
from covey.kube.resources import COMPOSITE_POD_GROUPS
from covey.observability import metrics
from covey.operator.status import status
from covey.operator.status.lives import Lives
from covey.operator.status.units import describe_units
from scrapes import Scrape
from unit.operator.world import World

NOW = "2026-01-01T01:00:00Z"
CREATED = "2026-01-01T00:00:00Z"


def total() -> tuple[float, ...]:
    scrape = Scrape.parse(metrics.render().decode())
    return (
        scrape("covey_gang_bound_to_ready_seconds_count"),
        scrape("covey_gang_bound_to_ready_seconds_sum"),
        scrape("covey_gang_created_to_ready_seconds_count"),
        scrape("covey_gang_created_to_ready_seconds_sum"),
        scrape("covey_gang_degradations_total"),
    )


class Story:
    """One resource with an operator that can be restarted."""

    def __init__(self, **spec: Any) -> None:
        self.world = World(inference(role("prefill", replicas=1, size=2), role("decode", replicas=2), **spec))
        self.world.settle()
        self.lives = Lives(lambda: 0.0)
        self.status: dict[str, Any] = {}
        self._before = total()

    def seen(self) -> tuple[float, ...]:
        return tuple(round(now - before, 3) for now, before in zip(total(), self._before, strict=True))

    def restart(self) -> None:
        self.lives = Lives(lambda: 0.0)

    def look(self) -> None:
        """One pass of the operator, as far as it is about this."""
        world = self.world
        observed, plan = world.observe(), world.plan()
        units = tuple(describe_units(world.inference, world.judge().backend, observed, plan))
        after = status.compute(world.judge(), observed, plan, units, self.status, NOW)
        self.lives.observe_status("uid", world.inference, observed, units, self.status)
        self.status = after

    def bind(self, *, of: str = "", second: int) -> None:
        self._mark("PodScheduled", of, second, bind=True)

    def ready(self, *, of: str = "", second: int) -> None:
        self._mark("Ready", of, second)

    def _mark(self, kind: str, of: str, second: int, *, bind: bool = False) -> None:
        for name in [name for name in self.world.pods if of in name]:
            if bind:
                self.world.bind(name)
            pod = self.world.pods[name]
            kept = [each for each in pod.status.conditions or () if each.type != kind]
            condition = core.Condition(kind, "True", last_transition_time=f"2026-01-01T00:00:{second:02}Z")
            self.world.change(name, status={"conditions": (*kept, condition)})

    def lose(self, of: str) -> None:
        for name in [name for name in self.world.pods if of in name]:
            pod = self.world.pods[name]
            conditions = tuple(each for each in pod.status.conditions or () if each.type != "Ready")
            self.world.change(name, status={"conditions": conditions})


@pytest.fixture
def story() -> Story:
    made = Story()
    for key, root in made.world.objects.items():
        if key[0] == COMPOSITE_POD_GROUPS.type:
            made.world.objects[key] = admitted(root)
    return made


def admitted(root: Any) -> Any:
    meta = msgspec.structs.replace(root.metadata, creation_timestamp=CREATED)
    conditions = (core.Condition("Admitted", "True", "Admitted", ""),)
    return msgspec.structs.replace(root, metadata=meta, status=core.GroupStatus(conditions=conditions))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_loss_is_counted_once_and_is_no_new_life(story: Story, *, restarted: bool) -> None:
    story.bind(second=10)
    story.ready(second=40)
    story.look()
    story.lose("prefill")
    if restarted:
        story.restart()
    for _ in range(3):
        story.look()
    assert story.seen()[::2] == (1, 1, 1)
    story.restart()
    story.look()  # it is below its minimum still: that was counted
    story.ready(of="prefill", second=50)
    story.look()
    assert story.seen()[::2] == (1, 1, 1)


class Walked(dict[Any, Any]):
    """A mapping that counts how often all of it was walked."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def test_units_that_become_ready_in_one_pass_share_one_walk_over_the_pods() -> None:
    story = Story(replicas=6)
    story.look()
    story.bind(second=5)
    story.ready(second=30)
    world = story.world
    observed, plan = world.observe(), world.plan()
    units = tuple(describe_units(world.inference, world.judge().backend, observed, plan))
    pods = observed.__dict__["current"] = Walked(observed.current)
    story.lives.observe_status("uid", world.inference, observed, units, story.status)
    assert story.seen()[:2] == (6, 150)
    assert pods.walks == 1
