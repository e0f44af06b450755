"""The three patches that the scheduler process sends to pods: pin, release, wake. The pod's UID is a precondition of each.

A pin holds for one version of the pod: after a Conflict the pod is read again to know what happened, and an answer that
was lost is found out the same way.

A patch that was sent is seen through, whatever becomes of the task that wanted it: only so can a process that ends
know that nothing of it is under way any more (``wait_until_idle``).
"""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from covey.admission import obstacles
from covey.api import core
from covey.api.constants import ANNOTATION_RELEASE, ANNOTATION_WAKE
from covey.kube.client import Client, Ignored
from covey.kube.clock import Clock
from covey.kube.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    LeaseLost,
    NotFound,
    Unreachable,
)
from covey.kube.resources import PODS
from covey.kube.turns import Rank, Turns
from covey.model import podstate
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.scheduler.pin import Patch, annotate_patch, pin_patch
from covey.scheduler.ranks import MARK, RELEASE

log = get_logger(__name__)


#: Attempts at one pin, and the seconds before the second; the wait doubles. About 25 s in all.
ATTEMPTS: Final = 8
FIRST_WAIT: Final = 0.2
#: Seconds for one patch, repetitions on the way included. A holder of the lease stops acting 5 s before anybody else
#: may take it, so what it sent last has come, or never will, by then.
PATIENCE: Final = 5.0
#: A patch that is invalid this often for a pod that was just read is refused for another reason.
REFUSALS: Final = 3
#: How the wake annotation ends while a barrier holds a bind call for the pod, and when it holds it no more.
ARRIVED: Final = ".arrived"
LEFT: Final = ".left"
#: Seconds after which a barrier writes its mark again.
RENEW: Final = 20.0
#: Releases that are remembered so as not to be sent twice.
REMEMBERED: Final = 10_000


def says_arrived(pod: core.Pod) -> bool:
    """A barrier, perhaps another replica's, says that it holds a bind call for the pod."""
    return (pod.metadata.annotation(ANNOTATION_WAKE) or "").endswith(ARRIVED)


class Pinned(Enum):
    """The outcome of a pin. ``DENIED``: the API server does not take it, although the pod has not changed."""

    DONE = "done"
    GONE = "gone"
    CONFLICT = "conflict"
    DROPPED = "dropped"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class PinResult:
    """The outcome of a pin, and, where it was denied, the server's words."""

    outcome: Pinned
    said: str = ""


