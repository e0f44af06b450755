"""The list of the decisions, by number."""

from __future__ import annotations

from handbook.pages import DOCS


def table() -> str:
    """A row for each decision: its number and its title, which links to it."""
    rows = ["| | decision |", "|---|---|"]
    for path in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        heading = path.read_text(encoding="utf-8").partition("\n")[0]
        number, _, title = heading.removeprefix("# ").partition(". ")
        rows.append(f"| {number} | [{title}]({path.name}) |")
    return "\n".join(rows)
