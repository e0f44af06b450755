"""What is tried on every backend, each once: the rows of the table, in its order."""

from __future__ import annotations

from typing import Final

from matrix import carried, gangs, life
from matrix.rows import Scenario

SCENARIOS: Final[tuple[Scenario, ...]] = (*gangs.ROWS, *life.ROWS, *carried.ROWS)
