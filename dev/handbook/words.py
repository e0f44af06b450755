"""The tables of conditions and reasons, in Markdown, from the one table of all who explain (``covey.api.reasons``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from covey.api import reasons
from covey.api.reasons import Explanation

_TABLES: Final[Mapping[str, tuple[str, Mapping[str, Explanation]]]] = {
    "reasons": ("reason", reasons.REASONS),
    "gates": ("gate", reasons.GATES),
    "releases": ("value", reasons.RELEASES),
}


def table(name: str) -> str:
    """A table: ``statuses``, ``conditions``, ``reasons``, ``gates`` or ``releases``."""
    if name == "statuses":
        return _rows(
            ("STATUS", "means", "what to do"),
            *((f"`{word}`", item.meaning, item.remedy) for word, item in reasons.STATUSES.items()),
        )
    if name == "conditions":
        return _rows(
            ("condition", "True means"),
            *((f"`{kind}`", meaning) for kind, meaning in {**reasons.GOOD, **reasons.BAD}.items()),
        )
    head, items = _TABLES[name]
    return _rows(
        (head, "means", "what to do", "kstatus"),
        *(
            (f"`{word}`", item.meaning, item.remedy, "Failed" if item.needs_person else "")
            for word, item in items.items()
        ),
    )


def _rows(head: tuple[str, ...], *rows: tuple[str, ...]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows))
