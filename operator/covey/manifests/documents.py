"""Reading manifests as kubectl does: YAML or JSON, several documents, Lists, standard input.

Every document keeps its place, so that whatever is wrong with it later can be said with file, document and field.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from covey.api.yaml_dialect import Loader, load
from covey.manifests.errors import InputError, ManifestPath
from covey.manifests.sources import STDIN, files_of

T = TypeVar("T")

#: Nesting of YAML that somebody pastes; an object of Kubernetes has some twenty levels.
_DEEPEST: Final = 64
#: Keys and values of YAML that somebody pastes, once anchors are written out; the largest of the examples has 745.
_MOST_NODES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file (an item of a List counts as one), and where it stands."""

    place: ManifestPath
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        """``kind``."""
        return str(self.body.get("kind", ""))

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return str(self.body.get("apiVersion", "")).rpartition("/")[0]

    @property
    def name(self) -> str:
        """``metadata.name``, empty when there is none."""
        metadata = self.body.get("metadata")
        return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""

    def read(self, kind: type[T]) -> T:
        """Decode into a projection of :mod:`covey.api.core`.

        Raises:
            InputError: a field has the wrong type, or a needed one is missing.
        """
        try:
            return convert(self.body, kind)
        except msgspec.ValidationError as error:
            field, what = wrong_field(error)
            raise InputError(self.place.at(field), what, "write it as the API server would") from None


def convert(body: Any, kind: type[T]) -> T:
    """Decode plain data; an explicit null means absent, as to the API server.

    Raises:
        msgspec.ValidationError: a field has the wrong type, or a needed one is missing.
    """
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(body), kind)


def wrong_field(error: msgspec.ValidationError) -> tuple[str, str]:
    """The field path, and what is wrong with it, in words for people: msgspec speaks of its own types."""
    problem, _, where = str(error).partition(" - at `")
    problem = problem.replace(" | null", "")
    for ours, theirs in (
        ("a list", "`array`"),
        ("an object", "`object`"),
        ("a string", "`str`"),
        ("a number", "`int`"),
    ):
        problem = problem.replace(theirs, ours)
    problem = problem.replace("Object missing", "is missing")
    return where.rstrip("`").removeprefix("$").removeprefix("."), problem[:1].lower() + problem[1:]


def read_documents(paths: Iterable[str], *, may_be_empty: bool = False, recursive: bool = False) -> Iterator[Document]:
    """All objects of some files and directories, in order; the items of Lists one by one.

    Raises:
        InputError: a file cannot be read, is neither YAML nor JSON, holds something that is no object, or (unless
            ``may_be_empty``) a path holds nothing.
    """
    for path in paths:
        has_objects = False
        for file in files_of(path, recursive=recursive):
            for number, content in enumerate(_parse(file, _text(file)), 1):
                if content is None:
                    continue  # an empty document, as `---` at the end of a file makes it
                has_objects = True
                yield from _objects(ManifestPath(file, number), content)
        if not has_objects and not may_be_empty:
            raise InputError(ManifestPath(path), "holds no document", "give a file with at least one Kubernetes object")


def read_pasted(text: str, name: str) -> list[Document]:
    """All objects of a text that comes from nobody knows whom.

    Unlike a file of the person at the terminal it may not be nested without bound, which PyYAML's C parser does not
    survive, and what its anchors make of little text is counted as if it were written out.

    Args:
        text: YAML or JSON.
        name: stands for a file in what is said of it.

    Raises:
        InputError: as for ``read_documents``.
    """
    documents: list[Document] = []
    for number, content in enumerate(_parse(name, text, check=_check_tame), 1):
        if content is not None:
            documents += _objects(ManifestPath(name, number), content)
    if not documents:
        raise InputError(ManifestPath(name), "holds no document", "give at least one Kubernetes object")
    return documents


def read_plain(file: str) -> dict[str, Any]:
    """A YAML or JSON file that holds one mapping; an empty one is an empty mapping.

    Raises:
        InputError: it cannot be read, or holds something else.
    """
    contents = [content for content in _parse(file, _text(file)) if content is not None]
    if len(contents) > 1 or not all(isinstance(content, dict) for content in contents):
        raise InputError(ManifestPath(file), "is not one mapping of settings", "write one `key: value` a line")
    return contents[0] if contents else {}


def _text(file: str) -> str:
    if file == STDIN:
        data = sys.stdin.buffer.read()
    else:
        try:
            data = Path(file).read_bytes()
        except IsADirectoryError:
            raise InputError(ManifestPath(file), "is a directory", "name one file in it") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(ManifestPath(file), f"cannot be read: {reason}", "check the path") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(ManifestPath(file), f"is not UTF-8 text (byte {error.start})", "save it as UTF-8") from None


def _parse(file: str, text: str, check: Callable[[str, str], None] | None = None) -> Iterator[Any]:
    """Documents one by one; ``check`` looks at YAML before it is loaded."""
    start = _end_of_blank(text, 0)
    values = _json_values(file, text, start) if text[start : start + 1] in ("{", "[") else None
    if values is None:
        if check is not None:
            check(file, text)
        yield from _yaml(file, text)
    else:
        yield from values


