"""Container restarts of a pod that count as failures.

Containers of the template count, and sidecars (init containers with ``restartPolicy: Always``) that ask for a device, in
which engines may run. Others do not, nor what was injected into the pod without a device: what runs next to the process group
of a replica may restart as it likes. A template may name further ones (``names.ANNOTATION_RESTART_IGNORED``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.annotations import read_json
from covey.compile.revision import RoleRevision
from covey.model import image_update, podstate
from covey.operator.model.actions import Annotate
from covey.operator.model.place import Place
from covey.operator.repair.failures import age, annotate, revision_of
from covey.placement.cluster.resources import asks_for_device


def counts(pod: core.Pod) -> dict[str, int]:
    """Restarts of containers by name: of those that have restarted, and of sidecars with a device in any case."""
    statuses = image_update.container_statuses(pod)
    return dict.fromkeys(_device_sidecars(pod), 0) | {
        status.name: status.restart_count for status in statuses if status.restart_count > 0
    }


def restarted(
    pod: core.Pod, revision: RoleRevision, index: int, since: float | None = None
) -> core.ContainerStatus | None:
    """The first container that counts and has restarted more often than is known to be no failure, or was replaced.

    Args:
        pod: any pod of the replica.
        revision: of the replica. Containers that its template lacks were injected.
        index: of the pod in its replica.
        since: when the replica was Ready, where containers that were replaced since count (seconds since the epoch).
    """
    if not image_update.container_statuses(pod):
        return None
    written = {container["name"] for container in revision.template_of(index)["spec"]["containers"]}
    same = revision_of(pod) == revision.hash
    known = baseline(pod)
    counted = {
        container.name
        for container in pod.spec.containers
        if not same or container.name in written or asks_for_device(container)
    }
    # A sidecar without a baseline was made ready under a release that did not count it.
    counted |= {name for name in _device_sidecars(pod) if name in known}
    counted -= {name.strip() for name in (pod.metadata.annotation(names.ANNOTATION_RESTART_IGNORED) or "").split(",")}
    return next(
        (
            status
            for status in image_update.container_statuses(pod)
            if status.name in counted
            and (status.restart_count > known.get(status.name, 0) or _is_replaced(pod, status, since))
        ),
        None,
    )


def replacements_count_since(places: Sequence[Place]) -> float | None:
    """Time since which containers of a replica that were replaced count, in seconds since the epoch; None where none do.

    A replica that a former release made Ready keeps what was replaced before anybody looked.
    """
    pods = [pod for pod in (places[0].now, *places[0].others) if pod is not None]
    leader = max(pods, key=age, default=None)
    is_noted = leader is not None and leader.metadata.annotation(names.ANNOTATION_REPLACED) is not None
    return podstate.ready_since(leader) if leader is not None and is_noted else None


def _is_replaced(pod: core.Pod, status: core.ContainerStatus, since: float | None) -> bool:
    """Tell whether another container runs in the place of one that was Ready, and the kubelet counts no restart.

    So it is where a machine was imaged anew under its node. The container began later after its pod than its replica was
    Ready: two durations, one by the node's clock, one by the cluster's.
    """
    scheduled = core.condition(pod.status.conditions, "PodScheduled")
    placed = core.seconds(scheduled.last_transition_time) if scheduled is not None else None
    if since is None or placed is None or placed > since or status.restart_count:
        return False
    late = core.seconds_until_running(status, pod.status.start_time)
    return late is not None and late > since - placed + _SKEW


def lacks_baseline(pod: core.Pod) -> bool:
    """Tell whether a sidecar with a device has no baseline yet."""
    sidecars = _device_sidecars(pod)
    return bool(sidecars) and not baseline(pod).keys() >= sidecars


def add_sidecars(places: Iterable[Place]) -> Iterator[Annotate]:
    """Take the present restarts of sidecars with a device as no failures, where a former release made the replica Ready."""
    for place in places:
        pod = place.now
        if pod is not None and lacks_baseline(pod):
            sidecars = {name: count for name, count in counts(pod).items() if name in _device_sidecars(pod)}
            yield annotate(pod, {names.ANNOTATION_RESTART_BASELINE: dump_baseline(sidecars | baseline(pod))})


def _device_sidecars(pod: core.Pod) -> frozenset[str]:
    return frozenset(
        container.name
        for container in pod.spec.init_containers or ()
        if container.restart_policy == "Always" and asks_for_device(container)
    )


def baseline(pod: core.Pod) -> dict[str, int]:
    """Restarts by container that are no failures: before the replica was first Ready, or on purpose."""
    counts = read_json(pod.metadata.annotation(names.ANNOTATION_RESTART_BASELINE))
    if not isinstance(counts, dict):
        return {}
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def dump_baseline(counts: Mapping[str, int]) -> str:
    """The annotation of a baseline."""
    return json.dumps(dict(counts), sort_keys=True, separators=(",", ":"))


#: Seconds by which the times of one thing may differ, by one clock and another.
_SKEW: Final = 60.0
