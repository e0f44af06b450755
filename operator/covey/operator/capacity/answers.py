"""The answer of an autoscaler to one request, when the request ends, and when the same is asked for again. Pure.

===================  ================================================================================================
``Asked``            nothing has been said yet, or only that the autoscaler failed at a look and tries again
``NoAnswer``         nothing has been said for so long that nobody may be there who reads it
``Coming``           nodes are on their way: the call to the cloud succeeded, which is all that is known
``Disagreed``        it all fits on the nodes that there are, says the autoscaler; the planner says that it does not
``NoCapacity``       there are no such nodes to be had now; it may be asked again by the autoscaler itself
``CapacityFailed``   the autoscaler has given it up
``NothingCame``      nodes were to come, and those for which they were asked wait still
===================  ================================================================================================

The one clock is Covey's. An autoscaler that no longer books room (``BookingExpired``, ten minutes after ``Provisioned``)
does not say that no node comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from covey.api import core
from covey.api.annotations import read_json
from covey.backends import Owned
from covey.operator.model.capacity import AutoscalerSettings, CapacityAnswer

#: With any of these no part of a unit is asked for any longer: the others would stand empty.
REFUSED: Final = frozenset({CapacityAnswer.FAILED, CapacityAnswer.NO_CAPACITY})
#: Answers of requests whose nodes may still come.
OPEN: Final = frozenset({CapacityAnswer.ASKED, CapacityAnswer.COMING, CapacityAnswer.DISAGREED})
#: How a request ends whose answer was believed for long enough.
_ENDS: Final[Mapping[CapacityAnswer, CapacityAnswer]] = {
    CapacityAnswer.COMING: CapacityAnswer.NOTHING_CAME,
    CapacityAnswer.DISAGREED: CapacityAnswer.DISAGREED,
}
#: Seconds of back-off that a mark may name: more than anybody can have set.
_MOST: Final = 1e6


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and since when it is believed, in seconds since the epoch: since it was given, or the last node came."""

    answer: CapacityAnswer
    since: float

    def find_end(self, capacity: AutoscalerSettings, now: float) -> CapacityAnswer | None:
        """Return how the request ends now; None where it goes on."""
        if self.answer in {CapacityAnswer.FAILED, CapacityAnswer.NOTHING_CAME}:
            return self.answer
        return _ENDS.get(self.answer) if now >= self.since + capacity.wait else None


def read_reply(request: Owned, came: float | None, capacity: AutoscalerSettings, now: float) -> Reply:
    """Read the answer to a request that is stored.

    Args:
        request: the request.
        came: when the last node came that is kept for it: as long again another one may come.
        capacity: whom it asks.
        now: the time. Both in seconds since the epoch.
    """
    conditions = {condition.type: condition for condition in request.status.conditions or ()}
    answer, condition = capacity.api.read(conditions)
    begun = core.seconds(request.metadata.creation_timestamp) or now
    answered = core.seconds(condition.last_transition_time) if condition is not None else None
    since = max(answered or begun, came or 0.0)
    return Reply(CapacityAnswer.SILENT if condition is None and now >= since + capacity.wait else answer, since)


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """The end of a request, as its PodTemplate says it.

    ``request``: the UID of the one that ended; another UID is that of a later one. ``backoff``: seconds for which the same
    is not asked for again, without jitter; 0 where a former release wrote the mark, without a time. ``again``: from when
    on it may be, in seconds since the epoch; None where nodes came and did not help: the next ones would not, either.
    """

    answer: CapacityAnswer
    request: str = ""
    backoff: float = 0.0
    again: float | None = None

    def is_due(self, now: float) -> bool:
        """Tell whether the same may be asked for again."""
        return self.again is not None and now >= self.again

    def dump(self) -> str:
        """The annotation."""
        again = None if self.again is None else core.rfc3339(self.again)
        body = {"reason": self.answer, "again": again, "backoffSeconds": self.backoff, "request": self.request}
        return json.dumps(body)


def read_ended(text: str | None) -> RequestEnd | None:
    """Read the annotation, which anybody may have written: what cannot be understood is a mark without times."""
    if text is None:
        return None
    match read_json(text):
        case {
            "reason": str(reason),
            "again": str() | None as again,
            "backoffSeconds": int() | float() as backoff,
            **more,
        }:
            if 0 < backoff <= _MOST:
                return RequestEnd(_read_answer(reason), str(more.get("request", "")), backoff, core.seconds(again))
            return RequestEnd(_read_answer(reason))
    return RequestEnd(_read_answer(text))


def _read_answer(reason: str) -> CapacityAnswer:
    return CapacityAnswer(reason) if reason in CapacityAnswer.__members__.values() else CapacityAnswer.NOTHING_CAME
