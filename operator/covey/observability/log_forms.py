"""The forms of logs: one JSON object a line, or a line of text; by structlog, on top of the standard library's loggers."""

from __future__ import annotations

import logging
from typing import Any, Final, Literal, cast

import orjson
import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, Processor, WrappedLogger

Format = Literal["json", "console"]
Logger = structlog.stdlib.BoundLogger

_HEAD: Final = ("ts", "level", "logger", "event")
_CALL: Final[list[Processor]] = [
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.PositionalArgumentsFormatter(),
    structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
]


def wrap_logger(logger: logging.Logger) -> Logger:
    """A logger of structlog's on top of one of the standard library's."""
    wrapped = structlog.wrap_logger(logger, processors=_CALL, wrapper_class=Logger, cache_logger_on_first_use=True)
    return cast("Logger", wrapped)


def make_formatter(format: Format, *, colors: bool) -> logging.Formatter:  # noqa: A002 - as in configure
    """The formatter of a form."""
    shared: list[Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    last: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if format == "json":
        # Without local variables: they can hold tokens, and whole caches.
        traces = ExceptionDictTransformer(show_locals=False, max_frames=20)
        last += [structlog.processors.ExceptionRenderer(traces), _render]
    else:
        last.append(structlog.dev.ConsoleRenderer(colors=colors, timestamp_key="ts"))
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.contextvars.merge_contextvars, structlog.stdlib.ExtraAdder()],
        processors=[*shared, *last],
    )


def _render(_logger: WrappedLogger, _method: str, entry: EventDict) -> str:
    """JSON with the head first; what JSON does not know is shown by its repr, never an error."""
    ordered: dict[str, Any] = {key: entry.pop(key) for key in _HEAD if key in entry}
    ordered.update(entry)
    return orjson.dumps(ordered, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
