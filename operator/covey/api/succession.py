"""The question for successors, as the operator puts it to the scheduler process in an annotation of a root group.

A JSON object ``{"for": [[[role, replica, uid], …], …], "from": {role: {"idle": […], "serving": […], "most": n, "stay":
[…]}}}``. Each list below ``for`` is one replica that waits, or a set that comes whole, each replica with the UID of its
first pod. Below ``from`` are the replicas that may go for them, in the order in which they would: all of ``idle``, which
serve nobody, and no more than ``most`` of ``serving``. Those that ``stay`` are all others that have places: one that the
scheduler process sees beside these is gone already, or has come, so that it has to look again.

``asked`` is a digest of all of it. An answer repeats it, so that nobody acts on one to another question: other pods wait,
others serve, or the budget was changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from covey.api.annotations import read_json

#: Roles of a resource, and replicas of one that a question names.
MOST_ROLES: Final = 16
MOST_REPLICAS: Final = 4096


class Successor(NamedTuple):
    """A replica that waits; ``uid`` is that of its first pod."""

    role: str
    replica: int
    uid: str


@dataclass(frozen=True, slots=True)
class Predecessors:
    """The replicas of a role that have places: all that are ``idle`` may go, ``most`` of ``serving``, and none that stay."""

    idle: tuple[int, ...] = ()
    serving: tuple[int, ...] = ()
    most: int = 0
    stay: tuple[int, ...] = ()

    @property
    def placed(self) -> frozenset[int]:
        """All of them."""
        return frozenset((*self.idle, *self.serving, *self.stay))


@dataclass(frozen=True, slots=True)
class SuccessionQuestion:
    """Sets of replicas that wait, each to come whole, and those that may go for them, by role."""

    sets: tuple[tuple[Successor, ...], ...]
    predecessors: Mapping[str, Predecessors] = field(default_factory=dict)

    @property
    def asked(self) -> str:
        """The digest by which an answer names the question."""
        return hashlib.sha256(dump_question(self).encode()).hexdigest()[:16]


def dump_question(question: SuccessionQuestion) -> str:
    """The annotation."""
    body = {
        "for": question.sets,
        "from": {
            role: {"idle": leaving.idle, "serving": leaving.serving, "most": leaving.most, "stay": leaving.stay}
            for role, leaving in sorted(question.predecessors.items())
        },
    }
    return json.dumps(body, separators=(",", ":"))


def read_question(text: str | None) -> SuccessionQuestion | None:
    """Read the question of an annotation; None where it asks nothing, or cannot be understood."""
    body = read_json(text)
    if not isinstance(body, dict):
        return None
    try:
        sets = tuple(tuple(_successor(*member) for member in members) for members in body["for"])
        predecessors = {_text(role): _predecessors(**lists) for role, lists in body["from"].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    named = sum(map(len, sets)) + sum(len(leaving.placed) for leaving in predecessors.values())
    if not sets or not all(sets) or len(predecessors) > MOST_ROLES or named > MOST_ROLES * MOST_REPLICAS:
        return None
    return SuccessionQuestion(sets, predecessors)


def _successor(role: Any, replica: Any, uid: Any) -> Successor:
    return Successor(_text(role), _number(replica), _text(uid))


def _predecessors(idle: Any, serving: Any, most: Any, stay: Any) -> Predecessors:
    lists = [tuple(map(_number, numbers)) for numbers in (idle, serving, stay)]
    leaving = Predecessors(lists[0], lists[1], _number(most), lists[2])
    if len(leaving.placed) < sum(map(len, lists)):
        raise ValueError("a replica is named twice")
    return leaving


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(value)
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(value)
    return value
