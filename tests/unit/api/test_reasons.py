"""Every reason that the code can give is explained, and nothing else is: the sources are read for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import covey
from covey.api import constants as names
from covey.api import reasons
from covey.rollout.gates import Gate

PACKAGE = Path(covey.__file__).parent
#: Where the reason stands among the arguments of what carries one.
_PLACE = {"Remark": 1, "Problem": 0, "Condition": 2, "Said": 2, "_count_finding": 2}
_TRUTHS = {"True", "False", "Unknown"}


@cache
def sources() -> dict[Path, ast.Module]:
    """Every module but the page's server, which sets no condition: its Problem is a sentence for the viewer."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {path: ast.parse(path.read_text()) for path in files if not path.is_relative_to(PACKAGE / "ui")}


@cache
def _constants() -> dict[str, set[str]]:
    """The texts that have names of their own in some module."""
    found: dict[str, set[str]] = {}
    for tree in sources().values():
        for node in tree.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text))):
                    found.setdefault(name, set()).add(text)
    return found


def _texts(node: ast.expr | None) -> Iterator[str]:
    """The strings that an expression may be, as far as they stand there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "names":
        yield getattr(names, node.attr)
    elif isinstance(node, ast.Name):
        yield from _constants().get(node.id, ())


def _argument(call: ast.Call, place: int, keyword: str) -> ast.expr | None:
    named = next((each.value for each in call.keywords if each.arg == keyword), None)
    return named or (call.args[place] if len(call.args) > place else None)


def _reasons(node: ast.AST) -> Iterator[str]:
    match node:
        case (
            ast.AnnAssign(target=ast.Name(id=name), value=value) | ast.Assign(targets=[ast.Name(id=name)], value=value)
        ):
            if re.match(r"(REASON|RELEASE|PURPOSE)(_|$)", name) or name == "reason":
                yield from _texts(value)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _PLACE:
            yield from _texts(_argument(node, _PLACE[name], "reason"))
        case ast.Tuple(elts=[ast.Constant(value=truth), (ast.Attribute() | ast.Constant()) as reason, _]) if (
            truth in _TRUTHS
        ):
            yield from _texts(reason)
        case ast.Tuple(elts=[ast.Attribute(value=ast.Name(id="Phase")), reason, _]):
            yield from _texts(reason)


def _types(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id="Remark")):
            yield from _texts(_argument(node, 0, "type"))


@cache
def given() -> dict[str, str]:
    """The reasons in the code, and the name of a module that gives each."""
    return {
        reason: path.name
        for path, tree in sources().items()
        if path.name != "reasons.py" and "cli" not in path.parts
        for node in ast.walk(tree)
        for reason in _reasons(node)
        if reason and reason not in _TRUTHS
    }


def test_the_sources_were_understood() -> None:
    assert {
        "Infeasible",
        "NameTaken",
        "NotBound",
        "AsExpected",
        "Timeout",
        "NotReached",
        "GroupsIgnored",
    } <= given().keys()


def test_every_reason_is_explained() -> None:
    assert {reason: module for reason, module in given().items() if reasons.explain(reason) is None} == {}


def test_nothing_is_explained_that_cannot_be() -> None:
    assert sorted({*reasons.REASONS, *reasons.RELEASES} - given().keys()) == []
    assert list(reasons.GATES) == [gate.value for gate in Gate]


def test_every_condition_is_explained() -> None:
    types = {kind for tree in sources().values() for node in ast.walk(tree) for kind in _types(node)}
    assert types <= reasons.BAD.keys() | {names.BACKEND_SUPPORTED}  # what no feature honours
    assert not reasons.GOOD.keys() & reasons.BAD.keys()
