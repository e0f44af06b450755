"""Which budgets select a pod, as the eviction API would find them: it takes none that has two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from covey.api import core
from covey.backends import Identity, Owned
from covey.kube.resources import POD_DISRUPTION_BUDGETS

_BUDGET = POD_DISRUPTION_BUDGETS.type
_OPERATORS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, str]], bool]] = {
    "In": lambda each, labels: labels.get(each["key"]) in each["values"],
    "DoesNotExist": lambda each, labels: each["key"] not in labels,
}


def budgets_of(pod: core.Pod, *stored: Mapping[Identity, Owned]) -> list[str]:
    """The names of those that select it."""
    labels = pod.metadata.labels or {}
    found = (item for each in stored for item in budgets_in(each).items())
    return [name for (_, name), body in found if _selects(body.spec["selector"], labels)]


def budgets_in(stored: Mapping[Identity, Owned]) -> dict[Identity, Owned]:
    """The budgets among these objects."""
    return {identity: body for identity, body in stored.items() if identity[0] == _BUDGET}


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(_OPERATORS[each["operator"]](each, labels) for each in selector.get("matchExpressions", ()))
