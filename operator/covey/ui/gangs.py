"""A DisaggregatedInference as a view shows it, and what it waits for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from pydantic import ValidationError

from covey.api import constants as names
from covey.api import core, reasons
from covey.api.inference import DisaggregatedInference
from covey.api.model import StatusCondition
from covey.operator.model.objects import Inference
from covey.picture.floor import DeviceOwner
from covey.ui import contract
from covey.ui.topology_view import ViewLayout
from covey.watching.advice import advise, is_wrong
from covey.watching.status_tree import StatusTree, TreeState, describe_reservation, grow
from covey.watching.usage import find_topology_name

#: Conditions that only sum up what others say.
_SUMS = frozenset({names.READY, names.STALLED, names.SCHEDULED, names.AVAILABLE, names.MINIMUM_MET})
Owners = Mapping[tuple[str, str], DeviceOwner]


def key_of(inference: Inference) -> str:
    """``namespace/name``."""
    return f"{inference.metadata.namespace}/{inference.metadata.name}"


def role_names(inference: Inference) -> list[str]:
    """The roles of a resource, whether or not the rest of it is understood."""
    roles = inference.spec.get("roles")
    role_names = [role.get("name") for role in roles if isinstance(role, dict)] if isinstance(roles, list) else []
    return [name for name in role_names if isinstance(name, str)]


def read_inference(stored: Inference) -> tuple[DisaggregatedInference | None, str]:
    """A resource as this release understands it; None, and why, where it does not."""
    try:
        body = {"metadata": msgspec.to_builtins(stored.metadata), "spec": stored.spec}
        return DisaggregatedInference.model_validate(body | ({"status": stored.status} if stored.status else {})), ""
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return None, f"it is not understood by this release: {where}: {first['msg']}"


def draw_gang(
    stored: Inference, groups: Collection[core.Group], pods: Collection[core.Pod], layout: ViewLayout, owners: Owners
) -> tuple[contract.GangView, tuple[contract.WaitingView, ...]]:
    """A resource, and what it waits for.

    Args:
        stored: the resource.
        groups: its groups.
        pods: its pods.
        layout: says where nodes lie.
        owners: letters and colours by (``namespace/name``, role).
    """
    inference, problem = read_inference(stored)
    if inference is None:
        return _unknown(stored, problem), ()
    tree = grow(inference, groups, pods, layout.whereabouts(find_topology_name(inference, groups)))
    gang = _gang(stored, inference, tree, pods, owners)
    return gang, tuple(_waiting(gang, inference, tree, groups))


def _gang(
    stored: Inference, inference: DisaggregatedInference, tree: StatusTree, pods: Collection[core.Pod], owners: Owners
) -> contract.GangView:
    meta = inference.metadata
    status = inference.status
    stored_conditions = status.conditions if status else ()
    conditions = [
        contract.ConditionView(
            condition.type,
            condition.status,
            condition.reason,
            condition.message,
            condition.last_transition_time,
            is_wrong(condition),
        )
        for condition in stored_conditions
    ]
    return contract.GangView(
        meta.namespace,
        meta.name,
        tree.state.value,
        tree.reason,
        tree.ready,
        tree.total,
        meta.creation_timestamp,
        bool(inference.spec.suspend),
        meta.deletion_timestamp is not None,
        inference.spec.effective_backend.value,
        "",
        tuple(_roles(key_of(stored), inference, stored.status, owners)),
        tuple(
            contract.UnitView(int(child.name), child.state.value, child.reason, child.placement)
            for child in tree.children
        ),
        _rollout(inference),
        tuple(sorted(conditions, key=lambda view: not view.wrong)),
        advise(inference, pods),
        status.summary.status if status is not None and status.summary is not None else "",
    )


def _unknown(stored: Inference, problem: str) -> contract.GangView:
    """A resource of which nothing but its name can be told."""
    meta = stored.metadata
    going = meta.deletion_timestamp is not None
    return contract.GangView(
        meta.namespace, meta.name, TreeState.WAITING.value, problem, 0, 0, meta.creation_timestamp,
        suspended=False, draining=going, backend="", problem=problem, roles=(), units=(), rollout=None, conditions=(),
        advice=(), status="",
    )  # fmt: skip


def _roles(
    key: str, inference: DisaggregatedInference, status: Mapping[str, Any], owners: Owners
) -> Iterator[contract.RoleView]:
    counts_of: dict[str, Mapping[str, Any]] = {
        role_status["name"]: role_status for role_status in status.get("roles") or ()
    }
    units = inference.spec.replicas
    for role in inference.spec.roles:
        owner, counts = owners[key, role.name], counts_of.get(role.name, {})
        yield contract.RoleView(
            role.name,
            owner.letter,
            owner.ink,
            role.size,
            int(counts.get("replicas", role.replicas * units)),
            int(counts.get("minReplicas", role.min_replicas * units)),
            int(counts.get("admitted", 0)),
            int(counts.get("scheduled", 0)),
            int(counts.get("ready", 0)),
            int(counts.get("updated", 0)),
            int(counts.get("restarts", 0)),
            counts.get("maxFeasible"),
        )


def _rollout(inference: DisaggregatedInference) -> contract.RolloutView | None:
    rollout = inference.status.rollout if inference.status else None
    if rollout is None:
        return None
    held = rollout.hold
    hold = contract.HoldView(held.gate, held.message, held.since or "") if held is not None else None
    paused = bool(inference.spec.rollout and inference.spec.rollout.paused)
    return contract.RolloutView(
        rollout.from_revision, rollout.to_revision, rollout.wave, rollout.ready, rollout.outdated, paused, hold
    )


def _waiting(
    gang: contract.GangView, inference: DisaggregatedInference, tree: StatusTree, groups: Collection[core.Group]
) -> Iterator[contract.WaitingView]:
    """Waiting units by the status of their groups, then the resource's own conditions that no unit says."""
    if gang.suspended:
        return
    key = f"{gang.namespace}/{gang.name}"
    roots = {number: root for root in groups if (number := _unit_of(root)) is not None}
    units = [(int(unit.name), unit) for unit in tree.children]
    views = [
        waiting
        for number, unit in units
        if (root := roots.get(number)) and (waiting := _of_unit(key, number, unit, root))
    ]
    own = list(_of_resource(key, inference, units_told=bool(views)))
    yield from views
    yield from own
    for number, unit in units:
        # Why there are no groups yet is what the resource says, if it says anything.
        if number not in roots and not own and unit.state is TreeState.WAITING:
            yield _waiting_gang(key, number, names.REASON_WAITING, unit.reason, "")


