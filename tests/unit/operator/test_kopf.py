"""Kopf itself, against a server that plays a script: no answer of an API server ends it or makes it deaf."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import pytest
from aiohttp import web

from covey.api import core
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.connection import Connection
from covey.kube.official_client import Configuration
from covey.observability.families import REGISTRY
from covey.operator.model.objects import InferenceText, StoredScaler
from covey.operator.observe import kopf_session
from covey.operator.observe.caches import Caches
from covey.operator.observe.triggered import Triggered
from covey.operator.process import kopf_runner
from covey.operator.process.kopf_runner import KopfRunner

KINDS = (resources.DISAGGREGATED_INFERENCES, resources.ROLE_SCALERS, resources.CLUSTER_TOPOLOGIES)
INFERENCES = resources.DISAGGREGATED_INFERENCES.path(None)
#: Answers a request in place of the server, or leaves it to it.
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


DEEP = '{"a":' * 9_000 + "1" + "}" * 9_000


def thing(name: str, version: int, managed: str = "[]") -> str:
    meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": str(version)}
    metadata = f'{json.dumps(meta)[:-1]},"managedFields":{managed}}}'
    return f'{{"apiVersion":"inference.covey.dev/v1alpha1","kind":"DisaggregatedInference","metadata":{metadata}}}'


def status(code: int, **headers: str) -> web.Response:
    body = {"kind": "Status", "code": code, "details": {"retryAfterSeconds": 3600}}
    return web.json_response(
        body, status=code, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


class Script:
    """An API server as far as Kopf asks one: discovery, lists and watches of three kinds."""

    def __init__(self) -> None:
        self.items: dict[str, str] = {}
        self.version = 10
        self.faults: list[tuple[str, Fault]] = []
        self.requests: list[web.Request] = []
        #: Whether the kind of the resources is served at all.
        self.served = True
        self._watches: list[tuple[bool, asyncio.Queue[bytes | None]]] = []

    def fail(self, what: str, *faults: Fault) -> None:
        """Have the next requests of Kopf fail: ``list`` or ``watch`` of the resources, one after the other."""
        self.faults += [(what, fault) for fault in faults]

    def put(self, name: str, managed: str = "[]", *, hides: bool = False) -> None:
        """Store a resource, and write it to every watch; ``hides``: not to Kopf's."""
        self.version += 1
        kind = "MODIFIED" if name in self.items else "ADDED"
        self.items[name] = thing(name, self.version, managed)
        self.say(f'{{"type":"{kind}","object":{self.items[name]}}}\n'.encode(), hides=hides)

    def say(self, text: bytes | None, *, hides: bool = False) -> None:
        """Write to every watch of the resources; None cuts it."""
        for is_kopf, lines in self._watches:
            if not (is_kopf and hides):
                lines.put_nowait(text)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        verb = "watch" if "watch" in request.query else "list"
        if _is_kopf(request) and request.path == INFERENCES and self.faults and self.faults[0][0] == verb:
            _, fault = self.faults.pop(0)
            if (found := await fault(request)) is not None:
                return found
        return await self._serve(request)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if request.path == "/api":
            return web.json_response({"versions": ["v1"]})
        if request.path == "/api/v1":
            # Kopf asks for it whether or not it is to look at namespaces.
            kind = {
                "name": "namespaces",
                "kind": "Namespace",
                "singularName": "",
                "namespaced": False,
                "verbs": ["list"],
            }
            return web.json_response({"resources": [kind]})
        if request.path == "/apis":
            groups = {
                each.group: {
                    "name": each.group,
                    "preferredVersion": {"version": "v1alpha1"},
                    "versions": [{"version": "v1alpha1"}],
                }
                for each in KINDS
            }
            return web.json_response({"groups": list(groups.values())})
        if len(parts) == 3:
            found = [
                {
                    "name": each.plural,
                    "kind": each.kind,
                    "singularName": "",
                    "namespaced": each.namespaced,
                    "verbs": ["list", "watch"],
                }
                for each in KINDS
                if each.group == parts[1] and (self.served or each != KINDS[0])
            ]
            return web.json_response({"resources": found})
        if request.path == INFERENCES and not self.served:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        if "watch" in request.query:
            return await self._watch(request)
        meta = json.dumps({"resourceVersion": str(self.version)})
        # As Go writes a list of nothing.
        items = f"[{','.join(self.items.values())}]" if request.path == INFERENCES and self.items else "null"
        text = f'{{"kind":"XList","metadata":{meta},"items":{items}}}'
        return web.Response(text=text, content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        watch = _is_kopf(request), lines
        if request.path == INFERENCES:
            self._watches.append(watch)
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            while (line := await lines.get()) is not None:
                await answer.write(line)
            if request.transport is not None:
                request.transport.abort()
        finally:
            if request.path == INFERENCES:
                self._watches.remove(watch)
        return answer

    @property
    def is_watched(self) -> bool:
        return {is_kopf for is_kopf, _ in self._watches} == {True, False}


def _is_kopf(request: web.Request) -> bool:
    return "kopf" in request.headers["User-Agent"]


class Running:
    """Kopf in the operator's wiring, beside a script."""

    def __init__(self, script: Script, client: Client) -> None:
        self.script = script
        self.inferences = Triggered(client, resources.DISAGGREGATED_INFERENCES, InferenceText, clock=SYSTEM)
        self.scalers = Triggered(client, resources.ROLE_SCALERS, StoredScaler, clock=SYSTEM)
        self.topologies = Triggered(client, resources.CLUSTER_TOPOLOGIES, core.ClusterTopology, clock=SYSTEM)
        self.triggered = (self.inferences, self.scalers, self.topologies)
        self.signals = 0

    @property
    def names(self) -> set[str]:
        """The resources that Kopf has told of."""
        return {item.metadata.name for item in self.inferences.every() if self.inferences.get(item.metadata.key)}

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not reached():  # noqa: ASYNC110 - what is waited for lies in stores that Kopf fills
                await asyncio.sleep(0.005)

    def take_signals(self) -> None:
        self.signals += 1


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_session, "_PAUSE", 0.01)
    monkeypatch.setattr(kopf_runner, "_PAUSE", 0.01)


