"""Writes that the API server denies: collected while the rest is done, and reported at the end."""

from __future__ import annotations

from covey.api import core
from covey.kube.errors import ApiError
from covey.observability.logging import get_logger
from covey.operator.terms.problem import REASON_REFUSED, Problem, is_denial

_log = get_logger(__name__)


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
