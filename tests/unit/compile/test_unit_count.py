"""Whether a unit has its minimum."""

from __future__ import annotations

import pytest

from covey.compile import UnitCount
from covey.compile.revision import RoleCount

ROLES = {"prefill": RoleCount(4, 2), "decode": RoleCount(1, 1), "router": RoleCount(2, 0)}


@pytest.mark.parametrize(
    ("counts", "lacking", "told"),
    [
        ({"prefill": 2, "decode": 1}, {}, ""),
        ({"prefill": 4, "decode": 1, "router": 2}, {}, ""),
        ({"prefill": 1, "decode": 1, "router": 2}, {"prefill": (1, 2)}, "prefill 1/2"),
        ({"router": 2}, {"prefill": (0, 2), "decode": (0, 1)}, "prefill 0/2, decode 0/1"),
    ],
)
def test_every_role_is_counted_against_its_own_minimum(
    counts: dict[str, int], lacking: dict[str, tuple[int, int]], told: str
) -> None:
    found = UnitCount.of(counts, ROLES)
    assert found.lacking == lacking
    assert found.has_minimum is not bool(lacking)
    assert str(found) == told
