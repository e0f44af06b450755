"""The wire between Covey's processes and the API server: who was told what, what is under way, and what goes wrong on it.

It carries real requests to the real API server. A test may have the n-th write denied, the news of a kind come late, or a
process die at its n-th write, the answer of which it never hears.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from covey.kube.errors import Forbidden
from covey.kube.request import Request
from covey.kube.transport import Transport

Key = tuple[str, str]
_READS: Final = frozenset({"get", "list", "watch"})
_SELECTORS: Final = frozenset({"labelSelector", "fieldSelector"})
#: In the words of an admission policy of a cluster.
DENIAL: Final = "ValidatingAdmissionPolicy 'rules' with binding 'all' denied request: hands off"


class Listing(NamedTuple):
    """What a list or a watch is of: a path, and its selectors."""

    path: str
    selectors: tuple[tuple[str, str], ...] = ()


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="0")
    continue_: str = msgspec.field(name="continue", default="")


class _Object(msgspec.Struct):
    metadata: _Meta


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[_Object] | None = None


class _Event(msgspec.Struct):
    type: str
    object: _Object


_read_list = msgspec.json.Decoder(_List).decode
_read_event = msgspec.json.Decoder(_Event).decode


class Write(NamedTuple):
    """A write of a process."""

    process: str
    verb: str
    resource: str
    path: str


@dataclass
class Denial:
    """The ``nth`` write from now on that is of these verbs and resources is denied, and so are ``times`` in all."""

    nth: int
    verbs: Collection[str]
    resources: Collection[str]
    times: int
    #: What was denied.
    denied: list[Write] = field(default_factory=list)
    _seen: int = 0

    def strikes(self, write: Write, *, dry_run: bool = False) -> bool:
        """Tell whether this one is denied; a dry run is where the write itself would be, and is not counted."""
        if (self.verbs and write.verb not in self.verbs) or (self.resources and write.resource not in self.resources):
            return False
        if self._seen + 1 < self.nth or len(self.denied) >= self.times:
            self._seen += not dry_run
            return False
        if not dry_run:
            self._seen += 1
            self.denied.append(write)
        return True


@dataclass
class Death:
    """A process that dies once it has written so often, or at once."""

    left: int
    #: The write at which it died.
    at: Write | None = None


class _Life:
    """Of one process, from its start to its end."""

    ended = False


class Wire:
    """The wire of one process; it outlives it, since its successor has the same.

    Args:
        process: its name.
        die: ends it, without a chance to do anything more.
        changed: called when something was begun or ended.
    """

    def __init__(self, process: str, die: Callable[[], None], changed: Callable[[], None]) -> None:
        self.process = process
        self._die = die
        self._changed = changed
        #: Those who wait for an answer.
        self.asking: set[asyncio.Task[Any]] = set()
        #: All writes so far.
        self.writes: list[Write] = []
        #: All questions whether a write would be taken.
        self.dry_runs: list[Write] = []
        self.denials: list[Denial] = []
        self.death: Death | None = None
        #: By resource, what is set when its news may come.
        self.late: dict[str, asyncio.Event] = {}
        #: By collection, the objects that the process was told of and has taken in, and their versions.
        self.copies: dict[Listing, dict[Key, int]] = {}
        #: Those of them that are watched.
        self.watched: set[Listing] = set()
        self._life = _Life()

    @property
    def is_cut(self) -> bool:
        """Nothing passes any more: the process is dead, or about to be."""
        return self._life.ended

    def connect(self, *args: Any, **kwargs: Any) -> Transport:
        """Make what carries the requests of one client."""
        return _Carrier(self, self._life, *args, **kwargs)

    async def renew(self) -> None:
        """End what a process has left behind that has ended, and forget what it was told."""
        self.cut()
        while self.asking:
            for task in self.asking:
                task.cancel()
            await asyncio.wait(set(self.asking))
        self.copies.clear()
        self.watched.clear()
        self._life = _Life()

    def cut(self) -> None:
        """Let nothing pass any more: the process is dead, whatever it would still do at its end."""
        self._life.ended = True

    def admit(self, request: Request) -> Write | None:
        """Let a request pass, or deny it; return it where it is a write."""
        write = Write(self.process, request.verb, request.resource, request.path)
        if request.verb in _READS:
            return None
        dry_run = ("dryRun", "All") in request.params
        (self.dry_runs if dry_run else self.writes).append(write)
        if any(denial.strikes(write, dry_run=dry_run) for denial in self.denials):
            raise Forbidden(HTTPStatus.FORBIDDEN, "Forbidden", DENIAL)
        return None if dry_run else write

    async def answer(self, write: Write | None) -> None:
        """Hand an answer over; where the process dies at this write, nobody hears it."""
        if write is None or self.death is None or self.death.at is not None:
            return
        self.death.left -= 1
        if self.death.left <= 0:
            self.death.at = write
            self._die()
            await asyncio.Event().wait()

    def note_list(self, request: Request, body: bytes) -> None:
        """Note what a list has told."""
        parameters = dict(request.params)
        if parameters.get("limit") == "1":
            return
        found = _read_list(body)
        known = self.copies.setdefault(collection_of(request), {})
        if "continue" not in parameters:
            known.clear()
        known.update(_version_of(item.metadata) for item in found.items or ())

    def note_event(self, request: Request, line: bytes) -> None:
        """Note what an event of a watch has told."""
        event = _read_event(line)
        key, version = _version_of(event.object.metadata)
        known = self.copies.setdefault(collection_of(request), {})
        if event.type == "DELETED":
            known.pop(key, None)
        elif event.type in {"ADDED", "MODIFIED"}:
            known[key] = version

    def note_change(self) -> None:
        """Wake whoever waits for the stage to come to rest."""
        self._changed()


class _Carrier(Transport):
    """What a client sends, by way of the wire."""

    def __init__(self, wire: Wire, life: _Life, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wire = wire
        self._life = life

    async def send(self, request: Request, *, seconds: float) -> bytes:
        """The body of the answer."""
        wire, task = self._wire, asyncio.current_task()
        assert task is not None
        if self._life.ended:
            raise asyncio.CancelledError
        wire.asking.add(task)
        try:
            write = wire.admit(request)
            body = await super().send(request, seconds=seconds)
            await wire.answer(write)
        finally:
            wire.asking.discard(task)
            wire.note_change()
        if request.verb == "list":
            wire.note_list(request, body)
        return body

    @asynccontextmanager
    async def stream(self, request: Request, *, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body as it arrives. A watch is never taken for dead: the silence of a test is not that of a network."""
        del silence
        self._wire.watched.add(collection_of(request))
        async with super().stream(request, silence=86_400.0) as chunks:
            yield self._listen(request, chunks)

    async def _listen(self, request: Request, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in chunks:
            while (late := self._wire.late.get(request.resource)) is not None:
                await late.wait()
            yield chunk
            # Whoever asks for more has taken in what he was given.
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                self._wire.note_event(request, line)
            self._wire.note_change()


def collection_of(request: Request) -> Listing:
    """What a list or a watch is of."""
    return Listing(request.path, tuple(sorted(each for each in request.params if each[0] in _SELECTORS)))


def selects(listing: Listing, item: Mapping[str, Any]) -> bool:
    """Tell whether an object matches the selectors: ``key``, ``!key``, ``key=value`` and ``key!=value`` of labels, and fields by value."""
    selectors = dict(listing.selectors)
    labels = item["metadata"].get("labels", {})
    for term in filter(None, selectors.get("labelSelector", "").split(",")):
        key, equals, value = term.partition("=")
        if equals:
            there = (labels.get(key.removesuffix("!")) == value) is not key.endswith("!")
        else:
            there = key[1:] not in labels if key[0] == "!" else key in labels
        if not there:
            return False
    for term in filter(None, selectors.get("fieldSelector", "").split(",")):
        path, _, value = term.partition("=")
        field: Any = item
        for step in path.split("."):
            field = field.get(step, "")
        if field != value:
            return False
    return True


def _version_of(metadata: _Meta) -> tuple[Key, int]:
    return (metadata.namespace, metadata.name), int(metadata.resource_version or 0)
