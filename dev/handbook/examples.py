"""A page for each file of ``examples/``: what its first comment or docstring says, and the file as it stands."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

from handbook.pages import ROOT

EXAMPLES: Final = ROOT / "examples"
_LANGUAGES: Final = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".lua": "lua", ".sh": "bash", ".py": "python"}
_COMMENTS: Final = {".yaml": "#", ".yml": "#", ".lua": "--", ".sh": "#"}


@cache
def _files() -> tuple[Path, ...]:
    found = (path for path in EXAMPLES.rglob("*") if path.suffix in _LANGUAGES)
    return tuple(sorted(found, key=lambda path: (len(path.parts), path)))


def pages() -> dict[str, str]:
    """The source of each page, by its path below ``docs/``."""
    index = "# Examples\n\nEach is applied, planned or run by a test.\n\n" + table() + "\n"
    return {"examples/index.md": index} | {_page(path): _source(path) for path in _files()}


def page_of(target: str) -> str | None:
    """The page of a file below the project's root, or None where it is no example with a page."""
    path = ROOT / target
    if path == EXAMPLES:
        return "examples/index.md"
    return _page(path) if path in _files() else None


def table(folder: str = "") -> str:
    """The examples with what each is, in Markdown; those of one folder where it is given."""
    rows = ["| example | what it is |", "|---|---|"]
    for path in _files():
        name = path.relative_to(EXAMPLES).as_posix()
        if name.startswith(folder):
            rows.append(f"| [`{name}`]({'' if not folder else '../examples/'}{name}.md) | {_sentence(path)} |")
    return "\n".join(rows)


def _page(path: Path) -> str:
    return f"examples/{path.relative_to(EXAMPLES).as_posix()}.md"


def _source(path: Path) -> str:
    name = path.relative_to(EXAMPLES).as_posix()
    lines = path.read_text(encoding="utf-8").splitlines()
    fence = f'``` {{ .{_LANGUAGES[path.suffix]} title="examples/{name}" }}'
    return "\n".join([f"# {name}", "", *_comment(path), "", fence, *lines, "```"]) + "\n"


def _comment(path: Path) -> list[str]:
    """The comment at the top of a file, or a program's docstring, as text."""
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()
    sign = _COMMENTS.get(path.suffix)
    found: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if sign is None or not line.startswith(sign) or line.startswith("#!"):
            break
        found.append(line.removeprefix(sign).strip())
    return found


def _sentence(path: Path) -> str:
    """The first sentence of a file's comment."""
    text = " ".join(_comment(path))
    end = text.find(". ")
    return text if end < 0 else text[: end + 1]
