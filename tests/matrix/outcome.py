"""How a scenario ends on a backend, and the table of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

BEGIN: Final = "<!-- the table of make test-matrix: begin -->"
END: Final = "<!-- the table of make test-matrix: end -->"
#: Title of a scenario and of a column.
Cell = tuple[str, str]


@dataclass(frozen=True)
class Outcome:
    """As wanted, refused with a reason, or different in a way that the text tells."""

    kind: Literal["OK", "refused", "differs"]
    text: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind

    def covers(self, found: Outcome) -> bool:
        """Whether this is what was declared of ``found``: of a refusal some of its words, else all."""
        if self.kind == found.kind == "refused":
            return self.text in found.text
        return self == found


OK: Final = Outcome("OK")


def refused(words: str) -> Outcome:
    """The backend says before anything is created that it cannot carry this; ``words`` are part of its sentence."""
    return Outcome("refused", words)


def differs(how: str) -> Outcome:
    """The backend carries it, and ends elsewhere."""
    return Outcome("differs", how)


class RefusedError(Exception):
    """The condition BackendSupported is False; the message is its own."""


class DiffersError(Exception):
    """A scenario has come to rest elsewhere than wanted; the message says where."""


def render(scenarios: Sequence[str], columns: Sequence[str], cells: Mapping[Cell, Outcome]) -> str:
    """A Markdown table with a line for each scenario; a cell that was not played is empty."""
    rows = [["", *columns], ["---", *(":---:" for _ in columns)]]
    rows.extend([title, *(_shown(cells.get((title, column))) for column in columns)] for title in scenarios)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _shown(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    return "✔" if outcome == OK else f"*{outcome.kind}:* {outcome.text}".replace("|", "\\|")


def committed(document: str) -> str:
    """The table in a document, between its two markers.

    Raises:
        ValueError: when a marker is not there.
    """
    _, begin, rest = document.partition(BEGIN)
    table, end, _ = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks {BEGIN} or {END}")
    return table.strip() + "\n"


def replaced(document: str, table: str) -> str:
    """The document with another table between its markers."""
    committed(document)
    before, _, rest = document.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}{END}{rest.partition(END)[2]}"
