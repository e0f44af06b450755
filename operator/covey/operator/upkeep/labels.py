"""Labels that a pod which stays should have, and has not: it was edited, or something else is asked for now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from covey.api import constants as names
from covey.compile import Slot, Tree
from covey.compile.network import ADDRESSED
from covey.operator.snapshot.observed import Observed
from covey.operator.terms.actions import Relabel

_LWS: Final = frozenset(names.LWS_LABELS)


def find_relabelled(tree: Tree, observed: Observed, going: Collection[str]) -> Iterator[Relabel]:
    """Labels to change on the pods that stay.

    Args:
        tree: what is wanted.
        observed: the snapshot.
        going: UIDs of pods that do not stay.
    """
    selected = _roles_selected(tree)
    for slot in tree.slots:
        pod = observed.current.get(slot)
        if pod is None or pod.metadata.uid in going:
            continue
        found = pod.metadata.labels or {}
        wanted: dict[str, str | None] = {**tree.pods.labels(slot), names.LABEL_ADDRESS: ADDRESSED}
        if names.LABEL_DRAINING in found:
            wanted[names.LABEL_ENDPOINT] = None
        elif slot.role in selected:
            wanted[names.LABEL_ENDPOINT] = ADDRESSED
        if not _LWS.isdisjoint(found):
            wanted |= _withdrawn(tree, slot, found, wanted)
        if wanted.items() <= found.items():
            continue
        wrong = {key: value for key, value in wanted.items() if found.get(key) != value}
        if wrong:
            yield Relabel(pod, wrong)


def _roles_selected(tree: Tree) -> frozenset[str]:
    """Roles with a Service that takes requests. Pods of former releases get its label when there is one."""
    return frozenset(body["metadata"]["labels"][names.LABEL_ROLE] for body in tree.published)


def _withdrawn(tree: Tree, slot: Slot, found: Mapping[str, str], wanted: Collection[str]) -> dict[str, str | None]:
    """Labels of LeaderWorkerSet's that are no longer asked for; what the template says of them holds again."""
    if names.LABEL_LWS_NAME in wanted:
        return {}
    ours, own = tree.pods.lws_labels(slot), tree.pods.template_labels(slot)
    return {key: own.get(key) for key, value in ours.items() if found.get(key) == value}
