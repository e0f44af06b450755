"""How many times a model has to be loaded one after the other, against what no planner could do with less."""

from __future__ import annotations

import random

from covey.rollout import RolloutBudget
from unit.rollout.acting import Role, Unit, least


def bound(unit: Unit) -> int:
    """Waves of the slowest role, had it nobody to wait for (derived in ``covey.rollout.window``)."""
    return max(_alone(role) for role in unit.roles.values())


def _alone(role: Role) -> int:
    wanted, ceiling, floor = role.wanted, role.wanted + role.budget.surge, least(role)
    ready = waves = 0
    while ready < wanted:
        pair = 1 if ceiling > 1 else 0
        keep = 0 if ready >= floor else max(pair, floor - ready)
        ready = min(wanted, ceiling - keep)
        waves += 1
    return waves


def waves(unit: Unit) -> int:
    unit.edit("b")
    for count in range(1, 200):
        unit.step()
        unit.thrive()
        if unit.is_rolled:
            return count
        if all(role.count("b") == role.wanted == role.ready - role.count("a") for role in unit.roles.values()):
            return count
    raise AssertionError(unit.shape())


def cases(count: int) -> list[Unit]:
    chosen = random.Random(1)
    found = []
    for _ in range(count):
        roles = {}
        for name in ("prefill", "decode", "router")[: chosen.randint(1, 3)]:
            surge = chosen.randint(0, 3)
            wanted = chosen.randint(1, 16)
            roles[name] = Role.serving(
                wanted, chosen.randint(1, wanted), RolloutBudget(surge, chosen.randint(not surge, 3))
            )
        found.append(Unit(roles))
    return found


def test_waves_are_close_to_the_bound() -> None:
    needed = least_needed = 0
    for unit in cases(200):
        lowest = bound(unit)
        count = waves(unit)
        assert count <= 2 * lowest + 1, (unit, count, lowest)
        needed += count
        least_needed += lowest
    print(f"{needed} waves, at least {least_needed}: {needed / least_needed - 1:.1%} more")
    assert needed <= 1.1 * least_needed
