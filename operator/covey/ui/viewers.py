"""The present viewers: a feed for each, of a bounded number."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from covey import __version__
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.connection import Connection
from covey.ui.contract import SignInMode
from covey.ui.event_stream import UserInfo, ViewerFeed, ViewScope, review_user
from covey.ui.limits import DEFAULT, PageLimits

#: As many as are needed at once: each collection of each namespace has a watch of its own.
_UNBOUNDED: Final = 0


class Busy(Exception):  # noqa: N818 - named for what happened
    """So many look already; the text is for the viewer."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Identity as which a viewer is served: ``identity`` tells viewers apart and is no secret."""

    identity: str
    connection: Connection


def identity_of(token: str) -> str:
    """A hash of a token, which tells its holder from others; the token cannot be had from it."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(slots=True)
class _Entry:
    #: The name that the API server gave, whatever token it came with.
    viewer: str
    #: The namespace of a service account; None for anybody else.
    tenant: str | None
    feed: ViewerFeed
    task: asyncio.Task[None]


Key = tuple[str, tuple[str, ...]]


class Viewers:
    """The feeds there are.

    Args:
        mode: how viewers get in.
        cluster: the name of the cluster, where it has one.
        namespaces: what is looked at where a viewer does not say; empty for all that is allowed.
        fallback: the namespace to look at where all of them are not allowed.
        limits: bounds.
        clock: the time.
    """

    def __init__(
        self,
        mode: SignInMode,
        *,
        cluster: str = "",
        namespaces: tuple[str, ...] = (),
        fallback: str | None = None,
        limits: PageLimits = DEFAULT,
        clock: Clock,
    ) -> None:
        self.mode = mode
        self.limits = limits
        self._cluster = cluster
        self._namespaces = namespaces
        self._fallback = fallback
        self._clock = clock
        self._entries: dict[Key, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    async def feed(self, credentials: Credentials, namespaces: Sequence[str] | None) -> ViewerFeed:
        """The feed of a viewer; a new one where there is none.

        Args:
            credentials: the viewer's.
            namespaces: what is looked at; empty for all that is allowed, None for what is looked at by default.

        Raises:
            Busy: too many feeds, of this viewer or of all, or too many streams of this one.
            KubeError: the credentials are not good, or the API server does not answer.
        """
        key = (credentials.identity, tuple(sorted(set(self._namespaces if namespaces is None else namespaces))))
        entry = self._entries.get(key)
        if entry is None or entry.task.done():
            entry = await self._open(key, credentials)
        if entry.feed.streams >= self.limits.streams:
            raise Busy("this view is open too often; close some of its pages")
        entry.feed.used_at = self._clock.monotonic()
        return entry.feed

    async def tenant(self, credentials: Credentials) -> str | None:
        """The namespace of a viewer who is a service account; None for anybody else, and where there is one viewer.

        Raises:
            KubeError: the credentials are not good, or the API server does not answer.
        """
        if self.mode is not SignInMode.TOKEN:
            return None
        for (identity, _), entry in self._entries.items():
            if identity == credentials.identity:
                return entry.tenant
        async with new_client(credentials.connection) as client:
            return (await review_user(client)).home

    async def run(self) -> None:
        """Close the feeds at which nobody looks any more, until cancelled; then all of them."""
        try:
            while True:
                await asyncio.sleep(min(self.limits.idle, 5.0))
                self._sweep(self.limits.idle)
        finally:
            tasks = [entry.task for entry in self._entries.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._entries.clear()

    async def _open(self, key: Key, credentials: Credentials) -> _Entry:
        client = new_client(credentials.connection)
        try:
            who = await review_user(client)
            entry = self._entries.get(key)
            if entry is not None and not entry.task.done():
                await client.close()
                return entry
            self._make_room(who.name or key[0], who.home)
        except BaseException:
            await client.close()
            raise
        return self._begin(key, client, who)

    def _begin(self, key: Key, client: Client, who: UserInfo) -> _Entry:
        feed = ViewerFeed(
            client,
            who,
            ViewScope(self.mode, key[1], self._fallback, self._cluster),
            limits=self.limits,
            clock=self._clock,
        )
        task = asyncio.create_task(feed.run())
        entry = self._entries[key] = _Entry(who.name or key[0], who.home, feed, task)
        task.add_done_callback(lambda _: self._entries.pop(key, None) if self._entries.get(key) is entry else None)
        return entry

    def _make_room(self, viewer: str, tenant: str | None) -> None:
        """Let go of feeds that nobody looks at, the longest first, where there is no room for another of a viewer's."""
        limits = self.limits
        own = [key for key, entry in self._entries.items() if entry.viewer == viewer]
        self._leave(own, limits.views, f"you look at {limits.views} other views; close some of them")
        if tenant is not None:
            accounts = {key: entry.tenant for key, entry in self._entries.items() if entry.tenant is not None}
            beside = [key for key, of_tenant in accounts.items() if of_tenant == tenant]
            refusal = f"the service accounts of {tenant} look at {limits.tenant_feeds} views; close some of them"
            self._leave(beside, limits.tenant_feeds, refusal)
            refusal = f"{limits.account_feeds} views of service accounts are open; try again later"
            self._leave([key for key in accounts if key in self._entries], limits.account_feeds, refusal)
        self._leave(list(self._entries), self.limits.feeds, f"{self.limits.feeds} views are open; try again later")

    def _leave(self, keys: Sequence[Key], most: int, otherwise: str) -> None:
        idle = sorted((entry.feed.used_at, key) for key in keys if not (entry := self._entries[key]).feed.streams)
        excess = len(keys) - most + 1
        if excess > len(idle):
            raise Busy(otherwise)
        for _, key in idle[: max(0, excess)]:
            self._entries.pop(key).task.cancel()

    def _sweep(self, age: float) -> None:
        now = self._clock.monotonic()
        for entry in list(self._entries.values()):
            if not entry.feed.streams and now - entry.feed.used_at > age:
                entry.task.cancel()


def new_client(connection: Connection) -> Client:
    """A client of the UI's."""
    return Client(connection, user_agent=f"covey-ui/{__version__}", connections=_UNBOUNDED)
