"""Limits of a server of the UI, so that no viewer harms another, or the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Bounds. Times are in seconds, sizes in bytes.

    ``feeds``: views (of one viewer with different namespaces counted apart) whose objects are kept at the same time;
    ``views``: of one viewer. ``tenant_feeds``: of the service accounts of one namespace, and ``account_feeds`` of all
    service
    accounts: whoever may make accounts has as many names as he likes. ``streams``: event streams of one feed. ``idle``:
    how long a feed outlives its last stream. ``pace``: time between two changes at least; drawing never takes more than
    a fifth of the time. ``recheck``: between two questions whether something may still be read. ``patience``: for the
    first answers of the API server, and for a page to take what it is sent. ``behind``: changes that may wait for a
    slow stream before it is sent a whole state instead. ``manifest``: size of what is pasted.
    ``questions``: stories, plans and new feeds of one viewer that are under way at the same time; ``all_questions``: of
    all viewers. ``tenant_questions`` and ``account_questions``: stories and plans of service accounts, as for views.
    ``namespaces``: that one view looks at.
    """

    feeds: int = 16
    views: int = 8
    tenant_feeds: int = 4
    account_feeds: int = 12
    streams: int = 8
    idle: float = 60.0
    pace: float = 1.0
    recheck: float = 30.0
    patience: float = 20.0
    behind: int = 8
    manifest: int = 1 << 20
    questions: int = 8
    all_questions: int = 32
    tenant_questions: int = 4
    account_questions: int = 24
    namespaces: int = 20


DEFAULT: Final = PageLimits()
