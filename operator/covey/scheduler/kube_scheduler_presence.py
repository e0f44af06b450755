"""The presence of kube-scheduler: while it does not call, no pin is late for it.

Without that all pins that wait would be undone, and their pods made anew, each time that the gangs' time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Seconds without a call, and without one that is held, after which kube-scheduler counts as away.
QUIET: Final = 60.0


#: Seconds for which that is believed at most: its calls may go to another replica by now.
BELIEVED: Final = 3600.0


class Callers:
    """Times of calls. Where none ever came, another replica may be the one that is called, and nothing is known.

    Args:
        held: whether a call is held: whoever waits for an answer is there.
        clock: monotonic seconds.
    """

    def __init__(self, held: Callable[[], bool] = lambda: False, *, clock: Callable[[], float]) -> None:
        self._held = held
        self._clock = clock
        self._last: float | None = None
        #: Since when calls have come again after a silence.
        self.back: float | None = None

    def note(self) -> None:
        """A call has come, or a pod was bound as only kube-scheduler could have asked for."""
        now = self._clock()
        if self._last is not None and self.away:
            self.back = now
        self._last = now

    @property
    def away(self) -> bool:
        """kube-scheduler called, and does not any more."""
        if self._last is None or self._held():
            return False
        return QUIET < self._clock() - self._last <= BELIEVED