class PodWriter:
    """Sends patches, at most ``in_flight`` at once; releases before pins, and pins by the rank of their gangs."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        in_flight: int = 64,
    ) -> None:
        self._client = client
        self._may: Callable[[], bool] = _always
        self._under_way: set[asyncio.Task[Ignored]] = set()
        self.turns = Turns(in_flight)
        self._sleep = clock.sleep
        self._clock = clock.wall
        #: UIDs of pods that were released and may not look it in the cache yet; the oldest are forgotten.
        self._released: OrderedDict[str, None] = OrderedDict()

    def while_leading(self, leads: Callable[[], bool]) -> Self:
        """The same writer for decisions: before each patch it is asked whether this process still leads."""
        twin = copy.copy(self)
        twin._may = leads  # noqa: SLF001 - of its own class
        return twin

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no patch is under way, for at most so long; False when some still are."""
        if not self._under_way:
            return True
        _, left = await asyncio.wait(self._under_way, timeout=seconds)
        return not left

    def forget(self, pod: core.Pod) -> None:
        """The pod is gone: nothing about it need be known any more."""
        self._released.pop(pod.metadata.uid, None)

    async def pin(
        self,
        pod: core.Pod,
        node: str,
        domains: Mapping[str, str],
        dropped: Callable[[], bool] = lambda: False,
        *,
        rank: Rank = (),
        dry_run: bool = False,
    ) -> PinResult:
        """Pin a pod and lift its gate. Nothing is sent any more once ``dropped`` says so, or the lease is lost.

        With ``dry_run`` the API server only says whether it would take the pin.
        """
        refused = 0
        said = ""
        for attempt in range(ATTEMPTS):
            try:
                async with self.turns.take(rank):
                    if dropped() or not self._may():
                        return PinResult(Pinned.DROPPED)
                    await self._send(pod, pin_patch(pod, node, domains, self._clock()), dry_run=dry_run)
            except NotFound:
                return PinResult(Pinned.GONE)
            except KubeError as error:
                refused += isinstance(error, Invalid)
                changed = isinstance(error, Conflict)
                said = _words(error)
                final = _final(error)
                log.info("pin failed", namespace=pod.metadata.namespace, pod=pod.metadata.name, error=str(error))
            else:
                return PinResult(Pinned.DONE)
            before = pod.metadata.resource_version
            verdict, pod = await self._look_again(pod, node)
            if verdict is not None:
                return PinResult(verdict)
            if refused >= REFUSALS or (final and pod.metadata.resource_version == before):
                break
            if not (refused or changed) and attempt + 1 < ATTEMPTS:
                await self._sleep(FIRST_WAIT * 2**attempt)
        return PinResult(Pinned.DENIED, said)

    async def release(self, pod: core.Pod, reason: str) -> bool:
        """Ask the operator to replace an unbound pod. False when it is bound, gone, or released already."""
        uid = pod.metadata.uid
        if podstate.is_released(pod) or pod.spec.node_name is not None or uid in self._released:
            return False
        self._released[uid] = None
        if len(self._released) > REMEMBERED:
            self._released.popitem(last=False)
        done = await self._annotate(pod, {ANNOTATION_RELEASE: reason}, RELEASE)
        if not done:
            self._released.pop(uid, None)
        else:
            metrics.PODS_RELEASED.labels(reason).inc()
            log.info("pin released", namespace=pod.metadata.namespace, pod=pod.metadata.name, reason=reason)
        return done

    async def wake(self, pod: core.Pod, mark: str) -> bool:
        """Touch a pod that the guard refused, so that kube-scheduler looks at it again."""
        return await self._annotate(pod, {ANNOTATION_WAKE: mark}, MARK)

    async def read(self, pod: core.Pod) -> core.Pod | None:
        """The pod as it is now; None when this incarnation is gone."""
        try:
            found = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace, type=type(pod))
        except NotFound:
            return None
        return found if found.metadata.uid == pod.metadata.uid else None

    async def _annotate(self, pod: core.Pod, annotations: Mapping[str, str], rank: Rank) -> bool:
        """Set annotations; False when this incarnation is gone, or may not be written."""
        meta = pod.metadata
        try:
            await self._patch(pod, annotate_patch(pod, annotations), rank)
        except (NotFound, Conflict, Invalid, LeaseLost):
            return False
        except KubeError as error:
            log.warning("annotation failed", namespace=meta.namespace, pod=meta.name, error=str(error))
            return False
        return True

    async def _patch(self, pod: core.Pod, body: Patch, rank: Rank) -> None:
        async with self.turns.take(rank):
            if not self._may():
                raise LeaseLost(f"pod {pod.metadata.name} is left to whoever leads now")
            await self._send(pod, body)

    async def _send(self, pod: core.Pod, body: Patch, *, dry_run: bool = False) -> None:
        """Send one patch, and see it through even when the caller is cancelled."""
        meta = pod.metadata
        sending = self._client.merge_patch(PODS, meta.name, meta.namespace, body, dry_run=dry_run, type=Ignored)
        task = asyncio.get_running_loop().create_task(_within(PATIENCE, sending))
        self._under_way.add(task)
        task.add_done_callback(self._on_task_end)
        await asyncio.shield(task)

    def _on_task_end(self, task: asyncio.Task[Ignored]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be left to look at it

    async def _look_again(self, pod: core.Pod, node: str) -> tuple[Pinned | None, core.Pod]:
        """Read the pod again after a failed pin: a verdict, or None and the pod as it is now, to try again with."""
        try:
            latest = await self.read(pod)
        except KubeError:
            return None, pod
        if latest is None:
            return Pinned.GONE, pod
        if node in {podstate.pinned_node(latest), latest.spec.node_name}:
            return Pinned.DONE, latest
        if not podstate.counts(latest) or obstacles.obstacle(latest) is not None:
            return Pinned.CONFLICT, latest
        return None, latest


def _always() -> bool:
    return True


async def _within(seconds: float, sending: Awaitable[Ignored]) -> Ignored:
    try:
        async with asyncio.timeout(seconds):
            return await sending
    except TimeoutError as error:
        raise Unreachable(f"no answer within {seconds:g} s") from error


def _final(error: KubeError) -> bool:
    """The same patch of the same version of the pod would be denied again."""
    return isinstance(error, BadRequest | Forbidden | Invalid)


def _words(error: KubeError) -> str:
    """The API server's words, as people should read them."""
    return (error.message if isinstance(error, ApiError) else "") or str(error)
