"""The kubelet's part, of which kwok only ever says that pods run: containers that restart, pods that fail, other images.

As the real one (``SyncPod`` of ``pkg/kubelet/kuberuntime``): a container with another image is killed and started anew,
with one restart more; the pod stays Ready until the kubelet has heard of the change. An image that cannot be pulled
leaves its container waiting.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from cluster.workbench import name_of
from stage.play import Stage, by_replica
from stage.record import Object


def restart(stage: Stage, pod: Object, count: int = 1) -> None:
    """Have a container of a pod restarted so often."""
    for peer in stage.pods():
        if by_replica([peer]).keys() == by_replica([pod]).keys():
            # Nothing is changed; whatever becomes of the whole replica, this has done it.
            stage.patch("Pod", name_of(peer), {})
    statuses = [{**status, "restartCount": count} for status in pod["status"]["containerStatuses"]]
    stage.patch_status("Pod", name_of(pod), {"containerStatuses": statuses})


def crash(stage: Stage, pod: Object, **ended: Any) -> None:
    """Have a container of a pod ended again and again, and not started for a while; ``ended`` says how it did."""
    waiting = _waiting("CrashLoopBackOff") | ({"lastState": {"terminated": ended}} if ended else {})
    _tell(stage, pod, [{**status, "restartCount": 5, **waiting} for status in pod["status"]["containerStatuses"]])


def stall(stage: Stage, pod: Object, reason: str) -> None:
    """Have the containers of a pod wait, for a reason of the kubelet's."""
    _tell(stage, pod, [{**status, **_waiting(reason)} for status in pod["status"]["containerStatuses"]])


def fail(stage: Stage, pod: Object, reason: str | None = None) -> None:
    """Have a pod failed; with a reason, the kubelet has not taken it."""
    unready = [{"type": "Ready", "status": "False"}]
    stage.patch_status("Pod", name_of(pod), {"phase": "Failed", "reason": reason, "conditions": unready})


def change_images(stage: Stage, missing: Collection[str] = ()) -> None:
    """Change containers to the images that they shall have: at one rest they end, at the next they start, until none is left.

    Args:
        stage: where.
        missing: images that cannot be pulled.
    """
    changed = True
    while changed:
        stage.settle()
        changed = False
        for pod in stage.bound():
            wanted = {container["name"]: container["image"] for container in pod["spec"]["containers"]}
            before = pod["status"]["containerStatuses"]
            after = [_step(status, wanted[status["name"]], missing) for status in before]
            generation = pod["metadata"].get("generation", 0)
            if after != before or pod["status"].get("observedGeneration", 0) < generation:
                _tell(stage, pod, after)
                changed = True


def _step(status: Object, image: str, missing: Collection[str]) -> Object:
    """What becomes of a container until the next rest."""
    if status["image"] != image:
        return {**status, "image": image, **_waiting("ContainerCreating")}
    if "waiting" not in status["state"]:
        return status
    if image in missing:
        return {**status, **_waiting("ImagePullBackOff")}
    return {
        **status,
        "imageID": f"registry.test/digest@sha256:{image}",
        "restartCount": status["restartCount"] + 1,
        "ready": True,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }


def _waiting(reason: str) -> Object:
    return {"ready": False, "state": {"waiting": {"reason": reason}}}


def _tell(stage: Stage, pod: Object, statuses: list[Object]) -> None:
    ready = str(all(status["ready"] for status in statuses))
    stage.patch_status(
        "Pod",
        name_of(pod),
        {
            "containerStatuses": statuses,
            "conditions": [{"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")],
            "observedGeneration": pod["metadata"].get("generation", 0),
        },
    )
