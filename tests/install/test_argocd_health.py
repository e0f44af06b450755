"""The health check for Argo CD, run by the interpreter that Argo CD has."""

from __future__ import annotations

from typing import Any

import pytest

from kstatus import Judged, judge_by_argo


def body(*conditions: tuple[str, str, str], observed: int = 2) -> dict[str, Any]:
    told = [
        {"type": kind, "status": status, "reason": reason, "message": f"{kind} says so"}
        for kind, status, reason in conditions
    ]
    status = {"observedGeneration": observed, "conditions": told}
    return {"apiVersion": "a/v1", "kind": "A", "metadata": {"generation": 2}, "status": status}


@pytest.mark.parametrize(
    ("item", "status", "message"),
    [
        (body(("Ready", "True", "Ready")), "Healthy", "Ready says so"),
        (body(("Ready", "False", "Infeasible")), "Progressing", "Ready says so"),
        (body(("Ready", "Unknown", "Who")), "Progressing", "Ready says so"),
        (body(("Ready", "True", "Suspended")), "Suspended", "Ready says so"),
        (body(("Ready", "False", "Suspended")), "Progressing", "Ready says so"),
        (body(("Ready", "False", "Invalid"), ("Stalled", "True", "Invalid")), "Degraded", "Stalled says so"),
        (body(("Ready", "True", "Ready"), observed=1), "Progressing", "the operator has not seen this spec yet"),
        (body(observed=-1), "Progressing", "the operator has not seen this spec yet"),
        (body(), "Progressing", "the operator has not seen this spec yet"),
    ],
)
def test_what_argo_cd_shows(item: dict[str, Any], status: str, message: str) -> None:
    assert judge_by_argo([item]) == [Judged(status, message)]
