"""The live tree of a resource: unit, role, replica, pod, each with its state and the reason for it.

Reasons come from where they are written: a root group's conditions (the scheduler process), the resource's own
conditions (the operator), a pod's gates, pin and conditions. Nothing is guessed that an object does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from covey.admission import obstacles
from covey.admission.nodes import Key, key_of
from covey.admission.roles import Replica, UnitRole
from covey.admission.tree import Unit
from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.api.status import UnitStatus
from covey.compile.group_hierarchy import role_template
from covey.model import podstate
from covey.scheduler.index import Index
from covey.watching.advice import describe_unseen, is_wrong


class TreeState(StrEnum):
    """State of a part of the tree, best first: all of it is Ready, its minimum is, or it is not."""

    READY = "ready"
    SERVING = "serving"
    STARTING = "starting"
    HELD = "held"
    WAITING = "waiting"
    FAILED = "failed"


class StatusTree(msgspec.Struct, rename="camel", frozen=True):
    """A node of the tree.

    ``ready`` counts of ``total`` what is Ready, pods of a replica and replicas of a role, or what has its minimum Ready
    and so serves, roles of a unit and units of a resource.
    """

    kind: str
    name: str
    state: TreeState
    reason: str = ""
    placement: str = ""
    ready: int = 0
    total: int = 0
    minimum: int | None = None
    children: tuple[StatusTree, ...] = ()


_ORDER = tuple(TreeState)
#: What has its minimum Ready.
_SERVING = (TreeState.READY, TreeState.SERVING)


def grow(
    inference: DisaggregatedInference,
    groups: Iterable[core.Group],
    pods: Iterable[core.Pod],
    place_of: Callable[[Sequence[str]], str],
) -> StatusTree:
    """The tree of a resource.

    Args:
        inference: the resource.
        groups: of its namespace; others than its own are left out.
        pods: likewise.
        place_of: words for where some nodes lie.
    """
    uid = inference.metadata.uid
    index = Index()
    declared = {role_template(role.name): position for position, role in enumerate(inference.spec.roles)}
    index.set_declared((inference.metadata.namespace, inference.metadata.name), declared)
    for group in groups:
        if _is_owned_by(group.metadata, uid):
            index.set_group(group)
    for pod in pods:
        if _is_owned_by(pod.metadata, uid):
            index.set_pod(pod)
    standing = [unit for root in index.roots() if (unit := index.unit(root)) is not None]
    reports = {unit.unit: unit for unit in (inference.status.unit_statuses if inference.status else ())}
    units = [
        _unit(unit, reports.get(unit.index), index, place_of) for unit in sorted(standing, key=lambda unit: unit.index)
    ]
    wanted = 0 if inference.spec.suspend else inference.spec.replicas
    there = {unit.index for unit in standing}
    missing = [number for number in range(wanted) if number not in there][: max(0, wanted - len(standing))]
    units += [StatusTree("unit", str(number), TreeState.WAITING, "its groups do not exist yet") for number in missing]
    ready = sum(unit.state in _SERVING for unit in units)
    return StatusTree(
        "inference",
        f"{inference.metadata.namespace}/{inference.metadata.name}",
        _worst(units) if units else TreeState.WAITING,
        "suspended" if inference.spec.suspend else _own_reason(inference, units),
        ready=ready,
        total=wanted,
        children=tuple(units),
    )


def _is_owned_by(meta: core.Meta, uid: str) -> bool:
    owner = meta.controller
    return owner is not None and owner.uid == uid


#: Conditions that count units, and those that repeat what a unit says.
_COUNTS = frozenset({names.SCHEDULED, names.AVAILABLE, names.MINIMUM_MET})
_SUMS = frozenset({names.ADMITTED, names.READY, names.PROGRESSING})


def _own_reason(inference: DisaggregatedInference, units: Sequence[StatusTree]) -> str:
    """Describe what the operator says of the whole; what a unit, or another condition, says too is left out."""
    conditions = inference.status.conditions if inference.status else ()
    wrong = [condition for condition in conditions if is_wrong(condition) and condition.type not in _COUNTS]
    of_units = [unit.reason.partition(": ")[2] or unit.reason for unit in units if unit.children and unit.reason]
    texts = []
    for condition in wrong:
        message = condition.message
        if condition.type in _SUMS and any(reason in message for reason in of_units):
            continue
        if not message or not any(message in other.message and message != other.message for other in wrong):
            texts.append(f"{condition.reason}: {message}" if message else condition.reason)
    return "; ".join(dict.fromkeys(filter(None, (describe_unseen(inference), *texts))))


def _unit(unit: Unit, report: UnitStatus | None, index: Index, place_of: Callable[[Sequence[str]], str]) -> StatusTree:
    roles = tuple(_role(role, index, place_of) for role in unit.roles)
    admitted = core.condition(unit.root.status.conditions, names.ADMITTED)
    reason = unit.problem or ""
    state = _worst([role for role in roles if role.minimum]) if roles else TreeState.WAITING
    if state is TreeState.READY and _worst(roles) is not TreeState.READY:
        state = TreeState.SERVING
    # Pods that serve need nobody's word for it.
    if admitted is None and state in _SERVING:
        pass
    elif admitted is None:
        reason = reason or _undecided(report)
        state = TreeState.WAITING if state is not TreeState.FAILED else state
    elif admitted.status != "True":
        text = f"{admitted.reason}: {admitted.message}" if admitted.message else admitted.reason
        reason = "; ".join(filter(None, (text, describe_reservation(unit.root))))
        state = TreeState.WAITING if state is not TreeState.FAILED else state
    elif state is TreeState.HELD:
        pods = list(unit.pods())
        arrived = sum(podstate.holding(pod) is not None for pod in pods)
        reason = f"admitted; {sum(map(podstate.occupies_node, pods))} bound, {arrived} of {len(pods)} pods are assigned nodes"
    if unit.absent:
        reason = f"{unit.absent} of its groups do not exist yet"
    nodes = [pod.spec.node_name for pod in unit.pods() if pod.spec.node_name]
    ready = sum(role.state in _SERVING for role in roles)
    return StatusTree("unit", str(unit.index), state, reason, place_of(nodes), ready, len(roles), children=roles)


def _undecided(report: UnitStatus | None) -> str:
    """Say who should decide on a unit, or why there is nothing to decide on: the operator knows."""
    if report is None or not report.message:
        return "nobody has decided on it yet"
    return report.message if report.reason == names.REASON_WAITING else f"{report.reason}: {report.message}"


def describe_reservation(root: core.Group) -> str | None:
    """Describe what is kept for a root that has waited for long; None when nothing is."""
    claim = root.status.claim
    if claim is None or not (claim.nodes or claim.retry_time):
        return None
    what = f"what comes free of {claim.resource}" if claim.resource else "what comes free"
    if claim.retry_time is not None:
        return f"{what} in {claim.where} is kept for it again at {claim.retry_time}: it came no nearer for long"
    return f"{what} in {claim.where} has been kept for it since {claim.since}"


def _role(role: UnitRole, index: Index, place_of: Callable[[Sequence[str]], str]) -> StatusTree:
    replicas = tuple(_replica(replica, index, place_of) for replica in role.replicas)
    ready = sum(replica.state is TreeState.READY for replica in replicas)
    absent = role.desired - len(replicas)
    reason = f"{absent} of {role.desired} replicas do not exist yet" if absent > 0 else ""
    state = TreeState.READY if ready >= role.desired else TreeState.SERVING
    if ready < max(1, role.minimum) and role.desired:
        # As bad as the best `minimum` replicas allow: surplus that waits does not make a role wait.
        best = sorted(replicas, key=lambda replica: _ORDER.index(replica.state))[: max(1, role.minimum)]
        state = _worst(best) if len(best) >= role.minimum and best else TreeState.WAITING
    return StatusTree("role", role.name, state, reason, "", ready, role.desired, role.minimum, replicas)


def _replica(replica: Replica, index: Index, place_of: Callable[[Sequence[str]], str]) -> StatusTree:
    pods = tuple(_pod(pod) for pod in replica.pods)
    reason, state = "", _worst(pods) if pods else TreeState.WAITING
    if not replica.whole:
        state = TreeState.WAITING if state is not TreeState.FAILED else state
        reason = f"{len(pods)} of {replica.size} pods exist"
        gone = [pod for pod in index.members(_top(replica, index)) if _leaving(pod, replica)]
        if gone:
            reason += f"; {gone[0].metadata.name}: {_leaving(gone[0], replica)}"
    nodes = [pod.spec.node_name for pod in replica.pods if pod.spec.node_name]
    ready = sum(pod.state is TreeState.READY for pod in pods)
    return StatusTree(
        "replica", str(replica.number), state, reason, place_of(nodes), ready, replica.size, children=pods
    )


def _top(replica: Replica, index: Index) -> Key:
    return index.root_of(replica.group) or key_of(replica.group)


def _leaving(pod: core.Pod, replica: Replica) -> str:
    """Return why a member of the replica no longer stands for its place; empty when it does, or is no member."""
    if pod.metadata.label(names.LABEL_POD_GROUP) != replica.group.metadata.name:
        return ""
    if podstate.is_released(pod):
        return f"its node was undone ({pod.metadata.annotation(names.ANNOTATION_RELEASE)}); it is to be replaced"
    if core.is_terminal(pod):
        return f"it has ended ({pod.status.phase})"
    return "it is being deleted" if podstate.is_terminating(pod) else ""


def _pod(pod: core.Pod) -> StatusTree:
    state, reason = pod_state(pod)
    node = pod.spec.node_name or podstate.pinned_node(pod) or ""
    return StatusTree("pod", pod.metadata.name, state, reason, node, int(state is TreeState.READY), 1)


def pod_state(pod: core.Pod) -> tuple[TreeState, str]:
    """Return the state of a pod, and the reason for it."""
    foreign = sorted(core.gates(pod) - {names.GATE_GANG, names.GATE_START})
    node = podstate.pinned_node(pod)
    if podstate.occupies_node(pod):
        return _running(pod)
    if foreign:
        return TreeState.HELD, f"held by the scheduling gate {foreign[0]}"
    if podstate.is_gated(pod):
        return TreeState.WAITING, "no node yet"
    if podstate.waits_for_start(pod):
        return TreeState.HELD, f"is assigned to {node}; its start is held"
    refused = podstate.scheduling_failure(pod)
    if node and refused:
        return TreeState.FAILED, f"cannot be scheduled where it was planned: {refused}"
    if node:
        return TreeState.HELD, f"is assigned to {node}; it is bound when its whole gang has arrived"
    return TreeState.FAILED, obstacles.obstacle(pod) or "it has no node and no gate"


def _running(pod: core.Pod) -> tuple[TreeState, str]:
    ready = core.condition(pod.status.conditions, "Ready")
    if ready is not None and ready.status == "True":
        return TreeState.READY, ""
    description = core.describe_containers(pod) or next(
        (
            condition.message or condition.reason
            for condition in pod.status.conditions or ()
            if condition.status == "False" and _says(condition)
        ),
        "",
    )
    return TreeState.STARTING, f"{pod.status.phase.lower()}{f': {description}' if description else ', not ready yet'}"


def _says(condition: core.Condition) -> bool:
    return condition.type in ("Ready", "Initialized", "ContainersReady") and bool(condition.message)


def _worst(branches: Sequence[StatusTree]) -> TreeState:
    return max((branch.state for branch in branches), key=_ORDER.index, default=TreeState.READY)


def branches_with_reason(branch: StatusTree) -> Iterator[StatusTree]:
    """Every node that has something to say, root first."""
    if branch.reason:
        yield branch
    for child in branch.children:
        yield from branches_with_reason(child)
