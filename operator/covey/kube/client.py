"""One client for all resources: typed answers, errors as exceptions, no state but its connections.

``type`` says what an answer is decoded to: a projection of ``covey.api.core``, or plain dictionaries.
Projections are for reading; what is written is always a whole dictionary.
"""

# ruff: noqa: A002 - `type` is what the argument is, as in msgspec's decoders

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from typing_extensions import TypeVar

from covey.kube import request as requests
from covey.kube.errors import Gone, Undecodable
from covey.kube.request import Request
from covey.kube.resources import Resource
from covey.kube.watch import EventType, LineBuffer, OnUnreadable, decode, decode_chunk, decode_event

if TYPE_CHECKING:
    from covey.kube.connection import Connection
    from covey.kube.transport import Transport

T = TypeVar("T", default=dict[str, Any])


class Ignored(msgspec.Struct, frozen=True):
    """An answer whose content is not used: it is only checked for being JSON."""


#: Objects in one answer to a LIST: 3 MB of pods, decoded in some 10 ms.
CHUNK: Final = 500
#: Seconds for one attempt.
_SECONDS: Final = 30.0
_LIST_SECONDS: Final = 60.0
#: Seconds of silence that end a watch; the server sends a bookmark every minute.
_SILENCE: Final = 90.0
#: Seconds without a line that end a log that is followed.
_LOG_SILENCE: Final = 3600.0
#: Seconds that the server is asked to keep a watch open; spread, so that watches do not end together.
_WATCH_SECONDS: Final = (240, 540)
_DICT: Final[Any] = dict


