"""Whether the API server would refuse a change of a group: of what Covey writes, only ``minCount`` may change.

Types of ``scheduling.k8s.io/v1beta1`` and ``v1alpha3`` (Kubernetes 1.37); the whole policy of a CompositePodGroup is
fixed, and templates can neither be added nor removed. Before 1.37 nothing of a group may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MUTABLE: Final = frozenset({"minCount"})
#: Admission and defaults fill these in where they are not given.
_FILLED: Final = frozenset({"priority", "preemptionPolicy", "priorityClassName", "resourceClaims"})


def differs(stored: Mapping[str, Any], wanted: Mapping[str, Any], mutable: frozenset[str] = MUTABLE) -> bool:
    """Something else than a mutable field is another one; a null is the same as nothing."""
    left_out = mutable | _FILLED
    return bool(_fixed(stored, left_out) != _fixed(wanted, left_out))


def _fixed(value: Any, left_out: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _fixed(item, left_out) for key, item in value.items() if item is not None and key not in left_out}
    if isinstance(value, list | tuple):
        items = [_fixed(item, left_out) for item in value]
        return sorted(items, key=_name) if all(isinstance(item, dict) and "name" in item for item in items) else items
    return value


def _name(item: Mapping[str, Any]) -> str:
    return str(item["name"])