@contextlib.asynccontextmanager
async def running(script: Script) -> AsyncIterator[Running]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.answer)
    server = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await server.setup()
    await web.TCPSite(server, "127.0.0.1", 0).start()
    connection = Connection(Configuration(host=f"http://127.0.0.1:{server.addresses[0][1]}"))
    async with Client(connection, user_agent="test") as client:
        found = Running(script, client)
        kopf = KopfRunner(connection, (), cast(Caches, found), found.take_signals)
        reflectors = [reflector.run() for kind in found.triggered for reflector in kind.reflectors]
        tasks = [asyncio.create_task(work) for work in (kopf.run(), *reflectors)]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            script.say(None)
            await server.cleanup()


def refuse(code: int) -> Fault:
    async def fault(_: web.Request) -> web.StreamResponse:
        return status(code, Retry_After="3600")

    return fault


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def no_json(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>", content_type="text/html")


def stream(*pieces: bytes) -> Fault:
    async def fault(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for piece in pieces:
            await answer.write(piece)
        return answer

    return fault


def error(code: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code}}).encode() + b"\n"


ANSWERS: dict[str, Fault] = {str(code): refuse(code) for code in (400, 401, 403, 404, 409, 410, 429, 500, 503, 504)}
ANSWERS |= {"a broken connection": hang_up, "no JSON": no_json}
STREAMS: dict[str, Fault] = {
    "ended at once": stream(),
    "half a line": stream(b'{"type":"ADDED","obj'),
    "no JSON": stream(b"<html>\n"),
    "an unknown type": stream(b'{"type":"SURPRISE","object":{"metadata":{"name":"x","uid":"u"}}}\n'),
    "an event of something else": stream(b'{"type":"ADDED","object":{"metadata":3}}\n'),
    **{f"a Status event {code}": stream(error(code)) for code in (410, 403, 500, 504)},
}


