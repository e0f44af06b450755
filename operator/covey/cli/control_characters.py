"""Control characters of others, which are shown and not sent to a terminal.

A terminal does what control characters say, and messages of a cluster are written by everybody. ``kubectl`` escapes them
for the same reason (CVE-2021-25743). What goes into a file or a pipe stays as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

if TYPE_CHECKING:
    pass


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
