"""Writes the groups of labelled Jobs, resumes and suspends these, and lets pods go that have lost their places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.api.annotations import Expected, dump_expected, read_expected
from covey.backends import Owned
from covey.kube.client import Client, Ignored
from covey.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Retryable
from covey.kube.event_series import ObjectRef
from covey.kube.events import EventRecorder
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
from covey.operator.model.job_queue import JobStep, Turn, judge_turn, make_probe, own_pods, resume, suspend
from covey.operator.model.problem import REASON_NAME_TAKEN, REASON_REFUSED, is_denial, of_pod_refusal
from covey.operator.resource_quota.balance import Demand, QuotaShortage
from covey.operator.resource_quota.charge import PodCharge

_log = get_logger(__name__)

#: Namespace and name.
Key = tuple[str, str]
Find = Callable[[Key], Owned | None]

#: Seconds until a name is tried again that another object has.
_TAKEN: Final = 5.0
#: Until a Job is looked at again whose quota somebody else may need first.
_SOON: Final = 0.5
#: And until what is denied is: a tenant may have ten thousand Jobs over a quota.
_DENIED: Final = 30.0


class JobRoom(Protocol):
    """The ResourceQuotas of namespaces, of which Jobs take as DisaggregatedInferences do."""

    async def charge(self, namespace: str, pod: core.Pod) -> PodCharge:
        """What quotas charge for a pod."""

    def find_shortages(self, key: Key, demand: Demand) -> tuple[QuotaShortage, ...]:
        """Find what quotas lack for the pods of a Job; it is woken when that may have changed."""

    def reserve(self, key: Key, demand: Demand) -> None:
        """Keep quota for pods of a Job that are about to come."""

    def forget(self, key: Key) -> None:
        """Keep nothing for a Job, and do not wake it."""

    def take(self, key: Key, demand: Demand) -> AbstractAsyncContextManager[bool]:
        """Be the only one that creates pods in a namespace, and keep quota for those of a Job; False where it has none."""


class JobGroups:
    """Makes, changes and deletes the groups of one Job, and resumes and suspends it.

    Args:
        client: to the API server.
        recorder: of Events.
        job: finds a labelled Job.
        groups: find its Workload and its PodGroup.
        pods: finds its pods.
        room: the ResourceQuotas of namespaces.
        again: has a Job looked at again in some seconds.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        job: Callable[[Key], Job | None],
        groups: Mapping[Resource, Find],
        pods: Callable[[Key], Iterable[core.Pod]],
        room: JobRoom,
        again: Callable[[Key, float], None],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._job = job
        self._groups = groups
        self._pods = pods
        self._room = room
        self._again = again
        self._clock = clock

    async def __call__(self, key: Key) -> None:
        """Bring the groups of a Job up to date; those of one that is gone go with it.

        Raises:
            KubeError: a request failed; it has to be tried again.
            Retryable: another object has the name of a group, or the API server denies it.
        """
        job = self._job(key)
        if job is None or not job.pod_count:
            self._room.forget(key)
        if job is None:
            return
        groups = {kind: self._find(kind, job) for kind in (WORKLOADS, POD_GROUPS)}
        if not job.pod_count:
            # From the leaf up: a Workload says the order of groups that are there.
            for kind in (POD_GROUPS, WORKLOADS):
                await self._delete(kind, groups[kind])
            return
        # 1. Judge whose turn it is.
        group = groups[POD_GROUPS]
        turn = judge_turn(job, self._pods(key), self._clock()) if job.is_managed else Turn(JobStep.RUN)
        if turn.again is not None:
            self._again(key, turn.again)
        # 2. Look for quota; places are looked for by the scheduler process, which reads of the pods on the group.
        expected = await self._expect(job, group, turn)
        # 3. Write the groups.
        for kind, body in zip((WORKLOADS, POD_GROUPS), make_groups(job, expected), strict=True):
            if groups[kind] is None:
                await self._create(kind, body, job)
        patch = group_patch(job, group, expected) if group is not None else {}
        if group is not None and patch:
            patch["metadata"] = {"uid": group.metadata.uid, **patch.get("metadata", {})}
            await self._client.merge_patch(POD_GROUPS, key[1], key[0], patch, type=Ignored)
        # 4. Resume what has quota and places; suspend what gives up.
        if turn.step is JobStep.ASK and expected is not None and not expected.waits and _has_places(group, expected):
            await self._resume(job, expected)
        elif turn.step is JobStep.SUSPEND:
            self._room.forget(key)
            await self._change(
                job, suspend(job, self._clock()), "GangSuspended", f"{turn.why}: it waits without pods again"
            )

    async def _expect(self, job: Job, group: Owned | None, turn: Turn) -> Expected | None:
        """The pods that a Job would have, and what keeps them from being looked for; quota is reserved for what is to come."""
        key = job.metadata.key
        stored = read_expected(group.metadata.annotation(names.ANNOTATION_EXPECTED)) if group is not None else None
        if turn.step is JobStep.REST:
            self._room.forget(key)
            return Expected(waits=turn.why)
        if turn.step not in {JobStep.ASK, JobStep.RESERVE}:
            self._room.forget(key)
            return None
        pod = (stored.pod if stored is not None else None) or await self._ask_for_pod(job)
        charge = await self._room.charge(job.metadata.namespace, pod)
        if turn.step is JobStep.RESERVE:
            there = len(own_pods(job, self._pods(key)))
            self._room.reserve(key, {charge: max(0, job.minimum - there)})
            return Expected(pod) if not _makes_claims(pod) else None
        short = self._room.find_shortages(key, {charge: job.minimum})
        return Expected(pod, _describe(short, job), names.REASON_QUOTA_EXCEEDED) if short else Expected(pod)

    async def _ask_for_pod(self, job: Job) -> core.Pod:
        """A pod of a Job as the API server would store it; as it is written where quota, or a webhook, does not let it tell."""
        body = make_probe(job)
        try:
            return await self._client.create(PODS, body, dry_run=True, type=core.Pod)
        except ApiError as error:
            problem = of_pod_refusal(error)
            if problem is None and not is_denial(error):
                raise
            if problem is not None and problem.reason != names.REASON_QUOTA_EXCEEDED:
                note = f"the API server denies its pods, so it stays suspended: {problem.message}"
                self._warn(job, problem.reason, note)
                raise Retryable(_DENIED, note) from None
            return msgspec.convert(body, core.Pod)

    async def _resume(self, job: Job, expected: Expected) -> None:
        """Let the pods come, if quota has room for them now as well."""
        key, pod = job.metadata.key, expected.pod
        assert pod is not None
        demand = {await self._room.charge(job.metadata.namespace, pod): job.minimum}
        async with self._room.take(key, demand) as fits:
            if not fits:
                self._again(key, _SOON)
                return
            note = f"nodes are reserved for the {job.minimum} pods of its minimum"
            await self._change(job, resume(job, self._clock()), "GangResumed", note)

    async def _change(self, job: Job, patch: Object, reason: str, note: str) -> None:
        try:
            await self._client.merge_patch(JOBS, job.metadata.name, job.metadata.namespace, patch, type=Ignored)
        except (NotFound, Conflict):
            self._room.forget(job.metadata.key)
            return  # it is looked at again as it is by now
        except ApiError as error:
            self._room.forget(job.metadata.key)
            if not is_denial(error):
                raise
            refusal = f"the API server does not let Covey change it: {error.message}"
            self._warn(job, REASON_REFUSED, refusal)
            raise Retryable(_DENIED, refusal) from None
        meta = job.metadata
        _log.info(reason.lower(), namespace=meta.namespace, job=meta.name, why=note)
        regarding = ObjectRef(JOBS.api_version, JOBS.kind, meta.name, meta.namespace, meta.uid)
        self._recorder.event(regarding, "Normal", reason, note, "Gang")

    def _find(self, kind: Resource, job: Job) -> Owned | None:
        owned = self._groups[kind](job.metadata.key)
        return owned if owned is not None and _is_of(owned.metadata, job) else None

    async def _create(self, kind: Resource, body: Object, job: Job) -> None:
        try:
            await self._client.create(kind, body, type=Ignored)
        except AlreadyExists:
            owned = await self._client.get(kind, job.metadata.name, job.metadata.namespace, type=Owned)
            if _is_of(owned.metadata, job):
                return
            owner = owned.metadata.controller
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

    async def _delete(self, kind: Resource, owned: Owned | None) -> None:
        if owned is None or owned.metadata.deletion_timestamp is not None:
            return
        try:
            await self._client.delete(kind, owned.metadata.name, owned.metadata.namespace, uid=owned.metadata.uid)
        except (NotFound, Conflict):
            return