@pytest.mark.parametrize("fault", [*ANSWERS.values()], ids=[*ANSWERS])
async def test_no_answer_to_a_list_ends_it(fault: Fault) -> None:
    script = Script()
    script.fail("list", *[fault] * 3)
    script.put("llama")
    async with running(script) as kopf:
        await kopf.until(lambda: kopf.inferences.synced.is_set() and kopf.names == {"llama"})
        assert not script.faults
        assert kopf.signals == 1, "Kopf has never ended"


@pytest.mark.parametrize(
    "fault", [*ANSWERS.values(), *STREAMS.values()], ids=[*ANSWERS, *(f"stream: {name}" for name in STREAMS)]
)
async def test_no_answer_to_a_watch_ends_it_or_makes_it_deaf(fault: Fault) -> None:
    script = Script()
    script.put("llama")
    script.fail("watch", *[fault] * 3)
    async with running(script) as kopf:
        await kopf.until(lambda: not script.faults and script.is_watched)
        script.put("qwen")
        await kopf.until(lambda: kopf.names >= {"llama", "qwen"})
        assert kopf.signals == 1, "Kopf has never ended"


async def test_an_expired_continue_begins_the_list_anew() -> None:
    script = Script()
    script.put("llama")

    async def first_page(_: web.Request) -> web.StreamResponse:
        meta = {"resourceVersion": "12", "continue": "spent"}
        return web.json_response({"kind": "XList", "metadata": meta, "items": []})

    script.fail("list", first_page, refuse(410))
    async with running(script) as kopf:
        await kopf.until(lambda: kopf.names == {"llama"})
        assert (
            "continue"
            not in [each for each in script.requests if each.path == INFERENCES and "watch" not in each.query][-1].query
        )
        assert kopf.signals == 1


async def test_kopf_asks_for_metadata_only() -> None:
    script = Script()
    async with running(script) as kopf:
        await kopf.until(lambda: script.is_watched and kopf.signals == 1)
        asked = {
            ("watch" in request.query, request.headers["Accept"].partition(";")[2])
            for request in script.requests
            if _is_kopf(request) and request.path in {kind.path(None) for kind in KINDS}
        }
    partial = "as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
    assert asked == {(False, partial.format("List")), (True, partial.format(""))}


async def test_managed_fields_when_they_are_too_deep_hide_no_object() -> None:
    script = Script()
    script.put("llama", f"[{DEEP}]")
    async with running(script) as kopf:
        await kopf.until(lambda: kopf.names == {"llama"} and script.is_watched)
        script.put("qwen", f"[{DEEP}]")
        await kopf.until(lambda: kopf.names == {"llama", "qwen"})
        assert kopf.signals == 1, "Kopf has never ended"


async def test_kopf_when_it_does_not_tell_of_an_object_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_runner, "_LOOK", 0.05)
    script, before = Script(), restarts("deaf")
    async with running(script) as kopf:
        await kopf.until(lambda: script.is_watched)
        script.put("llama", hides=True)
        await kopf.until(lambda: kopf.names == {"llama"})
        assert kopf.signals == 2
    assert restarts("deaf") == before + 1


async def test_kopf_when_a_kind_is_served_that_was_not_is_started_again() -> None:
    script, before = Script(), restarts("served")
    script.served = False
    async with running(script) as kopf:
        scalers = resources.ROLE_SCALERS.path(None)
        await kopf.until(lambda: any(_is_kopf(request) and request.path == scalers for request in script.requests))
        assert not kopf.inferences.served
        script.served = True
        script.put("llama")
        await kopf.until(lambda: kopf.names == {"llama"})
    assert restarts("served") == before + 1


def restarts(cause: str) -> float:
    return REGISTRY.get_sample_value("covey_kopf_restarts_total", {"cause": cause}) or 0.0
