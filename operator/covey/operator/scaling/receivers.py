"""Pods of receivers of an exchange that are not created yet: for the donors of their unit, and for the budget.

Devices are counted from a pod's creation on, gated ones as well, and until it is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Role
from covey.compile import Layout, ReplicaKey, Slot
from covey.model import podstate
from covey.operator.model.actions import CreatePod
from covey.operator.model.observed import Observed
from covey.placement.cluster.resources import is_extended, pod_requests

#: Fields of a container that say what it asks for.
_READ: Final = ("name", "resources", "restartPolicy")


def find_withheld(
    spec: DisaggregatedInferenceSpec, create: Iterable[CreatePod], layout: Layout, observed: Observed, *, rolls: bool
) -> tuple[frozenset[Slot], frozenset[Slot]]:
    """Find pods that are not created yet: for the donors of their unit, and for the budget.

    Args:
        spec: what is kept up.
        create: the pods that are about to be created, first those that matter most.
        layout: the replicas that there shall be.
        observed: the snapshot.
        rolls: a rollout is on its way, whose surge is bounded by the budget alone.
    """
    mine = {role.name for role in spec.roles if role.is_exchanged}
    budget = spec.scaling.budget if spec.scaling is not None else None
    created = [item.slot for item in create]
    if not created or not mine:
        return frozenset(), frozenset()
    devices = {role.name: _devices_of_pod(role) for role in spec.roles}
    there: dict[int, Counter[str]] = {}
    total: Counter[str] = Counter()
    for slot, pods in observed.pods.items():
        for pod in pods:
            # What was taken away on purpose counts until it is gone; what was lost does not keep its successor waiting.
            counts = podstate.is_draining(pod) or not podstate.is_terminating(pod)
            held = _devices(pod) if counts and not core.is_terminal(pod) else Counter()
            total.update(held)
            if slot.role in mine:
                there.setdefault(slot.unit, Counter()).update(held)
    wanted: dict[int, Counter[str]] = {}
    for slot in layout.slots():
        if slot.role in mine:
            wanted.setdefault(slot.unit, Counter()).update(devices[slot.role](slot.index))
    donors, over = set[Slot](), set[Slot]()
    for place, slots in _by_replica(created).items():
        unit, role = place[0], place[1]
        more: Counter[str] = Counter()
        for slot in slots:
            more.update(devices[role](slot.index))
        # The claim of a donor ends only with it; a surge stands beside what it succeeds, and that is no donor.
        beside = there.setdefault(unit, Counter()) + more
        exchanges = not rolls or any(map(_is_donor, observed.in_unit(unit).values()))
        if role in mine and exchanges and any(beside[name] > wanted[unit][name] for name in more):
            donors.update(slots)
        elif budget is not None and total[budget.resource] + more[budget.resource] > budget.max:
            over.update(slots)
        else:
            total.update(more)
            if role in mine:
                there[unit].update(more)
    return frozenset(donors), frozenset(over)


def _is_donor(pod: core.Pod) -> bool:
    return podstate.claimed_by(pod) is not None


def _by_replica(slots: Iterable[Slot]) -> dict[ReplicaKey, list[Slot]]:
    by_replica: dict[ReplicaKey, list[Slot]] = {}
    for slot in slots:
        by_replica.setdefault(slot[:3], []).append(slot)
    return by_replica


def devices_of_replica(role: Role) -> Counter[str]:
    """The devices that all pods of one replica ask for, by resource."""
    counts: Counter[str] = Counter()
    for index in range(role.size):
        counts.update(_devices_of_pod(role)(index))
    return counts


def _devices_of_pod(role: Role) -> Callable[[int], Counter[str]]:
    worker = _devices_of_template(role.template["spec"])
    leader = _devices_of_template(role.leader_template["spec"]) if role.leader_template is not None else worker
    return lambda index: worker if index else leader


def _devices_of_template(template: dict[str, Any]) -> Counter[str]:
    """Count the devices of a pod of a template."""
    spec = {key: template[key] for key in ("containers", "initContainers") if key in template}
    for key, entries in spec.items():
        spec[key] = [{name: entry[name] for name in _READ if entry.get(name)} for entry in entries]
    return _devices(core.Pod(core.Meta(name=""), msgspec.convert(spec, core.PodSpec)))


def _devices(pod: core.Pod) -> Counter[str]:
    return Counter({name: count for name, count in pod_requests(pod).items() if is_extended(name)})
