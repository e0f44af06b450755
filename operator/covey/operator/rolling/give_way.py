"""Replicas that give way to claims, and those that are pardoned.

=========  =============================================================================================================
taken      a replica that a claim names, or all of a unit: it counts as going, so it has no place in the layout, drains,
           and is deleted whole; a successor waits behind its gate under another number
pardoned   a replica with the mark of a claim (``covey.dev/claimed-by``) that none names any more: the marks are taken
           away, and it serves on under its number. One of which a pod is deleted, ended or missing cannot, and goes on
           going: there is no half of a replica. Neither can what is left of a unit of which all gave way, if that is
           less than its minimum: it would hold room and serve nobody (law L3)
spared     a replica that a claim names, without which its role would have fewer replicas with places, or Ready, than its
           minimum: something else was lost since the claim was planned (law L3). Marks of it are taken away too
emptying   a unit of which all gives way, until its last pod is gone: meanwhile no pod of it is made, for half of a new one
           would stand beside half of the old one
=========  =============================================================================================================

All of it follows from the claims as they are stored and from the marks on pods: a process that is killed between any
two writes is followed by one that decides the same.

What else looks at such pods:

* a rollout, an evacuation: they count as going, not as serving. Nothing else of the role goes for them below its floor,
  and the clock of a rollout stands while they drain or end, as for all that goes (``is_anything_leaving``);
* losses (``find_loss``): nothing was lost. A unit that is taken whole is queued like a new one, so it has no
  ``terminationDelaySeconds``, nothing of it escalates, and it is not Degraded but Preempted. A single replica leaves the
  minimum as it is;
* room: no successor asks for the node of its predecessor (``ANNOTATION_ROOM``), which is promised to the root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import ReplicaKey
from covey.compile.revision import Revision
from covey.model import podstate
from covey.operator.feature import Changes, Feature, PlanInput
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions, Note, Relabel
from covey.operator.model.claimed import WHOLE_UNIT, Claimed, RootClaim, read_claim
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.replicas.progress import running_revisions
from covey.operator.replicas.replica_notes import by_role

_LABELS: Final = {names.LABEL_DRAINING: None}
_ANNOTATIONS: Final = dict.fromkeys(
    (names.ANNOTATION_DRAINING_SINCE, names.ANNOTATION_DRAIN_UNTIL, names.ANNOTATION_CLAIMED_BY)
)
#: Replicas and units that a message names.
_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class Victims:
    """The replicas of a resource that give way, and what becomes of those that need not any more."""

    #: Those that go, and for whom.
    places: Mapping[ReplicaKey, Claimed] = field(default_factory=dict)
    #: Those that stay although a claim names them.
    spared: Mapping[ReplicaKey, Claimed] = field(default_factory=dict)
    #: Units of which no pod is made yet.
    emptying: frozenset[int] = frozenset()
    #: Those, and the ones that are named and have no node any more: they have lost nothing.
    queued: frozenset[int] = frozenset()
    #: Pods whose marks are taken away, by UID.
    pardoned: Mapping[str, core.Pod] = field(default_factory=dict)
    #: Marks that name a claim which is gone, while another one takes their pods.
    renamed: tuple[Relabel, ...] = ()

    def without_marks(self, observed: Observed) -> Observed:
        """The snapshot as it is when all that is pardoned has lost its marks: a plan is made for that."""
        if not self.pardoned:
            return observed
        pods = {slot: tuple(map(self._as_pardoned, pods)) for slot, pods in observed.pods.items()}
        return replace(observed, pods=pods)

    def _as_pardoned(self, pod: core.Pod) -> core.Pod:
        if pod.metadata.uid not in self.pardoned:
            return pod
        labels = {key: value for key, value in (pod.metadata.labels or {}).items() if key not in _LABELS}
        annotations = {key: value for key, value in (pod.metadata.annotations or {}).items() if key not in _ANNOTATIONS}
        metadata = msgspec.structs.replace(pod.metadata, labels=labels, annotations=annotations)
        return msgspec.structs.replace(pod, metadata=metadata)


NO_VICTIMS: Final = Victims()


@dataclass
class PreemptedReplicas(Feature):
    """Replicas that give way to claims."""

    HONOURS = frozenset({"preemption of its replicas"})

    _victims: Victims = field(init=False, default=NO_VICTIMS)

    @classmethod
    def applies(cls, given: PlanInput) -> bool:
        """Tell whether somebody gives way to somebody, or has, and may lack a place since."""
        observed, conditions = given.observed, given.before.get("conditions") or ()
        told = any(condition["type"] == names.PREEMPTED for condition in conditions)
        return told or observed.is_claimed or any(owned.status.claim is not None for owned in observed.objects.values())

    def see(self) -> Observed:
        """What is pardoned stays: it is as if its marks were away."""
        observed = self.given.observed
        if observed.is_claimed:
            self._victims = find_victims(self.given.spec, self.given.in_force, observed)
        return self._victims.without_marks(observed)

    def intent(self, intent: Intent) -> Intent:
        """Who goes, and what becomes of their units."""
        victims = self._victims
        return replace(intent, preempted=victims.places, emptying=victims.emptying, queued=victims.queued)

    def outcome(self, changes: Changes) -> Outcome:
        """Pardons, and the conditions ``Preempting`` and ``Preempted``: what has given way is told until nothing lacks a place."""
        given, victims = self.given, self._victims
        relabel = (*(Relabel(pod, _LABELS, _ANNOTATIONS) for pod in victims.pardoned.values()), *victims.renamed)
        remarks = (
            *_describe_preempting(given.observed),
            *_describe_preempted(
                victims, given.observed, given.before, lacks=_lacks_places(changes.intent, given.spec)
            ),
        )
        return Outcome(Actions(relabel=relabel, notes=tuple(_pardons(victims))), remarks)


def find_victims(spec: DisaggregatedInferenceSpec, in_force: Revision, observed: Observed) -> Victims:
    """Find the replicas that give way now.

    Args:
        spec: what is kept up.
        in_force: the revision that is rolled out.
        observed: the snapshot, with the claims as they are stored.
    """
    return _VictimJudge(spec, in_force, observed).decide()


class _VictimJudge:
    """The replicas of a resource, sorted once by what may become of them."""

    def __init__(self, spec: DisaggregatedInferenceSpec, in_force: Revision, observed: Observed) -> None:
        self._minimums = {role.name: role.min_replicas for role in spec.roles}
        self._observed = observed
        self._whole = [victim for claim in observed.claims for victim in claim.victims if victim.kind == WHOLE_UNIT]
        self._pods: dict[ReplicaKey, list[core.Pod]] = {}
        for slot, pods in observed.pods.items():
            self._pods.setdefault(slot[:3], []).extend(pods)
        running = running_revisions(observed, in_force)
        self._sizes = {place: revision.size for place, revision in running.items()}

    def decide(self) -> Victims:
        claimed = self._observed.claimed_replicas
        spared = {place: claimed[place] for place in self._find_spared(claimed)}
        places = {place: claimed_replica for place, claimed_replica in claimed.items() if place not in spared}
        torn = frozenset(self._find_torn())
        pardoned = {
            pod.metadata.uid: pod
            for place, pods in self._pods.items()
            if place not in places and place[0] not in torn and not self._is_on_its_way(place)
            for pod in pods
            if podstate.claimed_by(pod)
        }
        emptying = torn | frozenset(self._find_emptying(claimed))
        queued = emptying | frozenset(self._find_emptied())
        return Victims(places, spared, emptying, queued, pardoned, tuple(self._rename(places)))

    def _find_spared(self, claimed: Mapping[ReplicaKey, Claimed]) -> Iterator[ReplicaKey]:
        """Yield replicas that a minimum needs: first those without marks, which have not stopped to serve."""
        alone = [
            place for place, claimed_replica in claimed.items() if not claimed_replica.whole and self._has_places(place)
        ]
        for unit, role in sorted({place[:2] for place in alone}):
            alone_here = [place for place in alone if place[:2] == (unit, role)]
            others = sum(
                place[:2] == (unit, role) and place not in claimed and self._has_places(place) for place in self._pods
            )
            most = max(0, others + len(alone_here) - self._minimums.get(role, 0))
            alone_here.sort(key=lambda place: (not any(map(podstate.claimed_by, self._pods[place])), place))
            ready = [place for place in alone_here if self._is_ready(place)]
            stay = sum(
                place[:2] == (unit, role) and place not in claimed and self._is_ready(place) for place in self._pods
            )
            spare = max(0, stay + len(ready) - self._minimums.get(role, 0))
            yield from dict.fromkeys((*alone_here[most:], *ready[spare:]))

    def _has_places(self, place: ReplicaKey) -> bool:
        """Tell whether all of a replica has its nodes, and nothing makes it go but a claim."""
        in_place = sum(podstate.is_in_place(pod) and not podstate.is_dead(pod) for pod in self._pods[place])
        return in_place >= self._sizes.get(place, 1) and not self._is_on_its_way(place)

    def _is_ready(self, place: ReplicaKey) -> bool:
        """Tell whether a replica serves, and goes for nothing but a claim."""
        return self._has_places(place) and all(podstate.is_ready(pod) for pod in self._pods[place])

    def _is_on_its_way(self, place: ReplicaKey) -> bool:
        """Tell whether a replica goes whatever claims say: it drains for another reason, or is marked and not whole."""
        pods, retired = self._pods[place], self._observed.retired
        if any(podstate.is_terminating(pod) and pod.metadata.uid in retired for pod in pods):
            return True
        marked = [pod for pod in pods if podstate.is_draining(pod)]
        if any(not podstate.claimed_by(pod) for pod in marked):
            return True
        live = sum(not podstate.is_dead(pod) for pod in pods)
        return bool(marked) and (any(map(podstate.is_dead, marked)) or live < self._sizes.get(place, 1))

    def _find_torn(self) -> Iterator[int]:
        """Yield units of which all that has a node gave way, and what is left has no minimum."""
        units: dict[int, list[ReplicaKey]] = {}
        for place, pods in self._pods.items():
            if any(podstate.is_in_place(pod) and not podstate.is_dead(pod) for pod in pods):
                units.setdefault(place[0], []).append(place)
        for unit, places in units.items():
            left = Counter(place[1] for place in places if self._has_places(place))
            lacks = any(left[role] < least for role, least in self._minimums.items())
            if lacks and all(any(map(podstate.claimed_by, self._pods[place])) for place in places):
                yield unit

    def _find_emptying(self, claimed: Mapping[ReplicaKey, Claimed]) -> Iterator[int]:
        yield from (place[0] for place, claimed_replica in claimed.items() if claimed_replica.whole)
        uids = {uid for victim in self._whole for uid in victim.pods}
        ends: dict[int, bool] = {}
        for place, pods in self._pods.items():
            if any(pod.metadata.uid in uids for pod in pods):
                yield place[0]
            # The claim may be gone before the last of them is.
            ends.setdefault(place[0], True)
            ends[place[0]] &= all(podstate.is_terminating(pod) and podstate.claimed_by(pod) for pod in pods)
        yield from (unit for unit, over in ends.items() if over)

    def _find_emptied(self) -> Iterator[int]:
        named = {victim.unit for victim in self._whole}
        yield from named - {place[0] for place, pods in self._pods.items() if any(map(podstate.is_bound, pods))}

    def _rename(self, places: Mapping[ReplicaKey, Claimed]) -> Iterator[Relabel]:
        for place, claimed_replica in places.items():
            for pod in self._pods[place]:
                if podstate.claimed_by(pod) not in {None, claimed_replica.claim.uid} and not podstate.is_terminating(
                    pod
                ):
                    yield Relabel(pod, {}, {names.ANNOTATION_CLAIMED_BY: claimed_replica.claim.uid})


def _pardons(victims: Victims) -> Iterator[Note]:
    replicas = {
        tuple(pod.metadata.label(label) or "?" for label in (names.LABEL_UNIT, names.LABEL_ROLE, names.LABEL_REPLICA))
        for pod in victims.pardoned.values()
    }
    if replicas:
        listed = by_role(role for _, role, _ in replicas)
        yield Note("Pardoned", f"pardoning {listed}: no claim needs their capacity any more", "Preempt")


def _describe_preempting(observed: Observed) -> Iterator[Remark]:
    owned = (owned_object for _, owned_object in sorted(observed.objects.items()))
    read = (read_claim(group) for group in owned if group.status.claim is not None)
    claims = [claim for claim in read if claim is not None]
    if claims:
        texts = dict.fromkeys(claim.message or "others give way to a unit that waits" for claim in claims)
        yield Remark(names.PREEMPTING, _reason_of(claims[0]), "; ".join(texts))


def _describe_preempted(
    victims: Victims, observed: Observed, before: Mapping[str, Any], *, lacks: bool
) -> Iterator[Remark]:
    """Yield the condition of one that gives way, or has, and lacks places since."""
    last = next(
        (condition for condition in before.get("conditions") or () if condition["type"] == names.PREEMPTED), None
    )
    texts = [
        (claim, text) for claim in observed.claims if (text := _describe_claim(claim, victims, observed, lacks=lacks))
    ]
    if victims.spared:
        texts.append((next(iter(victims.spared.values())).claim, _describe_spared(victims)))
    if texts:
        yield Remark(names.PREEMPTED, _reason_of(texts[0][0]), "; ".join(text for _, text in texts))
    elif lacks and last is not None:
        yield Remark(names.PREEMPTED, last["reason"], last["message"])


def _reason_of(claim: RootClaim) -> str:
    """The reason of the conditions ``Preempting`` and ``Preempted``: the purpose of the claim."""
    return claim.purpose or names.PURPOSE_PREEMPTION


def _describe_claim(claim: RootClaim, victims: Victims, observed: Observed, *, lacks: bool) -> str:
    """Describe those that give way to one claim, or did and have no successors in places yet."""
    there = {pod.metadata.uid for pods in observed.pods.values() for pod in pods if not podstate.is_dead(pod)}
    taken = {
        _name_victim(*place, whole=claimed_replica.whole)
        for place, claimed_replica in victims.places.items()
        if claimed_replica.claim == claim
    }
    for victim in claim.victims:
        if lacks and there.isdisjoint(victim.pods):
            taken.add(_name_victim(victim.unit, victim.role, victim.replica, whole=victim.kind == WHOLE_UNIT))
    return f"{_join_names(taken)} gave way to {_describe_root(claim)}" if taken else ""


def _describe_spared(victims: Victims) -> str:
    spared = {_name_victim(*place, whole=False) for place in victims.spared}
    whom = ", ".join(
        dict.fromkeys(_describe_root(claimed_replica.claim) for claimed_replica in victims.spared.values())
    )
    return f"{_join_names(spared)} stays, claimed by {whom}: without it the role would be below its minReplicas"


def _name_victim(unit: int, role: str, replica: int | None, *, whole: bool) -> str:
    return f"unit {unit}" if whole else f"{role}/{replica} of unit {unit}"


def _join_names(victim_names: Collection[str]) -> str:
    listed = sorted(victim_names)
    more = len(listed) - _NAMED
    return ", ".join(islice(listed, _NAMED)) + (f" and {more} more" if more > 0 else "")


def _describe_root(claim: RootClaim) -> str:
    """Describe a root to a resource that gives way to it; the victims of its claim are all of that resource."""
    reclaims = claim.purpose == names.PURPOSE_RECLAIM
    whom = claim.describe_to(
        next((victim.namespace for victim in claim.victims), ""), None if reclaims else claim.priority
    )
    return f"{whom}, from which it was borrowed" if reclaims else whom


def _lacks_places(intent: Intent, spec: DisaggregatedInferenceSpec) -> bool:
    """Tell whether fewer replicas have places than are wanted."""
    scale = intent.scale(spec)
    return any(
        sum(replica.is_admitted for replica in intent.states.get(unit, {}).get(name, {}).values()) < count.replicas
        for unit in intent.layout.units
        for name, count in scale.unit(unit).items()
    )
