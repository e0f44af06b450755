"""Roles whose number of replicas is set by an autoscaler: their RoleScalers, and what comes of what they ask for.

A RoleScaler begins with what runs. From then on ``spec.replicas`` is somebody else's; Covey writes the rest of it, and
never that. What it asks for holds within bounds (``Scaled``), and its condition says where it does not.

One pod of each unit stands for it: an autoscaler multiplies by the number of pods that its selector finds.

It is the leader of the lowest replica of the first role of the gang. Another one keeps the label as long as it lives
and the lowest is not Ready, so that what is measured is a pod that serves. It is born with the label where the unit has
no other; otherwise the label is taken from one pod in one pass and given to the next in a later one. A pod is seen as
it was written: no unit has it twice at any moment, unless the answer to a creation was lost or the watch of pods is
later than a creation is remembered (``observe.expectations``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import MOST_PODS, DisaggregatedInferenceSpec
from covey.api.roles import Role
from covey.compile import Layout, Owner, Slot
from covey.compile.identity import scaler_name
from covey.kube.resources import ROLE_SCALERS
from covey.model import podstate
from covey.operator.feature import Changes, Feature
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions, DeleteObject, PutScaler, Relabel
from covey.operator.model.objects import StoredScaler
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.replicas.progress import States
from covey.operator.scaling.exchange import together_name

_GIVEN: Final = {names.LABEL_UNIT_LEADER: "true"}
_TAKEN: Final = {names.LABEL_UNIT_LEADER: None}


@dataclass
class Scalers(Feature):
    """Roles with ``scaling.mode: External``, and the pod of each unit that stands for it."""

    HONOURS = frozenset({"spec.roles[].scaling.mode External"})

    _roles: Mapping[str, Scaled] = field(init=False, default_factory=dict)

    def intent(self, intent: Intent) -> Intent:
        """As many replicas as are asked for, within bounds."""
        given = self.given
        self._roles = _bound_roles(given.spec, given.owner.name, given.observed, intent.states, given.before)
        totals = {name: scaled.total for name, scaled in self._roles.items()}
        return replace(intent, totals={**intent.totals, **totals})

    def amend(self, changes: Changes) -> Changes:
        """A pod that stands for its unit is born with the label."""
        if not changes.create:
            return changes
        return changes.with_labels(_labels_at_birth(self.given.spec, changes.intent.layout, self.given.observed))

    def outcome(self, changes: Changes) -> Outcome:
        """RoleScalers to write, those that have no use any more, and the pods that stand for units."""
        spec, owner, observed = self.given.spec, self.given.owner, self.given.observed
        wanted = {scaler_name(owner.name, role): role for role in self._roles}
        kept = {*wanted, *([together_name(owner.name)] if spec.is_exchanged else [])}
        puts = (_put_action(owner, name, role, self._roles[role], observed) for name, role in wanted.items())
        gone = (
            DeleteObject(ROLE_SCALERS.type, name, stored.metadata.uid)
            for name, stored in observed.scalers.items()
            if name not in kept and stored.metadata.deletion_timestamp is None
        )
        limited = (
            Remark(names.SCALING_LIMITED, scaled.reason, f"{name}: {scaled.message}")
            for name, scaled in self._roles.items()
            if scaled.why
        )
        actions = Actions(
            relabel=tuple(_unit_leaders(spec, changes.intent.layout, observed)),
            scalers=tuple(put for put in puts if put is not None),
            delete_objects=tuple(gone),
        )
        return Outcome(actions, tuple(islice(limited, 1)))


def _unit_leaders(spec: DisaggregatedInferenceSpec, layout: Layout, observed: Observed) -> Iterator[Relabel]:
    """Take the leader label from pods that must not have it, and give it where a unit has none."""
    role, carriers = _role(spec), _carriers(observed)
    chosen = {unit: _choose_carrier(unit, role, layout, observed, carriers.get(unit, ())) for unit in layout.units}
    for unit, pods in carriers.items():
        leader = chosen.get(unit) if unit is not None else None
        yield from (Relabel(pod, _TAKEN) for pod in pods if leader is None or pod.metadata.uid != leader.metadata.uid)
    for unit, leader in chosen.items():
        if leader is not None and unit not in carriers:
            yield Relabel(leader, _GIVEN)


def _labels_at_birth(
    spec: DisaggregatedInferenceSpec, layout: Layout, observed: Observed
) -> Mapping[Slot, Mapping[str, str]]:
    """Places whose pod is born with the label: the leader of each unit where no pod has it or could be given it."""
    role, carriers = _role(spec), _carriers(observed)
    return {
        Slot(unit, role, min(replicas), 0): _GIVEN
        for unit, roles in layout.units.items()
        if unit not in carriers
        and (replicas := roles.get(role))
        and _choose_carrier(unit, role, layout, observed, ()) is None
    }


def _role(spec: DisaggregatedInferenceSpec) -> str:
    return next((role.name for role in spec.roles if role.min_replicas), spec.roles[0].name)


def _choose_carrier(
    unit: int, role: str, layout: Layout, observed: Observed, carriers: tuple[core.Pod, ...]
) -> core.Pod | None:
    leaders = (observed.current.get(Slot(unit, role, n, 0)) for n in sorted(layout.units[unit][role]))
    live = [pod for pod in leaders if pod is not None]
    present = next((pod for pod in live for each in carriers if pod.metadata.uid == each.metadata.uid), None)
    if present is not None and not podstate.is_ready(live[0]):
        return present
    return live[0] if live else None


def _carriers(observed: Observed) -> dict[int | None, tuple[core.Pod, ...]]:
    """Pods that have the label, but for those that are going, which no autoscaler counts."""
    found: dict[int | None, tuple[core.Pod, ...]] = {}
    placed = ((slot.unit, pod) for slot, pods in observed.pods.items() for pod in pods)
    for unit, pod in (*placed, *((None, pod) for pod in observed.strays)):
        if _carries(pod) and not podstate.is_terminating(pod):
            found[unit] = (*found.get(unit, ()), pod)
    return found


def _carries(pod: core.Pod) -> bool:
    return pod.metadata.label(names.LABEL_UNIT_LEADER) is not None


#: Reasons of the condition; those of HorizontalPodAutoscalers.
REASON_TOO_FEW: Final = "TooFewReplicas"
REASON_TOO_MANY: Final = "TooManyReplicas"
REASON_WITHIN: Final = "DesiredWithinRange"


@dataclass(frozen=True, slots=True)
class Scaled:
    """Replicas of one role, over all units: those that are asked for, and those that it gets.

    Args:
        asked: what the RoleScaler says, or will say when it is new.
        floor: ``minReplicas`` times units.
        total: within ``floor``, ``scaling.min``, ``scaling.max`` and the pods that a resource may have.
        why: why ``total`` is not what is asked for; empty where it is.
    """

    asked: int
    floor: int
    total: int
    why: str = ""

    @property
    def reason(self) -> str:
        """Reason of the condition: whether ``total`` is what is asked for, more or fewer."""
        if not self.why:
            return REASON_WITHIN
        return REASON_TOO_FEW if self.total > self.asked else REASON_TOO_MANY

    @property
    def message(self) -> str:
        """Message of the condition."""
        if not self.why:
            return "the role has as many replicas as are asked for"
        return f"{self.why}: it has {self.total} meanwhile"


def _bound_roles(
    spec: DisaggregatedInferenceSpec, inference: str, observed: Observed, states: States, before: Mapping[str, Any]
) -> Mapping[str, Scaled]:
    """Find what RoleScalers ask for, and the replicas that roles get, by role."""
    found: dict[str, Scaled] = {}
    room = MOST_PODS - sum(_least(role, spec.replicas) * role.size for role in spec.roles)
    for role in spec.roles:
        if not role.is_scaled:
            continue
        stored = observed.scalers.get(scaler_name(inference, role.name))
        asked = stored.replicas if stored is not None else _seed(role, spec.replicas, states, before)
        scaled = _bound_replicas(role, spec.replicas, asked, room)
        room -= max(0, scaled.total - _least(role, spec.replicas)) * role.size
        found[role.name] = scaled
    return found


def _least(role: Role, units: int) -> int:
    """Least replicas of a role, over all units, whatever is asked for."""
    if not role.is_scaled:
        return role.replicas * units
    return max(role.min_replicas * units, (role.scaling and role.scaling.min) or 0) if units else 0


def _seed(role: Role, units: int, states: States, before: Mapping[str, Any]) -> int:
    """Replicas that a new RoleScaler asks for: as many as were wanted so far, or as the spec says if none runs."""
    running = sum(each.live > 0 for unit in states.values() for each in unit.get(role.name, {}).values())
    if not running:
        return role.replicas * max(units, 1)
    told = next((row for row in _rows(before) if row.get("name") == role.name), {}).get("replicas")
    wanted = told if isinstance(told, int) and told > 0 else running
    return min(max(wanted, role.min_replicas * units), MOST_PODS)


def _rows(before: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    listed = before.get("roles")
    for row in listed if isinstance(listed, list) else ():
        if isinstance(row, Mapping):
            yield row


def _bound_replicas(role: Role, units: int, asked: int, room: int) -> Scaled:
    """Bound the replicas that are asked for; ``room`` is how many pods more than the least there may be."""
    floor, least, scaling = role.min_replicas * units, _least(role, units), role.scaling
    if asked < least:
        why = f"minReplicas of the role times {units} units" if least == floor else "scaling.min of the role"
        return Scaled(asked, floor, least, f"{_replicas(asked)} fewer than the {least} of {why}")
    if scaling is not None and scaling.max is not None and asked > max(least, scaling.max):
        most = max(least, scaling.max)
        return Scaled(asked, floor, most, f"{_replicas(asked)} more than the {most} of scaling.max of the role")
    most = least + max(0, room) // role.size
    if units and asked > most:
        why = f"{_replicas(asked)} more than the {most} with which the resource has {MOST_PODS} pods"
        return Scaled(asked, floor, most, why)
    return Scaled(asked, floor, asked)


def _replicas(count: int) -> str:
    return "1 replica is" if count == 1 else f"{count} replicas are"


def _put_action(owner: Owner, name: str, role: str, scaled: Scaled, observed: Observed) -> PutScaler | None:
    stored = observed.scalers.get(name)
    metadata = owner.metadata(name, {names.LABEL_ROLE: role})
    api = {"apiVersion": names.INFERENCE_API, "kind": ROLE_SCALERS.kind}
    spec = {"minReplicas": scaled.floor}
    told = _status(owner.name, role, scaled, observed, stored)
    if stored is None:
        body = {**api, "metadata": metadata, "spec": {**spec, "replicas": scaled.asked}}
        return PutScaler(name, body, None, {}, told)
    if stored.metadata.deletion_timestamp is not None:
        return None
    patch: dict[str, Any] = {}
    labels = stored.metadata.labels or {}
    if not metadata["labels"].items() <= labels.items():
        patch |= {"metadata": {"labels": metadata["labels"]}}
    if stored.spec.get("minReplicas", 0) != scaled.floor:
        patch |= {"spec": spec}
    status = told if stored.status != told else {}
    return PutScaler(name, {**api, "metadata": metadata}, stored, patch, status) if patch or status else None


def _status(owner: str, role: str, scaled: Scaled, observed: Observed, stored: StoredScaler | None) -> dict[str, Any]:
    condition: dict[str, Any] = {
        "type": names.SCALING_LIMITED,
        "status": "True" if scaled.why else "False",
        "reason": scaled.reason,
        "message": scaled.message,
    }
    generation, before = (1, {}) if stored is None else (stored.metadata.generation, stored.status)
    return {
        "observedGeneration": generation,
        "replicas": _leaders(role, observed),
        "selector": f"{names.LABEL_INFERENCE}={owner},{names.LABEL_ROLE}={role},{names.LABEL_INDEX}=0",
        "conditions": core.stamp_conditions([condition], before, generation, core.rfc3339(observed.now)),
    }


def _leaders(role: str, observed: Observed) -> int:
    """Leaders that are not on their way out: what the selector finds."""
    return sum(slot.role == role and slot.index == 0 for slot in observed.current)
