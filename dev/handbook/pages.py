"""What a page of the documentation holds beside its prose: fenced blocks, and directives to the test that runs them.

A directive is an HTML comment, which no reader sees::

    <!-- test: skip (docker): an image is built by a container engine -->
    <!-- test: run
    kubectl delete node node-0-0-0
    -->

It holds for the block that follows; ``cluster`` holds for the page, and ``run`` is a block by itself.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Where the project lies.
ROOT: Final = Path(__file__).resolve().parent.parent.parent
#: The pages are here, and the README beside.
DOCS: Final = ROOT / "docs"

_FENCE: Final = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<language>[\w+-]*)(?P<rest>[^`]*)$")
_TITLE: Final = re.compile(r'\btitle="(?P<title>[^"]*)"')
_DIRECTIVE: Final = re.compile(r"^ *<!-- test: (?P<word>\w+) *(?P<rest>.*?)(?P<end> *-->)? *$")
_END: Final = re.compile(r"^(?P<last>.*?) *--> *$")


class PageError(Exception):
    """A page does not keep to the conventions; the message has its name and line."""


@dataclass(frozen=True, slots=True)
class Directive:
    """One comment to the test: its word, what follows on its line, and the lines below it."""

    word: str
    rest: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        language: behind the fence; empty where there is none.
        title: of the block, mostly the name of a file; empty where there is none.
        text: what stands between the fences, without the fence's indent.
        line: of the opening fence, from 1.
        directives: that stand right before it.
    """

    language: str
    title: str
    text: str
    line: int
    directives: tuple[Directive, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path below the project's root, and its blocks and directives in order.

    Attributes:
        path: relative to the root, with slashes.
        settings: directives that hold for the whole page.
        blocks: fenced blocks, and hidden ones (``run``) as blocks of language ``sh``.
        prose: the page without blocks and directives, line by line; those lines are empty.
    """

    path: str
    settings: tuple[Directive, ...]
    blocks: tuple[Block, ...]
    prose: str


def pages() -> list[Path]:
    """Every page that people read: the documentation, the README and what stands beside it."""
    names = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
    beside = [ROOT / name for name in names if (ROOT / name).exists()]
    return [*beside, *sorted(DOCS.rglob("*.md"))]


def read(path: Path) -> Page:
    """Read a page.

    Raises:
        PageError: a fence or a directive does not end.
    """
    return parse(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())


def parse(text: str, path: str) -> Page:
    """Read a page's text.

    Raises:
        PageError: a fence or a directive does not end.
    """
    lines = text.splitlines()
    prose = list(lines)
    settings: list[Directive] = []
    blocks: list[Block] = []
    waiting: list[Directive] = []
    for found, begin, end in _marked(lines, path):
        prose[begin:end] = [""] * (end - begin)
        if isinstance(found, Block):
            blocks.append(Block(found.language, found.title, found.text, found.line, tuple(waiting)))
            waiting = []
        elif found.word == "run":
            blocks.append(Block("sh", "", found.text, found.line, (found,)))
        elif found.word == "cluster":
            settings.append(found)
        else:
            waiting.append(found)
    if waiting:
        raise PageError(f"{path}:{waiting[0].line}: no block follows the directive")
    return Page(path, tuple(settings), tuple(blocks), "\n".join(prose))


def without_directives(text: str, path: str) -> str:
    """The page as its readers get it."""
    lines = text.splitlines()
    for found, begin, end in reversed(list(_marked(lines, path))):
        if isinstance(found, Directive):
            del lines[begin:end]
    return "\n".join(lines) + "\n"


def _marked(lines: list[str], path: str) -> Iterator[tuple[Block | Directive, int, int]]:
    """Blocks and directives with the range of their lines."""
    number = 0
    while number < len(lines):
        begin = number
        number += 1
        if fence := _FENCE.match(lines[begin]):
            close = re.compile(rf"^ *{re.escape(fence['fence'])} *$")
            end = next((at for at in range(number, len(lines)) if close.match(lines[at])), None)
            if end is None:
                raise PageError(f"{path}:{begin + 1}: the block does not end")
            title = _TITLE.search(fence["rest"])
            indent = len(fence["indent"])
            text = "\n".join(line[indent:] if not line[:indent].strip() else line for line in lines[number:end])
            number = end + 1
            yield Block(fence["language"], title["title"] if title else "", text, begin + 1), begin, number
        elif opened := _DIRECTIVE.match(lines[begin]):
            text = ""
            if opened["end"] is None:
                end = next((at for at in range(number, len(lines)) if _END.match(lines[at])), None)
                if end is None:
                    raise PageError(f"{path}:{begin + 1}: the directive does not end")
                last = _END.match(lines[end])
                assert last is not None
                text = textwrap.dedent("\n".join([*lines[number:end], last["last"]])).strip()
                number = end + 1
            yield Directive(opened["word"], opened["rest"], text, begin + 1), begin, number
