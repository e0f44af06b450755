"""Replicas that are replaced: the pods to create and to delete.

Of one replica these are those that are missing, those that have to go, and their successors.

A pod that is dead, released, or of a revision that no longer holds is *superseded*: it loses its address, is deleted,
and the next pod of its place is named after it. Once a pod of a replica has been bound and is lost, a role with
``RecreateReplica`` gives up the whole replica: the processes of its pods cannot go on without each other. A pod that
was pinned but never bound is replaced alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from covey.api import constants as names
from covey.api import core
from covey.compile import ReplicaKey, Slot, Tree
from covey.compile.pods import Told
from covey.compile.restarts import NO_PAST, Past
from covey.compile.revision import RoleRevision
from covey.model import podstate
from covey.operator.model.actions import CreatePod, DeletePod, Relabel
from covey.operator.model.observed import Observed
from covey.operator.model.place import Place


@dataclass(frozen=True, slots=True)
class Fate:
    """Decisions of the restart policy about a replica.

    ``whole``: a pod that is lost takes the others with it. ``broken``: it is given up now, whatever its pods say.
    ``failed``: UIDs of live pods that have failed. ``kept``: places where nothing is replaced for now. ``pasts``: what
    the successors of failed pods carry; ``least`` what any new pod of it carries at least.
    """

    whole: bool = False
    broken: bool = False
    failed: Collection[str] = ()
    kept: Collection[Slot] = ()
    pasts: Mapping[Slot, Past] = field(default_factory=dict)
    least: Past = NO_PAST


NO_FATE = Fate()


Pods = Sequence[core.Pod]


@dataclass(frozen=True, slots=True)
class ReplicaActions:
    """Actions for one replica. ``recreated`` says that it was given up as a whole."""

    relabel: tuple[Relabel, ...] = ()
    delete: tuple[DeletePod, ...] = ()
    create: tuple[CreatePod, ...] = ()
    recreated: bool = False


class ReplicaPlanner:
    """Plans the pods of replicas of one resource.

    Args:
        inference: its name.
        observed: the snapshot.
    """

    def __init__(self, inference: str, observed: Observed) -> None:
        self._inference = inference
        self._observed = observed

    def plan(self, slots: Sequence[Slot], revision: RoleRevision, fate: Fate) -> ReplicaActions:
        """Plan the pods of one replica.

        Args:
            slots: its places.
            revision: what it is, or shall be, made from.
            fate: what the role's restart policy says of it now.
        """
        slots = [slot for slot in slots if slot not in fate.kept]
        failed = fate.broken or bool(fate.failed)
        if not failed and all(self._is_settled(slot, revision) for slot in slots):
            return ReplicaActions()
        places = [self._observed.place(slot) for slot in slots]
        broken = fate.broken or (fate.whole and is_broken(self._inference, places))
        replaced = {place.slot: why for place in places if (why := _why_replaced(place, revision, fate, broken=broken))}
        gone = [(pod, "superseded") for place in places for pod in place.others]
        gone += [(place.now, replaced[place.slot]) for place in places if place.now and place.slot in replaced]
        return ReplicaActions(
            relabel=tuple(_remove_address(pod for pod, _ in gone)),
            delete=tuple(DeletePod(pod, why) for pod, why in gone if not podstate.is_terminating(pod)),
            create=tuple(
                self._successor(place, revision, fate, broken=broken)
                for place in places
                if place.now is None or place.slot in replaced
            ),
            recreated=broken,
        )

    def _is_settled(self, slot: Slot, revision: RoleRevision) -> bool:
        """Tell whether a place is filled, and nothing is left of former pods."""
        now = self._observed.current.get(slot)
        return now is not None and len(self._observed.pods[slot]) == 1 and not _is_outdated(now, revision)

    def _successor(self, place: Place, revision: RoleRevision, fate: Fate, *, broken: bool) -> CreatePod:
        last, past = place.last(self._inference), fate.pasts.get(place.slot)
        if last is None:
            return CreatePod(place.slot, told=Told(fate.least.merge(past)), replaces=past is not None)
        if last.retired:
            return CreatePod(place.slot, last.uid, Told(Past(unit=fate.least.unit)))
        own = replace(last.past, restarts=last.restarts + (broken or last.bound))
        if last.labels.get(names.LABEL_REVISION) != revision.hash:
            own, past = replace(own, failures=0), None
        room = {names.ANNOTATION_ROOM: last.node} if last.bound else {}
        return CreatePod(place.slot, last.uid, Told(own.merge(past).merge(fate.least), marks=room), replaces=True)


def plan_replicas(
    inference: str, tree: Tree, observed: Observed, fates: Mapping[ReplicaKey, Fate]
) -> Iterator[ReplicaActions]:
    """Plan every replica that there shall be.

    Args:
        inference: the name of the resource.
        tree: what is wanted.
        observed: the snapshot.
        fates: what restart policies say of replicas, as far as there is anything against them.
    """
    planner = ReplicaPlanner(inference, observed)
    for replica, slots in tree.replicas.items():
        unit, role, number = replica
        yield planner.plan(slots, tree.layout.units[unit][role][number], fates.get(replica, NO_FATE))


def is_broken(inference: str, places: Sequence[Place]) -> bool:
    """Tell whether a pod of a replica is lost that had been bound.

    A place without a trace counts, too, where another pod of the replica is bound: a replica is only let go when all
    its pods are there.
    """
    bound = any(place.now is not None and podstate.is_bound(place.now) for place in places)
    return any(place.lost_bound(inference) or (place.is_blank and bound) for place in places)


def _is_outdated(pod: core.Pod, revision: RoleRevision) -> bool:
    """Tell whether a pod still waits, and is of another revision than its replica: nothing is lost by replacing it."""
    return not podstate.is_admitted(pod) and pod.metadata.label(names.LABEL_REVISION) != revision.hash


def _why_replaced(place: Place, revision: RoleRevision, fate: Fate, *, broken: bool) -> str | None:
    if place.now is None:
        return None
    if place.now.metadata.uid in fate.failed:
        return "it has failed"
    if broken and podstate.is_admitted(place.now):
        return "its replica is recreated"
    return "outdated while waiting" if _is_outdated(place.now, revision) else None


def _remove_address(pods: Iterator[core.Pod]) -> Iterator[Relabel]:
    """Take the address from pods that must not be found under it any more.

    One that was never bound has no address to be found under, and goes at once; one that does not go is marked.
    """
    for pod in pods:
        lingers = podstate.is_bound(pod) or podstate.is_terminating(pod)
        if lingers and podstate.is_addressed(pod):
            yield Relabel(pod, {names.LABEL_ADDRESS: None})
