"""The question for an exchange, as the operator puts it to the scheduler process in an annotation of a root group.

A JSON object ``{"asked": text, "roles": {name: replicas}, "seconds": number}``: the replicas of each role that is scaled
together which this one unit is to have. They are absolute: how many go and how many come follows from what there is,
also where a vector replaces another one that is half carried out. ``seconds``: how long a claim may take to be carried
out. ``asked`` names the vector and the attempt; an answer repeats it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from covey.api.annotations import read_json

LONGEST: Final = 253
MOST_ROLES: Final = 16


@dataclass(frozen=True, slots=True)
class ExchangeQuestion:
    """The replicas that one unit is to have, by role, and the seconds that it may take."""

    asked: str
    roles: Mapping[str, int]
    seconds: int = 0


def dump_question(question: ExchangeQuestion) -> str:
    """The annotation."""
    body = {"asked": question.asked, "roles": dict(sorted(question.roles.items())), "seconds": question.seconds}
    return json.dumps(body, separators=(",", ":"))


def read_question(text: str | None) -> ExchangeQuestion | None:
    """Read the question of an annotation; None where it asks nothing, or cannot be understood."""
    body = read_json(text)
    if not isinstance(body, dict):
        return None
    asked, roles, seconds = body.get("asked"), body.get("roles"), body.get("seconds", 0)
    if not isinstance(asked, str) or not asked or not isinstance(roles, dict) or len(roles) > MOST_ROLES:
        return None
    if not all(isinstance(number, int) and number >= 0 for number in (*roles.values(), seconds)):
        return None
    return ExchangeQuestion(asked[:LONGEST], roles, seconds)


def describe_vector(roles: Mapping[str, int]) -> str:
    """``decode=2,prefill=6``: a vector in one word."""
    return ",".join(f"{name}={count}" for name, count in sorted(roles.items()))
