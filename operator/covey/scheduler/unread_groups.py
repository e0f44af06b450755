"""Pods whose group is of a form that is not read: reported by an Event on each, and by a metric."""

from __future__ import annotations

from covey.admission.native import find_unread
from covey.api import core
from covey.api.constants import REASON_UNSUPPORTED
from covey.kube.event_series import ObjectRef
from covey.observability import scheduler_metrics as metrics
from covey.scheduler.cache import Listener
from covey.scheduler.context import Context


class UnreadGroups:
    """Reports pods whose group is of a form that is not read, since it has no status: by an Event on each, and a metric."""

    def __init__(self, context: Context) -> None:
        self._recorder = context.recorder
        self._leads = context.leads
        self._pods: dict[str, core.Pod] = {}
        context.cache.subscribe(Listener(pod=self._look_at, gone=self._forget))

    def begin(self) -> None:
        """Report those that were there before this process led."""
        for pod in self._pods.values():
            self._report(pod)

    def _look_at(self, pod: core.Pod) -> None:
        if find_unread(pod) is None:
            self._forget(pod)
        elif self._pods.setdefault(pod.metadata.uid, pod) is pod and self._leads():
            self._report(pod)

    def _forget(self, pod: core.Pod) -> None:
        if self._pods.pop(pod.metadata.uid, None) is not None and self._leads():
            metrics.UNREAD_GROUPS.set(len(self._pods))

    def _report(self, pod: core.Pod) -> None:
        meta = pod.metadata
        metrics.UNREAD_GROUPS.set(len(self._pods))
        about = ObjectRef("v1", "Pod", meta.name, meta.namespace, meta.uid)
        self._recorder.event(about, "Warning", REASON_UNSUPPORTED, find_unread(pod) or "", "Admit")
