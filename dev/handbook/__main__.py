"""Writes the parts of pages that are made from the code; with ``--check`` it names the pages that are out of date."""

from __future__ import annotations

import sys

from handbook.generated import outdated_pages
from handbook.pages import ROOT


def main() -> int:
    """Return 1 where a page is out of date and was only looked at."""
    outdated = outdated_pages()
    check = "--check" in sys.argv[1:]
    for path, text in outdated.items():
        if check:
            print(f"{path.relative_to(ROOT)} is out of date: run 'make reference'", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
