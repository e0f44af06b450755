import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.kube import events
from covey.kube.events import Book, ObjectRef, Occurrence, truncate

DINF = ObjectRef("inference.covey.dev/v1alpha1", "DisaggregatedInference", "llm", "prod", "u-1")


def occurrence(note: str = "4 nodes are short", regarding: ObjectRef = DINF) -> Occurrence:
    return Occurrence(regarding, "Warning", "Infeasible", note, "Admit")


def test_a_repetition_is_counted_on_the_first() -> None:
    book = Book()
    first, write = book.enter(occurrence(), 0.0)
    assert first is not None
    assert (first.count, write) == (1, True)
    again, write = book.enter(occurrence(), 100.0)
    assert again is first
    assert (first.count, first.first, first.last, write) == (2, 0.0, 100.0, True)


@pytest.mark.parametrize("other", [occurrence("other"), occurrence(regarding=DINF._replace(uid="u-2"))])
def test_what_differs_is_another_event(other: Occurrence) -> None:
    book = Book()
    first, _ = book.enter(occurrence(), 0.0)
    second, _ = book.enter(other, 0.0)
    assert first
    assert second
    assert first.name != second.name


def test_after_two_minutes_of_silence_a_new_series_begins() -> None:
    book = Book()
    first, _ = book.enter(occurrence(), 0.0)
    middle, _ = book.enter(occurrence(), 119.0)
    last, _ = book.enter(occurrence(), 239.0)
    assert middle is first
    assert last is not first


def test_the_bucket_of_one_object() -> None:
    book = Book()
    other = DINF._replace(name="other")
    written = [book.enter(occurrence(str(number)), 0.0)[1] for number in range(30)]
    assert written == [True] * 25 + [False] * 5
    assert book.enter(occurrence(regarding=other), 0.0)[1]
    assert [book.enter(occurrence(f"later {number}"), 10.0)[1] for number in range(3)] == [True, True, False]


def test_a_repetition_without_a_token_is_counted_all_the_same() -> None:
    book = Book()
    for _ in range(30):
        found, write = book.enter(occurrence(), 0.0)
    assert found is not None
    assert (found.count, write) == (30, False)
    assert book.enter(occurrence(), 5.0) == (found, True)
    assert found.count == 31


def test_memory_is_bounded() -> None:
    book = Book()
    for number in range(events.REMEMBERED + 10):
        book.enter(occurrence(regarding=DINF._replace(name=f"n{number}")), 0.0)
    assert len(book._series) == len(book._buckets) == events.REMEMBERED
    assert book.enter(occurrence(regarding=DINF._replace(name="n10")), 0.0)[0] is not None


def test_what_goes_on_is_remembered() -> None:
    book = Book()
    first, _ = book.enter(occurrence(), 0.0)
    for number in range(events.REMEMBERED + 10):
        book.enter(occurrence(regarding=DINF._replace(name=f"n{number}")), 0.0)
        if number % 1000 == 0:
            assert book.enter(occurrence(), 0.0)[0] is first
    assert book.enter(occurrence(), 0.0)[0] is first


@given(st.text(max_size=2000))
def test_a_note_fits(note: str) -> None:
    cut = truncate(note)
    assert len(cut.encode()) <= 1024
    assert cut == note or (cut.endswith("…") and note.startswith(cut[:-1]) and len(cut.encode()) > 1020)


def test_the_object() -> None:
    book = Book()
    found, _ = book.enter(occurrence(), 1_000_000.25)
    assert found is not None
    body = events.body(occurrence(), found, "covey-scheduler", "covey-0")
    assert body == {
        "metadata": {"name": found.name, "namespace": "prod"},
        "regarding": {
            "apiVersion": "inference.covey.dev/v1alpha1",
            "kind": "DisaggregatedInference",
            "name": "llm",
            "namespace": "prod",
            "uid": "u-1",
        },
        "type": "Warning",
        "reason": "Infeasible",
        "note": "4 nodes are short",
        "action": "Admit",
        "eventTime": "1970-01-12T13:46:40.250000Z",
        "reportingController": "covey-scheduler",
        "reportingInstance": "covey-0",
    }
    book.enter(occurrence(), 1_000_001.0)
    expected = {"series": {"count": 2, "lastObservedTime": "1970-01-12T13:46:41.000000Z"}}
    assert events.patch(found) == expected
    assert events.body(occurrence(), found, "covey-scheduler", "covey-0") == {**body, **expected}


def test_an_event_about_a_node_lies_in_the_default_namespace() -> None:
    found, _ = Book().enter(occurrence(regarding=ObjectRef("v1", "Node", "n" * 253)), 0.0)
    assert found is not None
    body = events.body(occurrence(regarding=ObjectRef("v1", "Node", "n")), found, "c", "i")
    assert body["metadata"]["namespace"] == "default"
    assert "namespace" not in body["regarding"]
    assert len(found.name) <= 253


def test_a_clock_that_is_set_back_does_not_silence_an_object() -> None:
    book = Book()
    assert book.enter(occurrence(), 1_000_000.0)[1]
    assert book.enter(occurrence("other"), 10.0)[1]
