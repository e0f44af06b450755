"""The watches of the soak: one that breaks for good is a violation, for laws judged by what was long ago hold no more."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client import ApiClient

from soak.checker import Checker
from soak.invariants import Violation
from soak.quiet import Quiet
from soak.watching import Watching


class Broken(Watching):
    """Its first list cannot be taken."""

    def _list(self, kind: str, known: dict[str, dict[str, Any]]) -> str:
        raise KeyError(kind, *known)


class Ended(Watching):
    """It is ended while it lists."""

    def _list(self, kind: str, known: dict[str, dict[str, Any]]) -> str:
        self._end.set()
        raise KeyError(kind, *known)


def test_a_watch_that_cannot_go_on_says_so() -> None:
    checker, said = Checker(), list[Violation]()
    watching = Broken(ApiClient(), checker, Quiet(), said.append)
    with pytest.raises(KeyError):
        watching._follow("Pod")
    assert [each.rule for each in said] == ["blind"]
    assert checker.violations == said


def test_a_watch_that_is_ended_says_nothing() -> None:
    checker, said = Checker(), list[Violation]()
    with pytest.raises(KeyError):
        Ended(ApiClient(), checker, Quiet(), said.append)._follow("Pod")
    assert not said
    assert not checker.violations
