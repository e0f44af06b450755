"""A store that Kopf's handlers fill has what the API server has, whatever Kopf tells late, twice or never."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.api import core
from covey.kube.client import Client
from covey.kube.resources import DISAGGREGATED_INFERENCES
from covey.kube.shallow import Page
from covey.kube.watch import ListMeta
from covey.operator.model.objects import InferenceText, read_inference_text
from covey.operator.observe.informer import Informer
from virtual_time import run

Key = tuple[str, str]
LLAMA = ("ml", "llama")


def thing(uid: str, version: int, key: Key = LLAMA) -> dict[str, Any]:
    return {"metadata": {"name": key[1], "namespace": key[0], "uid": uid, "resourceVersion": str(version)}}


def page(found: Mapping[Key, str], version: int, more: str = "") -> Page:
    return Page(b"", dict(found), ListMeta(str(version), more))


class Watched:
    """An informer, and all that it has announced."""

    def __init__(self, *namespaces: str) -> None:
        self.informer: Informer[InferenceText] = Informer(
            DISAGGREGATED_INFERENCES, read_inference_text, namespaces, clock=lambda: 0.0
        )
        self.told: list[tuple[str, str]] = []
        self.informer.subscribe(lambda kind, item, _: self.told.append((kind, item.metadata.uid)))

    def take(self, kind: str | None, uid: str, version: int, key: Key = LLAMA) -> None:
        self.informer.take({"type": kind, "object": thing(uid, version, key)})

    def list(self, found: Mapping[Key, str], version: int, scope: str = "") -> None:
        self.informer.take_page(scope, page(found, version), first=True)

    @property
    def uids(self) -> dict[Key, str]:
        return {key: item.metadata.uid for key, item in self.informer.store.items()}


def test_a_list_counts_once_its_last_page_is_there_and_handlers_have_had_all_of_it() -> None:
    watched = Watched()
    watched.informer.take_page("", page({LLAMA: "a"}, 5, more="next"), first=True)
    watched.take(None, "a", 3)
    assert not watched.informer.synced.is_set(), "there are more"
    watched.informer.take_page("", page({("ml", "qwen"): "b"}, 5), first=False)
    assert not watched.informer.synced.is_set(), "no handler has had the second"
    watched.take(None, "b", 4, ("ml", "qwen"))
    assert watched.informer.synced.is_set()


def test_a_list_of_one_namespace_says_nothing_of_another() -> None:
    watched = Watched("ml", "search")
    watched.take(None, "a", 3)
    watched.list({}, 9, "search")
    assert watched.uids == {LLAMA: "a"}
    watched.list({}, 9, "ml")
    assert not watched.uids


def test_an_event_from_before_a_list_that_lacks_its_object_brings_nothing_back() -> None:
    watched = Watched()
    watched.take("ADDED", "a", 3)
    watched.list({}, 9)
    watched.take("MODIFIED", "a", 7)
    assert not watched.uids
    watched.take("ADDED", "b", 11)
    assert watched.uids == {LLAMA: "b"}


def test_events_of_namesakes_come_in_any_order() -> None:
    watched = Watched()
    watched.take("ADDED", "a", 3)
    watched.take("ADDED", "b", 8)
    watched.take("DELETED", "a", 6)
    watched.take("MODIFIED", "a", 5)
    assert watched.uids == {LLAMA: "b"}
    assert watched.told == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]


def test_a_spec_that_is_too_deep_is_told_when_it_is_read() -> None:
    watched = Watched()
    deep = '{"a":' * 9_000 + "1" + "}" * 9_000
    watched.informer.take({"type": "ADDED", "object": {**thing("a", 3), "spec": deep, "status": '{"units":1}'}})
    (stored,) = watched.informer.every()
    assert "nested too deeply" in stored.read().unreadable
    assert stored.read().status == {"units": 1}


def test_a_spec_that_is_too_large_is_not_read() -> None:
    text = InferenceText(core.Meta(), spec=json.dumps({"zzz": "x" * 600_000}))
    assert text.read().unreadable == "spec: it has 600,011 characters as JSON; at most 524,288 are read"
    assert not text.read().spec


class Server:
    """Answers lists of metadata with what there is."""

    def __init__(self, **uids: str) -> None:
        self.there = {("ml", name): uid for name, uid in uids.items()}
        self.asked: list[str | None] = []

    async def list_metadata(
        self, _: object, _namespace: str | None, *, fields: str | None = None
    ) -> tuple[dict[Key, str], str]:
        self.asked.append(fields)
        await asyncio.sleep(0.01)
        return {key: uid for key, uid in self.there.items() if fields in {None, f"metadata.name={key[1]}"}}, "50"


@pytest.mark.parametrize("there", [{}, {"llama": "another"}])
def test_a_doubted_object_is_asked_for_once_by_name(there: dict[str, str]) -> None:
    watched, server = Watched(), Server(**there)
    watched.take("ADDED", "a", 3)

    async def main() -> None:
        await watched.informer.confirm(cast(Client, server), LLAMA)
        assert not server.asked, "nobody has doubted it"
        watched.informer.doubt(LLAMA)
        await watched.informer.confirm(cast(Client, server), LLAMA)
        await watched.informer.confirm(cast(Client, server), LLAMA)

    run(main())
    assert server.asked == ["metadata.name=llama"]
    assert not watched.uids


def auditing(watched: Watched, server: Server, deaf: list[bool], main: Coroutine[Any, Any, None]) -> None:
    async def under_way() -> None:
        task = asyncio.create_task(watched.informer.run(cast(Client, server), lambda: deaf.append(True)))
        await main
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(under_way())


def test_an_audit_finds_a_watch_that_tells_nothing() -> None:
    watched, server, deaf = Watched(), Server(llama="a"), list[bool]()
    auditing(watched, server, deaf, asyncio.sleep(620))
    assert deaf


def test_an_audit_leaves_kopf_a_moment_to_tell() -> None:
    watched, server, deaf = Watched(), Server(llama="a"), list[bool]()

    async def late() -> None:
        await asyncio.sleep(605)
        watched.take("ADDED", "a", 40)
        await asyncio.sleep(100)

    auditing(watched, server, deaf, late())
    assert not deaf


class Cluster:
    """What the API server has, and Kopf between it and an informer.

    Kopf has a queue for each UID, so that only events of one object keep their order; a watch that is cut loses
    nothing as long as it is resumed, and all since it was cut when it is not.
    """

    def __init__(self) -> None:
        self.watched = Watched()
        self.version = 0
        self.objects: dict[str, tuple[str, int]] = {}
        self.queues: dict[str, list[tuple[str | None, int, Key]]] = {}
        self.deaf = False

    def step(self, kind: str, name: str, pick: int) -> None:
        self.version += 1
        key = ("ml", name)
        uid, _ = self.objects.get(name, ("", 0))
        if kind == "write":
            is_new = not uid
            uid = uid or f"{name}-{self.version}"
            self.objects[name] = uid, self.version
            self._send("ADDED" if is_new else "MODIFIED", uid, key)
        elif kind == "delete" and uid:
            del self.objects[name]
            self._send("DELETED", uid, key)
        elif kind == "hang":
            self.deaf = True
        elif kind == "list":
            self.list()
        elif kind == "handle" and self.queues:
            self._handle(sorted(self.queues)[pick % len(self.queues)])

    def list(self) -> None:
        self.deaf = False
        self.watched.list({("ml", name): uid for name, (uid, _) in self.objects.items()}, self.version)
        for name, (uid, version) in self.objects.items():
            self.queues.setdefault(uid, []).append((None, version, ("ml", name)))

    def settle(self) -> None:
        while self.queues:
            self._handle(next(iter(self.queues)))

    def _send(self, kind: str, uid: str, key: Key) -> None:
        if not self.deaf:
            self.queues.setdefault(uid, []).append((kind, self.version, key))

    def _handle(self, uid: str) -> None:
        kind, version, key = self.queues[uid].pop(0)
        if not self.queues[uid]:
            del self.queues[uid]
        self.watched.take(kind, uid, version, key)


STEP = st.tuples(
    st.sampled_from(["write", "write", "delete", "hang", "list", "handle", "handle", "handle"]),
    st.sampled_from(["llama", "qwen"]),
    st.integers(0, 9),
)


@given(st.lists(STEP, max_size=60))
def test_in_the_end_it_has_what_there_is(steps: list[tuple[str, str, int]]) -> None:
    cluster = Cluster()
    for step in steps:
        cluster.step(*step)
    cluster.version += 1
    cluster.list()
    assert not set(cluster.watched.uids.values()) - {uid for uid, _ in cluster.objects.values()}, "the list says so"
    cluster.settle()
    assert cluster.watched.uids == {("ml", name): uid for name, (uid, _) in cluster.objects.items()}
    assert cluster.watched.informer.synced.is_set()
