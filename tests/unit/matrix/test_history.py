"""What counts as bound in part, and for how long it was."""

from typing import Any

import pytest

from builders.pods import pod_body
from conftest import share
from matrix.history import Event, Need, Partial, partials
from matrix.outcome import OK, differs, refused

NEEDS = {"llm": {"prefill": Need(2, 1), "decode": Need(1, 1), "router": Need(1, 0)}}
GANG = ("llm", "0")
MINIMUM = ("prefill-0-0", "prefill-0-1", "decode-0-0")


def pod(name: str, node: str = "", **metadata: Any) -> dict[str, Any]:
    """A pod of the gang, named role-replica-index."""
    role, replica, index = name.split("-")
    labels = {"inference": "llm", "unit": "0", "role": role, "replica": replica, "index": index}
    marks = {f"covey.dev/{key}": value for key, value in labels.items()}
    return pod_body(name, uid=name, labels=marks, node=node, **metadata)


def bound(*names: str) -> list[Event]:
    return [("MODIFIED", pod(name, "node")) for name in names]


def found(*events: Event) -> list[Partial]:
    """One event a second."""
    return list(partials(events, list(range(len(events))), NEEDS))


def test_a_minimum_that_is_never_whole_is_partial_for_good() -> None:
    assert found(*bound("prefill-0-0"), ("ADDED", pod("decode-0-0"))) == [Partial(GANG, 1, for_good=True)]


def test_half_a_replica_is_none() -> None:
    assert found(*bound("prefill-0-0", "prefill-1-1", "decode-0-0"))[0].for_good


def test_binding_one_by_one_takes_a_time_and_ends() -> None:
    assert found(*bound(*MINIMUM)) == [Partial(GANG, 2, for_good=False)]


@pytest.mark.parametrize("kind", ["DELETED", "MODIFIED"])
def test_a_loss_after_the_minimum_was_whole_is_no_partial_start(kind: str) -> None:
    gone = (kind, pod("decode-0-0", "node", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert found(*bound(*MINIMUM), gone, gone) == [Partial(GANG, 2, for_good=False)]


def test_a_role_outside_the_gang_counts_neither_way() -> None:
    assert found(*bound("router-0-0")) == []


def test_of_a_refusal_some_words_are_declared_and_of_a_difference_all() -> None:
    assert refused("spec.spread").covers(refused("spec.spread: use Extender"))
    assert not refused("spec.spread").covers(refused("spec.proximity: use Extender"))
    assert not refused("spec.spread").covers(differs("spec.spread"))
    assert differs("a").covers(differs("a"))
    assert not differs("a").covers(differs("a, b"))
    assert OK.covers(OK)
    assert not OK.covers(differs("a"))


@pytest.mark.parametrize("column", ["Extender 1.37", "Volcano 1.14"])
def test_the_tests_of_a_backend_share_a_process(column: str) -> None:
    ids = [
        f"tests/matrix/test_matrix.py::test_it[{column}-one]",
        f"tests/matrix/test_matrix.py::test_it[{column}-two-2]",
        f"tests/matrix/test_volcano.py::test_special[{column}]",
    ]
    assert {share(each) for each in ids} == {f"tests/matrix/{column}"}


@pytest.mark.parametrize("name", ["test_it", "test_it[1.36-preemption]", "test_it[one]"])
def test_what_has_its_own_cluster_stays_together(name: str) -> None:
    assert share(f"tests/matrix/test_gates.py::{name}") == "tests/matrix/test_gates.py"
