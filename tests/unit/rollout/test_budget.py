from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import role
from covey.api.roles import Role
from covey.rollout import Budget


@pytest.mark.parametrize(
    ("replicas", "update", "budget"),
    [
        (4, None, Budget(1, None, 0)),
        (4, {"maxSurge": 2, "maxUnavailable": 1, "partition": 3}, Budget(2, 1, 3)),
        (10, {"maxSurge": "25%", "maxUnavailable": "25%"}, Budget(3, 2)),
        (3, {"maxSurge": "0%", "maxUnavailable": "10%"}, Budget(0, 1)),
        (4, {"maxSurge": 0}, Budget(0, 1)),
        (4, {"maxUnavailable": 0}, Budget(1, 0)),
        (4, {"maxUnavailable": "100%"}, Budget(1, 4)),
    ],
)
def test_percentages_and_defaults_are_those_of_deployments(
    replicas: int, update: dict[str, Any] | None, budget: Budget
) -> None:
    stated = {} if update is None else {"update": update}
    assert Budget.of(Role.model_validate(role("prefill", **stated)), replicas) == budget
