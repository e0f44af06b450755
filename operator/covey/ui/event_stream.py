"""One viewer's state, kept current and given to all of the viewer's streams."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from covey import __version__
from covey.api.core import rfc3339
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.errors import Forbidden, KubeError, Unauthorized
from covey.kube.resources import SELF_SUBJECT_REVIEWS
from covey.observability.logging import get_logger
from covey.ui import contract
from covey.ui.leaders import draw_leaders, find_all_absences
from covey.ui.limits import DEFAULT, PageLimits
from covey.ui.view_state import ViewBuilder
from covey.ui.viewer_watches import ViewerWatches
from covey.watching.advice import Advice
from covey.watching.presence import Lease, read_leases

_log = get_logger(__name__)

#: Drawing may take this part of the time.
_SHARE: Final = 0.2
_ACCOUNT: Final = "system:serviceaccount:"


class Ended(Exception):  # noqa: N818 - named for what happened
    """The feed has ended; the text is for the viewer, who may open it anew."""


class Expired(Ended):
    """The viewer's credentials are not good any more."""


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A viewer, as the API server knows it; ``home``: the namespace of a service account."""

    name: str = ""
    home: str | None = None


async def review_user(client: Client) -> UserInfo:
    """Ask the API server whose credentials a client has.

    Raises:
        Unauthorized: nobody's.
        KubeError: the API server does not answer.
    """
    try:
        answer = await client.create(SELF_SUBJECT_REVIEWS, {}, type=_Review)
    except Forbidden:
        return UserInfo()
    name = answer.status.user_info.username
    home = name.removeprefix(_ACCOUNT).partition(":")[0] if name.startswith(_ACCOUNT) else None
    return UserInfo(name, home)


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Subject(msgspec.Struct, rename="camel", frozen=True):
    user_info: _User = _User()


class _Review(msgspec.Struct, frozen=True):
    status: _Subject = _Subject()


class EventStream:
    """The queue of changes for one open page."""

    def __init__(self, snapshot: Callable[[], bytes], most: int) -> None:
        self._snapshot = snapshot
        self._most = most
        self._changes: deque[bytes] = deque()
        self._whole = True
        self._ended: Ended | None = None
        self._wake = asyncio.Event()
        self._wake.set()

    def push(self, change: bytes) -> None:
        """Push a change; where too many wait already, a whole state takes their place."""
        if self._whole:
            return
        self._changes.append(change)
        if len(self._changes) > self._most:
            self.restart()
        self._wake.set()

    def restart(self) -> None:
        """Send the whole state next."""
        self._changes.clear()
        self._whole = True
        self._wake.set()

    def end(self, why: Ended) -> None:
        """End the stream: nothing more comes."""
        self._ended = why
        self._wake.set()

    async def next(self) -> tuple[str, bytes]:
        """The next event, ``snapshot`` or ``change``, with its JSON.

        Raises:
            Ended: nothing more comes.
        """
        while True:
            if self._ended is not None:
                raise self._ended
            if self._whole:
                self._whole = False
                return "snapshot", self._snapshot()
            if self._changes:
                return "change", self._changes.popleft()
            self._wake.clear()
            await self._wake.wait()


@dataclass(frozen=True, slots=True)
class ViewScope:
    """The part of a cluster that is looked at, and by which door."""

    mode: contract.SignInMode
    #: Empty for all namespaces.
    namespaces: Sequence[str] = ()
    #: The namespace to look at where all of them are not allowed.
    fallback: str | None = None
    #: The name of the cluster, where it has one.
    cluster: str = ""


class ViewerFeed:
    """The view of one viewer.

    Args:
        client: with the viewer's credentials; closed with the feed.
        who: the viewer.
        view: what is looked at.
        limits: bounds.
        clock: the time.
    """

    def __init__(
        self,
        client: Client,
        who: UserInfo,
        view: ViewScope,
        *,
        clock: Clock,
        limits: PageLimits = DEFAULT,
    ) -> None:
        self.client = client
        self.used_at = clock.monotonic()
        self._who = who
        self._view = view
        self._server = ""
        self._limits = limits
        self._clock = clock
        self._board = ViewBuilder(view.namespaces)
        self._dirty = asyncio.Event()
        self._drawn = asyncio.Event()
        self._streams: set[EventStream] = set()
        self._ended: Ended | None = None
        self._head: dict[str, Any] = {}
        self._leases: tuple[Lease, ...] | None = None
        self._absences: tuple[Advice, ...] = ()
        self._readings = ViewerWatches(
            *(client, view.namespaces, who.home or view.fallback, self._board, self._dirty.set, limits.recheck, clock)
        )

    @property
    def streams(self) -> int:
        """Open streams."""
        return len(self._streams)

    @property
    def readings(self) -> ViewerWatches:
        """The collections that are read, and those that are denied."""
        return self._readings

    async def run(self) -> None:
        """Read, draw and send until cancelled, or until the viewer's credentials are not good any more."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._readings.run())
                group.create_task(self._draw())
                group.create_task(self._look_for_leaders())
        except BaseExceptionGroup as errors:
            self._ended = _why(errors)
        finally:
            self._ended = self._ended or Ended("the server has closed this view; open it anew")
            self._end(self._ended)
            await self.client.close()

    def _end(self, why: Ended) -> None:
        self._drawn.set()
        for stream in self._streams:
            stream.end(why)

    async def ready(self) -> None:
        """Wait for the first state.

        Raises:
            Expired: the viewer's credentials are not good any more.
            Ended: the server could not go on, or has closed the feed.
            KubeError: the API server does not answer.
        """
        try:
            async with asyncio.timeout(self._limits.patience):
                await self._drawn.wait()
        except TimeoutError:
            raise self._readings.lost or KubeError("the API server takes too long to answer") from None
        if self._ended is not None:
            raise self._ended

    def snapshot(self) -> bytes:
        """The JSON of the whole state."""
        return msgspec.json.encode(self.state())

    def state(self) -> contract.ViewState:
        """The whole state."""
        parts = self._board.parts()
        head = self._heading()
        return contract.ViewState(
            **head,
            now=rfc3339(self._clock.wall()),
            topology=parts.topology,
            resource=parts.resource,
            device=parts.device,
            scale=parts.scale,
            warnings=parts.warnings,
            nodes=parts.nodes,
            gangs=parts.gangs,
            foreign=parts.foreign,
            pods=parts.pods,
            waiting=parts.waiting,
        )

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[EventStream]:
        """A stream of changes, which begins with the whole state.

        Raises:
            Ended: as for ``ready``.
            KubeError: likewise.
        """
        stream = EventStream(self.snapshot, self._limits.behind)
        self._streams.add(stream)
        try:
            await self.ready()
            yield stream
        finally:
            self._streams.discard(stream)
            self.used_at = self._clock.monotonic()

    async def _draw(self) -> None:
        version = asyncio.create_task(self._ask_version())
        await self._readings.wait_until_read()
        await version
        while True:
            began = self._clock.monotonic()
            self._dirty.clear()
            patch = self._board.change()
            head = self._heading()
            patch |= {name: value for name, value in head.items() if self._head.get(name) != value}
            self._head = head
            if not self._drawn.is_set():
                for stream in self._streams:
                    stream.restart()
                self._drawn.set()
            elif patch and self._streams:
                change = msgspec.json.encode({**patch, "now": rfc3339(self._clock.wall())})
                for stream in self._streams:
                    stream.push(change)
            spent = self._clock.monotonic() - began
            await asyncio.sleep(max(self._limits.pace, spent / _SHARE))
            await self._dirty.wait()

    async def _look_for_leaders(self) -> None:
        """Read the leases again and again: that nobody renews one is no event."""
        await self._readings.wait_until_read()
        while True:
            try:
                self._leases = await read_leases(self.client)
            except Unauthorized:
                raise
            except KubeError as error:
                _log.debug("leases cannot be read", error=str(error))
            self._absences = find_all_absences(self._board.stored(), self._leases, self._clock.wall())
            self._dirty.set()
            await asyncio.sleep(self._limits.recheck)

    async def _ask_version(self) -> None:
        try:
            self._server = str((await self.client.version()).get("gitVersion", ""))
        except KubeError as error:
            _log.debug("the server does not tell its version", error=str(error))

    def _heading(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "server": self._server,
            "cluster": self._view.cluster,
            "viewer": contract.Viewer(self._who.name, self._view.mode, self._readings.namespaces),
            "denied": tuple(self._readings.denials()),
            "leaders": draw_leaders(self._leases, self._clock.wall()),
            "absences": self._absences,
        }


def _why(errors: BaseExceptionGroup[BaseException]) -> Ended:
    if errors.subgroup(Unauthorized) is not None:
        return Expired("the API server does not take these credentials any more")
    _log.error("a view has failed", exc_info=errors)
    return Ended("the server could not go on with this view; open it anew")
