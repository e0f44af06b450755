import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from covey.observability.logging import configure, get_logger


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Logging as it was: it is global."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    names = ("kopf", "aiohttp", "asyncio", "aiohttp.access")
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).disabled) for name in names}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, (old, disabled) in before.items():
        logging.getLogger(name).setLevel(old)
        logging.getLogger(name).disabled = disabled


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_of_json() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)
    get_logger("covey.scheduler").bind(namespace="prod").info("gang admitted", pods=4, nodes=("n1", "n2"))
    (line,) = lines(stream)
    assert list(line) == ["ts", "level", "logger", "event", "namespace", "pods", "nodes"]
    assert line["ts"].endswith("Z")
    assert (line["level"], line["logger"], line["event"]) == ("info", "covey.scheduler", "gang admitted")
    assert (line["namespace"], line["pods"], line["nodes"]) == ("prod", 4, ["n1", "n2"])


def test_a_logger_made_before_the_configuration_obeys_it() -> None:
    logger = get_logger("covey.early")
    logger.debug("nobody hears this")
    stream = io.StringIO()
    configure("warning", "json", stream)
    logger.info("too quiet")
    logger.warning("heard")
    configure("debug", "json", stream)
    logger.debug("heard now")
    assert [line["event"] for line in lines(stream)] == ["heard", "heard now"]


def test_bound_context_reaches_every_logger() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)
    with structlog.contextvars.bound_contextvars(workload="llm", unit=0):
        get_logger("covey").info("a")
        logging.getLogger("some.library").warning("b %s", 1)
    get_logger("covey").info("c")
    first, second, third = lines(stream)
    assert (first["workload"], first["unit"]) == (second["workload"], second["unit"]) == ("llm", 0)
    assert (second["event"], second["logger"], second["level"]) == ("b 1", "some.library", "warning")
    assert "workload" not in third


def test_libraries_are_heard_from_warning_on() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)
    logging.getLogger("kopf.objects").info("handler succeeded")
    logging.getLogger("kopf.objects").error("handler failed", extra={"attempt": 2})
    logging.getLogger("aiohttp.access").error("GET /healthz")
    (line,) = lines(stream)
    assert (line["event"], line["attempt"]) == ("handler failed", 2)


def test_a_traceback_is_structured_and_keeps_values_to_itself() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)

    def fails(token: str) -> None:
        assert token
        raise LookupError("no such node")

    try:
        fails("secret")
    except LookupError:
        get_logger("covey").exception("work failed", key="a")
    (line,) = lines(stream)
    assert line["exception"][0]["exc_type"] == "LookupError"
    assert line["exception"][0]["exc_value"] == "no such node"
    assert line["exception"][0]["frames"][-1]["name"] == "fails"
    assert "locals" not in line["exception"][0]["frames"][-1]
    assert "secret" not in stream.getvalue()


def test_what_json_does_not_know_is_shown_all_the_same() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)
    get_logger("covey").info("odd", error=LookupError("x"), keys={("ns", "p")}, counts={1: 2})
    (line,) = lines(stream)
    assert (line["error"], line["keys"], line["counts"]) == ("LookupError('x')", "{('ns', 'p')}", {"1": 2})


def test_text_for_people() -> None:
    stream = io.StringIO()
    configure("info", "console", stream)
    get_logger("covey.scheduler").info("gang admitted", pods=4)
    text = stream.getvalue()
    assert "gang admitted" in text
    assert "pods=4" in text
    assert "\x1b" not in text