def _of_resource(key: str, inference: DisaggregatedInference, *, units_told: bool) -> Iterator[contract.WaitingView]:
    """The resource's own conditions that no unit says."""
    silent = _SUMS | {names.ADMITTED, names.PROGRESSING} if units_told else _SUMS
    seen = set()
    rollout = inference.status.rollout if inference.status else None
    if rollout is not None and rollout.hold is not None:
        hold = rollout.hold
        seen.add(hold.gate)
        yield _waiting_gang(key, None, hold.gate, hold.message, hold.since or "")
    for condition in _wrong(inference, silent):
        if condition.reason not in seen:
            seen.add(condition.reason)
            yield _waiting_gang(key, None, condition.reason, condition.message, condition.last_transition_time)


def _wrong(inference: DisaggregatedInference, silent: Collection[str]) -> Iterator[StatusCondition]:
    conditions: Sequence[StatusCondition] = inference.status.conditions if inference.status else ()
    for condition in conditions:
        if is_wrong(condition) and condition.type not in silent:
            yield condition


def _unit_of(group: core.Group) -> int | None:
    text = group.metadata.label(names.LABEL_UNIT)
    is_root = group.spec.parent_composite_pod_group_name is None
    return int(text) if is_root and text is not None and text.isdecimal() else None


def _of_unit(key: str, number: int, unit: StatusTree, root: core.Group) -> contract.WaitingView | None:
    """The reason for which a unit has no place, or is not decided yet."""
    admitted = core.condition(root.status.conditions, names.ADMITTED)
    if admitted is None:
        return _waiting_gang(key, number, names.REASON_WAITING, unit.reason, root.metadata.creation_timestamp)
    if admitted.status == "True":
        return None
    view = _waiting_gang(key, number, admitted.reason, admitted.message, admitted.last_transition_time or "")
    return msgspec.structs.replace(view, reserved=describe_reservation(root))


def _waiting_gang(key: str, unit: int | None, reason: str, message: str, since: str) -> contract.WaitingView:
    explained = reasons.explain(reason)
    return contract.WaitingView(
        key,
        unit,
        reason,
        message,
        since,
        explained.meaning if explained else "",
        explained.remedy if explained else "",
        explained is not None and explained.needs_person,
        None,
    )


def number_waiting(waiting: Iterable[contract.WaitingView]) -> dict[str, contract.WaitingView]:
    """Gangs that wait, by the key that they have in a state."""
    by_place: dict[str, contract.WaitingView] = {}
    counts: dict[tuple[str, int | None], int] = {}
    for gang in waiting:
        place = (gang.gang, gang.unit)
        counts[place] = count = counts.get(place, -1) + 1
        by_place[f"{gang.gang}/{'' if gang.unit is None else gang.unit}/{count}"] = gang
    return by_place
