"""The state of a pod, from the only fields that tell the truth: the gate, the node, the phase, the deletion.

The condition ``PodScheduled`` does not: it says ``SchedulingGated`` while a bind is held.

Pods whose images are being updated in place: what is written on them, and how it is seen that the kubelet has done it.

The image that a kubelet reports need not be spelled as in the spec, and a pod stays Ready for a moment after the
change. So what each container ran before is written down with the change: it runs the new image when it has another
image ID, and, where kubelets say by which generation of the spec they go (Kubernetes 1.34), by a later one. A restart
alone proves nothing: the container may have crashed before the kubelet heard of the change.

A pod that is Ready a minute after the change is taken to have heard of it, whatever the statuses say: the same image
may have two names, and not every kubelet tells image IDs.

The annotation stays until the whole replica serves again: the *update* of a pod is open as long as it is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from itertools import chain
from typing import Any, Final

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.compile.identity import ReplicaKey, slot_of
from covey.compile.pods import Past

_NONE: Final = -1
#: Seconds after which a pod that is Ready runs what its spec says: a node that is silent for as long is not alive.
PATIENCE: Final = 60.0


class Former(msgspec.Struct, rename="camel", frozen=True):
    """A container before its image was changed: the image that it ran, and the generation of its pod.

    ``restarts`` is negative where anything that the kubelet says will do: of a container of which it had said nothing
    yet, and of one that is given back the image that it runs.
    """

    image_id: str = msgspec.field(name="imageID", default="")
    restarts: int = 0
    generation: int = 0
    image: str = ""
    #: When that was, in seconds since the epoch.
    at: int = 0


class Stored(core.Read, frozen=True):
    """A pod with all that its containers' statuses say."""

    metadata: core.Meta
    spec: core.PodSpec = core.PodSpec()
    status: core.PodStatus = core.PodStatus()


def is_open(pod: core.Pod) -> bool:
    """Tell whether images of a pod were changed, and its replica has not been seen to serve with them."""
    return pod.metadata.annotation(names.ANNOTATION_IN_PLACE) is not None


def is_restarted(pod: core.Pod) -> bool:
    """Tell whether all containers whose images were changed run the new ones; also where no image was."""
    if not is_open(pod):
        return True
    told = (pod.metadata.generation, pod.status)
    return all(_runs_anew(name, former, *told) for name, former in _former(pod.metadata).items())


def patience(pod: core.Pod, now: float) -> float:
    """Seconds until being Ready alone proves that a pod runs its new images; 0 or less when they have passed."""
    return max((each.at + PATIENCE - now for each in _former(pod.metadata).values()), default=0.0)


def _runs_anew(name: str, former: Former, generation: int, status: core.PodStatus) -> bool:
    seen = status.observed_generation
    if generation and seen is not None and seen <= former.generation:
        return False
    found = next((each for each in status.container_statuses or () if each.name == name), None)
    if found is None:
        return False
    return found.image_id != former.image_id or former.restarts < 0


def _former(metadata: core.Meta) -> dict[str, Former]:
    """Read what is written of each container; nothing where somebody has written what cannot be read."""
    try:
        return msgspec.json.decode(metadata.annotation(names.ANNOTATION_IN_PLACE) or "{}", type=dict[str, Former])
    except (msgspec.DecodeError, RecursionError):
        return {}


def operations(
    stored: Stored, images: Mapping[str, str], revision: str, now: float, *, as_is: bool = False
) -> list[dict[str, Any]]:
    """The JSON patch that makes a pod one of another revision.

    Args:
        stored: the pod as it is.
        images: of its containers, by name.
        revision: the hash.
        now: seconds since the epoch.
        as_is: only as long as nobody has written to the pod.
    """
    metadata, spec, patch = stored.metadata, stored.spec, [_test("/metadata/uid", stored.metadata.uid)]
    former = _former(metadata)
    for position, container in enumerate(spec.containers):
        image = images.get(container.name, container.image)
        if image != container.image:
            at = f"/spec/containers/{position}"
            patch += [_test(f"{at}/name", container.name), _patch_operation("replace", f"{at}/image", image)]
            former[container.name] = msgspec.structs.replace(
                _before(stored, container, former.get(container.name), image), at=int(now)
            )
    patch.append(_patch_operation("add", f"/metadata/labels/{_escape(names.LABEL_REVISION)}", revision))
    if names.LABEL_PAIRING in (metadata.labels or {}):
        # It is of the former revision, and what serves until the kubelet hears of the change is, too.
        patch.append({"op": "remove", "path": f"/metadata/labels/{_escape(names.LABEL_PAIRING)}"})
    written = json.dumps(msgspec.to_builtins(former), sort_keys=True)
    if metadata.annotations:
        patch.append(_patch_operation("add", f"/metadata/annotations/{_escape(names.ANNOTATION_IN_PLACE)}", written))
    else:
        patch.append(_patch_operation("add", "/metadata/annotations", {names.ANNOTATION_IN_PLACE: written}))
    # Somebody may give it its first annotation meanwhile.
    if as_is or not metadata.annotations:
        patch.insert(0, _test("/metadata/resourceVersion", metadata.resource_version))
    return patch


