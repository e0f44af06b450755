"""The terminal: one console for results, which knows whether colours are wanted and how wide it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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
