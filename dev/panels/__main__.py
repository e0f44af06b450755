"""``make docs-pictures``: play the run, keep its series, draw every panel in light and in dark."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from panels.dashboard import ROOT, panels, read
from panels.draw import draw
from panels.load import CHOSEN, SCRAPE, run
from panels.series import Kept, collect
from panels.style import THEMES

SERIES = ROOT / "build" / "panels" / "series.json"
PICTURES = ROOT / "docs" / "assets" / "generated" / "monitoring"


def main() -> int:
    """Draw the pictures, of a new run or of one that was kept."""
    parser = argparse.ArgumentParser(prog="python -m panels", description=__doc__)
    parser.add_argument("--series", type=Path, default=SERIES, help="where the series of the run are kept")
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="where the pictures go")
    parser.add_argument("--again", action="store_true", help="draw what is kept, without a run")
    given = parser.parse_args()
    kept = Kept.read(given.series) if given.again else play(given.series)
    count = pictures(kept, given.pictures)
    print(f"{count} pictures are in {given.pictures}")
    return 0


def play(keep: Path) -> Kept:
    """A new run; its series are kept in a file."""
    with tempfile.TemporaryDirectory(prefix="covey-panels-") as directory:
        began = time.time()
        with run(Path(directory)) as (fleet, prometheus):
            kept = collect(read(), prometheus, fleet.began, time.time(), fleet.marks, scrape=SCRAPE, chosen=CHOSEN)
        print(f"The run took {time.time() - began:.0f} s.")
    kept.write(keep)
    return kept


def pictures(kept: Kept, directory: Path) -> int:
    """Draw every panel in every look; returns how many pictures there are."""
    count = 0
    for panel in panels(read()):
        for theme in THEMES:
            draw(panel, kept, theme, directory / f"{panel.slug}-{theme.name}.png")
            count += 1
    return count


if __name__ == "__main__":
    raise SystemExit(main())
