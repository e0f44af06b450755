"""The soak's laws of claims against histories made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from soak.settings import BORROW, NOMINAL
from unit.soak.histories import GATED, History, resource, role

ROOT = "uid-of-root"


def claim(
    history: History, version: int, *victims: dict[str, Any], purpose: str = "Preemption", **labels: str
) -> list[str]:
    """A claim is stored; the rules that it broke."""
    labels = {f"covey.dev/{key}": value for key, value in labels.items()}
    metadata = {"namespace": "soak", "name": "high-0", "uid": ROOT, "resourceVersion": str(version), "labels": labels}
    stored = {"purpose": purpose, "since": "2026-01-01T00:00:00Z", "victims": list(victims)}
    root = {"metadata": metadata, "status": {"claim": stored}}
    return [each.rule for each in history.checker.take("CompositePodGroup", "MODIFIED", root, history.at)]


def victim(replica: int | None, *pods: str, namespace: str = "soak") -> dict[str, Any]:
    kind = {"kind": "Unit"} if replica is None else {"kind": "Replica", "role": "decode", "replica": replica}
    return kind | {"namespace": namespace, "name": "llm", "unit": 0, "pods": list(pods)}


def serving(minimum: int) -> History:
    history = History(role("decode", replicas=2, minReplicas=minimum))
    for replica in range(2):
        history.see(f"0/decode/{replica}/0", gates=GATED)
        history.see(f"0/decode/{replica}/0", node=f"n{replica}", ready=True)
    history.wait()
    return history


def mark(history: History, replica: int, version: int) -> list[str]:
    """The operator marks a replica; the rules that are found to be broken when all has been seen."""
    notes = {"covey.dev/claimed-by": ROOT}
    labels = {"covey.dev/draining": "true"}
    place = f"0/decode/{replica}/0"
    seen = history.see(place, node=f"n{replica}", ready=True, annotations=notes, labels=labels, version=version)
    return seen + [each.rule for each in history.wait()]


@pytest.mark.parametrize(
    ("named", "stored", "minimum", "found"),
    [
        pytest.param(1, 5, 1, [], id="a surplus that is named"),
        pytest.param(0, 5, 1, ["unnamed"], id="another one is named"),
        pytest.param(1, 9, 1, ["unnamed"], id="the claim was stored afterwards"),
        pytest.param(1, 5, 2, ["in part"], id="a part of the minimum"),
        pytest.param(None, 5, 2, [], id="all of the unit"),
    ],
)
def test_a_mark_needs_a_claim_before_it(named: int | None, stored: int, minimum: int, found: list[str]) -> None:
    history = serving(minimum)
    assert claim(history, stored, victim(named, f"0/decode/{named or 0}/0")) == []
    assert mark(history, 1, 7) == found


@pytest.mark.parametrize(("purpose", "found"), [("Preemption", ["rank"]), ("Reclaim", ["rank"]), ("Exchange", [])])
def test_nobody_takes_from_a_queue_that_has_borrowed_nothing(purpose: str, found: list[str]) -> None:
    history = serving(1)
    assert claim(history, 5, victim(1, "0/decode/1/0", namespace="other"), purpose=purpose) == found


@pytest.mark.parametrize(
    ("unit", "purpose", "found"),
    [("1", "Reclaim", []), ("0", "Reclaim", ["rank"]), ("1", "Preemption", ["rank"])],
)
def test_another_unit_of_the_resource_gives_back_what_it_has_borrowed(
    unit: str, purpose: str, found: list[str]
) -> None:
    history = serving(1)
    victims = victim(1, "0/decode/1/0")
    assert claim(history, 5, victims, purpose=purpose, inference="llm", unit=unit) == found


def test_a_claim_stands_as_long_as_something_lives_that_gives_way() -> None:
    history = serving(1)
    claim(history, 5, victim(1, "0/decode/1/0"))
    assert len(history.checker.claims.standing) == 1
    history.delete("0/decode/1/0", node="n1")
    assert not history.checker.claims.standing


@pytest.mark.parametrize(
    ("more", "changes", "found"),
    [
        pytest.param(0, [], [], id="all that may be borrowed"),
        pytest.param(1, [], ["quota"], id="one more"),
        pytest.param(1, ["DELETED"], [], id="its resource has been deleted"),
    ],
)
def test_no_queue_has_more_than_it_may_borrow(more: int, changes: list[str], found: list[str]) -> None:
    gpus = NOMINAL["soak"] + BORROW["soak"] + more
    history = History(role("decode", replicas=2))
    history.see("0/decode/0/0", gpus=gpus - 1, gates=GATED)
    history.see("0/decode/0/0", gpus=gpus - 1, node="n0", ready=True)
    history.see("0/decode/1/0", gpus=1, gates=GATED)
    history.see("0/decode/1/0", gpus=1, node="n1", ready=True)
    for change in changes:
        history.checker.take("DisaggregatedInference", change, resource(role("decode", replicas=2)), history.at)
    assert [each.rule for each in history.wait() if each.rule == "quota"] == found
