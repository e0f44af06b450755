"""Writes pods, one request at a time. A pod that has gone meanwhile is no error; a denied write is noted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.compile import Owner, PodFactory, ReplicaKey
from covey.compile.identity import Slot, hostname, slot_of
from covey.compile.network import HIDDEN
from covey.kube import resources
from covey.kube.client import Client, Ignored
from covey.kube.errors import AlreadyExists, ApiError, Conflict, Invalid, KubeError, NotFound, Retryable
from covey.model import podstate
from covey.observability.logging import get_logger
from covey.operator.execute.denials import Denials
from covey.operator.execute.put import put_images
from covey.operator.model.actions import CreatePod, DeletePod, Drain, Relabel, Serve, Ungate, UpdateInPlace
from covey.operator.model.observed import is_ours
from covey.operator.model.problem import Blocked, of_pod_refusal

_log = get_logger(__name__)

#: Successors that are tried when the name of one is taken by a pod of ours that is on its way out.
_GENERATIONS = 3
#: Versions of a pod that are tried one after the other, where a write goes by what the pod is: others write meanwhile.
_VERSIONS = 5


def _ignore(_written: object) -> None:
    """Take no notice of a write."""


@dataclass(frozen=True, slots=True)
class PodCallbacks:
    """Calls that follow writes of pods, so that what the watch does not show yet is known.

    ``created``: with every pod that was created. ``deleting``: with every pod whose deletion is about to be asked for.
    ``deletion_failed``: with the UID of every pod whose deletion has failed, as far as that is known. ``deleted``: with every
    deletion that the API server has accepted. ``changed``: with every pod whose labels or images were changed.
    """

    created: Callable[[core.Pod], None] = _ignore
    deleting: Callable[[core.Pod], None] = _ignore
    deletion_failed: Callable[[str], None] = _ignore
    deleted: Callable[[DeletePod], None] = _ignore
    changed: Callable[[core.Pod], None] = _ignore


NO_CALLBACKS: Final = PodCallbacks()


class InferencePodWriter:
    """Writes the pods of one resource.

    Args:
        client: to the API server.
        owner: the resource.
        now: seconds since the epoch.
        denials: where denials are noted.
        callbacks: called after writes.
    """

    def __init__(self, client: Client, owner: Owner, now: float, denials: Denials, callbacks: PodCallbacks) -> None:
        self._client = client
        self._owner = owner
        self._now = now
        self._denials = denials
        self._callbacks = callbacks
        #: Places whose pod has kept an address that it should have lost: nobody else may have it.
        self.addressed: set[Slot | None] = set()
        #: Pairings that pods have kept and should have lost (None where they have none): others make them whole.
        self.unpaired: set[str | None] = set()
        #: Whether routers take pods of which they should not, or not those that they should: others do their work.
        self.unswitched = False
        #: Replicas of which a mark was denied: nothing would say for whom they go, so they stay.
        self._unmarked: set[ReplicaKey | None] = set()
        self._relabelled: dict[str, core.Pod] = {}

    async def relabel(self, action: Relabel) -> None:
        """Change labels and annotations of a pod."""
        metadata = action.pod.metadata
        try:
            changed = await self._label(metadata, action.labels, action.annotations)
        except ApiError as error:
            if await self._is_gone(metadata, error):
                return
            self._denials.add("labels", metadata, error)
            if names.LABEL_PAIRING in action.labels:
                self.unpaired.add(metadata.label(names.LABEL_PAIRING))
            self.unswitched |= HIDDEN in {
                labels.get(names.LABEL_ENDPOINT) for labels in (action.labels, metadata.labels or {})
            }
            if action.labels.get(names.LABEL_ADDRESS, "") is None:
                self.addressed.add(slot_of(action.pod.spec.hostname))
        else:
            self._relabelled[metadata.uid] = changed
            self._callbacks.changed(changed)

    async def _is_gone(self, metadata: core.Meta, error: ApiError) -> bool:
        """Tell whether a write failed because the pod has gone: a conflict may also mean that an object is busy."""
        if isinstance(error, NotFound):
            _log.debug("pod has gone", pod=metadata.name)
            return True
        return isinstance(error, Conflict) and await self._find(metadata) is None

    async def _find(self, metadata: core.Meta) -> core.Pod | None:
        """Read this very pod again, None if it has gone: a conflict may mean another incarnation, or a new version."""
        try:
            pod = await self._client.get(resources.PODS, metadata.name, self._owner.namespace, type=core.Pod)
        except NotFound:
            pod = None
        if pod is not None and pod.metadata.uid == metadata.uid:
            return pod
        _log.debug("pod has gone", pod=metadata.name)
        return None

    async def _label(
        self,
        metadata: core.Meta,
        labels: Mapping[str, str | None],
        annotations: Mapping[str, str | None] | None = None,
    ) -> core.Pod:
        # A UID in a patch is a precondition.
        patch = {"metadata": {"uid": metadata.uid, "labels": dict(labels), "annotations": dict(annotations or {})}}
        return await self._client.merge_patch(
            resources.PODS, metadata.name, self._owner.namespace, patch, type=core.Pod
        )

    async def drain(self, action: Drain) -> None:
        """Mark a pod: it gets no more requests."""
        metadata = action.pod.metadata
        labels = {names.LABEL_DRAINING: "true", names.LABEL_ENDPOINT: None, **dict.fromkeys(action.withdrawn)}
        annotations = {
            names.ANNOTATION_DRAINING_SINCE: core.rfc3339(action.since),
            names.ANNOTATION_DRAIN_UNTIL: core.rfc3339(action.until),
        }
        if action.claimed_by:
            annotations[names.ANNOTATION_CLAIMED_BY] = action.claimed_by
        patch = {"metadata": {"uid": metadata.uid, "labels": labels, "annotations": annotations}}
        try:
            await self._client.merge_patch(resources.PODS, metadata.name, self._owner.namespace, patch, type=Ignored)
        except ApiError as error:
            if not await self._is_gone(metadata, error):
                self._denials.add("mark", metadata, error)
                self._unmarked.add(podstate.replica_of(action.pod))

    async def serve(self, action: Serve) -> None:
        """Set the readiness gate of a pod."""
        metadata = action.pod.metadata
        condition = {
            "type": names.GATE_SERVING,
            "status": "True" if action.serving else "False",
            "reason": "Serving" if action.serving else "Draining",
            "lastTransitionTime": core.rfc3339(self._now),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": metadata.name, "namespace": self._owner.namespace, "uid": metadata.uid},
            "status": {"conditions": [condition]},
        }
        try:
            await self._client.apply(
                resources.PODS, body, manager=names.MANAGER_OPERATOR_STATUS, subresource="status", type=Ignored
            )
        except ApiError as error:
            if not await self._is_gone(metadata, error):
                self._denials.add("readiness", metadata, error)

    async def update_in_place(self, action: UpdateInPlace) -> None:
        """Give a pod other images."""
        metadata = action.pod.metadata
        try:
            changed = await put_images(self._client, action)
        except ApiError as error:
            if not await self._is_gone(metadata, error):
                self._denials.add("images", metadata, error)
        else:
            if changed is not None:
                self._callbacks.changed(changed)
                _log.info("images of pod changed", pod=metadata.name, revision=action.revision)

    async def ungate(self, action: Ungate) -> None:
        """Remove a gate of a pod, and add the node selector that confines it.

        Raises:
            Conflict: others changed the pod each time that it was tried.
        """
        pod = action.pod
        for _ in range(_VERSIONS):
            try:
                await self._client.json_patch(
                    resources.PODS, pod.metadata.name, self._owner.namespace, _ungating(pod, action), type=Ignored
                )
            except Invalid as error:
                # A test that fails has no code of its own: the scheduler process has removed its gate before this one,
                # or an earlier pass has let the pod go. Of a version that was read and has not changed it is a denial.
                stored = await self._find(pod.metadata)
                if stored is None or action.gate not in core.gates(stored):
                    return
                if stored.metadata.resource_version == pod.metadata.resource_version:
                    self._denials.add("release", pod.metadata, error)
                    return
                pod = stored
            except ApiError as error:
                if not await self._is_gone(pod.metadata, error):
                    self._denials.add("release", pod.metadata, error)
                return
            else:
                return
        raise Conflict(409, "Conflict", f"pod {pod.metadata.name} was changed at the same time")

    async def delete(self, action: DeletePod) -> None:
        """Delete this incarnation, unless a mark of its replica was denied; one that did not serve only as long as it does not.

        Raises:
            Conflict: it has begun to serve since the snapshot, so that the budget may need it; or it is busy.
            KubeError: the request failed for another reason than a denial.
        """
        metadata = action.pod.metadata
        if podstate.replica_of(action.pod) in self._unmarked:
            return
        self._callbacks.deleting(action.pod)
        try:
            taken = await self._delete(action.pod)
        except KubeError as error:
            # Where the answer was lost it may go all the same: that the watch will show.
            self._callbacks.deletion_failed(metadata.uid)
            if not isinstance(error, ApiError):
                raise
            self._denials.add("deletion", metadata, error)
            if podstate.is_addressed(self._relabelled.get(metadata.uid, action.pod)):
                self.addressed.add(slot_of(action.pod.spec.hostname))
            return
        if taken:
            self._callbacks.deleted(action)
            labels = {key: metadata.label(f"covey.dev/{key}") for key in ("unit", "role", "replica")}
            _log.info("pod deleted", pod=metadata.name, why=action.why, **labels)

    async def _delete(self, seen: core.Pod) -> bool:
        """Ask for the deletion; return False where the pod has gone already."""
        metadata, idle = seen.metadata, may_begin_to_serve(seen)
        now: core.Pod | None = self._relabelled.get(metadata.uid, seen)
        for _ in range(_VERSIONS if idle else 1):
            if now is None:
                return False
            if idle and podstate.is_ready(now):
                raise Conflict(409, "Conflict", f"pod {metadata.name} serves by now")
            version = now.metadata.resource_version if idle else None
            try:
                await self._client.delete(
                    resources.PODS, metadata.name, metadata.namespace, uid=metadata.uid, version=version
                )
            except NotFound:
                return False
            except Conflict:
                now = await self._find(metadata)
            else:
                return True
        if now is None:
            return False
        raise Conflict(409, "Conflict", f"pod {metadata.name} was changed at the same time")

    async def create(self, creation: CreatePod, factory: PodFactory, group: Callable[[], str]) -> None:
        """Create the pod of a place.

        Args:
            creation: the place, and the pod that was there before.
            factory: builds it.
            group: the UID of its group, by which the first pod of a place is named.

        Raises:
            Blocked: the API server takes no such pod.
            Retryable: its name is still taken.
        """
        predecessor = creation.predecessor or group()
        for _ in range(_GENERATIONS):
            body = factory.build(creation.slot, predecessor, creation.told)
            try:
                created = await self._client.create(resources.PODS, body, type=core.Pod)
            except AlreadyExists:
                taken_by = await self._occupant(creation, body["metadata"]["name"])
                if taken_by is None:
                    return
                predecessor = taken_by
            except ApiError as error:
                problem = of_pod_refusal(error)
                if problem is None:
                    raise
                raise Blocked(problem) from error
            else:
                self._callbacks.created(created)
                return
        raise Retryable(1.0, f"no free name for pod {hostname(creation.slot)}")

    async def _occupant(self, creation: CreatePod, name: str) -> str | None:
        """Find the pod that has the name: return None if it is the one that was to be created, else its UID.

        That UID is the predecessor from which the next name is made.
        """
        try:
            pod = await self._client.get(resources.PODS, name, self._owner.namespace, type=core.Pod)
        except NotFound:
            raise Retryable(0.1, f"pod {name} is on its way out") from None
        if not is_ours(pod.metadata, self._owner) or pod.spec.hostname != hostname(creation.slot):
            return pod.metadata.uid
        if podstate.is_dead(pod) or podstate.is_released(pod):
            await self._label(pod.metadata, {names.LABEL_ADDRESS: None})
            return pod.metadata.uid
        self._callbacks.created(pod)
        return None


def may_begin_to_serve(pod: core.Pod) -> bool:
    """Tell whether a pod that did not serve when it was seen may begin to: it lives, and is not draining."""
    return not (podstate.is_ready(pod) or podstate.is_dead(pod) or podstate.is_draining(pod))


def _ungating(pod: core.Pod, action: Ungate) -> list[dict[str, Any]]:
    """List the operations on a pod that has the gate: JSON patches know the items of a list by their index alone."""
    at = f"/spec/schedulingGates/{[gate.name for gate in pod.spec.scheduling_gates or ()].index(action.gate)}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": f"{at}/name", "value": action.gate},
        *_confining(pod, action.confined),
        {"op": "remove", "path": at},
    ]


def _confining(pod: core.Pod, confined: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Add keys to the node selector: those of a gated pod may get more, and none may change (KEP-3838)."""
    selected = pod.spec.node_selector
    more = {key: value for key, value in confined.items() if key not in (selected or {})}
    if more and selected is None:
        yield {"op": "add", "path": "/spec/nodeSelector", "value": more}
        return
    for key, value in more.items():
        escaped = key.replace("~", "~0").replace("/", "~1")
        yield {"op": "add", "path": f"/spec/nodeSelector/{escaped}", "value": value}
