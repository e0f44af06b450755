"""Why replicas have no nodes, in the words of whoever refuses them: one answer for minimum, surplus, surge and replacement.

Who refuses them, the first of these that does:

1. quotas of the namespace, and ``spec.scaling.budget``: pods that are not created are seen by nobody else;
2. kube-scheduler, which knows what no planner models;
3. the planner, or the backend's scheduler, by the conditions of the unit's root.

Where nobody has refused them nobody has decided yet: the backend names the process (``Backend.silence``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from covey.api import core
from covey.model import podstate

#: What keeps a replica from being created for which the budget of roles that are scaled together has nothing left.
OVER_BUDGET: Final = "spec.scaling.budget leaves nothing for them"


def describe_refusal(pods: Iterable[core.Pod], planner: str, quotas: Iterable[str] = ()) -> str:
    """Say why replicas wait for nodes; empty where nobody has said anything.

    Args:
        pods: theirs, as far as they exist.
        planner: what the scheduler process, or the backend's scheduler, says of them; empty where it has not said anything.
        quotas: why some of them are not created.
    """
    if whys := dict.fromkeys(quotas):
        return "; ".join(whys)
    messages = map(podstate.unschedulable, pods)
    return next((words for words in messages if words is not None), "") or planner
