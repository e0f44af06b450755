"""Probes for the fields that backends need: dry runs, since the API server drops a gated field silently."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from covey.api.inference import BackendName
from covey.backends import BACKENDS, Cluster, FieldProbe
from covey.kube.client import Client
from covey.kube.errors import KubeError, NotFound
from covey.kube.resources import PODS, Resource
from covey.observability import operator_metrics as metrics
from covey.observability.logging import get_logger

_log = get_logger(__name__)

#: Seconds after which everything is asked again: an API server may come back with other feature gates.
_AGAIN: Final = 300.0
#: Seconds after which what could not be asked is.
_SOON: Final = 10.0
#: Of the pod that is created in a dry run: one that every cluster has.
IMAGE: Final = "registry.k8s.io/pause:3.10"


class Probing:
    """The answers to the probes of all enabled backends.

    Args:
        client: to the API server.
        namespace: where probes are created, in a dry run; Covey may create there.
        image: that policies let a pod have there.
        backends: those that are enabled.
        unserved: kinds that the API server does not know now; what is asked of those has no answer.
        on_change: called when answers have changed.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        backends: Collection[BackendName],
        unserved: Callable[[], frozenset[Resource]],
        on_change: Callable[[], None],
        *,
        image: str = IMAGE,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._image = image
        self._enabled = frozenset(backends)
        self._unserved = unserved
        self._on_change = on_change
        asked = (probe for backend in BACKENDS if backend.name in self._enabled for probe in backend.probes())
        self._probes = tuple({probe.name: probe for probe in asked}.values())
        for probe in self._probes:
            metrics.PROBES_UNANSWERED.labels(probe.name).set(0)
        self._stale = asyncio.Event()
        self._kept: frozenset[str] = frozenset()
        self._unprobed: dict[str, str] = {}
        #: By name of a probe, its last answer: a dry run that fails later says nothing of the field.
        self._known: dict[str, bool] = {}
        self._is_complete = False
        #: Set once all that is served has been asked about.
        self.asked = asyncio.Event()
        if not self._probes:
            self.asked.set()

    def cluster(self, unserved: frozenset[Resource]) -> Cluster:
        """Kinds and fields that the cluster has; ``unserved`` are the kinds that it does not serve."""
        return Cluster(unserved, self._kept, self._unprobed, self._enabled)

    def stale(self) -> None:
        """Have everything asked again: the API server serves a kind more, or one less."""
        self._stale.set()

    async def run(self) -> None:
        """Ask at once, after every change, and at intervals, until cancelled."""
        while self._probes:
            self._stale.clear()
            await self._ask_all()
            self.asked.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stale.wait(), _AGAIN if self._is_complete else _SOON)

    async def _ask_all(self) -> None:
        unserved = self._unserved()
        probes = [probe for probe in self._probes if probe.resource not in unserved]
        answers = await asyncio.gather(*map(self._ask, probes))
        failed = {probe.name: answer for probe, answer in zip(probes, answers, strict=True) if isinstance(answer, str)}
        for probe in self._probes:
            metrics.PROBES_UNANSWERED.labels(probe.name).set(probe.name in failed)
        before = {name: answer for name, answer in self._known.items() if name in failed}
        known = {
            probe.name: answer for probe, answer in zip(probes, answers, strict=True) if not isinstance(answer, str)
        }
        self._known, self._is_complete = {**before, **known}, not failed
        kept = frozenset(name for name, answer in self._known.items() if answer)
        unprobed = {name: problem for name, problem in failed.items() if name not in before}
        if before:
            _log.warning("probes failed, their last answers are kept", failed={name: failed[name] for name in before})
        changed = (kept, unprobed) != (self._kept, self._unprobed)
        self._kept, self._unprobed = kept, unprobed
        if changed:
            _log.info("probed", kept=sorted(kept), unprobed=unprobed)
            self._on_change()

    async def _ask(self, probe: FieldProbe) -> bool | str:
        """Ask whether a field is kept; return the reason where that is not known."""
        body = _in_namespace(probe, self._namespace, self._image)
        try:
            answer: Mapping[str, Any] = await self._client.create(probe.resource, body, dry_run=True)
        except NotFound as error:
            # Of a kind that is not served nothing is kept; that there is no such namespace is no answer.
            return str(error) if error.details.get("kind") == "namespaces" else False
        except KubeError as error:
            return str(error)
        return _holds(answer, probe.path)


def _in_namespace(probe: FieldProbe, namespace: str, image: str) -> dict[str, Any]:
    """The body of a probe as policies let it pass."""
    body: dict[str, Any] = deepcopy(dict(probe.body))
    body["metadata"]["namespace"] = namespace
    if probe.resource == PODS:
        for container in body["spec"]["containers"]:
            container["image"] = image
    return body


def _holds(answer: object, path: Sequence[str | int]) -> bool:
    for step in path:
        try:
            answer = answer[step]  # type: ignore[index] # whatever it is, it has no such step then
        except (LookupError, TypeError):
            return False
    return True