class LeaderGroups:
    """Makes the group of one leader of a LeaderWorkerSet; the garbage collector takes it with the leader.

    Args:
        client: to the API server.
        recorder: of Events.
        leader: finds the leader, if it has the label.
        group: finds the PodGroup of its name.
        worker: finds a worker that names a leader, and has the label.
    """

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        leader: Callable[[Key], core.Pod | None],
        group: Find,
        worker: Callable[[Key], core.Pod | None],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._leader = leader
        self._group = group
        self._worker = worker

    async def __call__(self, key: Key) -> None:
        """Make the group unless it is there.

        Raises:
            KubeError: a request failed; it has to be tried again.
            Retryable: another leader, or somebody else, has a group of that name, or the API server denies it.
        """
        leader, group = self._leader(key), self._group(key)
        if leader is None:
            await self._tell_unlabelled(key)
        body = make_leader_group(leader) if leader is not None else None
        owner = group.metadata.controller if group is not None else None
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

    async def _tell_unlabelled(self, key: Key) -> None:
        """Say of a worker that its leader has no label, so that nobody makes their group."""
        worker = self._worker(key)
        if worker is None:
            return
        try:
            leader = await self._client.get(PODS, key[1], key[0], type=core.Pod)
        except NotFound:
            return
        if leader.metadata.label(names.LABEL_GANG) in {None, "false"}:
            note = (
                f"leader {key[1]} lacks the label {names.LABEL_GANG}, which this worker has, so that their group is not made"
                " and the worker waits: give spec.leaderWorkerTemplate.leaderTemplate the label, or take it from workerTemplate"
            )
            _warn(self._recorder, PODS, worker.metadata, names.REASON_UNSUPPORTED, note)


