"""The kubelet's part, of which kwok only ever says that pods run: containers that restart, pods that fail, other images.

As the real one (``SyncPod`` of ``pkg/kubelet/kuberuntime``): a container with another image is killed and started anew,
with one restart more; the pod stays Ready until the kubelet has heard of the change. An image that cannot be pulled
leaves its container waiting.

kwok makes every pod Ready as soon as it is bound, whatever its readiness gates. Those of ``asks`` are Ready when a router
says so (``say_serving``).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any, Final

from kubernetes.client import ApiException

from cluster.workbench import name_of
from covey.api.core import rfc3339, seconds
from stage.ground import Ground
from stage.play import Stage, by_replica
from stage.record import Object

#: The readiness gate of pods that ask the router, and their annotation.
ROUTER: Final = "router.test/serves"
_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
#: The word of kwok has no reason.
_SAID: Final = (
    f"!has(object.metadata.annotations) || !('{ROUTER}' in object.metadata.annotations) || !has(object.status.conditions)"
    " || !object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True' && !has(c.reason))"
)


def install_router(ground: Ground) -> None:
    """Have pods that ask wait for the router's word."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}]
    validation = {"expression": _SAID, "message": "the router has not said so"}
    policy = {"matchConstraints": {"resourceRules": rules}, "validations": [validation]}
    binding = {"policyName": "router", "validationActions": ["Deny"]}
    for path, spec in ((f"{_POLICIES}ies", policy), (f"{_POLICIES}ybindings", binding)):
        ground.cluster.api("POST", path, {"metadata": {"name": "router"}, "spec": spec})
    pods = "/api/v1/namespaces/default/pods"
    gates = [{"name": "router.test/never"}]
    spec = {"containers": [{"name": "c", "image": "registry.test/c:1"}], "schedulingGates": gates}
    metadata = {"name": "probe", "annotations": {ROUTER: "asked"}}
    ground.cluster.api("POST", pods, {"metadata": metadata, "spec": spec})
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    def is_in_force() -> bool:
        try:
            ground.cluster.api("PATCH", f"{pods}/probe/status?dryRun=All", ready)
        except ApiException as error:
            return "the router has not said so" in str(error)
        return False

    # When an API server heeds a policy is told nowhere.
    ground.wait(is_in_force, "the router is asked")
    ground.cluster.delete(f"{pods}/probe")


def asks(role: Object) -> Object:
    """The role with pods that ask the router."""
    made = copy.deepcopy(role)
    made["template"].setdefault("metadata", {}).setdefault("annotations", {})[ROUTER] = "asked"
    made["template"]["spec"]["readinessGates"] = [{"conditionType": ROUTER}]
    return made


def say_serving(stage: Stage, pods: Sequence[Object], *, serves: bool = True) -> None:
    """Have the router say of pods whether they serve; the kubelet, if it has heard, that they are Ready."""
    for pod in pods:
        since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        conditions = [{"type": ROUTER, "status": str(serves), **since}]
        if serves:
            conditions += [
                {"type": kind, "status": "True", "reason": "Asked", **since} for kind in ("Ready", "ContainersReady")
            ]
        started = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
        stage.patch_status("Pod", name_of(pod), {**started, "conditions": conditions})


def restart(stage: Stage, pod: Object, count: int = 1) -> None:
    """Have a container of a pod restarted so often."""
    touch_replica(stage, pod)
    statuses = [{**status, "restartCount": count} for status in pod["status"]["containerStatuses"]]
    stage.patch_status("Pod", name_of(pod), {"containerStatuses": statuses})


def touch_replica(stage: Stage, pod: Object) -> None:
    """Change nothing of a replica's pods; whatever becomes of all of them, the story has done it."""
    for peer in stage.pods():
        if by_replica([peer]).keys() == by_replica([pod]).keys():
            stage.patch("Pod", name_of(peer), {})


def crash(stage: Stage, pod: Object, **ended: Any) -> None:
    """Have a container of a pod ended again and again, and not started for a while; ``ended`` says how it did."""
    waiting = _waiting("CrashLoopBackOff") | ({"lastState": {"terminated": ended}} if ended else {})
    _tell(stage, pod, [{**status, "restartCount": 5, **waiting} for status in pod["status"]["containerStatuses"]])


def replace_containers(stage: Stage, pod: Object) -> None:
    """Have other containers run since a day after the pod began, with no restart counted: its machine was imaged anew."""
    touch_replica(stage, pod)
    began = rfc3339((seconds(pod["status"]["startTime"]) or 0.0) + 86_400)
    running = {"restartCount": 0, "state": {"running": {"startedAt": began}}}
    statuses = [{**status, **running} for status in pod["status"]["containerStatuses"]]
    stage.patch_status("Pod", name_of(pod), {"containerStatuses": statuses})


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
