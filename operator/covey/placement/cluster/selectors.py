"""Selectors of DeviceClasses and requests: the part of CEL that can be judged without an interpreter. Pure.

Conditions joined by ``&&``, in parentheses or not::

    device.driver == "gpu.nvidia.com"
    device.attributes["gpu.nvidia.com"].type == "gpu"          a string, a whole number, true or false
    device.attributes["gpu.nvidia.com"].productName in ["NVIDIA H200", "NVIDIA B200"]
    device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0

Anything else is not guessed at, but refused by name. As in CEL, a condition on something that a device lacks is an
error, unless another one is false; kube-scheduler's allocator gives a node up on which it meets one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeVar

from covey.api import core
from covey.placement.cluster.resources import parse_quantity

#: Of a device: ``attributes`` or ``capacity``, domain, and name.
Field = tuple[str, str, str]
Value = str | int | bool
V = TypeVar("V")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCondition:
    """What is asked of a device.

    ``judge`` takes a driver and a device: True, False, or None for an error. ``fields`` are all that it reads besides the
    driver.
    """

    judge: Callable[[str, core.Device], bool | None]
    fields: frozenset[Field] = frozenset()

    def __call__(self, driver: str, device: core.Device) -> bool | None:
        """Judge a device of a driver."""
        return self.judge(driver, device)


def read_fields(driver: str, device: core.Device, fields: Sequence[Field]) -> tuple[object, ...]:
    """Read what conditions with these fields can tell a device by, of one driver."""
    return tuple(
        _of(device.attributes if kind == "attributes" else device.capacity, driver, domain, name)
        for kind, domain, name in fields
    )


_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<text>"[^"\\\n]*"|'[^'\\\n]*')|(?P<number>-?\d+)|(?P<sign>&&|[=><]=|[><()\[\],.]))"""
)
_COMPARE: Final[Mapping[str, Callable[[Fraction, Fraction], bool]]] = {
    "==": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class UnknownSelectorError(ValueError):
    """An expression is outside of what is supported."""


@lru_cache(maxsize=1024)
def parse_selector(expression: str) -> DeviceCondition:
    """The condition that an expression states.

    Raises:
        UnknownSelectorError: it is none of those above.
    """
    reader = _Reader(_tokens(expression))
    conditions = reader.conjunction()
    if reader.left:
        raise UnknownSelectorError(expression)
    return all_of(conditions)


def all_of(conditions: Sequence[DeviceCondition]) -> DeviceCondition:
    """Join conditions by ``&&``: false if one is false, else an error if one is."""

    def judge(driver: str, device: core.Device) -> bool | None:
        met: bool | None = True
        for condition in conditions:
            answer = condition(driver, device)
            if answer is False:
                return False
            met = None if answer is None else met
        return met

    return _joined(judge, conditions)


def in_turn(conditions: Sequence[DeviceCondition]) -> DeviceCondition:
    """Join selectors as kube-scheduler does: the first that is not true decides, an error or not."""

    def judge(driver: str, device: core.Device) -> bool | None:
        for condition in conditions:
            if not (answer := condition(driver, device)):
                return answer
        return True

    return _joined(judge, conditions)


def _joined(judge: Callable[[str, core.Device], bool | None], conditions: Sequence[DeviceCondition]) -> DeviceCondition:
    return DeviceCondition(judge, frozenset[Field]().union(*(condition.fields for condition in conditions)))


@lru_cache(maxsize=1024)
def canonical_selector(expression: str) -> str:
    """An expression in one spelling of blanks.

    Raises:
        UnknownSelectorError: it is none that could be parsed.
    """
    return " ".join(_tokens(expression))


def _tokens(expression: str) -> list[str]:
    tokens, at, text = [], 0, expression.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnknownSelectorError(expression)
        tokens.append(match.group().strip())
        at = match.end()
    return tokens


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[str]) -> None:
        self.left = tokens

    def conjunction(self) -> list[DeviceCondition]:
        conditions = self._term()
        while self.left[:1] == ["&&"]:
            self._expect("&&")
            conditions += self._term()
        return conditions

    def _term(self) -> list[DeviceCondition]:
        if self.left[:1] == ["("]:
            self._expect("(")
            condition = self.conjunction()
            self._expect(")")
            return condition
        self._expect("device", ".")
        match self._take():
            case "driver":
                return [self._comparison(lambda driver, _device: driver, str)]
            case "attributes":
                domain, name = self._member()
                compared = self._comparison(lambda driver, device: _attribute(driver, device, domain, name))
                return [replace(compared, fields=frozenset({("attributes", domain, name)}))]
            case "capacity":
                return [self._capacity(*self._member())]
            case other:
                raise UnknownSelectorError(other)

    def _member(self) -> tuple[str, str]:
        """The domain and the name in ``["domain"].name``."""
        self._expect("[")
        domain = self._text()
        self._expect("]", ".")
        return domain, self._take()

    def _comparison(self, read: Callable[[str, core.Device], object], kind: type | None = None) -> DeviceCondition:
        wanted = [self._constant()] if self._take_one_of("==", "in") == "==" else self._list()
        known = {(type(constant), constant) for constant in wanted}
        if len({kind or type(wanted[0]), *map(type, wanted)}) > 1:
            raise UnknownSelectorError(str(wanted))

        def judge(driver: str, device: core.Device) -> bool | None:
            value = read(driver, device)
            return None if value is None else (type(value), value) in known

        return DeviceCondition(judge)

    def _capacity(self, domain: str, name: str) -> DeviceCondition:
        self._expect(".", "compareTo", "(", "quantity", "(")
        try:
            bound = parse_quantity(self._text())
        except ValueError as error:
            raise UnknownSelectorError(str(error)) from None
        self._expect(")", ")")
        compare = _COMPARE[self._take_one_of(*_COMPARE)]
        self._expect("0")

        def judge(driver: str, device: core.Device) -> bool | None:
            capacity = _of(device.capacity, driver, domain, name)
            try:
                return None if capacity is None else compare(parse_quantity(capacity.value), bound)
            except ValueError:
                return None

        return DeviceCondition(judge, frozenset({("capacity", domain, name)}))

    def _list(self) -> list[Value]:
        self._expect("[")
        constants = [self._constant()]
        while self._take_one_of(",", "]") == ",":
            constants.append(self._constant())
        return constants

    def _constant(self) -> Value:
        word = self._take()
        if word in {"true", "false"}:
            return word == "true"
        if word[0] in "\"'":
            return word[1:-1]
        if word.lstrip("-").isdecimal():
            return int(word)
        raise UnknownSelectorError(word)

    def _text(self) -> str:
        token = self._take()
        if token[0] not in "\"'":
            raise UnknownSelectorError(token)
        return token[1:-1]

    def _take_one_of(self, *allowed: str) -> str:
        token = self._take()
        if token not in allowed:
            raise UnknownSelectorError(token)
        return token

    def _expect(self, *tokens: str) -> None:
        for token in tokens:
            self._take_one_of(token)

    def _take(self) -> str:
        if not self.left:
            raise UnknownSelectorError("it ends too early")
        return self.left.pop(0)


def _attribute(driver: str, device: core.Device, domain: str, name: str) -> object:
    attribute = _of(device.attributes, driver, domain, name)
    if attribute is None:
        return None
    # Of a version CEL knows no comparison with a plain constant: it has none of these, as if it was not there.
    return next(
        (content for content in (attribute.string, attribute.integer, attribute.boolean) if content is not None), None
    )


def _of(values: Mapping[str, V] | None, driver: str, domain: str, name: str) -> V | None:
    """A value by its qualified name; names without a domain are in the driver's."""
    if not values:
        return None
    content = values.get(f"{domain}/{name}")
    return values.get(name) if content is None and domain == driver else content
