"""Gangs of Jobs within the operator's process: their caches always, their groups only while it leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from covey.kube.client import Client
from covey.kube.events import EventRecorder
from covey.kube.queue import WorkQueue, run_workers
from covey.kube.reflector import expose
from covey.operator.execute.jobs import JobGroups, JobPods
from covey.operator.model.job import has_lost_place
from covey.operator.observe.jobs import Jobs
from covey.operator.observe.watched import Key

#: Workers of each kind: a Job has two groups, and a gang that is released has many pods.
_WORKERS: Final = 2
#: Seconds of silence after which a watch no longer counts as alive: a bookmark is due every minute.
_SILENCE: Final = 240.0


class JobGangs:
    """Caches and queues of labelled Jobs.

    Args:
        client: to the API server, for watches.
        namespaces: where Jobs are looked for; empty means everywhere.
    """

    def __init__(self, client: Client, namespaces: Sequence[str]) -> None:
        self._jobs: WorkQueue[Key] = WorkQueue("job", share_of=lambda key: key[0])
        self._pods: WorkQueue[Key] = WorkQueue("job-pod", share_of=lambda key: key[0])
        self._leads = False
        self._found = Jobs(client, namespaces, partial(self._add, self._jobs), partial(self._add, self._pods))

    async def run(self) -> None:
        """Keep the caches current until cancelled."""
        expose(self._found.jobs.reflectors)
        await self._found.run()

    async def work(self, client: Client, recorder: EventRecorder) -> None:
        """Work the queues until cancelled; only the process that leads does."""
        found = self._found
        await found.wait_until_synced()
        self._leads = True
        for job in found.jobs.every():
            self._jobs.add(job.metadata.key)
        for pod in filter(has_lost_place, found.pods.every()):
            self._pods.add(pod.metadata.key)
        kinds = {kind: each.get for kind, each in found.groups.items()}
        groups = JobGroups(client, recorder, found.jobs.get, kinds, found.pods_of)
        async with asyncio.TaskGroup() as group:
            group.create_task(run_workers(self._jobs, groups, _WORKERS))
            group.create_task(run_workers(self._pods, JobPods(client, found.pods.get, time.time), _WORKERS))

    def is_alive(self) -> bool:
        """Tell whether every watch has been heard of lately, once everything has been listed.

        Until then nobody makes groups, which is no reason to end a process that does much else.
        """
        reflectors = self._found.reflectors
        return any(not each.synced.is_set() for each in reflectors) or all(
            each.silence < _SILENCE for each in reflectors
        )

    def _add(self, queue: WorkQueue[Key], key: Key) -> None:
        # Nobody empties the queues of a process that waits to lead, and names of Jobs and pods do not come again.
        if self._leads:
            queue.add(key)
