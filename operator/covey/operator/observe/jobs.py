"""Live copies of labelled Jobs, of their groups, and of their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.backends import Owned
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.reflector import Reflector
from covey.kube.resources import JOBS, POD_GROUPS, PODS, WORKLOADS
from covey.kube.watch import DELETED, EventType
from covey.operator.model.job import Job, has_lost_place
from covey.operator.model.job_queue import is_pinned, own_pods
from covey.operator.observe.watched import Key, Watched

#: The index of pods by their Job.
_JOB: Final = "job"
_MEMBERS: Final = f"{names.LABEL_POD_GROUP},{names.LABEL_JOB_NAME}"


class Jobs:
    """Jobs are many, and few of them gangs: the API server selects them, which Kopf would not have it do.

    Args:
        client: to the API server.
        namespaces: where they are looked for; empty means everywhere.
        look_at: has a Job looked at.
        replace: has a pod replaced that has lost its place.
        clock: the time.
    """

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str],
        look_at: Callable[[Key], None],
        replace: Callable[[Key], None],
        *,
        clock: Clock,
    ) -> None:
        label = names.LABEL_JOB_GANG
        self.jobs = Watched(client, JOBS, Job, namespaces, clock=clock, labels=label)
        self.groups = {
            kind: Watched(client, kind, Owned, namespaces, clock=clock, labels=label)
            for kind in (WORKLOADS, POD_GROUPS)
        }
        self.pods = Watched(client, PODS, core.Pod, namespaces, clock=clock, labels=_MEMBERS)
        self._look_at = look_at
        self._replace = replace
        kinds: tuple[Watched[Any], ...] = (self.jobs, *self.groups.values())
        for watched in kinds:
            watched.subscribe(self._on_change)
        for reflector in self.pods.reflectors:
            reflector.add_index(_JOB, _job_of)
        self.pods.subscribe(self._on_pod)
        self.reflectors: list[Reflector[Any]] = [
            reflector for kind in (*kinds, self.pods) for reflector in kind.reflectors
        ]

    async def run(self) -> None:
        """Keep everything current until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())

    async def wait_until_synced(self) -> None:
        """Wait until everything has been listed once."""
        for reflector in self.reflectors:
            await reflector.synced.wait()

    def pods_of(self, key: Key) -> Iterator[core.Pod]:
        """The pods of a Job, or of a namesake."""
        return (pod for reflector in self.pods.reflectors for pod in reflector.by_index(_JOB, key))

    def goes_whole(self, pod: core.Pod) -> bool:
        """Tell whether a pod goes with all of its gang, since Covey suspends the Job: its controller counts no failure then."""
        jobs = (self.jobs.get(key) for key in _job_of(pod))
        return any(job is not None and job.is_managed and not self._runs(job) for job in jobs)

    def _runs(self, job: Job) -> bool:
        pods = own_pods(job, self.pods_of(job.metadata.key))
        return any(pod.spec.node_name and not core.is_terminal(pod) for pod in pods)

    def _on_change(self, _kind: EventType, item: Any, _before: Any) -> None:
        # The groups of a Job have its name.
        self._look_at(item.metadata.key)

    def _on_pod(self, kind: EventType, pod: core.Pod, before: core.Pod | None) -> None:
        was, now = (_progress(state) if state is not None else None for state in (before, pod))
        if kind == DELETED or was != now:
            for key in _job_of(pod):
                self._look_at(key)
        if has_lost_place(pod):
            self._replace(pod.metadata.key)


def _progress(pod: core.Pod) -> tuple[object, ...]:
    """What of a pod counts for whether its gang runs."""
    return pod.spec.node_name, is_pinned(pod), has_lost_place(pod), core.is_terminal(pod)


def _job_of(pod: core.Pod) -> tuple[Key, ...]:
    name = pod.metadata.label(names.LABEL_JOB_NAME)
    return ((pod.metadata.namespace, name),) if name else ()
