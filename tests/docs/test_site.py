"""The site: it builds without a warning, and a browser that reads it asks no other host."""

import functools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page

from handbook.pages import ROOT
from screens import chromium

#: What a browser would fetch by itself.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|link(?! rel=\"(?:next|prev|canonical)\"))[^>]*?(?:src|href)=\"?(https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": "operator:dev", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where it is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=site))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[tuple[Page, list[str]]]:
    """A page of a real browser, and what it asked of others and complained of."""
    wrong: list[str] = []
    with chromium.browser() as started:
        page = started.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)

        def asked(url: str) -> None:
            if not url.startswith((address, "data:", "blob:")):
                wrong.append(url)

        page.on("request", lambda each: asked(each.url))
        page.on("console", lambda each: wrong.append(each.text) if each.type == "error" else None)
        page.on("pageerror", lambda each: wrong.append(str(each)))
        yield page, wrong


def test_no_page_names_anything_of_another_host_that_is_fetched(site: Path) -> None:
    found = [path for path in site.rglob("*.html") if _FETCHED.search(path.read_text())]
    assert not found
    sheets = [path for path in site.rglob("*.css") if re.search(r"url\(['\"]?(https?:)?//", path.read_text())]
    assert not sheets


@pytest.mark.parametrize(
    "path",
    [
        "index",
        "quickstart",
        "concepts/gangs",
        "operations/troubleshooting",
        "reference/api",
        "reference/cli",
        "reference/metrics",
    ],
)
def test_a_browser_stays_on_the_site(browser: tuple[Page, list[str]], address: str, path: str) -> None:
    page, wrong = browser
    page.goto(f"{address}/{path}.html")
    page.wait_for_load_state("networkidle")
    assert page.locator("article h1").first.is_visible()
    assert not wrong


def test_no_page_is_wider_than_a_phone(browser: tuple[Page, list[str]], address: str) -> None:
    page, _ = browser
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("index", "quickstart", "reference/api", "reference/status", "operations/installation"):
        page.goto(f"{address}/{path}.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.set_viewport_size({"width": 1280, "height": 900})


def test_search_finds_a_field(browser: tuple[Page, list[str]], address: str) -> None:
    page, wrong = browser
    page.goto(f"{address}/index.html")
    page.get_by_placeholder("Search").first.click()
    page.get_by_placeholder("Search").first.press_sequentially("terminationDelaySeconds")
    page.locator(".md-search-result__item", has_text="API").first.wait_for()
    assert not wrong


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("stuck", "operations/troubleshooting"),
        ("hangs", "operations/troubleshooting"),
        ("pending", "operations/troubleshooting"),
        ("crashloop", "operations/troubleshooting"),
        ("image", "operations/installation"),
        ("helm values", "operations/installation"),
        ("install", "operations/installation"),
        ("upgrade", "operations/installation"),
        ("how to scale decode", "how-to/autoscaling"),
        ("70B", "examples/70b.yaml"),
        ("vllm", "how-to/engines"),
        ("quota", "how-to/queues"),
        ("krew", "reference/cli"),
        ("debugger", "contributing"),
    ],
)
def test_search_finds_first_what_helps(browser: tuple[Page, list[str]], address: str, words: str, first: str) -> None:
    page, _ = browser
    page.goto(f"{address}/index.html")
    page.get_by_placeholder("Search").first.click()
    page.get_by_placeholder("Search").first.press_sequentially(words)
    page.locator(f".md-search-result__item:first-child > a[href*='{first}.html']").first.wait_for()


def test_the_choice_of_a_tab_holds_for_the_page(browser: tuple[Page, list[str]], address: str) -> None:
    page, _ = browser
    page.goto(f"{address}/quickstart.html")
    page.get_by_text("kind", exact=True).first.click()
    page.get_by_text("docker build --tag covey:dev .").wait_for()


def test_a_generated_field_has_an_anchor_of_its_own(browser: tuple[Page, list[str]], address: str) -> None:
    page, _ = browser
    page.goto(f"{address}/reference/api.html#disaggregatedinference.spec.roles.minReplicas")
    row = page.locator("tr:has([id='disaggregatedinference.spec.roles.minReplicas'])")
    assert row.is_visible()
    assert "Complete replicas of this role" in row.inner_text()
