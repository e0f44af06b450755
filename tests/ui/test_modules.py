"""The pure parts of the page, called in the browser with values."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from screens import chromium
from screens.serving import Served
from ui.screen import Screen


@pytest.fixture(scope="module")
def screen(browser: Browser, served: Served) -> Iterator[Screen]:
    """One page for all: nothing here changes it."""
    opened = Screen(*chromium.visit(browser, served.link())).live()
    yield opened
    assert opened.watch.faults == []
    opened.page.context.close()


def call(screen: Screen, module: str, expression: str, *values: Any) -> Any:
    """The value of an expression in which ``it`` is the module and ``v`` the values."""
    script = f"async (v) => {{ const it = await import('./{module}'); return {expression}; }}"
    return screen.page.evaluate(script, list(values))


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # the examples of RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_changes_are_merged_as_the_standard_says(screen: Screen, target: Any, patch: Any, result: Any) -> None:
    assert call(screen, "store.js", "it.merged(v[0], v[1])", target, patch) == result


def test_events_may_come_in_pieces(screen: Screen) -> None:
    text = 'event: snapshot\ndata: {"a":\ndata: 1}\n\n: beat\n\nevent: change\r\ndata: ü\r\n\r\ndata: last\n\n'
    script = """await (async () => { const bytes = new TextEncoder().encode(v[0]), found = [];
    const body = new ReadableStream({ start(to) { for (let at = 0; at < bytes.length; at += v[1]) to.enqueue(bytes.slice(at, at + v[1])); to.close(); } });
    for await (const event of it.eventsOf(body)) if (event.event !== "beat") found.push([event.event, event.data]);
    return found; })()"""
    wanted = [["snapshot", '{"a":\n1}'], ["change", "ü"], ["message", "last"]]
    for size in (1, 2, 3, 7, 1000):
        assert call(screen, "stream.js", script, text, size) == wanted, size


def test_tries_are_further_and_further_apart(screen: Screen) -> None:
    waits = call(screen, "stream.js", "v[0].map((each) => it.backOff(each, 0))", [1, 2, 3, 4, 5, 6, 60])
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert call(screen, "stream.js", "it.backOff(6, 1)") == 22.5


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (250, "4 min 10 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
        (-5, "0 s"),
    ],
)
def test_times_are_told_in_their_largest_units(screen: Screen, seconds: float, words: str) -> None:
    assert call(screen, "words.js", "it.span(v[0])", seconds) == words


def test_quiet_times_are_drawn_short_and_in_order(screen: Screen) -> None:
    times = [0, 1000, 3000, 86_400_000, 86_401_000]
    places, inner = call(
        screen,
        "story-axis.js",
        "(() => { const s = it.timeScale(v[0], 100, 900); return [s.places, s.at(2000)]; })()",
        times,
    )
    assert places == sorted(places)
    assert (round(places[0]), round(places[-1])) == (100, 900)
    assert places[1] < inner < places[2]
    assert places[3] - places[2] < 0.9 * 800, "a day does not push the seconds together"
    assert call(screen, "story-axis.js", "it.timeScale([5], 100, 900).at(5)") == 100


@pytest.mark.parametrize(
    ("units", "most", "name"),
    [(True, 30, "2 · prefill 13"), (True, 10, "2 · pr… 13"), (False, 9, "prefi… 13"), (True, 1, "2 · p… 13")],
)
def test_lanes_are_told_apart_however_narrow(screen: Screen, *, units: bool, most: int, name: str) -> None:
    lane = {"unit": 2, "role": "prefill", "replica": 13}
    assert call(screen, "story-axis.js", "it.laneName(v[0], v[1], v[2])", lane, units, most) == name


def test_events_of_one_moment_have_one_sign_that_of_the_gravest(screen: Screen) -> None:
    def event(second: int, kind: str, tone: str = "Normal") -> Any:
        return {"time": f"2026-01-01T00:00:0{second}Z", "kind": kind, "type": tone}

    told = [
        event(0, "created"),
        event(1, "admitted"),
        event(1, "bound"),
        event(2, "ready"),
        event(2, "other", "Warning"),
    ]
    found = call(screen, "story-axis.js", "it.atOnce(v[0]).map((each) => each.map((event) => event.kind))", told)
    assert found == [["created"], ["bound", "admitted"], ["other", "ready"]]


def state(nodes: int, racks: int) -> Any:
    """A state with 8 devices on each node, one gang, and one pod of a stranger's on the first node."""
    return {
        "topology": {"levels": ["block", "rack"]},
        "nodes": {
            f"n{rack}-{number}": {
                "path": ["b0", f"r{rack}"],
                "cells": 8,
                "others": int(not rack + number),
                "closed": None,
            }
            for rack in range(racks)
            for number in range(nodes)
        },
        "gangs": {
            "a/x": {"namespace": "a", "name": "x", "roles": [{"name": "w", "letter": "W", "ink": 9}], "units": [{}]}
        },
        "pods": {
            "a/x-1": {
                "gang": "a/x",
                "unit": 0,
                "role": "w",
                "replica": 0,
                "index": 0,
                "node": "n0-0",
                "cells": 4,
                "state": "ready",
                "reason": "",
                "draining": False,
            },
        },
    }


def test_the_floor_counts_what_is_free(screen: Screen) -> None:
    box = "(({ cells, free, ours, others, boxes }) => ({ cells, free, ours, others, racks: boxes[0].boxes.map((each) => each.title) }))"
    shown = call(
        screen, "floor-model.js", f"{box}(it.buildFloor(v[0], it.shown(v[0], () => true), null))", state(2, 11)
    )
    assert (shown["cells"], shown["ours"], shown["others"], shown["free"]) == (176, 4, 1, 171)
    assert shown["racks"] == [f"rack r{number}" for number in range(11)], "in natural order"
    hidden = call(
        screen, "floor-model.js", f"{box}(it.buildFloor(v[0], it.shown(v[0], () => false), null))", state(2, 11)
    )
    assert (hidden["ours"], hidden["others"], hidden["free"]) == (0, 5, 171)


def test_what_is_worth_saying(screen: Screen) -> None:
    before = {"gangs": {"a/x": {"state": "waiting"}, "a/y": {"state": "ready"}}, "waiting": {}}
    after = {
        "gangs": {"a/x": {"state": "ready"}, "a/z": {"state": "held"}},
        "waiting": {"k": {"gang": "a/z", "reason": "QuotaExceeded"}},
    }
    assert call(screen, "announce.js", "it.news(v[0], v[1])", before, after) == [
        "a/x is ready", "a/z has appeared, held", "a/y is gone", "a/z waits: Quota exceeded",
    ]  # fmt: skip
    assert call(screen, "announce.js", "it.news(v[0], v[0])", before) == []
