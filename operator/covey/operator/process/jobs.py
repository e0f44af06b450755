"""Gangs of others within the operator's process: caches always, what is written only while it leads.

Jobs and LeaderWorkerSets, whose groups the operator makes; and pods of groups of ``scheduling.k8s.io``, which other
controllers make.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.backends import Owned
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.events import EventRecorder
from covey.kube.queue import WorkQueue, run_workers
from covey.kube.reflector import Reflector, expose
from covey.kube.resources import POD_GROUPS, PODS
from covey.kube.watch import EventType
from covey.operator.model.job import has_lost_place
from covey.operator.observe.jobs import Jobs
from covey.operator.observe.resource_quotas import NamespaceQuotas, QuotaRoom
from covey.operator.observe.watched import Key, Watched
from covey.operator.process.job_groups import JobGroups, JobPods, LeaderGroups

#: Workers of each kind: a Job has two groups, and a gang that is released has many pods.
_WORKERS: Final = 2
#: Seconds of silence after which a watch no longer counts as alive: a bookmark is due every minute.
_SILENCE: Final = 240.0


class JobGangs:
    """Caches and queues of labelled Jobs.

    Args:
        client: to the API server, for watches.
        namespaces: where Jobs are looked for; empty means everywhere.
        clock: the time.
        quotas: of all namespaces.
        unsettled: tells whether a resource of a namespace may need its room first.
    """

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str],
        clock: Clock,
        quotas: NamespaceQuotas,
        unsettled: Callable[[str], bool],
    ) -> None:
        self._clock = clock
        self._quotas = quotas
        self._unsettled = unsettled
        self._jobs: WorkQueue[Key] = WorkQueue("job", clock=clock.monotonic, share_of=lambda key: key[0])
        self._pods: WorkQueue[Key] = WorkQueue("job-pod", clock=clock.monotonic, share_of=lambda key: key[0])
        self._leads = False
        self._found = Jobs(
            *(client, namespaces, partial(self._add, self._jobs), partial(self._add, self._pods)), clock=clock
        )

    async def run(self) -> None:
        """Keep the caches current until cancelled."""
        expose(self._found.jobs.reflectors)
        await self._found.run()

    async def work(self, client: Client, recorder: EventRecorder) -> None:
        """Work the queues until cancelled; only the process that leads does."""
        caches = self._found
        await caches.wait_until_synced()
        self._leads = True
        for job in caches.jobs.every():
            self._jobs.add(job.metadata.key)
        for pod in filter(has_lost_place, caches.pods.every()):
            self._pods.add(pod.metadata.key)
        room = QuotaRoom(client, self._quotas, self._unsettled, self._look_again)
        kinds = {kind: watched.get for kind, watched in caches.groups.items()}
        groups = JobGroups(
            *(client, recorder, caches.jobs.get, kinds, caches.pods_of, room, self._look_again), self._clock.wall
        )
        pods = JobPods(client, caches.pods.get, self._clock.wall, caches.goes_whole)
        async with asyncio.TaskGroup() as group:
            group.create_task(run_workers(self._jobs, groups, _WORKERS))
            group.create_task(run_workers(self._pods, pods, _WORKERS))

    def is_alive(self) -> bool:
        """Tell whether every watch has been heard of lately (``_are_alive``)."""
        return _are_alive(self._found.reflectors)

    def _look_again(self, key: Key, seconds: float) -> None:
        self._jobs.add_after(key, seconds)

    def _add(self, queue: WorkQueue[Key], key: Key) -> None:
        # Nobody empties the queues of a process that waits to lead, and names of Jobs and pods do not come again.
        if self._leads:
            queue.add(key)


class LostPlaces:
    """Replaces pods of others' controllers that have lost their places.

    Args:
        pods: which of them.
        clock: the time.
    """

    def __init__(self, pods: Watched[core.Pod], clock: Clock) -> None:
        self._clock = clock
        self._queue: WorkQueue[Key] = WorkQueue("member", clock=clock.monotonic, share_of=lambda key: key[0])
        self._leads = False
        self._pods = pods
        pods.subscribe(self._on_pod)

    @classmethod
    def of_native_groups(cls, client: Client, namespaces: Sequence[str], clock: Clock) -> LostPlaces:
        """Lost places of groups of ``scheduling.k8s.io``: no selector finds their pods, but those have no node."""
        return cls(Watched(client, PODS, core.Pod, namespaces, clock=clock, fields="spec.nodeName="), clock)

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._pods.reflectors:
                group.create_task(reflector.run())

    async def work(self, client: Client, _recorder: EventRecorder) -> None:
        """Work the queue until cancelled; only the process that leads does."""
        for reflector in self._pods.reflectors:
            await reflector.synced.wait()
        self._leads = True
        for pod in list(self._pods.every()):
            self._on_pod("ADDED", pod, None)
        await run_workers(self._queue, JobPods(client, self._pods.get, self._clock.wall), _WORKERS)

    def is_alive(self) -> bool:
        """Tell whether the watch has been heard of lately (``_are_alive``)."""
        return _are_alive(self._pods.reflectors)

    def _on_pod(self, _kind: EventType, pod: core.Pod, _before: core.Pod | None) -> None:
        if self._leads and has_lost_place(pod):
            self._queue.add(pod.metadata.key)


class LeaderWorkerSets:
    """Makes a group for each leader whose template has the label ``covey.dev/gang``, and replaces pods of it.

    Args:
        client: to the API server, for the watches.
        namespaces: where pods are looked for; empty means everywhere.
        clock: the time.
    """

    def __init__(self, client: Client, namespaces: Sequence[str], clock: Clock) -> None:
        # Covey's own pods may have the labels of LeaderWorkerSet as well.
        gang = f"{names.LABEL_GANG},{names.LABEL_GANG}!=false"
        labels = f"{names.LABEL_LWS_NAME},{gang},!{names.LABEL_INFERENCE}"
        self._queue: WorkQueue[Key] = WorkQueue("leader", clock=clock.monotonic, share_of=lambda key: key[0])
        self._leads = False
        self._pods = Watched(client, PODS, core.Pod, namespaces, clock=clock, labels=labels)
        self._groups = Watched(client, POD_GROUPS, Owned, namespaces, clock=clock, labels=names.LABEL_JOB_GANG)
        self._lost = LostPlaces(self._pods, clock)
        self._pods.subscribe(self._on_pod)
        self._groups.subscribe(self._on_group)

    async def run(self) -> None:
        """Keep the caches current until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lost.run())
            for reflector in self._groups.reflectors:
                group.create_task(reflector.run())

    async def work(self, client: Client, recorder: EventRecorder) -> None:
        """Work the queues until cancelled; only the process that leads does."""
        synced = [reflector.synced for reflector in self._pods.reflectors] + [
            reflector.synced for reflector in self._groups.reflectors
        ]
        for event in synced:
            await event.wait()
        self._leads = True
        for pod in list(self._pods.every()):
            self._on_pod("ADDED", pod, None)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lost.work(client, recorder))
            made = LeaderGroups(client, recorder, self._pods.get, self._groups.get, self._worker_of)
            group.create_task(run_workers(self._queue, made, _WORKERS))

    def is_alive(self) -> bool:
        """Tell whether every watch has been heard of lately (``_are_alive``)."""
        return self._lost.is_alive() and _are_alive(self._groups.reflectors)

    def _worker_of(self, leader: Key) -> core.Pod | None:
        """The youngest worker that names a leader, whose own pod may lack the label."""
        named = (pod for pod in self._pods.every() if (pod.metadata.namespace, _leader_of(pod)) == leader)
        return max(named, key=lambda pod: pod.metadata.creation_timestamp, default=None)

    def _on_pod(self, kind: EventType, pod: core.Pod, before: core.Pod | None) -> None:
        is_new = before is None or before.metadata.uid != pod.metadata.uid
        if self._leads and is_new and kind != "DELETED":
            self._queue.add((pod.metadata.namespace, _leader_of(pod)))

    def _on_group(self, kind: EventType, group: Owned, _before: Owned | None) -> None:
        if self._leads and kind == "DELETED":
            self._queue.add(group.metadata.key)


def _leader_of(pod: core.Pod) -> str:
    """The name of the leader of a pod's group; its own where it is the leader."""
    return pod.metadata.annotation(names.ANNOTATION_LWS_LEADER) or pod.metadata.name


def _are_alive(reflectors: Sequence[Reflector[Any]]) -> bool:
    """Tell whether watches have been heard of lately, once everything has been listed.

    Until then nobody makes groups, which is no reason to end a process that does much else.
    """
    return any(not reflector.synced.is_set() for reflector in reflectors) or all(
        reflector.silence < _SILENCE for reflector in reflectors
    )
