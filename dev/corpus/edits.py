"""Edits of the product's source, each anchored by a function and by text within it, so that they survive moved lines."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

EDITS: Final = Path(__file__).with_name("edits.toml")
#: Of the product, below the root of a tree.
PRODUCT: Final = Path("operator/covey")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class AnchorError(ValueError):
    """An edit whose text does not stand once in its function; the message says where."""


@dataclass(frozen=True, slots=True)
class Change:
    """Text of one function that is replaced. Line breaks and indentation do not count when it is sought."""

    at: str
    """``scheduler/cycle.py:Scheduler.assess``: a module of the product, and the qualified name of a function or class; or a module."""
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Edit:
    """One fault: what it is called, what it breaks, and the changes that make it."""

    name: str
    breaks: str
    changes: tuple[Change, ...]

    @property
    def places(self) -> set[str]:
        """``module:name`` of each change: the tests that enter one of them judge the edit.

        Of a module or class, those that enter any function of it.
        """
        return {change.at for change in self.changes}


def read_edits(path: Path = EDITS) -> list[Edit]:
    """Read all edits, in the order of the file.

    Raises:
        ValueError: when two have one name.
    """
    edits = [_read_edit(table) for table in tomllib.loads(path.read_text())["edit"]]
    names = [edit.name for edit in edits]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path.name}: names that two edits have: {sorted(twice)}")
    return edits


def _read_edit(table: Mapping[str, Any]) -> Edit:
    changes = tuple(Change(*(change[key] for key in ("at", "old", "new"))) for change in table.get("changes", [table]))
    return Edit(table["name"], table["breaks"], changes)


def make_edit(edit: Edit, root: Path) -> dict[Path, str]:
    """Find the texts of the files that an edit changes, as they are with it; nothing is written.

    Raises:
        AnchorError: when its text is not there.
    """
    texts: dict[Path, str] = {}
    for change in edit.changes:
        path = root / PRODUCT / change.at.partition(":")[0]
        if not path.exists():
            raise AnchorError(f"{change.at} does not exist")
        texts[path] = _replace(texts.get(path) or path.read_text(), change)
    for path, text in texts.items():
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise AnchorError(f"{path.name}, line {error.lineno}: not Python any more: {error.msg}") from None
    return texts


def add_probes(text: str, names: Collection[str], probe: Callable[[str], str]) -> str:
    """Insert a statement where functions begin.

    Args:
        text: of a module.
        names: of functions, or of classes, for all of their functions; "" is the whole module.
        probe: finds the statement for one of the names.
    """
    lines = text.splitlines(keepends=True)
    probes: list[tuple[int, str]] = []
    for function, node in _walk_definitions(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            continue
        is_documented = ast.get_docstring(node) is not None and len(node.body) > 1
        first = node.body[1 if is_documented else 0]
        line, indentation = _first_line(first) - 1, " " * first.col_offset
        entered = (name for name in names if not name or f"{function}.".startswith(f"{name}."))
        probes += [(line, f"{indentation}{probe(name)}\n") for name in entered]
    for index, statement in sorted(probes, reverse=True):
        lines.insert(index, statement)
    return "".join(lines)


def _replace(text: str, change: Change) -> str:
    """Replace the old text of a change, which stands there exactly once."""
    # Any white space matches any: the formatter may have broken a line elsewhere by now.
    pattern = re.compile(r"\s+".join(map(re.escape, change.old.split())))
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    name = change.at.partition(":")[2]
    segments = [] if name else [(0, len(text))]
    segments += [
        (starts[_first_line(node) - 1], starts[node.end_lineno or -1])
        for definition, node in _walk_definitions(ast.parse(text))
        if definition == name
    ]
    if not segments:
        raise AnchorError(f"{change.at} does not exist")
    matches = [match for begin, end in segments for match in pattern.finditer(text, begin, end)]
    if len(matches) != 1:
        raise AnchorError(f"{change.at} has this text {len(matches)} times: {change.old.splitlines()[0]}")
    begin, end = matches[0].span()
    line = text[text.rfind("\n", 0, begin) + 1 : begin]
    indentation = line[: len(line) - len(line.lstrip())]
    return text[:begin] + change.new.replace("\n", f"\n{indentation}") + text[end:]


def _walk_definitions(node: ast.AST, scope: str = "") -> Iterator[tuple[str, _Definition]]:
    for child in ast.iter_child_nodes(node):
        name = f"{scope}{child.name}" if isinstance(child, _Definition) else ""
        if isinstance(child, _Definition):
            yield name, child
        yield from _walk_definitions(child, f"{name}." if name else scope)


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