class Client:
    """A client of one API server. Made anywhere, used within one event loop, closed by ``async with``.

    Every method raises ``KubeError`` as drawn in ``errors``; what is repeated is said in ``transport``.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str,
        field_manager: str | None = None,
        connections: int = 64,
        silence: float = _SILENCE,
        generator: random.Random | None = None,
        transport: Callable[..., Transport] | None = None,
    ) -> None:
        self.namespace = connection.namespace
        #: At most that many requests at once, watches included; 0 for no bound.
        self.connections = connections
        self._manager = field_manager
        self._silence = silence
        self._random = generator or random.Random()  # noqa: S311 - it spreads load, it keeps no secret
        if transport is None:
            # With libraries that take 150 ms, which `covey plan` without a cluster does not need.
            from covey.kube import transport as transports  # noqa: PLC0415 - see above

            transport = transports.Transport
        self._transport = transport(connection, user_agent=user_agent, connections=connections, generator=self._random)

    @classmethod
    @asynccontextmanager
    async def from_kubeconfig(
        cls,
        path: str | None = None,
        context: str | None = None,
        *,
        user_agent: str,
        field_manager: str | None = None,
        connections: int = 64,
    ) -> AsyncIterator[Self]:
        """A client for a kubeconfig's context; None looks where kubectl does, then in the cluster.

        Args:
            path: of the kubeconfig.
            context: its name.
            user_agent: shown in the API server's audit log and flow control.
            field_manager: owner of the fields written by create, patch and replace; ``apply`` names its own.
            connections: at most that many at once, watches included; 0 for no bound.

        Raises:
            ConfigurationError: nothing usable was found.
        """
        from covey.kube.connection import load  # noqa: PLC0415 - as the transport

        connection = await load(path, context)
        async with cls(
            connection, user_agent=user_agent, field_manager=field_manager, connections=connections
        ) as client:
            yield client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; running watches end with Unreachable."""
        await self._transport.close()

    async def get(self, resource: Resource, name: str, namespace: str | None = None, *, type: type[T] = _DICT) -> T:
        """Read one object."""
        return await self._send(requests.get(resource, name, namespace), type)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        type: type[T] = _DICT,
        labels: str | None = None,
        fields: str | None = None,
        chunk: int = CHUNK,
        on_unreadable: OnUnreadable | None = None,
    ) -> tuple[list[T], str]:
        """All objects that match, and the resourceVersion of the collection, for ``watch``.

        Fetched in chunks. When the continue token expires on the way, once more in one piece. An object that
        cannot be read raises Undecodable, or is left out and given to ``on_unreadable``.
        """
        items: list[T] = []
        continue_ = ""
        limit = chunk
        while True:
            asked = requests.list_(resource, namespace, labels=labels, fields=fields, limit=limit, continue_=continue_)
            try:
                body = await self._transport.send(asked, seconds=_LIST_SECONDS)
            except Gone:
                if not continue_:
                    raise
                items, continue_, limit = [], "", 0
                continue
            answer = decode_chunk(body, type, on_unreadable)
            items += answer.items or []
            continue_ = answer.metadata.continue_
            if not continue_:
                return items, answer.metadata.resource_version

    async def probe(self, resource: Resource, namespace: str | None = None) -> None:
        """Ask whether a collection can be read, for at most one of its objects.

        Raises:
            Forbidden: these credentials may not.
        """
        await self._transport.send(requests.list_(resource, namespace, limit=1), seconds=_SECONDS)

    async def newest(self, resource: Resource) -> str:
        """The newest resourceVersion of a collection, read from where it is stored."""
        body = await self._transport.send(requests.list_(resource, None, limit=1), seconds=_SECONDS)
        return decode_chunk(body, Ignored).metadata.resource_version

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        type: type[T] = _DICT,
        labels: str | None = None,
        fields: str | None = None,
        on_unreadable: OnUnreadable | None = None,
    ) -> AsyncGenerator[tuple[EventType, T], None]:
        """Events from a resourceVersion on, until the server ends the stream after some minutes.

        One whose object cannot be read raises Undecodable, or is passed over and given to ``on_unreadable``.

        Yields:
            ``(ADDED | MODIFIED | DELETED | BOOKMARK, object)``; of a bookmark's object only
            ``metadata.resourceVersion`` is set.

        Raises:
            Gone: the resourceVersion is too old: list again.
            Unreachable: the stream was cut, or nothing at all came for 90 s.
        """
        asked = requests.watch(
            resource,
            namespace,
            resource_version=resource_version,
            seconds=self._random.randint(*_WATCH_SECONDS),
            labels=labels,
            fields=fields,
        )
        buffer = LineBuffer()
        async with self._transport.stream(asked, silence=self._silence) as chunks:
            async for chunk in chunks:
                for line in buffer.feed(chunk):
                    try:
                        event = decode_event(line, type)
                    except Undecodable as error:
                        if on_unreadable is None:
                            raise
                        on_unreadable(error)
                        continue
                    yield event

    async def logs(self, namespace: str, pod: str, **options: str) -> AsyncGenerator[bytes, None]:
        """Lines of a container's log, without their ends, as the kubelet has them; with ``follow`` until it ends.

        Args:
            namespace: of the pod.
            pod: its name.
            options: of the API: ``container``, ``follow``, ``tailLines``, ``sinceSeconds``, ``previous``.

        Raises:
            ApiError: there is no such pod or container, or its kubelet has no log of it.
            Unreachable: the stream was cut.
        """
        rest = b""
        async with self._transport.stream(requests.logs(namespace, pod, options), silence=_LOG_SILENCE) as chunks:
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
        if rest:
            yield rest

    async def create(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        strict: bool = False,
        type: type[T] = _DICT,
    ) -> T:
        """Create an object in ``namespace``, or in the one its metadata names.

        Args:
            resource: of the object.
            body: the whole object; ``apiVersion`` and ``kind`` may be left out.
            namespace: overrides nothing: it must agree with the body when both are given.
            dry_run: everything but storing it.
            strict: unknown and duplicate fields are an error (BadRequest), not dropped.
            type: of the answer.
        """
        asked = requests.create(resource, body, namespace, manager=self._manager, dry_run=dry_run, strict=strict)
        return await self._send(asked, type)

    async def apply(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        manager: str,
        force: bool = True,
        subresource: str | None = None,
        type: type[T] = _DICT,
    ) -> T:
        """Server-side apply: exactly the fields of ``body`` become, or stay, the manager's own.

        Raises:
            Conflict: without ``force``, when another manager owns a field with another value.
        """
        asked = requests.apply(resource, body, manager=manager, force=force, subresource=subresource)
        return await self._send(asked, type)

    async def json_patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        operations: Sequence[Mapping[str, Any]],
        *,
        dry_run: bool = False,
        type: type[T] = _DICT,
    ) -> T:
        """Apply RFC 6902 operations, all or none; with ``dry_run`` everything but storing the result.

        Raises:
            Invalid: a test failed, a path is missing, or the result is not valid. Also when an attempt
                succeeded, its answer was lost and the repetition found its own work: read the object to know.
        """
        asked = requests.json_patch(resource, name, namespace, operations, manager=self._manager, dry_run=dry_run)
        return await self._send(asked, type)

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        manager: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        type: type[T] = _DICT,
    ) -> T:
        """Merge by RFC 7386: None removes a field, lists are replaced whole. ``manager`` writes if not the client's.

        With ``dry_run`` everything but storing the result.
        """
        asked = requests.merge_patch(
            resource, name, namespace, body, manager=manager or self._manager, subresource=subresource, dry_run=dry_run
        )
        return await self._send(asked, type)

    async def replace(self, resource: Resource, body: Mapping[str, Any], *, type: type[T] = _DICT) -> T:
        """PUT the whole object; with ``metadata.resourceVersion`` only over that version.

        Raises:
            Conflict: the object has changed.
        """
        return await self._send(requests.replace(resource, body, manager=self._manager), type)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        version: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete one object; with ``uid`` only that incarnation, with ``version`` only as long as it has not changed.

        Raises:
            NotFound: it is gone already, perhaps by an attempt of ours whose answer was lost.
            Conflict: the name belongs to another uid, or the object is of another version.
        """
        asked = requests.delete(
            resource, name, namespace, uid=uid, version=version, propagation=propagation, grace_seconds=grace_seconds
        )
        await self._transport.send(asked, seconds=_SECONDS)

    async def bind(self, namespace: str, pod: str, uid: str, node: str) -> None:
        """Bind a pod to a node.

        Raises:
            Conflict: it is bound (perhaps by us, the answer being lost), gated or going away, or the uid differs.
            NotFound: there is no such pod.
        """
        await self._transport.send(requests.bind(namespace, pod, uid, node), seconds=_SECONDS)

    async def evict(self, namespace: str, pod: str, uid: str, *, dry_run: bool = False) -> None:
        """Evict a pod, or ask whether that would be allowed.

        Raises:
            TooManyRequests: a PodDisruptionBudget allows no disruption now.
            ApiError: also 500, where several budgets cover the pod.
            NotFound, Conflict: there is no such pod any more.
        """
        await self._transport.send(requests.evict(namespace, pod, uid, dry_run=dry_run), seconds=_SECONDS)

    async def version(self) -> dict[str, Any]:
        """``gitVersion``, ``major``, ``minor`` and more of the server."""
        return await self._send(requests.version(), dict[str, Any])

    async def _send(self, asked: Request, kind: type[T]) -> T:
        if issubclass(kind, Ignored):
            # The API server need not write out what nobody reads.
            asked = replace(asked, accept=requests.METADATA)
        return decode(await self._transport.send(asked, seconds=_SECONDS), kind)
