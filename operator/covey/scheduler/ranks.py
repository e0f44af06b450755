"""The rank of a request in the queue of writes (``kube.turns``): what goes to the API server first."""

from __future__ import annotations

from covey.kube.turns import Rank
from covey.placement.model import Gang

#: What frees room for others, what keeps a pod from being given up, and decisions in the order of their gangs.
RELEASE: Rank = (0,)
MARK: Rank = (1,)
_PIN = 2


def rank_of(gang: Gang, *, surplus: bool = False) -> Rank:
    """The rank of a gang's pins: by priority, in it every minimum before all surplus, then by age."""
    order = gang.order
    return (_PIN, order[0], int(surplus), *order[1:])
