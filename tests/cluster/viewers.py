"""Viewers of the UI with rights of their own, and the server that they use, against a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse, ClientSession
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from covey.kube.clock import SYSTEM
from covey.kube.connection import load_server
from covey.ui.auth import TokenAuthenticator
from covey.ui.limits import PageLimits
from covey.ui.server import Server
from covey.ui.viewers import Viewers
from localcluster import Cluster, eventually
from merge_patch import merge

#: What `covey ui` reads of a namespace.
KINDS = {
    "": ["pods"],
    "inference.covey.dev": ["disaggregatedinferences"],
    "scheduling.covey.dev": ["compositepodgroups", "podgroups", "preemptions"],
}
QUICK = PageLimits(recheck=0.3, pace=0.05, patience=120)
State = dict[str, Any]


@dataclass
class Rights:
    """Gives service accounts rights, and takes them away."""

    cluster: Cluster

    def viewer(self, namespace: str) -> str:
        """The name of a new service account without any right."""
        name = f"viewer-{uuid.uuid4().hex[:6]}"
        self.cluster.service_account_token(namespace, name)
        return name

    def token(self, namespace: str, name: str) -> str:
        return self.cluster.service_account_token(namespace, name)

    def allow(self, where: str | None, namespace: str, name: str, kinds: dict[str, list[str]] | None = None) -> str:
        """Let an account read kinds in a namespace, or (None) everywhere; returns the path of the binding.

        The API server learns of a binding a moment after it has taken it: that is waited for.
        """
        rules = [
            {"apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"]}
            for group, resources in (KINDS if kinds is None else kinds).items()
        ]
        rule = f"{name}-{uuid.uuid4().hex[:6]}"
        base = "/apis/rbac.authorization.k8s.io/v1"
        path = f"{base}/namespaces/{where}/role" if where else f"{base}/clusterrole"
        kind = "Role" if where else "ClusterRole"
        self.cluster.api("POST", f"{path}s", {"metadata": {"name": rule}, "rules": rules})
        binding = {
            "metadata": {"name": rule},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": rule},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        self.cluster.api("POST", f"{path}bindings", binding)
        asked = {"verb": "list", "group": rules[0]["apiGroups"][0], "resource": rules[0]["resources"][0]}
        asked |= {"namespace": where} if where else {}
        spec = {"user": f"system:serviceaccount:{namespace}:{name}", "resourceAttributes": asked}
        reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        eventually(lambda: self.cluster.api("POST", reviews, {"spec": spec})["status"]["allowed"], 60, f"{name} may")
        return f"{path}bindings/{rule}"

    def expired(self, token: str) -> str:
        """The same token with an end that has passed, signed as the API server signs."""
        head, middle, _ = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        claims |= {"exp": claims["iat"] - 60, "iat": claims["iat"] - 4000, "nbf": claims["iat"] - 4000}
        return _signed(head, claims, self.cluster.files.service_account_key)


def _signed(head: str, claims: Any, key: Path) -> str:
    signer = load_pem_private_key(key.read_bytes(), None)
    text = f"{head}.{_plain(json.dumps(claims).encode())}"
    return f"{text}.{_plain(signer.sign(text.encode(), padding.PKCS1v15(), SHA256()))}"  # type: ignore[union-attr, call-arg]


def _plain(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class Page:
    """What a page does: asks the server in the name of one viewer."""

    session: ClientSession
    base: str

    def get(self, path: str, token: str | None = None, **headers: str) -> Any:
        return self.session.get(f"{self.base}{path}", headers=_headers(token, headers))

    def post(self, path: str, body: Any, token: str | None = None, **headers: str) -> Any:
        return self.session.post(f"{self.base}{path}", data=body, headers=_headers(token, headers))

    async def state(self, token: str, query: str = "") -> State:
        async with self.get(f"/api/state{query}", token) as answer:
            assert answer.status == 200, await answer.text()
            found: State = await answer.json()
            return found

    @asynccontextmanager
    async def events(self, token: str, query: str = "") -> AsyncIterator[Events]:
        async with self.get(f"/api/events{query}", token) as answer:
            assert answer.status == 200, await answer.text()
            yield Events(answer)


@dataclass
class Events:
    """A stream, and the state that its changes add up to."""

    answer: ClientResponse
    state: Any = None
    ended: Any = None
    changes: int = 0

    async def until(self, reached: Callable[[State], object], seconds: float = 120) -> State:
        """The first state of which something holds."""
        async with asyncio.timeout(seconds):
            while self.state is None or not reached(self.state):
                await self.take()
        return self.state  # type: ignore[no-any-return]

    async def until_end(self, seconds: float = 120) -> Any:
        """What is said at the end."""
        async with asyncio.timeout(seconds):
            while self.ended is None:
                await self.take()
        return self.ended

    async def take(self) -> None:
        kind, data = "", b""
        while line := (await self.answer.content.readline()).rstrip(b"\n"):
            name, _, value = line.partition(b": ")
            kind, data = (value.decode(), data) if name == b"event" else (kind, value if name == b"data" else data)
        assert not self.answer.content.at_eof() or kind, "the stream was cut"
        if kind == "snapshot":
            self.state = json.loads(data)
        elif kind == "change":
            self.changes += 1
            self.state = merge(self.state, json.loads(data))
        elif kind == "end":
            self.ended = json.loads(data)


def _headers(token: str | None, more: dict[str, str]) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in more.items()}
    return ({"Authorization": f"Bearer {token}"} if token else {}) | named


@asynccontextmanager
async def served(cluster: Cluster, limits: PageLimits = QUICK) -> AsyncIterator[Page]:
    """The server that the operator runs, in this process: it has the API server's address, and nobody's identity."""
    gate = TokenAuthenticator(await load_server(str(cluster.kubeconfig)))
    viewers = Viewers(gate.mode, limits=limits, clock=SYSTEM)
    sweeping = asyncio.create_task(viewers.run())
    async with TestServer(Server(gate, viewers, limits=limits).application()) as server, ClientSession() as session:
        yield Page(session, str(server.make_url("")).rstrip("/"))
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)


def texts(value: Any) -> Iterable[str]:
    """All keys and strings in some JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value
