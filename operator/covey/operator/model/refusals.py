"""Why pods have no nodes, in the words of whoever refuses them: one answer for minimum, surplus, surge and replacement."""

from __future__ import annotations

from collections.abc import Iterable

from covey.api import core
from covey.model import podstate


def describe_refusal(pods: Iterable[core.Pod], planner: str) -> str:
    """Say why pods wait for nodes: kube-scheduler's words, which know what no planner models, else the planner's.

    Args:
        pods: those that wait.
        planner: what the scheduler process says of them; empty where it has not said anything.
    """
    messages = map(podstate.unschedulable, pods)
    return next((words for words in messages if words is not None), "") or planner
