"""The line of one process to the API server: slow, refused now and then, and cut off when the process is killed."""

# ruff: noqa: A002 - `type`, as in Client

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from covey.kube.errors import ApiError, Conflict, Forbidden, Gone, Invalid, KubeError, TooManyRequests, Unreachable
from covey.kube.resources import PODS, Resource
from unit.operator.wild.api_server import ApiServer, Json

T = TypeVar("T")

_WEBHOOK: Final = 'admission webhook "rules.example.com" denied the request: hands off'
_POLICY: Final = "ValidatingAdmissionPolicy 'rules' with binding 'all' denied request: hands off"
_LOST: Final = "the answer was lost"
#: What a request may be told at random, by verb.
_EVERYWHERE: Final[tuple[Callable[[], KubeError], ...]] = (
    lambda: TooManyRequests(429, "TooManyRequests", "too many requests, please try again later"),
    lambda: ApiError(500, "InternalError", "etcdserver: request timed out"),
    lambda: ApiError(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    lambda: Unreachable("connection refused"),
)
_WRITES: Final[tuple[Callable[[], KubeError], ...]] = (
    lambda: Forbidden(403, "Forbidden", _WEBHOOK),
    lambda: Invalid(422, "Invalid", _POLICY),
    lambda: Conflict(409, "Conflict", "Operation cannot be fulfilled: please apply your changes to the latest version"),
    lambda: Unreachable(_LOST),
)
_QUOTA: Final = "exceeded quota: theirs, requested: pods=1, used: pods=9, limited: pods=9"


@dataclass
class Trouble:
    """Requests that fail.

    Args:
        generator: Decides which.
    """

    generator: random.Random
    #: Of all requests, those that fail.
    share: float = 0.0
    #: Verbs and kinds that a policy of the cluster forbids.
    policies: set[tuple[str, str]] = field(default_factory=set)
    #: Seconds until a watch of a kind shows an event.
    lags: dict[str, float] = field(default_factory=dict)
    #: Kinds whose watch is told at its next event that its version is too old.
    expired: set[str] = field(default_factory=set)

    def end(self) -> None:
        """All goes well from now on."""
        self.share = 0.0
        self.policies.clear()
        self.lags.clear()

    def draw(self, verb: str, kind: Resource) -> KubeError | None:
        """The error that a request ends with; after it was done where it says that the answer was lost."""
        if (verb, kind.plural) in self.policies:
            return Forbidden(403, "Forbidden", _WEBHOOK)
        if self.generator.random() >= self.share:
            return None
        found = [*_EVERYWHERE, *(_WRITES if verb not in {"get", "list"} else ())]
        if (verb, kind) == ("create", PODS):
            found.append(lambda: Forbidden(403, "Forbidden", _QUOTA))
        return self.generator.choice(found)()


class Line:
    """A ``Client``.

    Args:
        server: The API server.
        trouble: What goes wrong.
        wrote: Called after each write.
    """

    def __init__(self, server: ApiServer, trouble: Trouble, wrote: Callable[[], None]) -> None:
        self._server = server
        self._trouble = trouble
        self._wrote = wrote
        #: At most that many requests at once.
        self.connections = 64
        #: Writes until the process is killed.
        self.fuse: int | None = None
        #: Set when it was.
        self.cut = asyncio.Event()

    async def get(self, kind: Resource, name: str, namespace: str | None = None, *, type: Any = dict) -> Any:
        return await self._ask("get", kind, lambda: self._server.find(kind, name, namespace), type)

    async def list(
        self, kind: Resource, namespace: str | None = None, *, type: Any = dict, labels: str | None = None, **_: Any
    ) -> tuple[list[Any], str]:
        found, version = await self._ask("list", kind, lambda: self._listed(kind, namespace, labels), None)
        return [read_object(each, type) for each in found], version

    def _listed(self, kind: Resource, namespace: str | None, labels: str | None) -> Any:
        return self._server.items(kind, namespace, labels), str(self._server.version)

    async def list_metadata(
        self, kind: Resource, namespace: str | None = None, **_: Any
    ) -> tuple[dict[tuple[str, str], str], str]:
        found, version = await self._ask("list", kind, lambda: self._listed(kind, namespace, None), None)
        metadata = [each["metadata"] for each in found]
        return {(each.get("namespace", ""), each["name"]): each["uid"] for each in metadata}, version

    async def watch(
        self,
        kind: Resource,
        _: str | None = None,
        *,
        resource_version: str,
        type: Any = dict,
        labels: str | None = None,
        **__: Any,
    ) -> AsyncGenerator[tuple[str, Any], None]:
        async for event in self._server.follow(kind, int(resource_version)):
            lag = self._trouble.lags.get(kind.plural, self._trouble.generator.uniform(0.001, 0.05))
            if kind.plural in self._trouble.expired:
                self._trouble.expired.discard(kind.plural)
                raise Gone(410, "Expired", "too old resource version")
            await asyncio.sleep(event.at + lag - self._server.clock())
            if (told := event.seen_by(labels)) is not None:
                yield told[0], read_object(told[1], type)

    async def create(
        self,
        kind: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        type: Any = dict,
        **_: Any,
    ) -> Any:
        def do() -> Json:
            return self._server.create(kind, body, namespace, dry_run=dry_run)

        return await self._ask("create", kind, do, type, writes=not dry_run)

    async def apply(
        self,
        kind: Resource,
        body: Mapping[str, Any],
        *,
        manager: str,
        subresource: str | None = None,
        type: Any = dict,
        **_: Any,
    ) -> Any:
        def do() -> Json:
            return self._server.apply(kind, body, manager, subresource)

        return await self._ask("patch", kind, do, type, writes=True)

    async def json_patch(
        self,
        kind: Resource,
        name: str,
        namespace: str | None,
        operations: Sequence[Mapping[str, Any]],
        *,
        type: Any = dict,
    ) -> Any:
        def do() -> Json:
            return self._server.patch(kind, name, namespace, operations)

        return await self._ask("patch", kind, do, type, writes=True)

    async def merge_patch(
        self, kind: Resource, name: str, namespace: str | None, body: Mapping[str, Any], *, type: Any = dict, **_: Any
    ) -> Any:
        return await self._ask(
            "patch", kind, lambda: self._server.merge(kind, name, namespace, body), type, writes=True
        )

    async def delete(
        self,
        kind: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        version: str | None = None,
        **_: Any,
    ) -> None:
        def do() -> Json:
            self._server.delete(kind, name, namespace, uid, version)
            return {}

        await self._ask("delete", kind, do, None, writes=True)

    async def _ask(self, verb: str, kind: Resource, do: Callable[[], Any], type: Any, *, writes: bool = False) -> Any:
        await self._wait()
        error = self._trouble.draw(verb, kind)
        if error is not None and str(error) != _LOST:
            raise error
        answer = do()
        if writes:
            self._wrote()
            if self.fuse is not None:
                self.fuse -= 1
        if self.fuse is not None and self.fuse <= 0:
            self.cut.set()
        await self._wait()
        if error is not None:
            raise error
        return read_object(answer, type) if type is not None else answer

    async def _wait(self) -> None:
        if self.cut.is_set():
            await asyncio.Event().wait()
        await asyncio.sleep(self._trouble.generator.uniform(0.001, 0.02))


def read_object(body: Json, type: type[T]) -> T:
    """An object as a client decodes it."""
    return msgspec.json.decode(msgspec.json.encode(body), type=type)
