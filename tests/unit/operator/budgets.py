"""Which budgets select a pod, as the eviction API would find them: it takes none that has two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from covey.api import core
from covey.backends import Identity, Owned
from covey.kube.resources import POD_DISRUPTION_BUDGETS

_OPERATORS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, str]], bool]] = {
    "In": lambda each, labels: labels.get(each["key"]) in each["values"],
    "DoesNotExist": lambda each, labels: each["key"] not in labels,
}


def budgets_of(pod: core.Pod, *stored: Mapping[Identity, Owned]) -> list[str]:
    """The names of those that select it."""
    labels = pod.metadata.labels or {}
    budgets = (
        (name, body) for each in stored for (kind, name), body in each.items() if kind == POD_DISRUPTION_BUDGETS.type
    )
    return [name for name, body in budgets if _selects(body.spec["selector"], labels)]


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(_OPERATORS[each["operator"]](each, labels) for each in selector.get("matchExpressions", ()))
