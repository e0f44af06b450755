"""Units that are recreated, because a replica of a role with ``RecreateUnit`` has failed or lost a pod.

Every pod carries how often its unit had been recreated when it was made, the unit's log how often it was; what is older
goes. So a unit that was half recreated is finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from covey.api import core
from covey.api.roles import RestartPolicy, Role
from covey.compile import ReplicaKey, Tree
from covey.compile.restarts import ANNOTATION_UNIT_RESTARTS, NO_PAST, Past
from covey.kube.resources import PODS
from covey.model import podstate
from covey.operator.model.actions import Annotate
from covey.operator.model.observed import Observed
from covey.operator.model.place import Place
from covey.operator.repair.failures import pods_of
from covey.operator.repair.tally import Tally
from covey.operator.replicas.replace import Fate


class UnitRestarts:
    """Units that are recreated, and the fates of their replicas.

    Args:
        tally: the failures of the resource.
        observed: the snapshot.
    """

    def __init__(self, tally: Tally, observed: Observed) -> None:
        self._tally = tally
        self._observed = observed

    def fail(self, unit: int, places: Sequence[Place], fate: Fate) -> None:
        """Note that a failed replica takes its unit with it."""
        tombstones = [place.tombstone for place in places if place.tombstone is not None]
        restarts = (
            *(podstate.past(pod).unit for pod in pods_of(places)),
            *(tombstone.past.unit for tombstone in tombstones),
        )
        seen, known = max(restarts, default=0), self._tally.wholes.get(unit, NO_PAST)
        row = max(fate.pasts.values(), key=lambda past: past.failures, default=NO_PAST)
        # A failure of older pods has been counted; one that the log has not seen was lost with its object.
        if known.unit <= seen:
            at = float(int(row.failed_at or self._observed.now))
            self._tally.wholes[unit] = Past(0, row.failures, at, seen + 1)

    def fates(self, tree: Tree, roles: dict[str, Role], fates: dict[ReplicaKey, Fate]) -> Iterator[Annotate]:
        """Give up what is older than the last recreation of its unit; what stays of it is marked.

        Args:
            tree: what is wanted.
            roles: by name.
            fates: of the replicas, which are changed.
        """
        for replica, slots in tree.replicas.items():
            whole, role = self._tally.wholes.get(replica[0]), roles.get(replica[1])
            if whole is None or role is None:
                continue
            places = [self._observed.place(slot) for slot in slots]
            old = [
                place.now for place in places if place.now is not None and podstate.past(place.now).unit < whole.unit
            ]
            fate = fates.get(replica, Fate())
            if old and (role.min_replicas or role.restart_policy is RestartPolicy.RECREATE_UNIT):
                fate = _given_up(fate, places, old, whole)
            else:
                yield from (_mark_restarts(pod, whole) for pod in old)
            fates[replica] = replace(fate, least=fate.least.merge(Past(unit=whole.unit)))


def _given_up(fate: Fate, places: Sequence[Place], old: Sequence[core.Pod], whole: Past) -> Fate:
    past = Past(max(map(podstate.restarts, old)) + 1, whole.failures, whole.failed_at, whole.unit)
    return replace(
        fate,
        whole=True,
        broken=True,
        kept=(),
        failed={*fate.failed, *(pod.metadata.uid for pod in old)},
        pasts={place.slot: past.merge(fate.pasts.get(place.slot)) for place in places},
    )


def _mark_restarts(pod: core.Pod, whole: Past) -> Annotate:
    return Annotate(PODS.type, pod.metadata.name, pod.metadata.uid, {ANNOTATION_UNIT_RESTARTS: str(whole.unit)})
