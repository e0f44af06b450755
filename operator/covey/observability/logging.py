"""Structured logs on stderr; stdout belongs to the results of commands.

One JSON object a line with the keys ``ts`` (RFC 3339, UTC), ``level``, ``logger``, ``event``, then whatever was
bound; or, for people, a line of text.  ``event`` is a constant phrase in lower case, data go into keys.

structlog runs on top of the standard library's loggers, not in parallel: kopf, aiohttp and asyncio come out in
the same form through the same handler, and a program that never calls ``configure`` shows warnings on stderr.
Keys bound with ``structlog.contextvars.bound_contextvars`` follow a task through everything it calls.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

if TYPE_CHECKING:
    from covey.observability.log_forms import Format, Logger

#: By the name of the method that writes a line.
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
#: These would repeat every probe and every call of kube-scheduler.
_SILENT: Final = ("aiohttp.access",)


class _Deferred:
    """A logger that imports structlog only when a line is written: that takes 50 ms, and most commands write none."""

    def __init__(self, name: str) -> None:
        self._standard = logging.getLogger(name)
        self._wrapped: Logger | None = None

    def __getattr__(self, name: str) -> Any:
        if name in _LEVELS and not self._standard.isEnabledFor(_LEVELS[name]):
            return _write_nothing
        if self._wrapped is None:
            from covey.observability.log_forms import wrap_logger  # noqa: PLC0415 - see above

            self._wrapped = wrap_logger(self._standard)
        return getattr(self._wrapped, name)


def _write_nothing(*_values: object, **_keys: object) -> None:
    """The level is off."""


def get_logger(name: str) -> Logger:
    """A logger for one module; may be called at import, before ``configure``."""
    return cast("Logger", _Deferred(name))


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
    from covey.observability.log_forms import make_formatter  # noqa: PLC0415 - as structlog above

    output.setFormatter(make_formatter(format, colors=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level.upper())
    for name in ("kopf", "aiohttp", "asyncio"):
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    for name in _SILENT:
        logging.getLogger(name).disabled = True
