"""Labels and annotations to change on the pods that stay."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from covey.api import constants as names
from covey.compile import Slot, Tree
from covey.compile.network import ADDRESSED
from covey.operator.model.actions import Relabel
from covey.operator.model.observed import Observed

_LWS: Final = frozenset(names.LWS_LABELS)


def find_relabelled(tree: Tree, observed: Observed, going: Collection[str], held: Collection[str]) -> Iterator[Relabel]:
    """Labels to change on the pods that stay.

    Args:
        tree: what is wanted.
        observed: the snapshot.
        going: UIDs of pods that do not stay.
        held: roles of which it is decided elsewhere who takes requests.
    """
    # Roles with a Service that takes requests: pods of former releases get its label when there is one.
    selected = frozenset(body["metadata"]["labels"][names.LABEL_ROLE] for body in tree.published)
    for slot in tree.slots:
        pod = observed.current.get(slot)
        if pod is None or pod.metadata.uid in going:
            continue
        labels = pod.metadata.labels or {}
        wanted: dict[str, str | None] = {**tree.pods.labels(slot), names.LABEL_ADDRESS: ADDRESSED}
        if names.LABEL_DRAINING in labels:
            wanted[names.LABEL_ENDPOINT] = None
        elif slot.role not in held and (slot.role in selected or names.LABEL_ENDPOINT in labels):
            wanted[names.LABEL_ENDPOINT] = ADDRESSED
        if not _LWS.isdisjoint(labels):
            wanted |= _withdrawn(tree, slot, labels, wanted)
        wanted |= tree.pods.router_labels(slot.role, labels)
        notes = tree.pods.router_annotations(slot.role)
        wrong = {key: value for key, value in wanted.items() if labels.get(key) != value}
        stale = {key: value for key, value in notes.items() if pod.metadata.annotation(key) != value}
        if wrong or stale:
            yield Relabel(pod, wrong, stale)


def _withdrawn(tree: Tree, slot: Slot, labels: Mapping[str, str], wanted: Collection[str]) -> dict[str, str | None]:
    """Labels of LeaderWorkerSet's that are no longer asked for; what the template says of them holds again."""
    if names.LABEL_LWS_NAME in wanted:
        return {}
    ours, own = tree.pods.lws_labels(slot), tree.pods.template_labels(slot)
    return {key: own.get(key) for key, value in ours.items() if labels.get(key) == value}
