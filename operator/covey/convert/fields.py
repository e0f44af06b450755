"""Fields of foreign documents, read so that nothing is forgotten.

Remarks say what does not carry over; a ``ConversionError`` refuses to convert at all.

Every field is taken once, by the converter that understands it. What nobody took is found by its path at the end,
whatever it is and however deep: a field of a newer release of the source, a misspelt one, or one that has no
counterpart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar


@dataclass(frozen=True, slots=True)
class FieldRemark:
    """One field of the source that the result does not say, or says differently: where, what, and what to do."""

    path: str
    what: str
    instead: str = ""


class ConversionError(Exception):
    """The document cannot be converted, or only into something that means something else.

    Args:
        path: the field of the source.
        what: what is wrong with it, as the rest of a sentence that begins with the path.
        instead: what to do about it.
    """

    def __init__(self, path: str, what: str, instead: str) -> None:
        super().__init__(f"{path}: {what}; {instead}")
        self.path = path
        self.what = what
        self.instead = instead


T = TypeVar("T")

_WRITE: Final = "write it as the API server would"


class Fields:
    """The fields of one object of a document, and where it stands. An explicit null is an absent field."""

    def __init__(self, content: Any, path: str = "") -> None:
        if not isinstance(content, Mapping):
            raise ConversionError(path, "is not an object", _WRITE)
        self.path = path
        self._content = {str(key): value for key, value in content.items() if value is not None}
        self._taken: set[str] = set()
        self._below: dict[str, list[Fields]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def rest(self) -> list[str]:
        """Keys at this level that nobody has taken yet."""
        return [key for key in self._content if key not in self._taken and key not in self._below]

    def at(self, key: str) -> str:
        """The path of a field, be it there or not; a key that is no plain name stands in brackets."""
        if not self.path:
            return key
        return f"{self.path}.{key}" if key.isidentifier() else f"{self.path}[{key}]"

    def take(self, key: str) -> Any:
        """Take a field as it is, None where it is absent."""
        self._taken.add(key)
        return self._content.get(key)

    def text(self, key: str) -> str:
        """Take a string, empty where it is absent.

        Raises:
            ConversionError: it is something else. The same holds for the other types below.
        """
        return self._read_typed(key, str, "a string", "")

    def number(self, key: str, default: int) -> int:
        """Take an integer of at least 0."""
        number = self._read_typed(key, int, "a number", default)
        if isinstance(number, bool):
            raise ConversionError(self.at(key), "is not a number", _WRITE)
        if number < 0:
            raise ConversionError(self.at(key), f"is {number}", "use 0 or more")
        return number

    def flag(self, key: str) -> bool:
        """Take a boolean, false where it is absent."""
        return self._read_typed(key, bool, "true or false", default=False)

    def mapping(self, key: str) -> dict[str, Any]:
        """Take an object as it is, empty where it is absent."""
        return self._read_typed(key, dict, "an object", {})

    def texts(self, key: str) -> list[str]:
        """Take a list of strings."""
        texts = self._read_typed(key, list, "a list", [])
        if not all(isinstance(text, str) for text in texts):
            raise ConversionError(self.at(key), "is not a list of strings", _WRITE)
        return list(texts)

    def strings(self, key: str) -> dict[str, str]:
        """Take a mapping of strings, as labels are."""
        pairs = self._read_typed(key, dict, "an object", {})
        for name, value in pairs.items():
            if not isinstance(value, str):
                raise ConversionError(f"{self.at(key)}[{name}]", "is not a string", "put it in quotes")
        return dict(pairs)

    def child(self, key: str) -> Fields:
        """An object below this one, empty where it is absent."""
        if key not in self._below:
            self._below[key] = [Fields(self._content.get(key, {}), self.at(key))]
        return self._below[key][0]

    def each(self, key: str) -> list[Fields]:
        """The objects of a list."""
        if key not in self._below:
            entries = self._content.get(key, [])
            if not isinstance(entries, list):
                raise ConversionError(self.at(key), "is not a list", _WRITE)
            self._below[key] = [Fields(item, f"{self.at(key)}[{index}]") for index, item in enumerate(entries)]
        return self._below[key]

    def children_by_name(self, key: str) -> dict[str, Fields]:
        """The objects of a mapping, by name."""
        inner = self.child(key)
        return {name: inner.child(name) for name in inner.rest()}

    def settle(self, key: str, *same: Any) -> None:
        """Take a field whose value says what happens anyway; leave it for the remarks otherwise."""
        if self._content.get(key) in same:
            self._taken.add(key)

    def meaning(self, key: str, meanings: Mapping[str, str]) -> str:
        """Translate a field's value into Covey's word for it; empty where it is absent.

        An unknown value is left for the remarks.
        """
        word = self._content.get(key)
        if not isinstance(word, str) or word not in meanings:
            return ""
        self._taken.add(key)
        return meanings[word]

    def left(self) -> Iterator[str]:
        """Paths of everything that nobody has taken, at any depth."""
        for key in self._content:
            for fields in self._below.get(key, ()):
                yield from fields.left()
        yield from map(self.at, self.rest())

    def _read_typed(self, key: str, kind: type[T], what: str, default: T) -> T:
        content = self.take(key)
        if content is None:
            return default
        if not isinstance(content, kind):
            raise ConversionError(self.at(key), f"is not {what}", _WRITE)
        return content
