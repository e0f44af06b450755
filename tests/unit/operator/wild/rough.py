"""Roughness: late watches, refused requests, kills; events that storms mix into their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hypothesis import strategies as st

from unit.operator.wild.wild_world import Wild

Event = tuple[str, int]

#: Kinds that are watched, and written.
KINDS: Final = (
    "pods",
    "services",
    "podgroups",
    "compositepodgroups",
    "controllerrevisions",
    "poddisruptionbudgets",
    "disaggregatedinferences",
)
_VERBS: Final = ("create", "patch", "delete")
_SHARES: Final = (0.05, 0.2, 0.5)
_NAMES: Final = ("late", "late", "expired", "refuse", "forbid", "calm", "kill", "kill", "pass")


def with_roughness(events: st.SearchStrategy[Event]) -> st.SearchStrategy[list[Event]]:
    """Events of a storm, every second of them rough."""
    rough = st.tuples(st.sampled_from(_NAMES), st.integers(0, 60))
    # Hypothesis draws some five, unless it is to draw more.
    return st.lists(st.one_of(events, rough), min_size=6, max_size=30)


def roughen(wild: Wild, event: Event, names: Mapping[str, str]) -> bool:
    """Do what an event says, if it is a rough one; ``names`` are those by which a storm calls the same."""
    kind, number = event
    match names.get(kind, kind):
        case "late":
            wild.trouble.lags[KINDS[number % len(KINDS)]] = number / 4
        case "expired":
            wild.expire(KINDS[number % len(KINDS)])
        case "refuse":
            wild.trouble.share = _SHARES[number % len(_SHARES)]
        case "forbid":
            wild.trouble.policies.add((_VERBS[number % len(_VERBS)], KINDS[number // 3 % len(KINDS)]))
        case "calm":
            wild.trouble.end()
        case "kill":
            wild.crash(number % 13)
        case "restart":
            wild.restart()
        case "pass":
            wild.run(number / 5)
        case _:
            return False
    return True