@dataclass(slots=True)
class _Size:
    """The nodes of a collection that is being read, and its depth, anchors written out."""

    anchor: str | None
    nodes: int = 1
    depth: int = 1

    def add(self, nodes: int, depth: int) -> None:
        self.nodes += nodes
        self.depth = max(self.depth, 1 + depth)


def _check_tame(file: str, text: str) -> None:
    number = 0
    within, anchors = [_Size(None)], dict[str, _Size]()
    try:
        for event in yaml.parse(text, Loader=Loader):
            where = ManifestPath(file, max(1, number))
            match event:
                case yaml.DocumentStartEvent():
                    number += 1
                    anchors.clear()
                case yaml.CollectionStartEvent():
                    within.append(_Size(event.anchor))
                case yaml.CollectionEndEvent():
                    size = within.pop()
                    within[-1].add(size.nodes, size.depth)
                    if size.anchor is not None:
                        anchors[size.anchor] = size
                case yaml.ScalarEvent():
                    within[-1].add(1, 0)
                    if event.anchor is not None:
                        anchors[event.anchor] = _Size(None, depth=0)
                case yaml.AliasEvent():
                    meant = anchors.get(str(event.anchor))
                    if meant is None:
                        what = f"refers to the anchor {event.anchor}, which does not end before"
                        raise InputError(where, what, "name an anchor that stands above")
                    within[-1].add(meant.nodes, meant.depth)
            if len(within) - 1 + within[-1].depth > _DEEPEST + 1:
                raise InputError(where, f"is nested more than {_DEEPEST} deep", "give Kubernetes objects")
            if sum(size.nodes for size in within) > _MOST_NODES:
                what = f"has more than {_MOST_NODES:,} keys and values once its anchors are written out"
                raise InputError(where, what, "give fewer objects, or refer to less")
    except yaml.YAMLError:
        return  # which is said better when it is loaded


def _json_values(file: str, text: str, position: int) -> list[Any] | None:
    """The JSON values from a position on, mostly one, some programs print several; None if the text is not that."""
    values: list[Any] = []
    while position < len(text):
        try:
            value, end = _JSON.raw_decode(text, position)
        except _TwiceError as error:
            place = ManifestPath(file, len(values) + 1)
            raise InputError(place, f'key "{error}" is set twice', "remove one of them") from None
        except _NotFiniteError as error:
            place = ManifestPath(file, len(values) + 1)
            raise InputError(place, f"is not valid JSON: {error} is not a number", "correct the file") from None
        except (ValueError, RecursionError):
            return None
        values.append(value)
        position = _end_of_blank(text, end)
    return values


class _TwiceError(ValueError):
    """A JSON object has a key twice, of which parsers would keep the last."""


class _NotFiniteError(ValueError):
    """A number that is none, or has no end: JSON knows neither."""


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NotFiniteError(text)
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(next(key for key in keys if keys.count(key) > 1))
    return mapping


_JSON: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_number)
_BLANK: Final = re.compile(r"\s*")


def _end_of_blank(text: str, position: int) -> int:
    blank = _BLANK.match(text, position)
    return blank.end() if blank else position


def _yaml(file: str, text: str) -> Iterator[Any]:
    number = 1  # of the document that is being read
    try:
        for content in load(text):
            msgspec.json.encode(content)  # plain data has a JSON form; YAML that refers to itself has none
            yield content
            number += 1
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = error.problem or error.context or "malformed"
        raise InputError(
            ManifestPath(file, number), f"is not valid YAML{where}: {problem}", "correct that line"
        ) from None
    except (yaml.YAMLError, RecursionError, OverflowError, ValueError, TypeError) as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(ManifestPath(file, number), f"is not valid YAML: {problem}", "correct the file") from None


def _objects(place: ManifestPath, content: Any) -> Iterator[Document]:
    if isinstance(content, list):
        for index, item in enumerate(content):
            yield from _objects(place.at(f"[{index}]"), item)
        return
    if not isinstance(content, dict):
        is_a = {str: "a string", int: "a number", float: "a number", bool: "a boolean"}.get(type(content), "a value")
        raise InputError(place, f"is {is_a}, not an object", "give Kubernetes objects with apiVersion and kind")
    version, kind = content.get("apiVersion"), content.get("kind")
    for name, value in (("apiVersion", version), ("kind", kind)):
        if not isinstance(value, str) or not value:
            what = "is missing" if value is None else "is not a string"
            raise InputError(place.at(name), what, f"every Kubernetes object has {name}")
    if str(kind).endswith("List") and "items" in content:
        yield from _items(place, content)
        return
    metadata = content.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise InputError(place.at("metadata"), "is not an object", "write it as a mapping with a name")
    yield Document(place, content)


def _items(place: ManifestPath, content: dict[str, Any]) -> Iterator[Document]:
    items = content["items"]
    if items is None:
        return
    if not isinstance(items, list):
        raise InputError(place.at("items"), "is not a list", "a List has its objects in items")
    version = str(content["apiVersion"])
    kind = str(content["kind"]).removesuffix("List")
    for index, item in enumerate(items):
        if kind and isinstance(item, dict):  # the items of a NodeList may leave their type out
            item.setdefault("apiVersion", version)
            item.setdefault("kind", kind)
        yield from _objects(place.at(f"items[{index}]"), item)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value
