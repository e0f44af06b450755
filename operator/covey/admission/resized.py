"""The capacity that a pod takes while it is resized in place: pure.

kube-scheduler counts the largest of what is asked for, what the kubelet has set aside, and what runs; a resize that
the kubelet calls infeasible is not counted (``PodRequests`` of ``k8s.io/component-helpers`` with
``UseStatusResources``). Before 1.37 it did so container by container, now it compares the sums; Covey does the former,
which is never less.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from covey.api import core
from covey.placement.cluster.resources import Quantity, amount


def counted_spec(pod: core.Pod) -> core.PodSpec:
    """The pod's spec with the requests that count; the spec itself unless a resize is under way."""
    spec = pod.spec
    if pod.status.container_statuses is None and pod.status.init_container_statuses is None:
        return spec
    pending = core.condition(pod.status.conditions, "PodResizePending")
    infeasible = pending is not None and pending.reason == "Infeasible"

    def counted(container: core.Container) -> core.Container:
        status = core.container_status(pod, container.name)
        if status is None:
            return container
        resources = container.resources or core.Resources()
        running = status.resources.requests if status.resources else None
        held = [each for each in (running, status.allocated_resources) if each is not None]
        if not held:
            return container
        asked = [] if infeasible else [resources.requests or {}]
        return replace(container, resources=replace(resources, requests=_largest([*asked, *held])))

    starting = None if spec.init_containers is None else tuple(map(counted, spec.init_containers))
    return replace(spec, containers=tuple(map(counted, spec.containers)), init_containers=starting)


def _largest(lists: list[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for each in lists:
        for name, quantity in each.items():
            if name not in found or amount(name, quantity) > amount(name, found[name]):
                found[name] = quantity
    return found
