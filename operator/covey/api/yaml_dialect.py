"""The YAML that kubectl reads: for all that Covey reads from files, and for all that it prints.

kubectl reads YAML 1.1 by ``sigs.k8s.io/yaml`` (a fork of go-yaml v2) and makes JSON of it. PyYAML differs in words (``y``),
numbers (``1e3``, ``08``, ``1:3``), times, keys (JSON has strings alone) and merges. What is printed is quoted where either
of the two would take a string for something else. Refused though kubectl takes it: a key that is set twice, as by its
strict validation, and tags that nobody writes in manifests.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final

import yaml

_TAG: Final = "tag:yaml.org,2002:"
_STRING: Final = f"{_TAG}str"
_MERGE: Final = f"{_TAG}merge"
_TAGS: Final = {type(None): f"{_TAG}null", bool: f"{_TAG}bool", int: f"{_TAG}int", float: f"{_TAG}float", str: _STRING}
#: ``resolveMapList`` of go-yaml v2.
_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
#: What may be something else than a string by its first character (``resolveTable``).
_FIRST: Final = frozenset("+-.0123456789yYnNtTfFoO~<")
#: ``strconv.ParseInt`` to base 0, once underscores are out; what it takes to base 2 behind ``0b``.
_INTEGER: Final = re.compile(
    r"(?P<sign>[+-]?)(?:0[bB](?P<b>[01]+)|0[oO](?P<o>[0-7]+)|0[xX](?P<x>[0-9a-fA-F]+)|0(?P<z>[0-7]*)|(?P<d>[1-9][0-9]*))",
    re.ASCII,
)
_SIGNED_BINARY: Final = re.compile(r"0b([+-][01]+)")
_BASES: Final = {"b": 2, "o": 8, "x": 16, "z": 8, "d": 10}
#: ``yamlStyleFloat``; and ``strconv.ParseFloat`` of what begins with a point, underscores between digits and all.
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_FRACTION: Final = re.compile(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?")
_INT64: Final = 1 << 63
_UINT64: Final = 1 << 64


def resolve_scalar(text: str) -> str | int | float | bool | None:
    """Resolve a plain scalar as go-yaml does; integers beyond 64 bits are floats there, or strings."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if text[0] == ".":
        return _finite(text.replace("_", ""), text) if _FRACTION.fullmatch(text) else text
    plain = text.replace("_", "")
    integer = _parse_integer(plain)
    if integer is not None:
        return integer
    return _finite(plain, text) if _FLOAT.fullmatch(plain) else text


def _parse_integer(plain: str) -> int | None:
    """An integer of 64 bits, signed or not."""
    if match := _INTEGER.fullmatch(plain):
        name = match.lastgroup or "z"
        value = int(match[name] or "0", _BASES[name])
        if match["sign"] == "-":
            return -value if value <= _INT64 else None
        return value if value < (_INT64 if match["sign"] else _UINT64) else None
    if match := _SIGNED_BINARY.fullmatch(plain):
        value = int(match[1], 2)
        return value if -_INT64 <= value < _INT64 else None
    return None


def _finite(plain: str, text: str) -> float | str:
    value = float(plain)
    return value if math.isfinite(value) else text


