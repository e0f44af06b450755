"""Kopf itself, against a server that plays a script: no answer of an API server ends it or makes it deaf."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web

from covey.kube import resources
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.connection import Connection
from covey.kube.kubeconfig_guards import Configuration
from covey.operator.model.objects import read_inference_text, read_role_scaler, read_topology
from covey.operator.observe import kopf_session
from covey.operator.observe.caches import Caches
from covey.operator.observe.informer import Informer
from covey.operator.process import kopf_runner
from covey.operator.process.kopf_runner import KopfRunner

KINDS = (resources.DISAGGREGATED_INFERENCES, resources.ROLE_SCALERS, resources.CLUSTER_TOPOLOGIES)
INFERENCES = resources.DISAGGREGATED_INFERENCES.path(None)
#: Answers a request in place of the server, or leaves it to it.
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


def thing(name: str, version: int, spec: str = "{}") -> str:
    meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return f'{{"apiVersion":"inference.covey.dev/v1alpha1","kind":"DisaggregatedInference","metadata":{json.dumps(meta)},"spec":{spec}}}'


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
        self._watches: list[asyncio.Queue[bytes | None]] = []

    def fail(self, what: str, *faults: Fault) -> None:
        """Have the next requests fail: ``list`` or ``watch`` of the resources, one after the other."""
        self.faults += [(what, fault) for fault in faults]

    def put(self, name: str, spec: str = "{}", *, tell: bool = True) -> None:
        self.version += 1
        kind = "MODIFIED" if name in self.items else "ADDED"
        self.items[name] = thing(name, self.version, spec)
        self.say(f'{{"type":"{kind}","object":{self.items[name]}}}\n'.encode() if tell else b"")

    def drop(self, name: str, *, tell: bool = True) -> None:
        self.version += 1
        gone = self.items.pop(name)
        self.say(f'{{"type":"DELETED","object":{gone}}}\n'.encode() if tell else b"")

    def say(self, text: bytes | None) -> None:
        """Write to every watch of the resources; None cuts it."""
        for each in self._watches:
            each.put_nowait(text)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        verb = "watch" if "watch" in request.query else "list"
        # A list of one is the runner's own question, before there is a Kopf.
        is_kopf = request.path == INFERENCES and request.query.get("limit") != "1"
        if is_kopf and self.faults and self.faults[0][0] == verb:
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
                if each.group == parts[1]
            ]
            return web.json_response({"resources": found})
        if "watch" in request.query:
            return await self._watch(request)
        items = self.items.values() if request.path == INFERENCES else ()
        meta = json.dumps({"resourceVersion": str(self.version)})
        return web.Response(
            text=f'{{"kind":"XList","metadata":{meta},"items":[{",".join(items)}]}}', content_type="application/json"
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        if request.path == INFERENCES:
            self._watches.append(lines)
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            while (line := await lines.get()) is not None:
                await answer.write(line)
            if request.transport is not None:
                request.transport.abort()
        finally:
            if request.path == INFERENCES:
                self._watches.remove(lines)
        return answer

    @property
    def is_watched(self) -> bool:
        return bool(self._watches)


class Running:
    """Kopf in the operator's wiring, beside a script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.inferences = Informer(resources.DISAGGREGATED_INFERENCES, read_inference_text, clock=SYSTEM.monotonic)
        self.informers = (
            self.inferences,
            Informer(resources.ROLE_SCALERS, read_role_scaler, clock=SYSTEM.monotonic),
            Informer(resources.CLUSTER_TOPOLOGIES, read_topology, clock=SYSTEM.monotonic),
        )
        self.deaf = asyncio.Event()
        self.signals = 0

    @property
    def names(self) -> set[str]:
        return {each.metadata.name for each in self.inferences.every()}

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
    monkeypatch.setattr(kopf_runner, "_LOOK", 0.01)


@contextlib.asynccontextmanager
async def running(script: Script) -> AsyncIterator[Running]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.answer)
    server = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await server.setup()
    await web.TCPSite(server, "127.0.0.1", 0).start()
    connection = Connection(Configuration(host=f"http://127.0.0.1:{server.addresses[0][1]}"))
    found = Running(script)
    caches = SimpleNamespace(
        inferences=found.inferences,
        scalers=found.informers[1],
        topologies=found.informers[2],
        informers=found.informers,
        deaf=found.deaf,
    )
    async with Client(connection, user_agent="test") as client:
        kopf = KopfRunner(client, connection, (), cast(Caches, caches), found.take_signals)
        task = asyncio.create_task(kopf.run())
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
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
