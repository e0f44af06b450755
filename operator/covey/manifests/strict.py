"""Checking objects of Covey's own kinds as the API server would: types, bounds and unknown fields.

The models ignore unknown fields, since what is stored may come from a newer release. What a person hands in is
another matter: a misspelt field that is silently dropped costs an hour, so kubectl refuses it, and so do we.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

import msgspec
from pydantic import ValidationError

from covey.api.core import Read
from covey.api.model import Model
from covey.api.structs import model_of_struct
from covey.api.suggest import suggest
from covey.manifests.documents import Document
from covey.manifests.errors import InputError, ManifestPath, ManifestProblem

M = TypeVar("M", bound=Model)
R = TypeVar("R", bound=Read)

#: What every object has; the API server's own business, and not repeated in full in the models.
_UNCHECKED: Final = frozenset({"metadata", "status", "apiVersion", "kind"})


def validate(model: type[M], document: Document, body: Mapping[str, Any] | None = None) -> M:
    """Check a document against its model.

    Args:
        model: of the document's kind.
        document: says where it stands.
        body: what to check in place of the document's own content.

    Raises:
        InputError: with a line for everything that is wrong.
    """
    content = document.body if body is None else body
    place = document.place
    problems = [
        ManifestProblem(
            place.at(path), "unknown field", f"did you mean {meant}?" if meant else "remove it or correct its name"
        )
        for path, meant in _unknown(model, content, "")
    ]
    try:
        # As JSON, and strictly: "4" is no number to the API server either, but a list is what JSON has for a tuple.
        parsed = model.model_validate_json(msgspec.json.encode(content), strict=True)
    except ValidationError as error:
        raise InputError.of([*problems, *_problems(place, error)]) from None
    if problems:
        raise InputError.of(problems)
    return parsed


def read_checked(struct: type[R], document: Document) -> R:
    """Read a document of a kind that a struct declares, and check it as the API server would.

    Raises:
        InputError: with a line for everything that is wrong.
    """
    validate(model_of_struct(struct), document)
    return document.read(struct)


def in_words(errors: ValidationError) -> Iterator[tuple[str, str, str]]:
    """Field path, what is wrong, what to do, for everything that pydantic found.

    A list is too short when its items are wrong; only the items are told then.
    """
    every = errors.errors(include_url=False, include_context=False)
    for error in every:
        loc = error["loc"]
        if any(other["loc"][: len(loc)] == loc and len(other["loc"]) > len(loc) for other in every):
            continue
        path = ""
        for step in loc:
            path += f"[{step}]" if isinstance(step, int) else f"{'.' if path else ''}{step}"
        given = error["input"]
        if error["type"] == "missing":
            yield path, "is missing", "add it"
        else:
            plain = isinstance(given, (str, int, float)) or not isinstance(given, (Mapping, Sequence))
            shown = f" (it is {given!r})" if plain else ""
            what = error["msg"].replace("Tuple", "List").replace("Input should be", "Should be")
            yield path, f"{what[:1].lower()}{what[1:]}{shown}", "correct it"


def _problems(place: ManifestPath, errors: ValidationError) -> Iterable[ManifestProblem]:
    return (ManifestProblem(place.at(path), what, remedy) for path, what, remedy in in_words(errors))


def _unknown(model: type[Model], value: Any, path: str) -> Iterator[tuple[str, str | None]]:
    """Paths of keys that a model does not have, at any depth, each with the field that is meant, if that is known."""
    if not isinstance(value, Mapping):
        return
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, inner in value.items():
        below = f"{path}.{key}" if path else str(key)
        if key not in fields:
            if path or key not in _UNCHECKED:
                yield below, suggest(str(key), fields)
        elif path or key not in _UNCHECKED:
            for nested in _models(fields[key].annotation):
                yield from _unknown(nested, inner, below)
                for index, item in enumerate(inner) if isinstance(inner, list) else ():
                    yield from _unknown(nested, item, f"{below}[{index}]")


def _models(annotation: Any) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
