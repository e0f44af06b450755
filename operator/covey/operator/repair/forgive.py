"""Forgiveness of restarts that are over, and units that are given up as a whole.

Units that are given up as a whole, because a replica of a role with ``RecreateUnit`` has failed or lost a pod.

Every pod carries how often its unit had been recreated when it was made, the unit's log how often it was; what is older
goes. So a unit that was half recreated is finished.

Restarts of containers that are over: the replica was left as it was, and serves again.

A replica whose failures are exhausted is only left: the kubelet starts its containers again, and it may get Ready. Then
nothing of it is given up for that failure any more, whatever becomes of ``maxRestarts``. It is reported as exhausted
until it has been Ready for as long as failures are remembered, or until ``maxRestarts`` allows what has happened. Then
its restarts are noted as no failures, and it counts as Ready since it came back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.roles import RestartPolicy, Role
from covey.compile import Tree
from covey.compile.pods import ANNOTATION_UNIT_RESTARTS, NO_PAST, Past
from covey.kube.resources import PODS
from covey.operator.model import podstate
from covey.operator.model.actions import Annotate
from covey.operator.model.observed import Observed, Place
from covey.operator.repair import failures
from covey.operator.repair.failures import ANNOTATION_SINCE, Cause, Fault, pods_of
from covey.operator.repair.history import Tally
from covey.operator.replicas.replicas import Fate
from covey.rollout.model import Budget

#: On a failed pod that is left as it is, because the restarts of its replica are exhausted.
ANNOTATION_LEFT: Final = "covey.dev/left-failed"


def serves(places: Sequence[Place]) -> bool:
    """Tell whether every pod of a replica is Ready."""
    return all(place.now is not None and podstate.is_ready(place.now) for place in places)


def is_over(places: Sequence[Place], faults: Sequence[Fault]) -> bool:
    """Tell whether a replica whose containers restarted was left as it was, and all of it is Ready again."""
    left = all(
        fault.why is Cause.RESTARTED and fault.pod.metadata.annotation(ANNOTATION_LEFT) is not None for fault in faults
    )
    return left and serves(places)


def serves_since(places: Sequence[Place], failed_at: float) -> float:
    """Time since which a replica that had failed is Ready again, in seconds since the epoch: later than it failed."""
    ready = [podstate.readiness(place.now) for place in places if place.now is not None]
    said = (core.seconds(each.last_transition_time) for found in ready for each in found if each is not None)
    return max([failed_at + 1, *(at for at in said if at is not None)])


def forgive(places: Sequence[Place], since: float) -> Iterator[Annotate]:
    """Note that the restarts of a replica are no failures, and that it counts as Ready since ``since``."""
    for place in places:
        pod = place.now
        if pod is None:
            continue
        marks: dict[str, str | None] = {
            names.ANNOTATION_RESTART_BASELINE: failures.dump_baseline(failures.counts(pod)),
            ANNOTATION_SINCE: None,
            ANNOTATION_LEFT: None,
        }
        if place is places[0]:
            marks[names.ANNOTATION_STARTED] = core.rfc3339(since)
        yield annotate(pod, marks)


def mark_left(faults: Sequence[Fault], failed_at: float, *, exhausted: bool) -> Iterator[Annotate]:
    """Note on failed pods that are not replaced for now since when they have failed, and whether they are left."""
    for fault in faults:
        marks: dict[str, str | None] = {}
        if fault.pod.metadata.annotation(ANNOTATION_SINCE) is None:
            marks[ANNOTATION_SINCE] = core.rfc3339(failed_at)
        if exhausted and fault.pod.metadata.annotation(ANNOTATION_LEFT) is None:
            marks[ANNOTATION_LEFT] = "true"
        if marks:
            yield annotate(fault.pod, marks)


def annotate(pod: core.Pod, annotations: Mapping[str, str | None]) -> Annotate:
    """The action that writes annotations of a pod."""
    return Annotate(PODS.type, pod.metadata.name, pod.metadata.uid, annotations)


class Spare:
    """Limit on Ready replicas of a role that are given up at once because their containers have restarted.

    A dependency that fails for a moment restarts containers of all replicas together. Those that are Ready all the same
    go one after another: as many of a unit at once as ``maxUnavailable`` says, else down to ``minReplicas``, and one at
    least.

    Args:
        tree: what is wanted.
        observed: the snapshot.
    """

    def __init__(self, tree: Tree, observed: Observed) -> None:
        self._tree = tree
        self._observed = observed
        self._left: dict[tuple[int, str], int] = {}
        self._recovering: Counter[tuple[int, str]] | None = None

    def take(self, unit: int, role: Role) -> bool:
        """Count one more replica that goes, and tell whether it may."""
        key = (unit, role.name)
        if key not in self._left:
            wanted = len(self._tree.layout.units[unit][role.name])
            missing = Budget.of(role, wanted).unavailable
            most = max(1, wanted - role.min_replicas if missing is None else missing)
            if self._recovering is None:
                self._recovering = self._count()
            self._left[key] = most - self._recovering[key]
        self._left[key] -= 1
        return self._left[key] >= 0

    def _count(self) -> Counter[tuple[int, str]]:
        """Count replicas that have failed and are not Ready yet, by unit and role."""
        found: Counter[tuple[int, str]] = Counter()
        for (unit, role, _), slots in self._tree.replicas.items():
            places = [self._observed.place(slot) for slot in slots]
            found[unit, role] += not serves(places) and any(map(_has_failed, places))
        return found


def _has_failed(place: Place) -> bool:
    if place.now is not None:
        return podstate.past(place.now).failures > 0
    return bool(place.others) or place.grave is not None


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
        graves = [place.grave for place in places if place.grave is not None]
        told = (*(podstate.past(pod).unit for pod in pods_of(places)), *(each.past.unit for each in graves))
        seen, known = max(told, default=0), self._tally.wholes.get(unit, NO_PAST)
        row = max(fate.pasts.values(), key=lambda past: past.failures, default=NO_PAST)
        # A failure of older pods has been counted; one that the log has not seen was lost with its object.
        if known.unit <= seen:
            at = float(int(row.failed_at or self._observed.now))
            self._tally.wholes[unit] = Past(0, row.failures, at, seen + 1)

    def fates(self, tree: Tree, roles: dict[str, Role], fates: dict[tuple[int, str, int], Fate]) -> Iterator[Annotate]:
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
            old = [each.now for each in places if each.now is not None and podstate.past(each.now).unit < whole.unit]
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
