"""What is told of a rollout, and what is remembered of it from pass to pass."""

from __future__ import annotations

from covey.rollout import RolloutBudget, Stage
from covey.rollout.gates import Gate
from covey.rollout.progress import RolloutProgress, Settings, describe_partition, resume_progress, tell
from unit.rollout.acting import Role, Unit


def told(unit: Unit, last: RolloutProgress | None, now: float, **settings: object) -> RolloutProgress | None:
    state = unit.state
    made = Settings(**settings)  # type: ignore[arg-type] # as they are called
    return tell({0: (state, unit.step())}, "b", resume_progress(last, "b", made, now), made, now)


def gate(progress: RolloutProgress | None) -> Gate | None:
    assert progress is not None
    return progress.hold.gate if progress.hold is not None else None


def test_rollout_gets_further_when_only_old_replicas_go() -> None:
    last = RolloutProgress("b", wave=1, ready=2, outdated=3, since=0.0)
    assert last.is_behind(ready=2, outdated=2)
    assert not last.is_behind(ready=2, outdated=3)


def test_each_wait_has_its_gate_and_its_beginning() -> None:
    unit = Unit({"prefill": Role.serving(2), "decode": Role.serving(2)})
    assert told(unit, None, 0.0) is None
    unit.edit("b")
    first = told(unit, None, 10.0)
    assert gate(first) is None
    waits = told(unit, first, 20.0)
    assert gate(waits) is Gate.NODES
    assert waits is not None
    assert waits.hold is not None
    assert waits.hold.reason == "1 of prefill, 1 of decode of the new revision without nodes"
    later = told(unit, waits, 50.0)
    assert later is not None
    assert later.hold == waits.hold
    unit.set(Stage.STARTING, unit.all(Stage.WAITING))
    starting = told(unit, later, 60.0)
    assert starting is not None
    assert (gate(starting), starting.since, starting.hold and starting.hold.since) == (Gate.READINESS, 10.0, 60.0)
    unit.thrive()
    went_on = told(unit, starting, 70.0)
    assert went_on is not None
    assert (gate(went_on), went_on.ready, went_on.outdated, went_on.since) == (None, 2, 4, 70.0)
    for now in range(80, 140, 10):
        unit.thrive()
        went_on = told(unit, went_on, float(now))
    assert went_on is None


def test_the_deadline_counts_from_the_last_progress_and_not_while_it_is_paused() -> None:
    unit = Unit({"prefill": Role.serving(2)})
    unit.edit("b")
    first = told(unit, None, 0.0, deadline=60)
    late = told(unit, first, 60.0, deadline=60)
    assert gate(late) is Gate.FAILED
    assert late is not None
    assert late.failed
    paused = told(unit, first, 60.0, deadline=60, paused=True)
    assert gate(paused) is Gate.PAUSED
    assert gate(told(unit, paused, 100.0, deadline=60)) is Gate.NODES
    assert gate(told(unit, paused, 161.0, deadline=60)) is Gate.NODES
    # Another target begins anew.
    assert resume_progress(late, "c", Settings(), 60.0) is None


def test_a_partition_is_no_failure() -> None:
    unit = Unit({"prefill": Role.serving(2, budget=RolloutBudget(partition=1))})
    unit.edit("b")
    last = None
    for now in (0.0, 10.0, 20.0, 5000.0):
        last = told(unit, last, now)
        unit.thrive()
    assert gate(last) is Gate.PARTITION
    assert last is not None
    assert last.done
    assert last.next_change_after(Settings(), 5000.0) is None


def test_a_partition_holds_when_it_holds_every_unit() -> None:
    unit = Unit({"prefill": Role.serving(3, budget=RolloutBudget(partition=2)), "decode": Role.serving(1)})
    unit.edit("b", "prefill")
    other = Unit({"prefill": Role.serving(3, budget=RolloutBudget(partition=2)), "decode": Role.serving(1)})
    other.edit("b", "prefill")
    for _ in range(4):
        unit.step()
        unit.thrive()
    settings = Settings()
    states = unit.state, other.state
    steps = {0: (states[0], unit.step()), 1: (states[1], other.step())}
    assert gate(tell(steps, "b", None, settings, 0.0)) is None, "the other one has begun"
    states = unit.state, other.state
    steps = {0: (states[0], unit.step()), 1: (states[1], other.step())}
    assert gate(tell(steps, "b", None, settings, 0.0)) is Gate.NODES
    for _ in range(4):
        other.step()
        other.thrive()
    states = unit.state, other.state
    steps = {0: (states[0], unit.step()), 1: (states[1], other.step())}
    assert gate(tell(steps, "b", None, settings, 0.0)) is Gate.PARTITION
    said = "partitioned roll out complete: 2 of 6 replicas of prefill (partition 2) are of revision b"
    assert describe_partition(states, "b") == said
