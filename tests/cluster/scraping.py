"""Scrapes of processes that run."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from typing import Any

from localcluster import Process, eventually
from scrapes import Scrape


def scrape(process: Process) -> Scrape:
    """What a process says now."""
    with urllib.request.urlopen(process.metrics_url, timeout=10) as answer:
        return Scrape.parse(answer.read().decode())


def await_scrape(process: Process, check: Callable[[Scrape], Any], describe: str) -> Scrape:
    """Scrape until what was expected is there."""

    def there() -> Scrape | None:
        seen = scrape(process)
        return seen if check(seen) else None

    return eventually(there, 60, describe)


def is_alone(seen: Scrape) -> bool:
    """Tell whether no gang waits: what other tests have left is gone."""
    return not seen.by("reason", "covey_gangs_waiting")
