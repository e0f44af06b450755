"""Debian's chromium, driven by Playwright: whatever a page does that it must not is kept and told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
#: No sandbox: tests run as root in containers. Nothing asks the network for anything.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: What the browser says on the console when a request is answered with an error, which tests ask for.
_ANSWERED = "Failed to load resource"


class NoChromiumError(Exception):
    """There is no browser to test with."""


def program() -> str:
    """Where the browser is: ``COVEY_CHROMIUM``, or the first that is on the path.

    Raises:
        NoChromiumError: there is none.
    """
    found = os.environ.get("COVEY_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        raise NoChromiumError("there is no chromium: install Debian's package chromium, or set COVEY_CHROMIUM")
    return found


#: Seconds for anything that a page does: the machine may be busy, and nothing is said about how fast something is.
PATIENCE: Final = 120


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program(), args=list(_FLAGS), timeout=PATIENCE * 1000)
        try:
            yield started
        finally:
            started.close()


@dataclass
class Watch:
    """What a page has said and asked for."""

    origin: str
    #: Of the console, and exceptions; requests that left the origin.
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    #: Whether the server may be away: the browser then says so on the console.
    away: bool = False

    def follow(self, page: Page) -> None:
        """Listen to a page, before it is opened."""
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning") or (self.away and "ERR_" in message.text):
            return
        if not message.text.startswith(_ANSWERED):
            self.faults.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)
        address = urlsplit(request.url)
        if f"{address.scheme}://{address.netloc}" != self.origin:
            self.faults.append(f"request to {request.url}")


def visit(browser: Browser, url: str, **context: Any) -> tuple[Page, Watch]:
    """Open a page in a new profile.

    Args:
        browser: of :func:`browser`.
        url: the page.
        context: of Playwright's ``new_context``, such as ``color_scheme``.
    """
    profile = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce", **context})
    profile.set_default_timeout(PATIENCE * 1000)
    page = profile.new_page()
    address = urlsplit(url)
    watch = Watch(f"{address.scheme}://{address.netloc}")
    watch.follow(page)
    page.goto(url)
    return page, watch
