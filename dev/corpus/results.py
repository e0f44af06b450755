"""What a run has found: a table in Markdown, one column for each suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from corpus.edits import Edit

RESULTS: Final = Path(__file__).with_name("results.md")
#: How a verdict begins that names no test.
SURVIVED: Final = "survived"
_ABSENT: Final = "-"
_HEAD: Final = """# Which test finds which fault

Written by `make corpus ARGS=--write`: for each edit of `edits.toml` the first test that fails, by suite. "-" is not judged.
One that survives is a hole: write the test, or judge by another suite what only a control plane shows; then name it (`--edits`).
"""


def is_red(verdict: str) -> bool:
    """Whether a test fails with the edit."""
    return verdict.startswith("tests/")


def find_lost(before: Mapping[str, str], verdicts: Mapping[str, str]) -> dict[str, str]:
    """Find the edits that were red before and are not any more, with the tests that found them."""
    return {
        name: before[name] for name, verdict in verdicts.items() if is_red(before.get(name, "")) and not is_red(verdict)
    }


def read_results(path: Path) -> dict[str, dict[str, str]]:
    """Read verdicts by suite and name of the edit; none where the file is not there."""
    rows = [
        [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        for line in (path.read_text() if path.exists() else "").splitlines()
        if line.startswith("|")
    ]
    head, body = (rows[0], rows[2:]) if rows else ([], [])
    return {
        suite: {row[0]: row[column] for row in body if row[column] != _ABSENT}
        for column, suite in enumerate(head)
        if column >= 2
    }


def write_results(path: Path, edits: Sequence[Edit], results: Mapping[str, Mapping[str, str]]) -> None:
    """Write verdicts by suite and name of the edit."""
    suites = [suite for suite, verdicts in results.items() if verdicts]
    lines = [f"| edit | breaks | {' | '.join(suites)} |", f"|---|---|{'---|' * len(suites)}"]
    for edit in edits:
        verdicts = [results[suite].get(edit.name, _ABSENT) for suite in suites]
        if set(verdicts) == {_ABSENT}:
            continue
        cells = [f"`{verdict}`" if is_red(verdict) else verdict.replace("|", "/") for verdict in verdicts]
        lines.append(f"| {edit.name} | {edit.breaks.strip()} | {' | '.join(cells)} |")
    sums = [f"{suite}: {sum(map(is_red, results[suite].values()))} of {len(results[suite])} red" for suite in suites]
    path.write_text(f"{_HEAD}\n{'; '.join(sums)}.\n\n" + "\n".join(lines) + "\n")
