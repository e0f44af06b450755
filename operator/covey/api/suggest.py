"""Suggestions for names that are misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str | None:
    """Find the name that is meant by another one: the same but for case, hyphens and underscores, or much like it."""
    plain = {_plain(word): word for word in known}
    close = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.8)
    return plain[close[0]] if close else None


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
