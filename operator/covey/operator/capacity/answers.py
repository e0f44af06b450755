"""The answer of an autoscaler to one request, as the conditions of the request say it. Pure.

===================  ================================================================================================
``Asked``            nothing has been said yet
``NoAnswer``         nothing has been said for so long that nobody may be there who reads it
``Coming``           nodes are on their way: the call to the cloud succeeded, which is all that is known
``Disagreed``        it all fits on the nodes that there are, says the autoscaler; the planner says that it does not
``NoCapacity``       there are no such nodes to be had now; it may be asked again by the autoscaler itself
``CapacityFailed``   it failed, for good
``NothingCame``      nodes were to come, and those for which they were asked wait still
===================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.backends import Owned
from covey.operator.model.capacity import Capacity, Provider


class Answer(StrEnum):
    """Answers, in the order in which they are reported: the reasons of ``CapacityAsked``."""

    MISSING = names.REASON_PROVIDER_MISSING
    UNKNOWN_LEVEL = names.REASON_LEVEL_UNKNOWN
    FAILED = names.REASON_CAPACITY_FAILED
    NO_CAPACITY = names.REASON_NO_CAPACITY
    DISAGREED = names.REASON_DISAGREED
    NOTHING_CAME = names.REASON_NOTHING_CAME
    SILENT = names.REASON_NO_ANSWER
    ASKED = names.REASON_ASKED
    COMING = names.REASON_COMING


#: With any of these no part of a unit is asked for any longer: the others would stand empty.
REFUSED: Final = frozenset({Answer.FAILED, Answer.NO_CAPACITY})
#: Answers of requests whose nodes may still come, and for each provider those by which some are on their way.
OPEN: Final = frozenset({Answer.ASKED, Answer.COMING, Answer.DISAGREED})
COMING: Final[Mapping[Provider, frozenset[Answer]]] = {
    Provider.PROVISIONING_REQUEST: frozenset({Answer.COMING}),
    # Karpenter counts nodes that it is making as if they were there.
    Provider.CAPACITY_BUFFER: frozenset({Answer.COMING, Answer.DISAGREED}),
}
#: Ends and silence that are none yet while nodes come one by one.
_TOO_EARLY: Final[Mapping[Answer, Answer]] = {Answer.NOTHING_CAME: Answer.COMING, Answer.SILENT: Answer.ASKED}
#: How a request ends that the unit still waits for, by the answer that was believed for long enough.
_ENDS: Final[Mapping[Answer, Answer]] = {Answer.COMING: Answer.NOTHING_CAME, Answer.DISAGREED: Answer.DISAGREED}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and since when it is known, in seconds since the epoch."""

    answer: Answer
    since: float

    def end(self, capacity: Capacity, now: float) -> Answer | None:
        """Return how the request ends now; None where it goes on."""
        if self.answer in {Answer.FAILED, Answer.NOTHING_CAME}:
            return self.answer
        return _ENDS.get(self.answer) if now >= self.since + capacity.wait else None

    def renew(self, came: float, capacity: Capacity, now: float) -> Reply:
        """The answer since a node came (seconds since the epoch) that is kept: as long again another one may come."""
        if not came <= now < came + capacity.wait:
            return self
        return Reply(_TOO_EARLY.get(self.answer, self.answer), max(self.since, came))


def read_reply(request: Owned, capacity: Capacity, now: float) -> Reply:
    """Read the answer to a request that is stored."""
    conditions = {each.type: each for each in request.status.conditions or ()}
    begun = core.seconds(request.metadata.creation_timestamp) or now
    is_buffer = capacity.provider is Provider.CAPACITY_BUFFER
    found, told = _read_buffer(conditions) if is_buffer else _read_provisioning(conditions)
    if told is None:
        return Reply(Answer.SILENT if now >= begun + capacity.wait else Answer.ASKED, begun)
    return Reply(found, core.seconds(told.last_transition_time) or begun)


def _read_provisioning(conditions: Mapping[str, core.Condition]) -> tuple[Answer, core.Condition | None]:
    for kind, answer in (
        ("Failed", Answer.FAILED),
        ("CapacityRevoked", Answer.NOTHING_CAME),
        ("BookingExpired", Answer.NOTHING_CAME),
    ):
        if kind in conditions and conditions[kind].status == "True":
            return answer, conditions[kind]
    told = conditions.get("Provisioned")
    if told is None or told.status == "Unknown":
        return Answer.ASKED, None
    if told.status == "False":
        return Answer.NO_CAPACITY, told
    return (Answer.DISAGREED if told.reason == "CapacityIsFound" else Answer.COMING), told


def _read_buffer(conditions: Mapping[str, core.Condition]) -> tuple[Answer, core.Condition | None]:
    ready, told = conditions.get("ReadyForProvisioning"), conditions.get("Provisioning")
    if ready is not None and ready.status == "False":
        return Answer.NO_CAPACITY, ready
    if told is None or told.reason not in {"FitsExistingCapacity", "RequiresNewCapacity"}:
        return Answer.ASKED, None
    return (Answer.DISAGREED if told.reason == "FitsExistingCapacity" else Answer.COMING), told
