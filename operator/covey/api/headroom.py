"""The question for head-room, as the operator puts it to the scheduler process in an annotation of a root group.

A JSON object ``{"asked": text, "roles": {name: "sum" | "each"}}``. ``asked`` is what somebody wrote on the resource: an
answer repeats it, so that everybody can tell which question it answers. A role's replicas are asked for as a ``sum``
over all units, or ``each`` unit has as many.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from covey.api.annotations import read_json

#: Longest text of a question; what is longer is cut.
LONGEST: Final = 253
#: Most roles of a question: a resource has no more, and an answer has no room for more.
MOST_ROLES: Final = 16
_SUM: Final = "sum"
_EACH: Final = "each"


@dataclass(frozen=True, slots=True)
class Question:
    """A question: what somebody wrote, and of each role whether its replicas are a sum over all units."""

    asked: str
    roles: Mapping[str, bool]


def dump_question(question: Question) -> str:
    """The annotation."""
    roles = {name: _SUM if is_shared else _EACH for name, is_shared in sorted(question.roles.items())}
    return json.dumps({"asked": question.asked, "roles": roles}, separators=(",", ":"))


def read(text: str | None) -> Question | None:
    """Read the question of an annotation; None where it asks nothing, or cannot be understood."""
    body = read_json(text)
    if not isinstance(body, dict):
        return None
    asked, roles = body.get("asked"), body.get("roles")
    if not isinstance(asked, str) or not asked or not isinstance(roles, dict) or len(roles) > MOST_ROLES:
        return None
    return Question(asked[:LONGEST], {name: kind == _SUM for name, kind in roles.items()})
