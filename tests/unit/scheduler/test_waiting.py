"""Who waits, why, and since when: the gauges after any history agree with counting anew."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from builders.members import root_key
from covey.admission.nodes import Key
from covey.observability import metrics, scheduler_metrics
from covey.scheduler.waiting_gangs import REASONS, Waiting
from scrapes import Scrape

NOW = 1_000_000.0


def shown() -> dict[str, float]:
    return Scrape.parse(metrics.render().decode()).by("reason", "covey_gangs_waiting")


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
