"""Pods of one replica: those that are missing, those that have to go, and their successors.

A pod that is dead, released, or of a revision that no longer holds is *superseded*: it loses its address, is deleted,
and the next pod of its place is named after it. Once a pod of a replica has been bound and is lost, a role with
``RecreateReplica`` gives up the whole replica: the processes of its pods cannot go on without each other. A pod that
was pinned but never bound is replaced alone.

Events about replicas that come, go and are replaced: one for many, so that Events are not used up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from covey.api import constants as names
from covey.api import core
from covey.compile import Slot, Tree
from covey.compile.pods import Past, Told
from covey.compile.revision import RoleRevision
from covey.operator.model import podstate
from covey.operator.model.actions import CreatePod, DeletePod, Note, Relabel
from covey.operator.model.observed import Observed, Place
from covey.operator.replicas.replicas import NO_FATE, Fate


def count_of(count: int) -> str:
    """``1 replica``, ``2 replicas``."""
    return "1 replica" if count == 1 else f"{count} replicas"


def by_role(roles: Iterable[str]) -> str:
    """``1 replica of decode, 2 replicas of prefill``, from the role of each; empty where there is none."""
    return ", ".join(f"{count_of(count)} of {role}" for role, count in sorted(Counter(roles).items()))


def removal_notes(deletions: Sequence[DeletePod], reason: str, *, but: int | None = None) -> Iterator[Note]:
    """Make the Event for replicas that go without being replaced.

    Args:
        deletions: their pods.
        reason: of the Event.
        but: a unit that is reported otherwise.
    """
    labels = (names.LABEL_UNIT, names.LABEL_ROLE, names.LABEL_REPLICA)
    replicas = {tuple(item.pod.metadata.label(each) or "?" for each in labels) for item in deletions}
    listed = by_role(role for unit, role, _ in replicas if unit != str(but))
    if listed:
        yield Note(reason, f"removing {listed}", "ScaleDown")


def describe_growth(plans: Iterable[ReplicaPlan], not_yet: Collection[Slot]) -> str:
    """Describe new replicas, not replaced ones, as ``creating 2 replicas of decode``; empty where there are none."""
    new = {
        (item.slot.unit, item.slot.role, item.slot.replica)
        for plan in plans
        for item in plan.create
        if not item.replaces and item.slot not in not_yet
    }
    listed = by_role(role for _, role, _ in new)
    return f"creating {listed}" if listed else ""


def replacement_notes(plans: Iterable[ReplicaPlan], not_yet: Collection[Slot]) -> Iterator[Note]:
    """Make one Event for all replicas of a role that share a fate."""
    fates: dict[tuple[str, bool, bool], list[ReplicaPlan]] = {}
    for plan in plans:
        again = next((item.slot.role for item in plan.create if item.replaces and item.slot not in not_yet), None)
        if again is not None:
            released = any(podstate.is_released(item.pod) for item in plan.delete)
            fates.setdefault((again, released, plan.recreated), []).append(plan)
    for (role, released, recreated), found in fates.items():
        first = found[0].create[0].slot
        where = (
            f"replica {first.replica} of {role} in unit {first.unit}"
            if len(found) == 1
            else f"{len(found)} replicas of {role}"
        )
        if released:
            yield Note("Released", _describe_released(where, found), "Replace")
        elif recreated:
            lost = "a pod of it was lost; the whole replica is recreated"
            cause = lost if len(found) == 1 else "a pod of each was lost; they are recreated whole"
            yield Note("ReplicaReplaced", f"{where}: {cause}", "Replace", warning=True)
        else:
            pods = sum(item.replaces for plan in found for item in plan.create)
            cause = "its pod is replaced" if pods == 1 else f"{pods} pods are replaced"
            yield Note("ReplicaReplaced", f"{where}: {cause}", "Replace")


def _describe_released(where: str, plans: Iterable[ReplicaPlan]) -> str:
    pods = [item.pod for plan in plans for item in plan.delete if podstate.is_released(item.pod)]
    reasons = ", ".join(sorted({pod.metadata.annotation(names.ANNOTATION_RELEASE) or "" for pod in pods} - {""}))
    return f"{len(pods)} pods of {where} gave up their nodes: {reasons}"


Pods = Sequence[core.Pod]


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
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

    def plan(self, slots: Sequence[Slot], revision: RoleRevision, fate: Fate) -> ReplicaPlan:
        """Plan the pods of one replica.

        Args:
            slots: its places.
            revision: what it is, or shall be, made from.
            fate: what the role's restart policy says of it now.
        """
        slots = [slot for slot in slots if slot not in fate.kept]
        failed = fate.broken or bool(fate.failed)
        if not failed and all(self._is_settled(slot, revision) for slot in slots):
            return ReplicaPlan()
        places = [self._observed.place(slot) for slot in slots]
        broken = fate.broken or (fate.whole and is_broken(self._inference, places))
        replaced = {place.slot: why for place in places if (why := _why_replaced(place, revision, fate, broken=broken))}
        gone = [(pod, "superseded") for place in places for pod in place.others]
        gone += [(place.now, replaced[place.slot]) for place in places if place.now and place.slot in replaced]
        return ReplicaPlan(
            relabel=tuple(_remove_address(pod for pod, _ in gone)),
            delete=tuple(DeletePod(pod, why) for pod, why in gone if not podstate.is_going(pod)),
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
        last, told = place.last(self._inference), fate.pasts.get(place.slot)
        if last is None:
            return CreatePod(place.slot, told=Told(fate.least.merge(told)), replaces=told is not None)
        if last.retired:
            return CreatePod(place.slot, last.uid, Told(Past(unit=fate.least.unit)))
        own = replace(last.past, restarts=last.restarts + (broken or last.bound))
        if last.labels.get(names.LABEL_REVISION) != revision.hash:
            own, told = replace(own, failures=0), None
        room = {names.ANNOTATION_ROOM: last.node} if last.bound else {}
        return CreatePod(place.slot, last.uid, Told(own.merge(told).merge(fate.least), marks=room), replaces=True)


def plan_replicas(
    inference: str, tree: Tree, observed: Observed, fates: Mapping[tuple[int, str, int], Fate]
) -> Iterator[ReplicaPlan]:
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
        lingers = podstate.is_bound(pod) or podstate.is_going(pod)
        if lingers and podstate.is_addressed(pod):
            yield Relabel(pod, {names.LABEL_ADDRESS: None})
