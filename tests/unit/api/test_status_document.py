"""``docs/reference/status.md`` says what the table of reasons says."""

from __future__ import annotations

import re

from covey.api import reasons
from localcluster.programs import ROOT

DOCUMENT = (ROOT / "docs" / "reference" / "status.md").read_text()
_ROW = re.compile(r"^\| `(?P<word>\w+)` \|(?P<cells>.*) \|$", re.MULTILINE)


def rows() -> list[tuple[str, ...]]:
    found = _ROW.finditer(DOCUMENT)
    return [(row["word"], *(cell.strip() for cell in row["cells"].split("|"))) for row in found]


def test_the_tables_of_the_document() -> None:
    conditions = [(kind, meaning) for table in (reasons.GOOD, reasons.BAD) for kind, meaning in table.items()]
    explained = [
        (word, each.meaning, each.remedy, "Failed" if each.needs_person else "")
        for table in (reasons.REASONS, reasons.GATES, reasons.RELEASES)
        for word, each in table.items()
    ]
    statuses = [(word, each.meaning, each.remedy) for word, each in reasons.STATUSES.items()]
    assert rows() == [*statuses, *conditions, *explained]
