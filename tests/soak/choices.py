"""What a soak may choose to do. A new choice is one function below ``@choice``.

A choice gets the stage and the generator, does something or arranges it for later, and says in a few words what. None
means that there is nothing to do it to now. ``blinds``: events are hidden meanwhile, so that the invariants that need
to know what happened a moment ago wait; those are left out of some storms.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from soak.stage import Stage

Do = Callable[[Stage, random.Random], str | None]
Group = Literal["edits", "deaths", "nodes", "processes", "api", "strangers", "tenants", "claims"]


@dataclass(frozen=True)
class Choice:
    """One choice; ``weight`` is relative to the others of its group."""

    name: str
    group: Group
    weight: float
    do: Do


REGISTRY: Final[dict[str, Choice]] = {}


def choice(group: Group, weight: float = 1.0) -> Callable[[Do], Do]:
    """Register a function, by its name."""

    def register(do: Do) -> Do:
        name = do.__name__.replace("_", " ")
        REGISTRY[name] = Choice(name, group, weight, do)
        return do

    return register


#: Weights of groups in storms of each kind; one is drawn for each storm.
STORMS: Final[dict[str, dict[Group, float]]] = {
    "everything": {
        "edits": 30,
        "deaths": 25,
        "nodes": 15,
        "processes": 8,
        "api": 8,
        "strangers": 14,
        "tenants": 12,
        "claims": 24,
    },
    "workload": {"edits": 45, "deaths": 35, "strangers": 20, "claims": 30},
    "nodes": {"edits": 20, "deaths": 15, "nodes": 50, "strangers": 15, "tenants": 10, "claims": 20},
    "processes": {"edits": 35, "deaths": 25, "nodes": 10, "processes": 25, "strangers": 5, "tenants": 20, "claims": 25},
    "api": {"edits": 35, "deaths": 30, "nodes": 10, "api": 20, "strangers": 5, "tenants": 15, "claims": 20},
    # Few reasons to take anything away, so that most resources are at rest.
    "tenants": {"edits": 8, "deaths": 4, "strangers": 10, "processes": 1, "tenants": 77, "claims": 12},
}


def draw(storm: str, generator: random.Random) -> Choice:
    """The next choice."""
    groups = STORMS[storm]
    [group] = generator.choices(list(groups), list(groups.values()))
    found = [each for each in REGISTRY.values() if each.group == group]
    [chosen] = generator.choices(found, [each.weight for each in found])
    return chosen
