"""Every link of every page leads to a file and, where it names one, to a heading."""

import re
from functools import cache
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify

from handbook.pages import DOCS, ROOT, pages, read

_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")
_HEADING = re.compile(r"^#+ (?P<text>.*?)(?: \{ *#(?P<name>[\w.-]+)[^}]*\})?$", re.MULTILINE)
#: What pages of `docs/` may lead to outside of it: the site has pages for these.
_OUTSIDE = ("examples", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")
_SOURCE = re.compile(r'<(?:img|source)\b[^>]*?\b(?:src|srcset)="(?P<target>[^"]+)"')


def links(path: Path) -> list[str]:
    prose = _CODE.sub("", read(path).prose)
    return [found["target"] for pattern in (_LINK, _SOURCE) for found in pattern.finditer(prose)]


@cache
def headings(path: Path) -> set[str]:
    """The anchors of a page, as the site makes them."""
    prose = read(path).prose
    found = _HEADING.finditer(prose)
    names = {each["name"] or slugify(re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", each["text"]), "-") for each in found}
    return names | set(re.findall(r' id="([\w.-]+)"', prose))


def test_links_lead_somewhere(subtests: pytest.Subtests) -> None:
    for path in pages():
        with subtests.test(path.name):
            for link in links(path):
                if "://" in link or link.startswith("mailto:"):
                    assert not link.startswith("http://"), link
                    continue
                name, _, anchor = link.partition("#")
                target = (path.parent / name).resolve() if name else path
                assert target.exists(), f"{link}: there is no such file"
                if path.is_relative_to(DOCS) and not target.is_relative_to(DOCS):
                    outside = target.relative_to(ROOT).as_posix()
                    assert outside.split("/")[0] in _OUTSIDE, f"{link}: the site has no page for it"
                if anchor and target.suffix == ".md":
                    assert anchor in headings(target), f"{link}: there is no such heading"


def test_pictures_come_from_here() -> None:
    for path in pages():
        pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", read(path).prose) + _SOURCE.findall(read(path).prose)
        assert not [link for link in pictures if "://" in link], path
