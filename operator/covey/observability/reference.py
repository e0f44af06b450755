"""The reference page's tables of all metrics, from their descriptions; run as a program it prints them.

Imported by the site's build and by tests alone: it registers the metrics of both processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from covey.observability import metrics, operator_metrics, scheduler_metrics
from covey.observability.families import Family

#: The sections of the page.
PARTS: Final = (operator_metrics.FAMILIES, scheduler_metrics.FAMILIES, metrics.FAMILIES)


def families() -> Iterator[Family]:
    """Every metric, section by section."""
    for part in PARTS:
        yield from part


def tables() -> str:
    """The sections of the page in Markdown: a heading and a table for each part."""
    lines = []
    for part in PARTS:
        lines += [f"## {part.title}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        for family in part:
            labels = " ".join(f"`{label}`" for label in family.labels)
            lines.append(f"| `{family.name}` | {family.type} | {labels} | {family.meaning} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(tables(), end="")  # noqa: T201 - the result of the program
