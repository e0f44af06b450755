"""MkDocs' hooks: pages of the examples, links out of ``docs/``, and the navigation's patterns.

Whatever is wrong is a warning, with which ``mkdocs build --strict`` fails.
"""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from handbook import examples
from handbook.pages import DOCS, ROOT, without_directives

#: Pages whose sources lie beside the documentation.
_BESIDE: Final = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
#: How much less than the pages that help somebody search finds others: 1 where no pattern matches.
_SEARCH: Final = {
    "decisions/*": {"exclude": True},
    "examples/*": {"boost": 0.3},
    "reference/scenarios.md": {"boost": 0.3},
    "reference/groups.md": {"boost": 0.3},
    "reference/backends.md": {"boost": 0.5},
    "changelog.md": {"boost": 0.3},
    "performance.md": {"boost": 0.5},
    "limits.md": {"boost": 0.3},
    "concepts/*": {"boost": 0.8},
    "how-to/*": {"boost": 1.5},
    "operations/*": {"boost": 1.5},
}
_LINK: Final = re.compile(r"(?P<head>\]\()(?P<target>(?:\.\./)*[\w./-]+)(?P<anchor>#[\w.-]+)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that have no source in ``docs/``, and put pages in place of the navigation's patterns."""
    for source, path in _BESIDE.items():
        if (ROOT / source).exists():
            files.append(File.generated(config, path, content=(ROOT / source).read_text(encoding="utf-8")))
    for path, content in examples.pages().items():
        files.append(File.generated(config, path, content=content))
    paths = [file.src_uri for file in files.documentation_pages()]
    config.nav = _expanded(config.nav, paths)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs calls by name
    """Take out what is not for readers, and turn links to sources into links to pages."""
    here = page.file.src_uri
    page.meta["search"] = next((how for pattern, how in _SEARCH.items() if fnmatch(here, pattern)), {})
    text = without_directives(markdown, here)
    return _LINK.sub(lambda found: _link(found, here), text)


def _link(found: re.Match[str], here: str) -> str:
    """A link out of ``docs/``, or into it from a page that lies beside, as a link of the site; others as they are."""
    target = _resolve(here, found["target"])
    page = _BESIDE.get(target) or examples.page_of(target)
    if here in _BESIDE.values() and target.startswith("docs/"):
        page = target.removeprefix("docs/")
    if page is None:
        return found[0]
    up = "../" * here.count("/")
    return f"{found['head']}{up}{page}{found['anchor'] or ''})"


def _resolve(here: str, target: str) -> str:
    """The path below the project's root that a link of a page leads to."""
    base = ROOT if here in _BESIDE.values() else DOCS / PurePosixPath(here).parent
    try:
        return (base / target).resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return target


def _expanded(nav: Any, paths: list[str]) -> Any:
    """The navigation with the pages that its patterns stand for: those that no line names, by name."""
    named = {entry for entry in _leaves(nav) if "*" not in entry}

    def expand(entries: list[Any]) -> list[Any]:
        found: list[Any] = []
        for entry in entries:
            if isinstance(entry, dict):
                found += [{title: expand(below)} for title, below in entry.items()]
            elif "*" in entry:
                found += [path for path in sorted(paths) if fnmatch(path, entry) and path not in named]
            else:
                found.append(entry)
        return found

    return expand(nav)


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [leaf for entry in (nav.values() if isinstance(nav, dict) else nav) for leaf in _leaves(entry)]
