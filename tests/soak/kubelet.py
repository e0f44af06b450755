"""The kubelet's part where images of running pods change, which kwok does not play.

As the real one: a container with another image is ended, the pod is not Ready meanwhile, and the container starts anew,
with one restart more.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

from soak.facts import Pod
from soak.stage import Stage

#: Seconds from one step to the next.
_STEP: Final = 0.4


class Kubelet:
    """Looks at the pods that the watch says have other images than they should, a step at a time."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._due: dict[str, float] = {}

    def look(self) -> None:
        """Do what is due."""
        with self._stage.watching.lock:
            stale = [pod for pod in self._stage.checker.world.pods.values() if pod.updating and pod.node and pod.live]
        now = time.monotonic()
        self._due = {pod.uid: self._due.get(pod.uid, now + _STEP) for pod in stale}
        for pod in stale:
            if self._due[pod.uid] <= now:
                self._due[pod.uid] = now + _STEP
                self._step(pod)

    def _step(self, pod: Pod) -> None:
        found = self._stage.api("GET", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
        if found is None or found["metadata"]["uid"] != pod.uid:
            return
        statuses, ready = advance_containers(found)
        status = {
            "containerStatuses": statuses,
            "conditions": [
                {"type": kind, "status": str(ready), "lastTransitionTime": datetime.now(UTC).strftime("%FT%TZ")}
                for kind in ("Ready", "ContainersReady")
            ],
            "observedGeneration": found["metadata"].get("generation", 0),
        }
        body = {"metadata": {"uid": pod.uid}, "status": status}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        self._stage.api("PATCH", path, body, patch="strategic")


def advance_containers(pod: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """The container statuses after one more step, and whether the pod is Ready then."""
    wanted = {each["name"]: each["image"] for each in pod["spec"]["containers"]}
    statuses = [dict(each) for each in pod["status"].get("containerStatuses") or ()]
    for each in statuses:
        image = wanted[each["name"]]
        if each["image"] != image:
            each |= {"image": image, "ready": False, "state": {"waiting": {"reason": "ContainerCreating"}}}
        elif "waiting" in each.get("state", {}):
            each |= {"imageID": f"registry.test/digest@{image}", "restartCount": each.get("restartCount", 0) + 1}
            started = datetime.now(UTC).strftime("%FT%TZ")
            each |= {"ready": True, "state": {"running": {"startedAt": started}, "waiting": None}}
    return statuses, all(each["ready"] for each in statuses)