class JobPods:
    """Lets one pod of a Job go that has lost its place, so that the Job's controller makes a successor.

    Args:
        client: to the API server.
        find: a pod.
        clock: seconds since the epoch.
        goes: tells of a pod whether it goes anyway, with the whole of its gang.
    """

    def __init__(
        self,
        client: Client,
        find: Callable[[Key], core.Pod | None],
        clock: Callable[[], float],
        goes: Callable[[core.Pod], bool] = lambda _pod: False,
    ) -> None:
        self._client = client
        self._find = find
        self._clock = clock
        self._goes = goes

    async def __call__(self, key: Key) -> None:
        """Let the pod fail as disrupted, then delete it.

        Raises:
            KubeError: a request failed; it has to be tried again.
        """
        pod = self._find(key)
        if pod is None or not has_lost_place(pod) or self._goes(pod):
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


def _has_places(group: Owned | None, expected: Expected) -> bool:
    """Tell whether places are reserved; nobody can look for those of pods whose claims are made after them."""
    if expected.pod is not None and _makes_claims(expected.pod):
        return True
    if group is None or group.metadata.annotation(names.ANNOTATION_EXPECTED) != dump_expected(expected):
        return False
    admitted = core.condition(group.status.conditions, names.ADMITTED)
    return admitted is not None and admitted.reason == names.REASON_RESERVED


def _makes_claims(pod: core.Pod) -> bool:
    return any(map(_template_of, pod.spec.resource_claims or ()))


def _template_of(claim: Mapping[str, Any]) -> str:
    return claim.get("resourceClaimTemplateName") or ""


def _describe(short: Sequence[QuotaShortage], job: Job) -> str:
    return f"{'; '.join(map(str, short[:3]))}; the {job.minimum} pods of its minimum come together: raise the quota, or ask for less"


def _is_of(meta: core.Meta, job: Job) -> bool:
    return meta.controller is not None and meta.controller.uid == job.metadata.uid
