"""Whether an operator leads, as its Lease tells on this machine's clock."""

from __future__ import annotations

from typing import Any

import pytest

from covey.scheduler.operator_lease import ALWAYS, OperatorLease


def lease(holder: str, renewed: int = 0) -> dict[str, Any]:
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "renewTime": f"2026-01-01T00:00:{renewed:02d}.000000Z",
    }
    return {"spec": spec}


@pytest.mark.parametrize(
    ("looks", "since"),
    [
        pytest.param([(0, None)], ALWAYS, id="there is none: no leader election"),
        pytest.param([(0, lease("a"))], None, id="it was read once"),
        pytest.param([(0, lease("a")), (2, lease("a")), (4, lease("a"))], None, id="nobody renews it"),
        pytest.param([(0, lease("a")), (2, lease("a", 2)), (4, lease("a", 4))], 0, id="it is renewed"),
        pytest.param([(0, lease("a")), (2, lease("")), (4, lease(""))], None, id="it was released"),
        pytest.param(
            [(0, lease("a")), (2, lease("a")), (4, lease("b", 4)), (6, lease("b", 6))], 4, id="another holds it"
        ),
        pytest.param([(0, lease("a")), (2, lease("a", 2)), (4, lease("b", 4))], 4, id="it has changed hands"),
        pytest.param(
            [(0, lease("a")), (2, lease("a", 2)), (20, lease("a", 2))], None, id="it was not looked at for long"
        ),
        pytest.param(
            [(0, lease("a")), *((second, lease("a", 2)) for second in range(2, 20, 2))], None, id="it has run out"
        ),
    ],
)
def test_operator_leads_since(looks: list[tuple[int, dict[str, Any] | None]], since: float | None) -> None:
    client: Any = None
    operator = OperatorLease(client, "covey-system", lambda: 0.0)
    for now, found in looks:
        operator.observe(found, float(now))
    assert operator.led_since == since
