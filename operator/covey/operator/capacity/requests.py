"""Requests for nodes as they are stored, each with its PodTemplate, which outlives it and says what has become of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.backends import Owned
from covey.compile.identity import short_hash
from covey.operator.capacity.answers import REFUSED, Reply, RequestEnd, read_ended, read_reply
from covey.operator.model.capacity import AutoscalerSettings, CapacityAnswer
from covey.operator.model.observed import Observed

#: Seconds to which the back-off is doubled, and the part of it that is added at most: what has ended in one bad hour of a
#: cloud is not asked for again in one moment.
_LONGEST: Final = 4 * 3600.0
_JITTER: Final = 0.25


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """One request, and what follows from what is stored of it.

    ``root`` is the UID of the root that waits, ``owned`` the request itself, where one stands. ``reply`` is None where none
    stands, or the one that stands has ended. ``ended``: how the last one ended, also where another stands by now.
    ``ending``: how it ends now, by its own clock, which is still to be written. ``came``: when the last node came that is
    kept for it. ``unwanted``: since when its unit has not wanted it, as far as that is written. Times in seconds since the
    epoch.
    """

    name: str
    root: str
    template: Owned | None = None
    owned: Owned | None = None
    reply: Reply | None = None
    ended: RequestEnd | None = None
    ending: RequestEnd | None = None
    came: float | None = None
    unwanted: float | None = None

    @property
    def answer(self) -> CapacityAnswer:
        """Its answer, the last one where it has ended."""
        if self.reply is not None:
            return self.reply.answer
        return self.ended.answer if self.ended is not None else CapacityAnswer.ASKED

    @property
    def is_refused(self) -> bool:
        """It stands, and there are no nodes for it."""
        return self.reply is not None and self.reply.answer in REFUSED

    @property
    def is_over(self) -> bool:
        """It has ended, and no other stands."""
        return self.reply is None and self.ended is not None

    def rests(self, now: float) -> bool:
        """Tell whether it is over and not due once more."""
        return self.reply is None and self.ended is not None and not self.ended.is_due(now)

    def end(self, answer: CapacityAnswer, capacity: AutoscalerSettings, now: float) -> RequestEnd:
        """The mark of its end with this answer. Nodes that came and did not help would be bought for nothing again."""
        before = self.ended.backoff if self.ended is not None else 0.0
        backoff = max(capacity.wait, min(2 * before, _LONGEST))
        made = answer is CapacityAnswer.DISAGREED and answer in capacity.api.coming
        share = int(short_hash(self.name, 8), 16) / 16**8
        again = None if made or self.came is not None else math.ceil(now + backoff * (1 + _JITTER * share))
        return RequestEnd(answer, self.owned.metadata.uid if self.owned is not None else "", backoff, again)

    def find_delays(self, capacity: AutoscalerSettings, now: float) -> Iterator[float]:
        """Find the seconds until time alone makes something of it."""
        if self.reply is not None:
            yield self.reply.since + capacity.wait - now
        elif self.ended is not None and self.ended.again is not None:
            yield self.ended.again - now
        if self.unwanted is not None:
            yield self.unwanted + capacity.after - now


def read_requests(
    claims: Mapping[str, core.Claim], capacity: AutoscalerSettings, observed: Observed
) -> dict[str, NodeRequest]:
    """Read every request of a resource, by name.

    Args:
        claims: to nodes that have come, by UID of the root.
        capacity: whom it asks.
        observed: the snapshot.
    """
    types = {kind.type for kind in capacity.kinds}
    stored = sorted({name for kind, name in observed.objects if kind in types})
    return {name: _read(name, claims, capacity, observed) for name in stored}


def _read(name: str, claims: Mapping[str, core.Claim], capacity: AutoscalerSettings, observed: Observed) -> NodeRequest:
    template, owned = (observed.objects.get((kind.type, name)) for kind in capacity.kinds)
    root = (
        next((source.metadata.label(names.LABEL_ASK) for source in (owned, template) if source is not None), None) or ""
    )
    notes, now = (template.metadata.annotations if template is not None else None) or {}, observed.now
    ended, unwanted = read_ended(notes.get(names.ANNOTATION_ASK_ENDED)), notes.get(names.ANNOTATION_ASK_UNWANTED)
    request = NodeRequest(name, root, template, owned, ended=ended, unwanted=core.seconds(unwanted))
    if ended is not None and not ended.backoff:
        # Of a former release, which did not write when: now.
        return replace(request, ending=request.end(ended.answer, capacity, now))
    if owned is None or (ended is not None and ended.request == owned.metadata.uid):
        return request
    begun, claim = core.seconds(owned.metadata.creation_timestamp) or now, claims.get(root)
    last = claim.last_progress_time if claim is not None else None
    times = filter(None, map(core.seconds, (notes.get(names.ANNOTATION_ASK_CAME), last)))
    came = max((time for time in times if begun <= time <= now), default=None)
    request = replace(request, reply=read_reply(owned, came, capacity, now), came=came)
    answer = request.reply.find_end(capacity, now) if request.reply is not None else None
    return request if answer is None else replace(request, ending=request.end(answer, capacity, now))
