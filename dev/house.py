"""Counts how the product reads, against bounds: ``python dev/house.py`` (``-v`` names each finding).

The bounds are what was reached. A change that needs more raises its bound in the same commit, and says why.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from walks import WALKS

ROOT: Final = Path(__file__).resolve().parent.parent
PRODUCT: Final = ROOT / "operator" / "covey"
#: Words with which no docstring begins.
QUESTIONS: Final = frozenset({"What", "Who", "Whoever", "Whom", "Whose", "Which", "Whether", "How", "Why", "May"})
#: Those with which none of a module, class or function does: it begins with a verb or a noun phrase.
OPENINGS: Final = re.compile(
    "When|Where|Would|Is|Are|If|Can|Has|From|By|Of|With|For|In|On|As|To|Until|While|It|There|This|Nothing|Only"
)
#: Participles and adverbs that end in neither "-ed" nor "-en", and verbs that do.
BARE: Final = frozenset(
    [
        "told",
        "said",
        "held",
        "kept",
        "made",
        "met",
        "lost",
        "gone",
        "found",
        "known",
        "sent",
        "put",
        "set",
        "apart",
        "beside",
        "still",
        "there",
        "beyond",
        "away",
        "here",
        "near",
        "again",
        "anew",
        "above",
        "below",
    ]
)
VERBS: Final = frozenset(
    [
        "need",
        "feed",
        "seed",
        "embed",
        "shed",
        "proceed",
        "exceed",
        "succeed",
        "speed",
        "open",
        "happen",
        "listen",
        "hasten",
        "shorten",
    ]
)


@dataclass(frozen=True)
class Module:
    """One file of the product."""

    path: Path
    lines: int
    tree: ast.Module

    @property
    def name(self) -> str:
        """Relative to the product."""
        return self.path.relative_to(PRODUCT).as_posix()


@dataclass(frozen=True)
class Count:
    """What is counted, the findings, and how many there may be."""

    what: str
    found: list[str]
    most: int


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


def modules() -> list[Module]:
    """All files of the product."""
    found = []
    for path in sorted(PRODUCT.rglob("*.py")):
        text = path.read_text()
        found.append(Module(path, text.count("\n"), ast.parse(text)))
    return found


def definitions(module: Module) -> Iterator[Definition]:
    """The module, its classes and its functions."""
    for node in ast.walk(module.tree):
        if isinstance(node, Definition):
            yield node


def asks(module: Module) -> Iterator[str]:
    """Docstrings that begin with neither a verb nor a noun phrase; those of fields, with a question word."""
    for node in definitions(module):
        first = (ast.get_docstring(node) or "").split(maxsplit=1)
        word = first[0].strip(",.:;?*`'") if first else ""
        if word in QUESTIONS or OPENINGS.fullmatch(word):
            yield f"{module.name}:{getattr(node, 'lineno', 1)}: {(ast.get_docstring(node) or '').splitlines()[0]}"
    for node in ast.walk(module.tree):
        for before, after in pairwise(node.body) if isinstance(node, ast.ClassDef) else ():
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
            if isinstance(before, ast.AnnAssign) and isinstance(text, str) and text.split(maxsplit=1)[0] in QUESTIONS:
                yield f"{module.name}:{after.lineno}: {text.splitlines()[0]}"


def bare(module: Module) -> Iterator[str]:
    """Functions, properties aside, that are named by a bare participle or adverb."""
    for node in definitions(module):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_property(node):
            continue
        name = node.name if node.name.startswith("__") else node.name.strip("_")
        participle = re.fullmatch(r"[a-z]+(ed|en)", name) and name not in VERBS
        if name in BARE or participle:
            yield f"{module.name}:{node.lineno}: {node.name}"


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and "property" in each.id for each in node.decorator_list)


def wide(module: Module) -> Iterator[str]:
    """Constructors and functions of many arguments."""
    for node in definitions(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            count = len([name for name in names if name not in {"self", "cls"}])
            if node.name == "__init__" and count > 6:
                yield f"{module.name}:{node.lineno}: {count} arguments"


def counts(found: list[Module]) -> list[Count]:
    """All that is bounded."""

    def over(rule: Callable[[Module], Iterator[str]]) -> list[str]:
        return [each for module in found for each in rule(module)]

    long = [f"{module.name}: {module.lines}" for module in found if module.lines > 400]
    return [
        Count(
            "docstrings that begin with no verb or noun (of fields, with a question)", over(asks), BOUNDS["questions"]
        ),
        Count("functions named by a bare participle or adverb", over(bare), BOUNDS["participles"]),
        Count("constructors of more than six arguments", over(wide), BOUNDS["arguments"]),
        Count("files of more than 400 lines", long, BOUNDS["long"]),
        Count("files", [module.name for module in found], BOUNDS["files"]),
        Count("lines", [""] * sum(module.lines for module in found), BOUNDS["lines"]),
        *(Count(f"files that a pass enters: {name}", walk(), BOUNDS[name]) for name, walk in WALKS.items()),
    ]


#: The most of each that there may be.
BOUNDS: Final = {
    "questions": 0,
    "participles": 0,
    "arguments": 0,
    "long": 0,
    "files": 384,
    "lines": 74_057,
    "lost pod": 50,
    "refusal": 50,
    "step of a rollout": 50,
}


def main() -> None:
    """Print a table; exit with 1 where a bound is passed."""
    found = modules()
    told = counts(found)
    for each in told:
        mark = "" if len(each.found) <= each.most else "  TOO MANY"
        print(f"{len(each.found):7,}  of {each.most:7,}  {each.what}{mark}")
        if "-v" in sys.argv and each.what not in {"lines", "files"}:
            print(*(f"    {one}" for one in each.found), sep="\n")
    print(f"{statistics.median(module.lines for module in found):7,.0f}  median lines of a file")
    sys.exit(any(len(each.found) > each.most for each in told))


if __name__ == "__main__":
    main()