def _before(stored: Stored, container: core.Container, former: Former | None, image: str) -> Former:
    """The record of a container that is given an image; ``former`` is the one that is written already."""
    found = next((each for each in stored.status.container_statuses or () if each.name == container.name), None)
    generation = stored.metadata.generation
    if found is None:
        return Former("", _NONE, generation, container.image)
    # The kubelet need not have heard of the change before this one, and may never hear of it.
    runs = former.image if former is not None and former.image_id == found.image_id else container.image
    if runs == image:
        return Former("", _NONE, generation, runs)
    return Former(found.image_id, found.restart_count, generation, runs)


def closing(pod: core.Pod) -> Mapping[str, str | None]:
    """The annotations that end the update of a pod: restarts until now say nothing of its health."""
    counts = {status.name: status.restart_count for status in container_statuses(pod)}
    return {names.ANNOTATION_IN_PLACE: None, names.ANNOTATION_RESTART_BASELINE: json.dumps(counts, sort_keys=True)}


def _test(path: str, value: str) -> dict[str, Any]:
    return {"op": "test", "path": path, "value": value}


def _patch_operation(operation: str, path: str, value: object) -> dict[str, Any]:
    return {"op": operation, "path": path, "value": value}


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def container_statuses(pod: core.Pod) -> tuple[core.ContainerStatus, ...]:
    """Statuses of all containers, main ones first; none where they tell nothing (``core.Pod``)."""
    return (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))


class Course(Enum):
    """The course of a pod: it stays, drains, goes, or has ended."""

    #: Nobody has said otherwise.
    STAYS = auto()
    #: It is marked: its replica is to go, and never comes back.
    DRAINS = auto()
    #: Its deletion was asked for, by this process (``Observed.condemned``) or as the API server says.
    GOES = auto()
    #: It has ended by itself.
    ENDED = auto()


def course(pod: core.Pod) -> Course:
    """The course of a pod of a snapshot: the one answer for all that ask."""
    if is_going(pod):
        return Course.GOES
    if core.is_terminal(pod):
        return Course.ENDED
    return Course.DRAINS if is_draining(pod) else Course.STAYS


def is_going(pod: core.Pod) -> bool:
    """Tell whether the deletion of a pod was asked for; it need not be asked for again."""
    return pod.metadata.deletion_timestamp is not None


def is_dead(pod: core.Pod) -> bool:
    """Tell whether a pod has ended, or is about to: its place needs a successor."""
    return is_going(pod) or core.is_terminal(pod)


def is_bound(pod: core.Pod) -> bool:
    """Tell whether a pod has a node. One that is dead may still be bound."""
    return bool(pod.spec.node_name)


def is_let_go(pod: core.Pod) -> bool:
    """Tell whether the gang gate does not hold a pod: it has none, or the pod is bound."""
    return is_bound(pod) or names.GATE_GANG not in core.gates(pod)


def is_admitted(pod: core.Pod) -> bool:
    """Tell whether the scheduler has given a pod a node, bound or not.

    Covey's scheduler says so by lifting the gate of its pods. Any other only binds.
    """
    return is_bound(pod) or (is_let_go(pod) and pod.metadata.label(names.LABEL_POD_GROUP) is not None)


def is_in_place(pod: core.Pod) -> bool:
    """Tell whether a pod has its node for good: it is bound, or pinned and held by the start gate.

    One that is pinned and may start is bound in seconds, or gives its pin up.
    """
    return is_bound(pod) or (names.GATE_START in core.gates(pod) and is_admitted(pod))


def is_released(pod: core.Pod) -> bool:
    """Tell whether the pin of a pod must be undone, which only deletion can do."""
    return not is_bound(pod) and pod.metadata.annotation(names.ANNOTATION_RELEASE) is not None


def is_ready(pod: core.Pod) -> bool:
    """Tell whether a pod serves, with the images that it was given last."""
    return says_ready(pod) and is_restarted(pod)


