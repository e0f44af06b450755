"""Events: written in order, repetitions together, and series of the API."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from covey.kube.client import Client, Ignored
from covey.kube.errors import AlreadyExists, Forbidden, NotFound, Unreachable
from covey.kube.event_series import Book, ObjectRef, Occurrence, truncate
from covey.kube.events import EventRecorder
from covey.observability.families import REGISTRY
from virtual_time import now, virtual

REF = ObjectRef("v1", "Node", "n1")
Recording = Callable[["Sink", EventRecorder], Coroutine[Any, Any, None]]


class Sink:
    """Notes what is written; answers with the given errors first."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.written: list[tuple[str, str, int]] = []
        self.names: list[str] = []

    async def create(self, _: Any, body: Mapping[str, Any], _namespace: str, *, type: object) -> None:  # noqa: A002 - as in Client
        assert type is Ignored
        self.names.append(body["metadata"]["name"])
        await self.answer("create", body["note"], body.get("series", {}).get("count", 1))

    async def merge_patch(self, _: Any, name: str, _namespace: str, body: Mapping[str, Any], **_kind: object) -> None:
        await self.answer("patch", name, body["series"]["count"])

    async def answer(self, verb: str, what: str, count: int) -> None:
        await asyncio.sleep(0.01)
        error = self.errors.pop(0) if self.errors else None
        self.written.append((verb, what, count))
        if error:
            raise error


def recorded(*errors: Exception | None) -> Callable[[Recording], Callable[[], None]]:
    """Give a test a recorder that writes to a sink, which answers with these errors first, in virtual time."""

    def decorate(test: Recording) -> Callable[[], None]:
        @virtual
        async def call() -> None:
            sink = Sink(*errors)
            recorder = EventRecorder(cast(Client, sink), "covey", "me", clock=lambda: 1000.0 + now())
            task = asyncio.create_task(recorder.run())
            await test(sink, recorder)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        return call

    return decorate


def dropped(cause: str) -> float:
    return REGISTRY.get_sample_value("covey_events_dropped_total", {"cause": cause}) or 0.0


def say(recorder: EventRecorder, note: str = "note", regarding: ObjectRef | Mapping[str, Any] = REF) -> None:
    recorder.event(regarding, "Normal", "Reason", note, "Action")


@recorded()
async def test_events_are_written_in_order_and_repetitions_together(sink: Sink, recorder: EventRecorder) -> None:
    say(recorder, "a")
    say(recorder, "b")
    say(recorder, "a")
    await asyncio.sleep(1)
    assert sink.written == [("create", "a", 2), ("create", "b", 1)]
    say(recorder, "b")
    await asyncio.sleep(1)
    assert sink.written[2:] == [("patch", sink.names[1], 2)]


@recorded()
async def test_a_repetition_during_the_write_is_written_after_it(sink: Sink, recorder: EventRecorder) -> None:
    say(recorder)
    await asyncio.sleep(0.005)
    say(recorder)
    say(recorder)
    await asyncio.sleep(1)
    assert sink.written == [("create", "note", 1), ("patch", sink.names[0], 3)]


@recorded(None, NotFound(404))
async def test_a_series_whose_event_has_expired_begins_again(sink: Sink, recorder: EventRecorder) -> None:
    say(recorder)
    await asyncio.sleep(1)
    say(recorder)
    await asyncio.sleep(1)
    assert sink.written == [("create", "note", 1), ("patch", sink.names[0], 2), ("create", "note", 2)]


@recorded(*[Unreachable("no")] * 7, AlreadyExists(409))
async def test_an_unreachable_server_is_tried_again_and_then_given_up(sink: Sink, recorder: EventRecorder) -> None:
    before = dropped("failed")
    say(recorder, "lost")
    say(recorder, "late")
    await asyncio.sleep(60)
    assert [what for _, what, _ in sink.written] == ["lost"] * 5 + ["late"] * 3
    assert dropped("failed") == before + 1


@recorded()
async def test_too_many_are_dropped_oldest_first_and_counted(sink: Sink, recorder: EventRecorder) -> None:
    before = dropped("overflow")
    for number in range(1003):
        say(recorder, str(number), ObjectRef("v1", "Node", f"n{number}"))
    await recorder.flush(60)
    assert [what for _, what, _ in sink.written] == [str(number) for number in range(3, 1003)]
    assert dropped("overflow") == before + 3


@recorded()
async def test_a_namespace_that_says_too_much_loses_its_own_and_others_are_written_in_turn(
    sink: Sink, recorder: EventRecorder
) -> None:
    for number in range(1100):
        say(recorder, f"loud {number}", ObjectRef("v1", "Pod", f"p{number}", namespace="loud"))
        if number % 500 == 0:
            say(recorder, f"quiet {number}", ObjectRef("v1", "Pod", f"p{number}", namespace="quiet"))
    await recorder.flush(60)
    notes = [what for _, what, _ in sink.written]
    assert [note for note in notes if note.startswith("quiet")] == ["quiet 0", "quiet 500", "quiet 1000"]
    assert max(notes.index(note) for note in notes if note.startswith("quiet")) < 6


@virtual
async def test_flush_after_the_task_was_cancelled_writes_what_it_was_writing() -> None:
    sink = Sink()
    recorder = EventRecorder(cast(Client, sink), "covey", "me", clock=now)
    task = asyncio.create_task(recorder.run())
    say(recorder, "a")
    say(recorder, "b")
    await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sink.written == []
    await recorder.flush()
    assert [what for _, what, _ in sink.written] == ["a", "b"]


@recorded()
async def test_nothing_that_is_said_raises(sink: Sink, recorder: EventRecorder) -> None:
    say(recorder, regarding={"kind": "Pod"})
    say(recorder, "x" * 5000, {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "ns", "uid": "u"})
    await asyncio.sleep(1)
    assert [len(what.encode()) for _, what, _ in sink.written] == [1024]


@given(st.text(max_size=2000))
def test_a_note_fits(note: str) -> None:
    cut = truncate(note)
    assert len(cut.encode()) <= 1024
    assert cut == note or (cut.endswith("…") and note.startswith(cut[:-1]) and len(cut.encode()) > 1020)


@recorded()
async def test_one_object_cannot_flood(sink: Sink, recorder: EventRecorder) -> None:
    before = dropped("rate")
    for number in range(30):
        say(recorder, str(number))
    await recorder.flush(60)
    assert len(sink.written) == 25
    assert dropped("rate") == before + 5


@recorded(Forbidden(403, "Forbidden", "namespace is being terminated"))
async def test_a_refused_event_is_dropped_at_once(sink: Sink, recorder: EventRecorder) -> None:
    before = dropped("failed")
    say(recorder, "a")
    say(recorder, "b")
    await asyncio.sleep(1)
    assert [what for _, what, _ in sink.written] == ["a", "b"]
    assert dropped("failed") == before + 1


def test_a_clock_that_is_set_back_does_not_silence_an_object() -> None:
    book = Book()
    for note, at in (("before", 1_000_000.0), ("after", 10.0)):
        assert book.enter(Occurrence(REF, "Normal", "Reason", note, "Action"), at)[1]
