"""Marks of a rollout's first set on pods that still wait, although nobody asks for the set any more.

The first replicas of a revision carry a mark and how many they are, and the scheduler process places none of them
before that many carry it. Once one has its nodes, the others are ordinary replicas. If the one is lost then, its
successor has no mark, and those that wait would wait for it for ever. Groups lose the mark when they are applied; their
pods here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.compile import Tree
from covey.model import podstate
from covey.operator.model.actions import Relabel
from covey.operator.model.observed import Observed

_REMOVED: Final = {names.LABEL_TOGETHER: None, names.LABEL_TOGETHER_COUNT: None}


def find_unmarked(tree: Tree, observed: Observed, going: Collection[str]) -> Iterator[Relabel]:
    """Take the mark from pods that wait and are not asked to come with others any more.

    While the scheduler process is placing a set, its marks stay: some of its pods are pinned already and some are not.

    Args:
        tree: what is wanted.
        observed: the snapshot.
        going: UIDs of pods that do not stay.
    """
    marked: dict[tuple[int, str], list[core.Pod]] = {}
    for slot in tree.slots:
        pod = observed.current.get(slot)
        mark = pod.metadata.label(names.LABEL_TOGETHER) if pod is not None else None
        if pod is None or mark is None or pod.metadata.uid in going:
            continue
        if (slot.unit, slot.role, slot.replica) not in tree.layout.together:
            marked.setdefault((slot.unit, mark), []).append(pod)
    for pods in marked.values():
        if any(podstate.is_admitted(pod) and not podstate.is_bound(pod) for pod in pods):
            continue
        yield from (Relabel(pod, _REMOVED) for pod in pods if not podstate.is_admitted(pod))
