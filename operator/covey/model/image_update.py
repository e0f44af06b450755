"""Pods whose images are being updated in place: what is written on them, and how it is seen that the kubelet has done it.

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
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from covey.api import constants as names
from covey.api import core

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
    formers = _former(pod.metadata).items()
    return all(_runs_anew(name, former, pod.metadata.generation, pod.status) for name, former in formers)


def patience(pod: core.Pod, now: float) -> float:
    """Seconds until being Ready alone proves that a pod runs its new images; 0 or less when they have passed."""
    return max((former.at + PATIENCE - now for former in _former(pod.metadata).values()), default=0.0)


def _runs_anew(name: str, former: Former, generation: int, status: core.PodStatus) -> bool:
    seen = status.observed_generation
    if generation and seen is not None and seen <= former.generation:
        return False
    container = next((candidate for candidate in status.container_statuses or () if candidate.name == name), None)
    if container is None:
        return False
    return container.image_id != former.image_id or former.restarts < 0


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
    container_status = next(
        (candidate for candidate in stored.status.container_statuses or () if candidate.name == container.name), None
    )
    generation = stored.metadata.generation
    if container_status is None:
        return Former("", _NONE, generation, container.image)
    # The kubelet need not have heard of the change before this one, and may never hear of it.
    runs = former.image if former is not None and former.image_id == container_status.image_id else container.image
    if runs == image:
        return Former("", _NONE, generation, runs)
    return Former(container_status.image_id, container_status.restart_count, generation, runs)


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
