"""Structured logs on stderr; stdout belongs to the results of commands.

One JSON object a line with the keys ``ts`` (RFC 3339, UTC), ``level``, ``logger``, ``event``, then whatever was
bound; or, for people, a line of text.  ``event`` is a constant phrase in lower case, data go into keys.

structlog runs on top of the standard library's loggers, not in parallel: kopf, aiohttp and asyncio come out in
the same form through the same handler, and a program that never calls ``configure`` shows warnings on stderr.
Keys bound with ``structlog.contextvars.bound_contextvars`` follow a task through everything it calls.
"""

import logging
import sys
from typing import Any, Final, Literal, TextIO, cast

import orjson
import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, Processor, WrappedLogger

Format = Literal["json", "console"]
Logger = structlog.stdlib.BoundLogger

_LEVELS: Final = ("debug", "info", "warning", "error")
#: These would repeat every probe and every call of kube-scheduler.
_SILENT: Final = ("aiohttp.access",)
_HEAD: Final = ("ts", "level", "logger", "event")
_CALL: Final[list[Processor]] = [
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.PositionalArgumentsFormatter(),
    structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
]


def get_logger(name: str) -> Logger:
    """A logger for one module; may be called at import, before ``configure``."""
    wrapped = structlog.wrap_logger(
        logging.getLogger(name), processors=_CALL, wrapper_class=Logger, cache_logger_on_first_use=True
    )
    return cast("Logger", wrapped)


def configure(level: str = "info", format: Format = "json", stream: TextIO | None = None) -> None:  # noqa: A002 - as --log-format
    """Send all logs of the process to one stream.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``; libraries below warning are heard from ``debug`` on.
        format: ``json`` for machines, ``console`` for people.
        stream: stderr when None.

    Raises:
        ValueError: an unknown level or format.
    """
    if level not in _LEVELS:
        raise ValueError(f"unknown log level {level!r}: one of {', '.join(_LEVELS)}")
    if format not in {"json", "console"}:
        raise ValueError(f"unknown log format {format!r}: json or console")
    stream = stream or sys.stderr
    output = logging.StreamHandler(stream)
    output.setFormatter(_formatter(format, colors=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level.upper())
    for name in ("kopf", "aiohttp", "asyncio"):
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    for name in _SILENT:
        logging.getLogger(name).disabled = True


def _formatter(format: Format, *, colors: bool) -> logging.Formatter:  # noqa: A002 - as in configure
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
