"""Plays the controllers of Kubernetes 1.38 that see to Evictions (``lifecycle.k8s.io``), at each rest, and traces what they do.

API server 1.37 has their kinds and rules, and judges each write; the controllers are new in 1.38. What they do is read in
``pkg/controller/evictionrequest`` and ``pkg/controller/imperativeevictionresponder`` of v1.38.0-beta.0: by method, the
function that it follows. Their patience (5 s for a last word, 20 min for a heartbeat) is over at a rest at which nobody
says anything more.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from kubernetes.client import ApiException

from cluster.workbench import name_of, uid_of
from covey.api.constants import EVICTION_RESPONDER
from covey.kube.resources import EVICTIONS, PODS, Resource
from stage.kubelet import touch_replica
from stage.play import Stage

Object = dict[str, Any]

REQUESTS: Final = Resource("lifecycle.k8s.io", "v1alpha1", "evictionrequests", "EvictionRequest")
IMPERATIVE: Final = "imperative-eviction.k8s.io/evictor"
_CONTROLLER: Final = "evictionrequest-controller"
_IMPERATIVE_CONTROLLER: Final = "imperative-eviction-responder-controller"
#: Who asks, where a story does not care.
SOMEBODY: Final = "example.com/drain"


class EvictionControllers:
    """The controllers, for one story.

    ``trace`` has a line for each transition: of a responder's state, of an attempt to evict, and of an end.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.trace: list[str] = []
        #: UIDs of pods whose imperative eviction was refused.
        self._refused: set[str] = set()
        for resource in (EVICTIONS, REQUESTS):
            stage.after(partial(stage.cluster.api, "DELETE", self._path(resource)))

    def request(self, *pods: Object, requester: str = SOMEBODY) -> None:
        """Ask for the evictions of pods."""
        for pod in pods:
            # Whatever becomes of its replica, this has done it.
            touch_replica(self._stage, pod)
        for pod in pods:
            target = {"pod": {"name": name_of(pod), "uid": uid_of(pod)}}
            name = f"{name_of(pod)}.{requester.partition('/')[2]}"
            spec = {"target": target, "requester": requester, "intent": "Eviction"}
            self._stage.cluster.api("POST", self._path(REQUESTS), {"metadata": {"name": name}, "spec": spec})

    def withdraw(self, *pods: Object, requester: str = SOMEBODY) -> None:
        """Ask for them no longer."""
        for pod in pods:
            path = f"{self._path(REQUESTS)}/{name_of(pod)}.{requester.partition('/')[2]}"
            self._stage.cluster.api("PATCH", path, {"spec": {"intent": "Withdrawn"}})

    def run(self) -> None:
        """Do what there is to do, rest by rest, until there is nothing."""
        self._stage.settle(1.0)
        while self._step():
            self._stage.settle(1.0)

    def eviction(self, pod: Object) -> Object:
        """The newest Eviction of a pod."""
        found = [item for item in self._list(EVICTIONS) if item["spec"]["target"]["pod"]["uid"] == uid_of(pod)]
        return max(found, key=lambda item: int(name_of(item).split("-")[1]))

    def answer(self, pod: Object) -> Object:
        """What Covey has said of a pod."""
        responders = self.eviction(pod)["status"]["responders"]
        return next(each for each in responders if each["name"] == EVICTION_RESPONDER)

    def end(self, pod: Object) -> str:
        """How it ended: the reason of ``TargetEvicted``, or of ``Failed``; empty where it goes on."""
        conditions = {each["type"]: each for each in self.eviction(pod)["status"]["conditions"]}
        ended = [
            conditions[kind]["reason"] for kind in ("TargetEvicted", "Failed") if conditions[kind]["status"] == "True"
        ]
        return ended[0] if ended else ""

    def state(self, pod: Object, responder: str = EVICTION_RESPONDER) -> str:
        """The state of a responder."""
        found = self.eviction(pod)["status"]["targetResponders"]
        return next(str(each["state"]) for each in found if each["name"] == responder)

    def _path(self, resource: Resource) -> str:
        return resource.path(self._stage.namespace)

    def _list(self, resource: Resource) -> list[Object]:
        return list(self._stage.cluster.api("GET", self._path(resource))["items"])

    def _apply(self, name: str, body: Object, manager: str, subresource: str = "") -> None:
        body = {"apiVersion": EVICTIONS.api_version, "kind": EVICTIONS.kind, "metadata": {"name": name}, **body}
        path = f"{self._path(EVICTIONS)}/{name}{subresource}?fieldManager={manager}&force=true"
        self._stage.cluster.api("PATCH", path, body, patch="apply")

    def _step(self) -> bool:
        """Look at everything once; tell whether something was done."""
        requests, evictions = self._list(REQUESTS), self._list(EVICTIONS)
        done = [self._sync_request(request, requests, evictions) for request in requests]
        evictions = self._list(EVICTIONS)
        # After them: of a pod that is gone a responder says so later.
        pods = {uid_of(pod): pod for pod in self._list(PODS)}
        for eviction in evictions:
            if not _has_ended(eviction):
                pod = pods.get(eviction["spec"]["target"]["pod"]["uid"])
                mine = [each for each in requests if each["spec"]["target"] == eviction["spec"]["target"]]
                done += (
                    self._refresh(eviction, pod, mine),
                    self._sync(eviction, pod, mine),
                    self._evict(eviction, pod),
                )
        return any(done)

    def _sync_request(self, request: Object, requests: list[Object], evictions: list[Object]) -> bool:
        """``syncEvictionRequest``: there is one Eviction of a pod that somebody wants gone, and has not failed."""
        target = request["spec"]["target"]
        mine = [each for each in evictions if each["spec"]["target"] == target]
        wanted = _is_wanted([each for each in requests if each["spec"]["target"] == target])
        if not wanted or any(not _has_ended(each) or _is_true(each, "TargetEvicted") for each in mine):
            return False
        name = f"pod-{len(mine) + 1}-{target['pod']['name']}"
        owner = {"apiVersion": REQUESTS.api_version, "kind": REQUESTS.kind, "name": name_of(request)}
        body = {
            "metadata": {
                "name": name,
                "labels": {request["spec"]["requester"]: "requester"},
                "ownerReferences": [{**owner, "uid": uid_of(request)}],
            },
            "spec": {"target": target},
        }
        self._apply(name, body, _CONTROLLER)
        evictions.append({**body, "status": {}})
        return True

    def _refresh(self, eviction: Object, pod: Object | None, requests: list[Object]) -> bool:
        """``syncEvictionMetaRefresh``: an Eviction is labelled by who asks for it, and by the responders of its pod."""
        if pod is None:
            return False
        labels = {each["spec"]["requester"]: "requester" for each in requests}
        labels |= {
            each["name"]: "responder" for each in (*pod["spec"].get("evictionResponders", ()), {"name": IMPERATIVE})
        }
        if labels == eviction["metadata"].get("labels"):
            return False
        owners = eviction["metadata"]["ownerReferences"]
        body = {"metadata": {"name": name_of(eviction), "labels": labels, "ownerReferences": owners}}
        self._apply(name_of(eviction), {**body, "spec": eviction["spec"]}, _CONTROLLER)
        return True

    def _sync(self, eviction: Object, pod: Object | None, requests: list[Object]) -> bool:
        """``syncEviction``: whose turn it is, and how it ends."""
        status, name = eviction.get("status", {}), eviction["spec"]["target"]["pod"]["name"]
        said = {each["name"]: each for each in status.get("responders", ())}
        if (targets := [dict(each) for each in status.get("targetResponders", ())]) == []:
            own = [] if pod is None else pod["spec"].get("evictionResponders", ())
            every = [*own, {"name": IMPERATIVE, "priority": 100}]
            targets = [{**each, "state": "Inactive"} for each in sorted(every, key=lambda each: -each["priority"])]
        before = [dict(each) for each in targets]
        gone = pod is None or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        self._progress(targets, said, gone=gone, wanted=_is_wanted(requests))
        for old, new in zip(before, targets, strict=True):
            if old != new:
                self.trace.append(f"{name}: {new['name']} {new['state']}")
        over = targets[-1]["state"] not in {"Inactive", "Active"}
        if gone:
            ended = ("True", "PodDeleted", "False", "Succeeded")
        elif not _is_wanted(requests):
            ended = ("False", "EvictionFailed", "True", "CanceledDueToNoRequesters")
        elif over and before == targets:
            ended = ("False", "EvictionFailed", "True", "NoFurtherResponder")
        else:
            ended = ("False", "AwaitingEviction", "False", "AwaitingEviction")
        conditions = [_condition("TargetEvicted", *ended[:2]), _condition("Failed", *ended[2:])]
        known = {(each["type"], each["status"], each["reason"]) for each in status.get("conditions", ())}
        if (
            before == targets
            and status.get("targetResponders")
            and known == {(each["type"], each["status"], each["reason"]) for each in conditions}
        ):
            return False
        if "True" in ended:
            self.trace.append(f"{name}: {ended[1] if ended[0] == 'True' else ended[3]}")
        started = {
            each["name"]: said.get(each["name"], {}).get("startTime") or (_now() if each["state"] == "Active" else None)
            for each in targets
        }
        responders = [{"name": key, **({"startTime": since} if since else {})} for key, since in started.items()]
        requesters = [{"name": each["spec"]["requester"], "intent": each["spec"]["intent"]} for each in requests]
        body = {
            "observedGeneration": eviction["metadata"]["generation"],
            "requesters": requesters,
            "targetResponders": targets,
            "responders": responders,
            "conditions": conditions,
        }
        self._apply(name_of(eviction), {"status": body}, _CONTROLLER, "/status")
        return True

    def _progress(self, targets: list[Object], said: dict[str, Object], *, gone: bool, wanted: bool) -> None:
        """``computeResponderProgression``."""
        if targets[-1]["state"] not in {"Inactive", "Active"}:
            return
        active = next((n for n, each in enumerate(targets) if each["state"] == "Active"), None)
        if gone or not wanted:
            if active is not None:
                has_said = "completionTime" in said.get(targets[active]["name"], {})
                targets[active]["state"] = ("Completed" if has_said else "Interrupted") if gone else "Canceled"
            return
        if active is None:
            active = next(n for n, each in enumerate(targets) if each["state"] == "Inactive")
            targets[active]["state"] = "Active"
        elif "completionTime" in said[targets[active]["name"]]:
            targets[active]["state"] = "Completed"
            if active + 1 < len(targets):
                targets[active + 1]["state"] = "Active"

    def _evict(self, eviction: Object, pod: Object | None) -> bool:
        """``syncEviction`` of the imperative responder; one attempt that fails is enough for a story."""
        active = {
            each["name"] for each in eviction.get("status", {}).get("targetResponders", ()) if each["state"] == "Active"
        }
        if (
            pod is None
            or IMPERATIVE not in active
            or uid_of(pod) in self._refused
            or "deletionTimestamp" in pod["metadata"]
        ):
            return False
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name_of(pod)}}
        try:
            self._stage.cluster.api("POST", f"{self._stage.path('Pod', name_of(pod))}/eviction", body)
        except ApiException as error:
            self._refused.add(uid_of(pod))
            self.trace.append(f"{name_of(pod)}: refused, {error.status}")
            entry = {"name": IMPERATIVE, "heartbeatTime": _now(), "message": str(error.reason)}
            self._apply(name_of(eviction), {"status": {"responders": [entry]}}, _IMPERATIVE_CONTROLLER, "/status")
        else:
            self.trace.append(f"{name_of(pod)}: evicted")
        return True


def _is_wanted(requests: list[Object]) -> bool:
    return any(each["spec"]["intent"] == "Eviction" for each in requests)


def _is_true(eviction: Object, kind: str) -> bool:
    conditions = eviction.get("status", {}).get("conditions", ())
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _has_ended(eviction: Object) -> bool:
    return _is_true(eviction, "TargetEvicted") or _is_true(eviction, "Failed")


def _condition(kind: str, status: str, reason: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
