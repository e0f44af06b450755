"""Replicas that are replaced: their fate after failures, the pods to create and to delete, and the order of creation.

The order in which pods are created, for the case that not all of them can be.

=================  ==================================================================================================
precedence         pods of
=================  ==================================================================================================
running minimum    replicas that a unit lacks of its minimum, some of its pods being bound
minimum            replicas that any other unit lacks of its minimum, one unit after another
replacement        replicas beyond the minimum that have lost a pod
surplus            replicas that a role grows by, up to as many as are wanted
surge              replicas beyond those that are wanted: successors in a rollout or an evacuation
=================  ==================================================================================================

A role's minimum is made of the replicas that are whole, then of those that have lost a pod, then of new ones, of lower
number first. So a replica that is lost while enough others are there is no minimum.

Pods of one replica: those that are missing, those that have to go, and their successors.

A pod that is dead, released, or of a revision that no longer holds is *superseded*: it loses its address, is deleted,
and the next pod of its place is named after it. Once a pod of a replica has been bound and is lost, a role with
``RecreateReplica`` gives up the whole replica: the processes of its pods cannot go on without each other. A pod that
was pinned but never bound is replaced alone.

Events about replicas that come, go and are replaced: one for many, so that Events are not used up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from covey.api import constants as names
from covey.api import core
from covey.compile import ReplicaKey, Scale, Slot, Tree
from covey.compile.pods import NO_PAST, Past, Told
from covey.compile.revision import RoleRevision
from covey.model import podstate
from covey.operator.model.actions import CreatePod, DeletePod, Note, Precedence, Relabel
from covey.operator.model.observed import Observed, Place


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


def order_creations(items: Sequence[CreatePod], tree: Tree, scale: Scale, observed: Observed) -> tuple[CreatePod, ...]:
    """Put pods in the order in which they are to be created, each with its precedence.

    Args:
        items: the pods of whole replicas.
        tree: what is wanted.
        scale: how many replicas are wanted, and how many are the minimum.
        observed: the snapshot.
    """
    if not items:
        return ()
    precedences = dict(_precedences(items, tree, tree.layout.scale or scale, observed))
    ranked = (replace(creation, precedence=precedences[creation.slot[:3]]) for creation in items)
    # Sorting is stable: within one precedence it goes by unit, role and number.
    return tuple(sorted(ranked, key=lambda creation: creation.precedence))


def _precedences(
    items: Iterable[CreatePod], tree: Tree, scale: Scale, observed: Observed
) -> Iterator[tuple[ReplicaKey, Precedence]]:
    torn: dict[ReplicaKey, bool] = {}
    for creation in items:
        replica = creation.slot[:3]
        torn[replica] = torn.get(replica, False) or creation.replaces
    units = {unit for unit, _, _ in torn}
    run = {slot.unit for slot, pod in observed.current.items() if slot.unit in units and podstate.is_bound(pod)}
    for (unit, role), replicas in _roles(tree, units).items():
        if all(replica not in torn for replica in replicas):
            continue
        count = scale.count(unit, role)
        lost = {
            replica: torn[replica] or any(slot in observed.current for slot in tree.replicas.get(replica, ()))
            for replica in replicas
            if replica in torn
        }
        ranked = sorted(replicas, key=lambda replica: (replica in torn, not lost.get(replica, True), replica))
        for position, replica in enumerate(ranked):
            if replica not in torn:
                continue
            if position < count.minimum:
                yield replica, Precedence.RUNNING_MINIMUM if unit in run else Precedence.MINIMUM
            elif lost[replica]:
                yield replica, Precedence.REPLACEMENT
            else:
                yield replica, Precedence.SURPLUS if position < count.replicas else Precedence.SURGE


def _roles(tree: Tree, units: Iterable[int]) -> Mapping[tuple[int, str], list[ReplicaKey]]:
    """The replicas of each role of these units."""
    return {
        (unit, role): [(unit, role, number) for number in replicas]
        for unit in sorted(units)
        for role, replicas in tree.layout.units.get(unit, {}).items()
    }


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
    replicas = {tuple(deletion.pod.metadata.label(label) or "?" for label in labels) for deletion in deletions}
    listed = by_role(role for unit, role, _ in replicas if unit != str(but))
    if listed:
        yield Note(reason, f"removing {listed}", "ScaleDown")


def describe_growth(plans: Iterable[ReplicaActions], not_yet: Collection[Slot]) -> str:
    """Describe new replicas, not replaced ones, as ``creating 2 replicas of decode``; empty where there are none."""
    new = {
        (creation.slot.unit, creation.slot.role, creation.slot.replica)
        for plan in plans
        for creation in plan.create
        if not creation.replaces and creation.slot not in not_yet
    }
    listed = by_role(role for _, role, _ in new)
    return f"creating {listed}" if listed else ""


def replacement_notes(plans: Iterable[ReplicaActions], not_yet: Collection[Slot]) -> Iterator[Note]:
    """Make one Event for all replicas of a role that share a fate."""
    fates: dict[tuple[str, bool, bool], list[ReplicaActions]] = {}
    for plan in plans:
        again = next(
            (creation.slot.role for creation in plan.create if creation.replaces and creation.slot not in not_yet), None
        )
        if again is not None:
            released = any(podstate.is_released(deletion.pod) for deletion in plan.delete)
            fates.setdefault((again, released, plan.recreated), []).append(plan)
    for (role, released, recreated), alike in fates.items():
        first = alike[0].create[0].slot
        where = (
            f"replica {first.replica} of {role} in unit {first.unit}"
            if len(alike) == 1
            else f"{len(alike)} replicas of {role}"
        )
        if released:
            yield Note("Released", _describe_released(where, alike), "Replace")
        elif recreated:
            lost = "a pod of it was lost; the whole replica is recreated"
            cause = lost if len(alike) == 1 else "a pod of each was lost; they are recreated whole"
            yield Note("ReplicaReplaced", f"{where}: {cause}", "Replace", warning=True)
        else:
            pods = sum(creation.replaces for plan in alike for creation in plan.create)
            cause = "its pod is replaced" if pods == 1 else f"{pods} pods are replaced"
            yield Note("ReplicaReplaced", f"{where}: {cause}", "Replace")


def _describe_released(where: str, plans: Iterable[ReplicaActions]) -> str:
    pods = [deletion.pod for plan in plans for deletion in plan.delete if podstate.is_released(deletion.pod)]
    reasons = ", ".join(sorted({pod.metadata.annotation(names.ANNOTATION_RELEASE) or "" for pod in pods} - {""}))
    return f"{len(pods)} pods of {where} gave up their nodes: {reasons}"


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
