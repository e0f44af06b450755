"""Streams of one feed: what a slow page is sent, and how it ends."""

import pytest

from covey.ui.feed import Ended, Stream


async def test_a_stream_begins_with_the_whole_and_goes_on_with_changes() -> None:
    stream = Stream(lambda: b"whole", 3)
    stream.push(b"lost in the whole")
    assert await stream.next() == ("snapshot", b"whole")
    for change in (b"1", b"2"):
        stream.push(change)
    assert [await stream.next() for _ in range(2)] == [("change", b"1"), ("change", b"2")]


async def test_a_page_that_is_too_slow_gets_the_whole_again() -> None:
    stream = Stream(lambda: b"whole", 3)
    await stream.next()
    for number in range(50):
        stream.push(b"%d" % number)
    assert await stream.next() == ("snapshot", b"whole")
    stream.push(b"new")
    assert await stream.next() == ("change", b"new")


async def test_the_end_comes_before_all_that_waits() -> None:
    stream = Stream(lambda: b"whole", 3)
    stream.push(b"1")
    stream.end(Ended("no more"))
    with pytest.raises(Ended, match="no more"):
        await stream.next()
