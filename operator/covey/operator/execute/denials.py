"""Denied writes: collected, with what depends on them, under a limit for what is not urgent.

They are collected while the rest is done, and reported at the end. The limit is of all resources together.

Dependants are what would hang on an object that is not there, and nothing else. An object's labels say what it is there
for: for all of a resource, a role, a unit or a replica. Where it could not be created, neither pods nor further objects
of these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.compile import Slot
from covey.kube.errors import ApiError
from covey.observability.logging import get_logger
from covey.operator.model.actions import Object
from covey.operator.model.problem import REASON_REFUSED, Problem, is_denial

_log = get_logger(__name__)


class Allowance:
    """A token bucket: ``rate`` tokens a second, of which at most one second's worth is saved up.

    Args:
        rate: tokens a second.
        clock: monotonic, seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._left = rate
        self._at = clock()

    def take(self, wanted: int) -> int:
        """Take up to ``wanted`` tokens; return how many were taken."""
        now = self._clock()
        self._left = min(self._left + (now - self._at) * self._rate, self._rate)
        self._at = now
        taken = min(wanted, int(self._left))
        self._left -= taken
        return taken


class Denials:
    """The denials of one pass."""

    def __init__(self) -> None:
        self._told: list[str] = []

    def add(self, what: str, metadata: core.Meta, error: ApiError) -> None:
        """Note a denial.

        Raises:
            ApiError: the error is no denial.
        """
        if not is_denial(error):
            raise error
        _log.warning("denied", what=what, pod=metadata.name, error=str(error))
        self.note(f"{what} of pod {metadata.name}: {error.message}")

    def note(self, sentence: str) -> None:
        """Note what could not be done."""
        self._told.append(sentence)

    @property
    def problem(self) -> Problem | None:
        """The first denial, with the number of further ones; None without any."""
        if not self._told:
            return None
        more = f"; and {len(self._told) - 1} more" if len(self._told) > 1 else ""
        return Problem(REASON_REFUSED, f"the API server denies the {self._told[0]}{more}", retry=True)


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
