from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import role
from covey.api.roles import Role
from covey.rollout import RolloutBudget


@pytest.mark.parametrize(
    ("replicas", "update", "budget"),
    [
        (4, None, RolloutBudget(1, None, 0)),
        (4, {"maxSurge": 2, "maxUnavailable": 1, "partition": 3}, RolloutBudget(2, 1, 3)),
        (10, {"maxSurge": "25%", "maxUnavailable": "25%"}, RolloutBudget(3, 2)),
        (3, {"maxSurge": "0%", "maxUnavailable": "10%"}, RolloutBudget(0, 1)),
        (4, {"maxSurge": 0}, RolloutBudget(0, 1)),
        (4, {"maxUnavailable": 0}, RolloutBudget(1, 0)),
        (4, {"maxUnavailable": "100%"}, RolloutBudget(1, 4)),
    ],
)
def test_percentages_and_defaults_are_those_of_deployments(
    replicas: int, update: dict[str, Any] | None, budget: RolloutBudget
) -> None:
    stated = {} if update is None else {"update": update}
    assert RolloutBudget.of(Role.model_validate(role("prefill", **stated)), replicas) == budget
