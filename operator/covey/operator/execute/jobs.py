"""Writes the groups of labelled Jobs, and lets their pods go that have lost their places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.backends import Owned
from covey.kube.client import Client, Ignored
from covey.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Retryable
from covey.kube.events import EventRecorder, ObjectRef
from covey.kube.resources import JOBS, POD_GROUPS, PODS, WORKLOADS, Resource
from covey.observability.logging import get_logger
from covey.operator.model.job import (
    Job,
    Object,
    disruption,
    group_patch,
    has_lost_place,
    make_groups,
    make_leader_group,
)
from covey.operator.model.problem import REASON_NAME_TAKEN, REASON_REFUSED, is_denial

_log = get_logger(__name__)

#: Namespace and name.
Key = tuple[str, str]
Find = Callable[[Key], Owned | None]

#: Seconds until a name is tried again that another object has.
_TAKEN: Final = 5.0
#: And until what is denied is: a tenant may have ten thousand Jobs over a quota.
_DENIED: Final = 30.0


class JobGroups:
    """Makes, changes and deletes the groups of one Job.

    Args:
        client: to the API server.
        recorder: of Events.
        job: finds a labelled Job.
        groups: find its Workload and its PodGroup.
        pods: finds its pods.
    """

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        job: Callable[[Key], Job | None],
        groups: Mapping[Resource, Find],
        pods: Callable[[Key], Iterable[core.Pod]],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._job = job
        self._groups = groups
        self._pods = pods

    async def __call__(self, key: Key) -> None:
        """Bring the groups of a Job up to date; those of one that is gone go with it.

        Raises:
            KubeError: a request failed; it has to be tried again.
            Retryable: another object has the name of a group, or the API server denies it.
        """
        job = self._job(key)
        if job is None:
            return
        found = {kind: self._find(kind, job) for kind in (WORKLOADS, POD_GROUPS)}
        if not job.pod_count:
            # From the leaf up: a Workload says the order of groups that are there.
            for kind in (POD_GROUPS, WORKLOADS):
                await self._delete(kind, found[kind])
            return
        for kind, body in zip((WORKLOADS, POD_GROUPS), make_groups(job), strict=True):
            if found[kind] is None:
                await self._create(kind, body, job)
        group = found[POD_GROUPS]
        patch = group_patch(job, group, self._pods(key)) if group is not None else {}
        if group is not None and patch:
            body = {"metadata": {"uid": group.metadata.uid}, "spec": patch}
            await self._client.merge_patch(POD_GROUPS, key[1], key[0], body, type=Ignored)

    def _find(self, kind: Resource, job: Job) -> Owned | None:
        found = self._groups[kind](job.metadata.key)
        return found if found is not None and _is_of(found.metadata, job) else None

    async def _create(self, kind: Resource, body: Object, job: Job) -> None:
        try:
            await self._client.create(kind, body, type=Ignored)
        except AlreadyExists:
            found = await self._client.get(kind, job.metadata.name, job.metadata.namespace, type=Owned)
            if _is_of(found.metadata, job):
                return
            owner = found.metadata.controller
            if owner is None or (owner.kind, owner.name) != (JOBS.kind, job.metadata.name):
                why = "exists and is not of this Job, which cannot start: give it another name"
                self._warn(job, REASON_NAME_TAKEN, f"{kind.kind} {job.metadata.name} {why}")
            raise Retryable(_TAKEN, f"{kind.kind} {job.metadata.name} is somebody else's") from None
        except ApiError as error:
            if not is_denial(error):
                raise
            note = f"the API server denies the {kind.kind}, without which this Job cannot start: {error.message}"
            self._warn(job, REASON_REFUSED, note)
            raise Retryable(_DENIED, note) from None
        _log.info("group of a Job created", kind=kind.kind, namespace=job.metadata.namespace, job=job.metadata.name)

    def _warn(self, job: Job, reason: str, note: str) -> None:
        _warn(self._recorder, JOBS, job.metadata, reason, note)

    async def _delete(self, kind: Resource, found: Owned | None) -> None:
        if found is None or found.metadata.deletion_timestamp is not None:
            return
        try:
            await self._client.delete(kind, found.metadata.name, found.metadata.namespace, uid=found.metadata.uid)
        except (NotFound, Conflict):
            return


class LeaderGroups:
    """Makes the group of one leader of a LeaderWorkerSet; the garbage collector takes it with the leader.

    Args:
        client: to the API server.
        recorder: of Events.
        leader: finds the leader.
        group: finds the PodGroup of its name.
    """

    def __init__(
        self, client: Client, recorder: EventRecorder, leader: Callable[[Key], core.Pod | None], group: Find
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._leader = leader
        self._group = group

    async def __call__(self, key: Key) -> None:
        """Make the group unless it is there.

        Raises:
            KubeError: a request failed; it has to be tried again.
            Retryable: another leader, or somebody else, has a group of that name, or the API server denies it.
        """
        leader, found = self._leader(key), self._group(key)
        body = make_leader_group(leader) if leader is not None else None
        owner = found.metadata.controller if found is not None else None
        if leader is None or body is None or (owner is not None and owner.uid == leader.metadata.uid):
            return
        try:
            await self._client.create(POD_GROUPS, body, type=Ignored)
        except AlreadyExists:
            taken = (await self._client.get(POD_GROUPS, key[1], key[0], type=Owned)).metadata.controller
            if taken is None or (taken.kind, taken.name) != (PODS.kind, key[1]):
                note = f"PodGroup {key[1]} exists and is not of this leader, whose group cannot start: delete it, or rename"
                _warn(self._recorder, PODS, leader.metadata, REASON_NAME_TAKEN, f"{note} the LeaderWorkerSet")
            raise Retryable(_TAKEN, f"PodGroup {key[1]} is its predecessor's, or somebody else's") from None
        except ApiError as error:
            if not is_denial(error):
                raise
            note = (
                f"the API server denies the PodGroup, without which this leader's group cannot start: {error.message}"
            )
            _warn(self._recorder, PODS, leader.metadata, REASON_REFUSED, note)
            raise Retryable(_DENIED, note) from None


class JobPods:
    """Lets one pod of a Job go that has lost its place, so that the Job's controller makes a successor.

    Args:
        client: to the API server.
        find: a pod.
        clock: seconds since the epoch.
    """

    def __init__(self, client: Client, find: Callable[[Key], core.Pod | None], clock: Callable[[], float]) -> None:
        self._client = client
        self._find = find
        self._clock = clock

    async def __call__(self, key: Key) -> None:
        """Let the pod fail as disrupted, then delete it.

        Raises:
            KubeError: a request failed; it has to be tried again.
        """
        pod = self._find(key)
        if pod is None or not has_lost_place(pod):
            return
        meta = pod.metadata
        try:
            if not core.is_terminal(pod):
                # One that was bound after all is of another version.
                body = {
                    "apiVersion": PODS.api_version,
                    "kind": PODS.kind,
                    "metadata": {
                        "name": meta.name,
                        "namespace": meta.namespace,
                        "resourceVersion": meta.resource_version,
                    },
                    "status": disruption(pod, self._clock()),
                }
                manager = names.MANAGER_OPERATOR_STATUS
                await self._client.apply(PODS, body, manager=manager, subresource="status", type=Ignored)
            await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return
        _log.info("pod of a Job replaced", namespace=meta.namespace, pod=meta.name)


def _warn(recorder: EventRecorder, kind: Resource, meta: core.Meta, reason: str, note: str) -> None:
    regarding = ObjectRef(kind.api_version, kind.kind, meta.name, meta.namespace, meta.uid)
    recorder.event(regarding, "Warning", reason, note, "Gang")


def _is_of(found: core.Meta, job: Job) -> bool:
    return found.controller is not None and found.controller.uid == job.metadata.uid


__all__ = ["JobGroups", "JobPods", "LeaderGroups"]
