"""Replicas that go gracefully: marked first, deleted when nobody uses them any more.

=========  =============================================================================================================
marked     its pods say so (``covey.dev/draining``) and since when, leave the Services that route requests, and have the
           readiness gate ``covey.dev/serving`` set to False where they declare it. Whatever else is counted, a marked
           replica is going, and never comes back unless it is pardoned: a restarted operator goes on from the mark
claimed    where it gives way to another gang (``rolling.give_way``) its pods also say to which root, before anything of
           it is deleted and also where nothing drains: it may be pardoned until then
deleted    whole, when every pod of it says that nothing is under way (``covey.dev/in-flight`` is 0), when
           ``drainSeconds`` of its role have passed since the mark, or when it does not run
=========  =============================================================================================================

Only what goes because there is to be less of it, or another one in its place, is treated so. A failure waits for
nobody. Roles of one unit go in the order of the spec: prefill hands its requests on to decode, which stays until it
has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import ReplicaKey, slot_of
from covey.compile.pods import ROUTER_LABELS
from covey.model import podstate
from covey.operator.feature import Changes, Feature
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions, DeletePod, Drain, Note, Serve
from covey.operator.model.claimed import Claimed
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome
from covey.operator.replicas.replica_notes import count_of

_Items = Sequence[DeletePod]
#: No replica gives way.
NOBODY: Final[Mapping[ReplicaKey, Claimed]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Answer:
    """Actions for one replica that is to go; ``again``: seconds after which it goes in any case."""

    mark: tuple[Drain, ...] = ()
    delete: tuple[DeletePod, ...] = ()
    again: float | None = None


@dataclass
class Drains(Feature):
    """Replicas that go gracefully, and the readiness gate by which pods take requests."""

    HONOURS = frozenset({"spec.roles[].drainSeconds", "the readiness gate covey.dev/serving"})

    _marked: tuple[Drain, ...] = field(init=False, default=())

    def remove(self, removal: Outcome, intent: Intent) -> Outcome:
        """Mark what is used, and delete what is not."""
        drained = drain(self.given.spec, removal.actions.delete_pods, self.given.observed, intent.preempted)
        self._marked = drained.actions.drain
        return drained

    def outcome(self, changes: Changes) -> Outcome:
        """The gates that have to be set: True where all of a replica runs, False where it is marked.

        Pods that are held until their leader is Ready do not count.
        """
        del changes
        return Outcome(Actions(serve=tuple(_serving(self.given.observed, self._marked))))


def drain(
    spec: DisaggregatedInferenceSpec,
    surplus: Sequence[DeletePod],
    observed: Observed,
    claimed: Mapping[ReplicaKey, Claimed] = NOBODY,
) -> Outcome:
    """Mark pods that are to go, or delete them.

    Args:
        spec: what is kept up.
        surplus: pods outside the layout that nobody has deleted yet.
        observed: the snapshot.
        claimed: replicas that give way to claims.
    """
    longest = {place: claimed_replica.claim.max_drain for place, claimed_replica in claimed.items()}
    outcome = _drain(spec, surplus, observed, longest)
    withdrawn = tuple(label.key for label in ROUTER_LABELS if label.is_asked(spec.compat))
    if outcome.actions.drain and withdrawn:
        hidden = tuple(replace(drained, withdrawn=withdrawn) for drained in outcome.actions.drain)
        outcome = replace(outcome, actions=replace(outcome.actions, drain=hidden))
    if not claimed:
        return outcome
    roots: dict[ReplicaKey | None, str] = {
        place: claimed_replica.claim.uid for place, claimed_replica in claimed.items()
    }
    gone = (
        Drain(deletion.pod, observed.now, observed.now)
        for deletion in outcome.actions.delete_pods
        if _is_to_be_marked(deletion.pod, roots)
    )
    marks = tuple(
        replace(drained, claimed_by=roots.get(podstate.replica_of(drained.pod), ""))
        for drained in (*outcome.actions.drain, *gone)
    )
    return replace(outcome, actions=replace(outcome.actions, drain=marks))


def _drain(
    spec: DisaggregatedInferenceSpec,
    surplus: Sequence[DeletePod],
    observed: Observed,
    longest: Mapping[ReplicaKey, float],
) -> Outcome:
    """Mark and delete; ``longest`` are seconds for which single replicas may drain at the most."""
    seconds = {role.name: float(role.drain_seconds or 0) for role in spec.roles}
    if not any(seconds.values()):
        return Outcome(Actions(delete_pods=tuple(surplus)))
    torn = {slot[:3] for slot, pods in observed.pods.items() if any(map(podstate.is_dead, pods))}
    units: dict[int, dict[str, dict[int, list[DeletePod]]]] = {}
    delete: list[DeletePod] = []
    for item in surplus:
        slot = slot_of(item.pod.spec.hostname)
        if slot is None or slot.role not in seconds or slot[:3] in torn:
            delete.append(item)
        else:
            units.setdefault(slot.unit, {}).setdefault(slot.role, {}).setdefault(slot.replica, []).append(item)
    mark: list[Drain] = []
    ends: list[float] = []
    for number, unit in units.items():
        for role in (name for name in seconds if name in unit):
            answers = [
                _ask(items, min(seconds[role], longest.get((number, role, replica), inf)), observed.now)
                for replica, items in unit[role].items()
            ]
            delete += (item for answer in answers for item in answer.delete)
            mark += (item for answer in answers for item in answer.mark)
            left = [answer.again for answer in answers if answer.again is not None]
            if left:
                # Those after it in the spec wait for it.
                ends += left
                delete += (item for later in _after(role, seconds, unit) if not _runs(later) for item in later)
                break
    actions = Actions(drain=tuple(mark), delete_pods=tuple(delete), notes=tuple(_notes(mark)))
    return Outcome(actions, again=min(ends, default=None))


def _serving(observed: Observed, mark: Iterable[Drain]) -> Iterator[Serve]:
    marked = {item.pod.metadata.uid for item in mark}
    gated = [(slot[:3], pod) for slot, pod in observed.current.items() if podstate.is_gated_by_us(pod)]
    if not gated:
        return
    runs: dict[ReplicaKey, bool] = {}
    for slot in observed.pods:
        pod = observed.current.get(slot)
        place = slot[:3]
        runs[place] = runs.get(place, True) and pod is not None and (podstate.runs(pod) or _is_held(pod))
    for place, pod in gated:
        condition = core.condition(pod.status.conditions, names.GATE_SERVING)
        status = condition.status if condition is not None else ""
        if podstate.is_draining(pod) or pod.metadata.uid in marked:
            if status != "False":
                yield Serve(pod, serving=False)
        elif runs[place] and status != "True":
            yield Serve(pod, serving=True)


def _ask(items: _Items, seconds: float, now: float) -> _Answer:
    """Decide about one replica that is to go."""
    if not seconds or not _runs(items) or all(map(_is_idle, items)):
        return _Answer(delete=tuple(items))
    since = [since_or_until for item in items if (since_or_until := podstate.draining_since(item.pod)) is not None]
    begun = min((now, *since))
    # Whoever owns the pods may write when they were marked, and a longer time to drain: what was promised holds.
    promised = [since_or_until for item in items if (since_or_until := podstate.drain_deadline(item.pod)) is not None]
    until = min((begun + seconds, *promised))
    if until <= now:
        return _Answer(delete=tuple(items))
    mark = (Drain(item.pod, begun, until) for item in items if podstate.drain_deadline(item.pod) is None)
    return _Answer(mark=tuple(mark), again=until - now)


def _after(role: str, order: Mapping[str, float], unit: Mapping[str, Mapping[int, _Items]]) -> Iterator[_Items]:
    """The replicas of the roles that come after one."""
    following = list(order)
    for name in following[following.index(role) + 1 :]:
        yield from unit.get(name, {}).values()


def _runs(items: _Items) -> bool:
    return all(podstate.runs(item.pod) for item in items)


def _is_held(pod: core.Pod) -> bool:
    return names.GATE_START in core.gates(pod)


def _is_idle(item: DeletePod) -> bool:
    """Tell whether a pod says that nothing is under way, after labels and gate have said that it gets no more requests."""
    pod = item.pod
    gate = core.condition(pod.status.conditions, names.GATE_SERVING) if podstate.is_gated_by_us(pod) else None
    is_heard = not podstate.is_gated_by_us(pod) or (gate is not None and gate.status == "False")
    hidden = podstate.is_draining(pod) and pod.metadata.label(names.LABEL_ENDPOINT) is None and is_heard
    return hidden and pod.metadata.annotation(names.ANNOTATION_IN_FLIGHT) == "0"


def _is_to_be_marked(pod: core.Pod, roots: Mapping[ReplicaKey | None, str]) -> bool:
    """Tell whether a pod that is deleted now has a node, and nothing says yet that it gives way to a claim."""
    return podstate.is_bound(pod) and not podstate.is_draining(pod) and podstate.replica_of(pod) in roots


def _notes(mark: Sequence[Drain]) -> Iterator[Note]:
    replicas = {slot[:3] for item in mark if (slot := slot_of(item.pod.spec.hostname))}
    if replicas:
        roles = ", ".join(dict.fromkeys(role for _, role, _ in sorted(replicas)))
        yield Note(
            "Draining",
            f"{count_of(len(replicas))} of {roles} get no more requests and go when they have none left",
            "Drain",
        )
