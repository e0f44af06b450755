"""How many views there are, and whose: nobody can take the page away from others by having many names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from covey.kube.clock import SYSTEM
from covey.kube.connection import Connection
from covey.kube.kubeconfig_guards import Configuration
from covey.ui.contract import Mode
from covey.ui.feed import Feed, Who
from covey.ui.headers import Limits
from covey.ui.viewers import Busy, Credentials, Viewers, identity_of


class Standing:
    """A feed with a stream, at which somebody looks."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.streams, self.used_at = 1, 0.0

    async def run(self) -> None:
        await asyncio.sleep(3600)


@pytest.fixture
async def viewers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Viewers]:
    """Views whose viewers are named by their tokens; the API server is not asked."""
    names: list[str] = []

    async def ask(_client: object) -> Who:
        return Who(names[-1], names[-1].split(":")[2] if ":" in names[-1] else None)

    monkeypatch.setattr("covey.ui.viewers.ask_who", ask)
    monkeypatch.setattr("covey.ui.viewers.Feed", Standing)
    found = Viewers(Mode.TOKEN, limits=Limits(feeds=6, views=3, tenant_feeds=2, account_feeds=4), clock=SYSTEM)
    found.names = names  # type: ignore[attr-defined] # for ``look``
    sweeping = asyncio.create_task(found.run())
    yield found
    sweeping.cancel()
    with suppress(asyncio.CancelledError):
        await sweeping


async def look(viewers: Viewers, name: str, namespaces: Sequence[str] = ()) -> Feed:
    viewers.names.append(name)  # type: ignore[attr-defined]
    return await viewers.feed(
        Credentials(identity_of(name), Connection(Configuration(host="http://127.0.0.1:1"))), namespaces
    )


def account(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


async def test_many_accounts_of_one_namespace_are_one_viewer(viewers: Viewers) -> None:
    await look(viewers, account("evil", "a"))
    await look(viewers, account("evil", "b"))
    with pytest.raises(Busy, match="the service accounts of evil look at 2 views"):
        await look(viewers, account("evil", "c"))
    await look(viewers, account("good", "a"))


async def test_whose_namespace_a_viewer_is_of_is_asked_once(viewers: Viewers) -> None:
    def credentials(name: str) -> Credentials:
        return Credentials(identity_of(name), Connection(Configuration(host="http://127.0.0.1:1")))

    await look(viewers, account("ours", "a"))
    viewers.names.append("on-call")  # type: ignore[attr-defined] # who is asked for from here on
    assert await viewers.tenant(credentials(account("ours", "a"))) == "ours"
    assert await viewers.tenant(credentials("on-call")) is None
    viewers.names.append(account("evil", "b"))  # type: ignore[attr-defined]
    assert await viewers.tenant(credentials(account("evil", "b"))) == "evil"


async def test_users_find_room_whatever_accounts_there_are(viewers: Viewers) -> None:
    for namespace in ("a", "b", "c", "d"):
        await look(viewers, account(namespace, "x"))
    with pytest.raises(Busy, match="4 views of service accounts are open"):
        await look(viewers, account("e", "x"))
    await look(viewers, "on-call")
    await look(viewers, "on-call", ["prod"])
    with pytest.raises(Busy, match="6 views are open"):
        await look(viewers, "somebody-else")


async def test_a_view_that_nobody_looks_at_makes_room_for_another_of_its_namespace(viewers: Viewers) -> None:
    first = await look(viewers, account("ours", "a"))
    await look(viewers, account("ours", "b"))
    first.streams = 0
    await look(viewers, account("ours", "c"))
    assert len(viewers) == 2