def _key(value: object) -> str | None:
    """A key as ``sigs.k8s.io/yaml`` writes it in JSON; None where it cannot."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() if -_INT64 <= value < _INT64:
            return str(value)
        case float():
            return _short(value)
    return None


def _short(value: float) -> str:
    """``strconv.FormatFloat(value, 'g', -1, 32)``: the shortest text of the nearest number of 32 bits."""
    if math.isnan(value):
        return ".nan"
    try:
        single = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        single = math.copysign(math.inf, value)
    if math.isinf(single):
        return ".inf" if single > 0 else "-.inf"
    digits, exponent = next(text for count in range(9) if _rounds_to(text := f"{single:.{count}e}", single)).split("e")
    if -4 <= int(exponent) < 6:
        return f"{single:.{max(0, len(digits.lstrip('-').replace('.', '')) - 1 - int(exponent))}f}"
    return f"{digits}e{int(exponent):+03d}"


def _rounds_to(text: str, single: float) -> bool:
    return bool(struct.pack("f", float(text)) == struct.pack("f", single))


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the C parser where PyYAML has it
    """Reads as kubectl does. Duplicate keys, and numbers that JSON does not have, are refused."""

    def resolve(self, kind: type[yaml.Node], value: str, implicit: Any) -> str:
        """Return the tag of a node that names none; ``implicit``: whether a scalar is plain, and whether it is quoted."""
        if kind is not yaml.ScalarNode or not implicit[0]:
            return str(super().resolve(kind, value, implicit))
        if value and value[0] not in _FIRST:
            return _STRING
        return _MERGE if value == "<<" else _TAGS[type(resolve_scalar(value))]

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put what is merged in where it stands: what comes later counts, of several merged at once the first."""
        pairs: list[tuple[yaml.Node, yaml.Node]] = []
        for key, value in node.value:
            if key.tag != _MERGE:
                pairs.append((key, value))
                continue
            for source in reversed(value.value) if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    raise yaml.constructor.ConstructorError(
                        None, None, "only mappings can be merged", source.start_mark
                    )
                self.flatten_mapping(source)
                pairs += source.value
        node.value = pairs

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        """Construct a mapping whose keys are strings, as in JSON."""
        own = [self._construct_key(key) for key, _ in node.value if key.tag != _MERGE]
        if len(own) != len(set(own)):
            twice = next(key for key in own if own.count(key) > 1)
            raise yaml.constructor.ConstructorError(None, None, f'key "{twice}" is set twice', node.start_mark)
        self.flatten_mapping(node)
        return {self._construct_key(key): self.construct_object(value, deep=deep) for key, value in node.value}

    def _construct_key(self, node: yaml.Node) -> str:
        value = self._resolve(node) if isinstance(node, yaml.ScalarNode) else None
        key = _key(value)
        if key is None:
            what = f"{node.value} cannot be a key" if isinstance(node, yaml.ScalarNode) else "a key is no string"
            raise yaml.constructor.ConstructorError(None, None, f"{what}: put it in quotes", node.start_mark)
        return key

    def _resolve(self, node: yaml.ScalarNode) -> str | int | float | bool | None:
        if node.tag in {_STRING, _MERGE, f"{_TAG}timestamp"}:
            return str(node.value)
        value = resolve_scalar(node.value)
        if node.tag == _TAGS[float] and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if _TAGS[type(value)] != node.tag:
            name = node.tag.removeprefix(_TAG)
            raise yaml.constructor.ConstructorError(None, None, f"{node.value} is no {name}", node.start_mark)
        return value

    def construct_json(self, node: yaml.ScalarNode) -> str | int | float | bool | None:
        """Construct a scalar as it is in JSON."""
        value = self._resolve(node)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise yaml.constructor.ConstructorError(None, None, f"{node.value} is not a number", node.start_mark)
            # JSON has no point where there is nothing behind it.
            return int(value) if value.is_integer() and -_INT64 <= value < _INT64 else value
        return float(value) if isinstance(value, int) and value >= _INT64 else value


Loader.yaml_constructors = {
    **dict.fromkeys((*_TAGS.values(), _MERGE, f"{_TAG}timestamp"), Loader.construct_json),
    **{name: Loader.yaml_constructors[name] for name in (f"{_TAG}seq", f"{_TAG}map", None)},
}


class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # the C emitter where PyYAML has it
    """Quotes what kubectl would not take for a string. No anchors: what appears twice is written twice, as elsewhere."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Tell that nothing is referred to."""
        return True

    def resolve(self, kind: type[yaml.Node], value: str, implicit: Any) -> str:
        """Return the tag that a scalar would have without quotes: no string's where either parser reads no string."""
        tag = str(super().resolve(kind, value, implicit))
        if tag == _STRING and kind is yaml.ScalarNode and implicit[0]:
            return _TAGS[type(resolve_scalar(value))]
        return tag


def dump(values: Iterable[Any]) -> str:
    """Write YAML documents of plain data."""
    return str(yaml.dump_all(values, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120))


def load(text: str) -> Iterator[Any]:
    """Read YAML documents as plain data, one by one.

    Raises:
        yaml.YAMLError: it is not valid, or holds what JSON does not have.
    """
    yield from yaml.load_all(text, Loader=Loader)
