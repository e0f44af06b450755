"""The priority of a gang, by its class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from covey.api import core

#: Priorities that every cluster has.
_SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def priority_of(written: int | None, name: str | None, classes: Mapping[str, core.PriorityClass]) -> int | None:
    """The priority of its class, else the global default, else 0, or less where less is written; None for an unknown class.

    Whoever may create groups may write any number; a class is an administrator's, as for pods
    (``plugin/pkg/admission/priority``).

    Args:
        written: ``spec.priority``.
        name: ``spec.priorityClassName``.
        classes: the cluster's classes by name.
    """
    if name:
        value = classes[name].value if name in classes else _SYSTEM.get(name)
    else:
        value = next((each.value for each in classes.values() if each.global_default), 0)
    return value if written is None or value is None else min(written, value)
