"""The terminal: one console for results, which knows whether colours are wanted and how wide it is.

A terminal does what control characters say, and messages of a cluster are written by everybody.

``kubectl`` escapes them for the same reason (CVE-2021-25743). What goes into a file or a pipe stays as it is.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from covey.cli.errors import CommandError

if TYPE_CHECKING:
    from rich.console import Console


#: Without a terminal lines are as long as they have to be: whoever reads them may grep.
_ENDLESS = 100_000
_PAGE = 160


def open_console(*, no_color: bool, err: bool = False) -> Console:
    """A console on standard output, or on standard error. Colours only on a terminal, and not with ``--no-color`` or ``NO_COLOR``.

    Raises:
        CommandError: rich is not installed; the image does not have it.
    """
    try:
        from rich.console import Console  # noqa: PLC0415 - the cli extra, and slow to import
    except ImportError:
        raise CommandError(
            "this form of output needs rich; install it with `pip install 'covey[cli]'`, or use -o json or yaml"
        ) from None
    plain = no_color or bool(os.environ.get("NO_COLOR"))
    console = Console(highlight=False, markup=False, emoji=False, no_color=plain, stderr=err)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _ENDLESS
    return console


def page_width(console: Console) -> int:
    """The width to lay a page out for, where there is no terminal to fill."""
    return min(console.width, _PAGE) if console.width == _ENDLESS else console.width


#: All control characters but tab, newline and the sequences for colours, which the program writes itself.
_FOREIGN: Final = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
_SHOWN: Final = "\N{REPLACEMENT CHARACTER}"


class Guarded:
    """A text stream that shows control characters of others and does not send them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, a replacement character for each control character that is not ours."""
        return self._stream.write(_FOREIGN.sub(_SHOWN, text))

    def writelines(self, lines: list[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guarded_terminals() -> Iterator[None]:
    """Within it, standard output and standard error are guarded where they are terminals."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        cast("TextIO", Guarded(stream)) if stream is not None and stream.isatty() else stream for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
