"""Parts of pages that are made from the code, committed where people read them.

A part stands between two comments, which no reader sees::

    <!-- generated: fields ClusterTopology -->
    …
    <!-- end of generated -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from covey.observability import reference
from handbook import decisions, examples, fields, programs, settings, words
from handbook.pages import DOCS

GENERATORS: Final[Mapping[str, Callable[..., str]]] = {
    "fields": fields.reference,
    "programs": programs.reference,
    "examples": examples.table,
    "decisions": decisions.table,
    "metrics": reference.tables,
    "settings": settings.reference,
    "words": words.table,
}
_PART: Final = re.compile(
    r"^(?P<begin><!-- generated: (?P<name>\w+) *(?P<arguments>[^>]*?) *-->)$(?:.*?)^(?P<end><!-- end of generated -->)$",
    re.MULTILINE | re.DOTALL,
)
_BEGIN: Final = re.compile(r"^<!-- generated: ", re.MULTILINE)


def fill(text: str) -> str:
    """A page with its parts as the code makes them now.

    Raises:
        ValueError: a part does not end.
    """
    if len(_BEGIN.findall(text)) != len(_PART.findall(text)):
        raise ValueError("a part does not end with <!-- end of generated -->")
    return _PART.sub(_made, text)


def outdated_pages() -> dict[Path, str]:
    """Pages, and files of the chart, whose parts are not what the code makes, with the text that they should have."""
    found = {path: made for path, made in settings.chart_files() if made != path.read_text(encoding="utf-8")}
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        made = fill(text)
        if made != text:
            found[path] = made
    return found


def _made(part: re.Match[str]) -> str:
    text = GENERATORS[part["name"]](*part["arguments"].split())
    return f"{part['begin']}\n\n{text.strip()}\n\n{part['end']}"
