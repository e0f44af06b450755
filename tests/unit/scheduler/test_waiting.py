"""Who waits, why, and since when: the gauges after any history agree with counting anew."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from builders.members import root_key
from covey.admission.tree import Key
from covey.observability import metrics, scheduler_metrics
from covey.scheduler.pacing import REASONS, Waiting
from scrapes import Scrape

NOW = 1_000_000.0


def shown() -> dict[str, float]:
    return Scrape.parse(metrics.render().decode()).by("reason", "covey_gangs_waiting")


def ages() -> dict[str, float]:
    return Scrape.parse(metrics.render().decode()).by("reason", "covey_gangs_waiting_oldest_age_seconds")


def waiting() -> Waiting:
    scheduler_metrics.GANGS_WAITING.clear()
    return Waiting(lambda: NOW)


roots = st.sampled_from("abcdef").map(root_key)
reasons = st.sampled_from([None, "Infeasible", "SearchLimit", "NobodyKnows"])
times = st.none() | st.integers(0, int(NOW)).map(float)


@given(st.lists(st.tuples(roots, reasons, times) | roots, max_size=60))
def test_any_history_ends_in_what_is_there(history: list[tuple[object, ...]]) -> None:
    found = waiting()
    model: dict[object, tuple[str, float]] = {}
    for step in history:
        if isinstance(step, Key):
            found.drop(step)
            model.pop(step, None)
            continue
        root, reason, since = step
        found.update(root, reason, since)  # type: ignore[arg-type] # as the strategy says
        label = reason or "Waiting"
        begun = since if since is not None else model.get(root, ("", NOW))[1]
        model[root] = (str(label) if label in REASONS else "Other", begun)  # type: ignore[assignment] # a float
    assert found.oldest == {
        reason: min(since for why, since in model.values() if why == reason)
        for reason in {why for why, _ in model.values()}
    }
    assert shown() == dict(Counter(reason for reason, _ in model.values()))


def test_the_heap_does_not_outgrow_who_waits() -> None:
    found = waiting()
    found.update(root_key("old"), None, 1.0)
    for second in range(5_000):
        found.update(root_key("new"), "Infeasible", float(second + 2))
        found.drop(root_key("new"))
    assert found.oldest == {"Waiting": 1.0}
    assert sum(map(len, found._heaps.values())) < 100


def test_a_leader_shows_every_reason_and_the_age_from_the_start() -> None:
    found = waiting()
    found.begin()
    text = metrics.render().decode()
    assert all(f'covey_gangs_waiting{{reason="{reason}"}} 0.0' in text for reason in REASONS)
    assert all(f'covey_gangs_waiting_oldest_age_seconds{{reason="{reason}"}} 0.0' in text for reason in REASONS)
    found.update(root_key("a"), None, NOW - 90)
    found.update(root_key("b"), "Infeasible", NOW - 30)
    assert ages() == {"Waiting": 90, "Infeasible": 30}
    found.update(root_key("a"), "Infeasible", NOW - 90)
    assert ages() == {"Infeasible": 90}
    # Clocks differ: nobody has waited less than no time.
    found.update(root_key("a"), None, NOW + 5)
    assert found.age("Waiting") == 0.0