def says_ready(pod: core.Pod) -> bool:
    """Tell whether the conditions of a pod say that it serves.

    The gates are read, too: the kubelet takes them over into the condition Ready a moment later only.
    """
    if course(pod) is not Course.STAYS:
        return False
    if not pod.spec.readiness_gates:
        found = core.condition(pod.status.conditions, "Ready")
        return found is not None and found.status == "True"
    return all(each is not None and each.status == "True" for each in readiness(pod))


def readiness(pod: core.Pod) -> tuple[core.Condition | None, ...]:
    """The condition Ready and those of its readiness gates; None for one that nobody has set."""
    conditions, gates = pod.status.conditions, pod.spec.readiness_gates or ()
    found = (core.condition(conditions, gate.condition_type) for gate in gates)
    return (core.condition(conditions, "Ready"), *found) if gates else (core.condition(conditions, "Ready"),)


def stands_since(pods: Iterable[core.Pod], now: float) -> float:
    """Time at which those that are not Ready got any further last, as far as known; ``now`` where all are Ready."""
    told = (_times(pod) for pod in pods if not is_ready(pod))
    return max(chain.from_iterable(told), default=now)


def _times(pod: core.Pod) -> Iterator[float]:
    scheduled = core.condition(pod.status.conditions, "PodScheduled")
    told = (each.last_transition_time for each in (*readiness(pod), scheduled) if each is not None)
    for each in (pod.metadata.creation_timestamp, pod.status.start_time, *told):
        at = core.seconds(each)
        if at is not None:
            yield at


def runs(pod: core.Pod) -> bool:
    """Tell whether the containers of a pod are Ready, whatever its readiness gates say."""
    found = core.condition(pod.status.conditions, "ContainersReady") or core.condition(pod.status.conditions, "Ready")
    return found is not None and found.status == "True" and not is_dead(pod)


def is_draining(pod: core.Pod) -> bool:
    """Tell whether a pod is marked: its replica is to go, and never comes back."""
    return pod.metadata.annotation(names.ANNOTATION_DRAINING_SINCE) is not None


def draining_since(pod: core.Pod) -> float | None:
    """Time at which a pod was marked, in seconds since the epoch: 0 where unreadable, None where it is not marked."""
    return (core.seconds(pod.metadata.annotation(names.ANNOTATION_DRAINING_SINCE)) or 0.0) if is_draining(pod) else None


def drains_until(pod: core.Pod) -> float | None:
    """Time by which a marked pod goes, in seconds since the epoch; None where nobody has said so."""
    return core.seconds(pod.metadata.annotation(names.ANNOTATION_DRAIN_UNTIL)) if is_draining(pod) else None


def claimed_by(pod: core.Pod) -> str | None:
    """UID of the root that a pod was marked to give way to; None where it was not."""
    return pod.metadata.annotation(names.ANNOTATION_CLAIMED_BY)


def is_gated_by_us(pod: core.Pod) -> bool:
    """Tell whether a pod has Covey's own readiness gate, so that Covey, too, decides when it is Ready."""
    return any(gate.condition_type == names.GATE_SERVING for gate in pod.spec.readiness_gates or ())


def unschedulable(pod: core.Pod) -> str | None:
    """Reason for which its scheduler, which has looked at a pod, finds no node; None where it has not said so."""
    said = core.condition(pod.status.conditions, "PodScheduled")
    if is_bound(pod) or core.gates(pod) or said is None or (said.status, said.reason) != ("False", "Unschedulable"):
        return None
    return said.message


def is_addressed(pod: core.Pod) -> bool:
    """Tell whether the headless Service of a pod publishes it."""
    return pod.metadata.label(names.LABEL_ADDRESS) is not None


def is_published(pod: core.Pod) -> bool:
    """Tell whether some Service publishes a pod: its headless one, or one that takes requests."""
    return is_addressed(pod) or pod.metadata.label(names.LABEL_ENDPOINT) is not None


def restarts(pod: core.Pod) -> int:
    """Times that the replica of a pod had been recreated when the pod was made."""
    return past(pod).restarts


def ready_since(pod: core.Pod) -> float | None:
    """Time since which a pod's replica counts as having been Ready, in seconds since the epoch; on leaders only."""
    return core.seconds(pod.metadata.annotation(names.ANNOTATION_STARTED))


def past(pod: core.Pod) -> Past:
    """Restarts and failures of those before a pod, as it carries them."""
    return Past.read(pod.metadata.annotations)


def replica_of(pod: core.Pod) -> ReplicaKey | None:
    """The replica of a pod, by its host name; None where that is none of ours."""
    slot = slot_of(pod.spec.hostname)
    return slot and slot[:3]
