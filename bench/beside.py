"""What goes on beside what ``bench.life`` measures: other resources, ordinary pods, and a kubelet that loads models."""

from __future__ import annotations

import contextlib
import random
import time

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from bench.stage import PODS, Bench, role
from localcluster import Background, Cluster, concurrently


class Load(Background):
    """Ordinary pods that come and go through the same kube-scheduler; none where there shall be 0 per second."""

    def __init__(self, bench: Bench, per_second: float) -> None:
        super().__init__()
        self._bench = bench
        self._pause = 1 / per_second if per_second else None

    def _run(self) -> None:
        generator, number = random.Random(1), 0
        names: list[str] = []
        while not self.ended.wait(self._pause):
            number += 1
            body = {
                "metadata": {"name": f"plain-{number}"},
                "spec": {
                    "schedulerName": "covey-scheduler",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "job", "image": "registry.test/job:1"}],
                },
            }
            with contextlib.suppress(ApiException, HTTPError):
                self._bench.cluster.api("POST", PODS, body)
                names.append(body["metadata"]["name"])
                if len(names) > 100:
                    self._delete(names.pop(generator.randrange(len(names))))
        for name in names:
            with contextlib.suppress(ApiException):
                self._delete(name)

    def _delete(self, name: str) -> None:
        self._bench.cluster.api("DELETE", f"{PODS}/{name}")


def fill(bench: Bench, count: int) -> None:
    """Resources of 12 pods each that run beside."""
    roles = [
        role("prefill", 2, size=2, topology={"required": "rack"}),
        role("decode", 4, size=2, topology={"required": "rack"}),
    ]
    concurrently(lambda number: bench.create(f"beside-{number}", roles, topology={"required": "block"}), range(count))
    concurrently(lambda number: bench.await_serving(f"beside-{number}", 6), range(count), threads=4)


class Kubelet(Background):
    """Says of each bound pod that it is Ready, a fixed time after it was bound."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        super().__init__()
        self._cluster = cluster
        self._seconds = seconds

    def _run(self) -> None:
        due: dict[str, tuple[float, str]] = {}
        done: set[str] = set()
        seen = 0
        with self._cluster.record(PODS) as recording:
            while not self.ended.wait(0.02):
                events, times = recording.events[seen:], recording.times[seen:]
                seen += len(events)
                for (_, pod), at in zip(events, times, strict=False):
                    if pod["spec"].get("nodeName") and pod["metadata"]["uid"] not in done:
                        due.setdefault(pod["metadata"]["uid"], (at + self._seconds, pod["metadata"]["name"]))
                for uid, (at, name) in list(due.items()):
                    if at <= time.monotonic():
                        del due[uid]
                        done.add(uid)
                        self._start(uid, name)

    def _start(self, uid: str, name: str) -> None:
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        body = {"metadata": {"uid": uid}, "status": status}
        with contextlib.suppress(ApiException):
            self._cluster.api("PATCH", f"{PODS}/{name}/status", body, patch="strategic")
