from __future__ import annotations

from typing import Any

import pytest

from builders.members import GATE, START, cache, group, member, put, role_groups, root_key, unit
from covey.admission.status import Decision
from covey.scheduler.context import Context
from covey.scheduler.statuses import Passing, StatusWriter, passing

GATED: dict[str, Any] = {"gates": (GATE,)}
REFUSED = Decision("Infeasible", "8 GPUs are missing")


@pytest.mark.parametrize(
    ("replicas", "decision", "expected"),
    [
        pytest.param([], Decision(), None, id="no pods yet"),
        pytest.param([GATED], Decision(), Passing.WAITING, id="not looked at yet, or its pins are being written"),
        pytest.param([GATED], Decision("Waiting", "pods are missing"), Passing.WAITING, id="being created"),
        pytest.param([GATED], REFUSED, None, id="refused: news"),
        pytest.param([{"pin": "n1"}], Decision(), Passing.PINNED, id="about to be bound"),
        pytest.param([{"pin": "n1", "gates": (START,)}], Decision(), Passing.PINNED, id="held by the start gate"),
        pytest.param([{"node": "n1"}, GATED], Decision(), None, id="the minimum is bound: news"),
        pytest.param([{"node": "n1"}, {"pin": "n2"}], Decision(), Passing.PINNED, id="surplus about to be bound"),
        pytest.param([{"node": "n1"}, {"node": "n2"}], Decision(), None, id="all bound"),
    ],
)
def test_what_is_expected_to_pass(replicas: list[dict[str, Any]], decision: Decision, expected: Passing | None) -> None:
    pods = [member("decode", number, 0, size=1, **state) for number, state in enumerate(replicas)]
    found = unit(group("root", composite=True, minimum=1), role_groups("decode", replicas=2, minimum=1, size=1), pods)
    assert passing(found, decision) is expected


async def test_without_the_lease_no_status_is_written() -> None:
    leads = True
    sent: list[str] = []

    class Api:
        async def apply(self, _resource: object, body: dict[str, Any], **_: object) -> None:
            sent.append(body["metadata"]["name"])

    api: Any = Api()
    groups = [group("root", composite=True, minimum=1), *role_groups("decode", replicas=1, minimum=1, size=1)]
    made = cache(*groups, member("decode", 0, node="n1"))
    writer = StatusWriter(Context(made, api, api, api, lambda: leads), lambda _root: Decision())

    async def write() -> None:
        await writer._write(root_key("root"))
        await writer._write_details(root_key("root"))

    await write()
    assert sent == ["root"], "the group below is bound, as the root says"
    put(made, member("decode", 0, pin="n1"))
    writer._written.clear()
    await write()
    assert sent == ["root", "root-decode"]
    leads = False
    put(made, member("decode", 0, gates=(GATE,)))
    writer._written.clear()
    await write()
    assert sent == ["root", "root-decode"]
