"""Dependants of refused requests: what would hang on an object that is not there, and nothing else.

An object's labels say what it is there for: for all of a resource, a role, a unit or a replica. Where it could not be
created, neither pods nor further objects of these are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from covey.api import constants as names
from covey.compile import Slot
from covey.operator.terms.actions import Object

_PLACE: Final = (names.LABEL_UNIT, names.LABEL_ROLE, names.LABEL_REPLICA)


class Dependants:
    """The refused objects of one pass."""

    def __init__(self) -> None:
        self._missing: list[Mapping[str, str]] = []

    def refuse(self, body: Object) -> None:
        """Note that this object could not be created."""
        self._missing.append(_place_of(body))

    def lack(self, body: Object) -> bool:
        """Tell whether a refused object would have to be there before this one."""
        return self._is_within(_place_of(body))

    def pod_lacks(self, slot: Slot) -> bool:
        """Tell whether a refused object would have to be there before the pod of this place."""
        return self._is_within(dict(zip(_PLACE, (str(slot.unit), slot.role, str(slot.replica)), strict=True)))

    def _is_within(self, place: Mapping[str, str]) -> bool:
        return any(missing.items() <= place.items() for missing in self._missing)


def _place_of(body: Object) -> dict[str, str]:
    labels: Mapping[str, str] = body["metadata"].get("labels") or {}
    return {key: labels[key] for key in _PLACE if key in labels}
