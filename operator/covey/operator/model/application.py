"""Objects that somebody changes whenever they were applied: how often that was, and when they are applied again.

A mutating admission policy or webhook may write a field as it likes, and another controller may keep it as its own. To
apply such an object in each pass writes for ever and gets nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from covey.api import core

#: Applications of one form of an object that are undone before it is left alone for a while.
MOST: Final = 2
#: Seconds for which it is left alone then: doubled from the first to the last.
FIRST: Final = 10.0
LONGEST: Final = 600.0
#: Seconds after which an object that was as it was applied is somebody's edit when it is not any more.
APART: Final = 60.0


@dataclass(frozen=True, slots=True)
class Application:
    """The last of some applications of one form of an object, each of which was undone soon.

    ``digest`` is of the form, ``result`` the metadata that the API server answered with, ``at`` in seconds since the epoch.
    """

    digest: str
    result: core.Meta
    times: int
    at: float

    @property
    def is_undone(self) -> bool:
        """Whether applying it once more would most likely change nothing."""
        return self.times >= MOST

    @property
    def due(self) -> float:
        """When the object may be applied again, in seconds since the epoch."""
        return self.at + (min(FIRST * 2.0 ** min(self.times - MOST, 16), LONGEST) if self.is_undone else 0.0)

    def follow(self, digest: str, before: core.Meta, result: core.Meta, now: float) -> Application:
        """The next application.

        Args:
            digest: of the form that was applied now.
            before: metadata of the object as it was known before.
            result: the API server's answer.
            now: seconds since the epoch.
        """
        is_another = (digest, result.uid) != (self.digest, self.result.uid)
        if is_another or now > max(self.due + (self.due - self.at), self.at + APART):
            return Application(digest, result, 1, now)
        # What is known may be older than the last application, and say nothing of what became of it.
        return Application(digest, result, self.times + (not before.is_before(self.result)), now)
