"""The ground of all stories of a session: a control plane with all gates on, Covey's processes in a loop of the test's own.

kube-scheduler, kwok and the controllers are real, and so is every request. Nodes stay from one story to the next as long
as nobody changes them, and so do namespaces, emptied.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, Self

import msgspec

from covey.kube.client import Client
from covey.kube.connection import load
from covey.kube.errors import NotFound
from covey.kube.request import Request
from covey.kube.resources import EVICTIONS
from covey.kube.transport import Transport
from covey.operator.process.main import OperatorProcess
from covey.operator.process.settings import OperatorSettings
from covey.scheduler.main import Process as SchedulerProcess
from covey.scheduler.settings import SchedulerSettings
from localcluster import Cluster, Gates, Nodes, concurrently, free_port, native_groups
from localcluster.binaries import KUBERNETES
from localcluster.programs import scheduler_config
from stage.clock import Loop, Time
from stage.debts import find_debts
from stage.record import RECORDED, Key, Object, Record
from stage.wire import Listing, Wire, selects

#: Real seconds in which nothing at all happens, while somebody owes something, before that is called a hang.
PATIENCE: Final = 120.0
#: Seconds of Covey's time for which it must have nothing to do by itself: statuses are told up to 3.5 s late. Twice as much
#: passes at most, so that no hold or deadline of a story is over meanwhile.
AHEAD: Final = 4.0
#: Seconds that may have passed before Covey is begun anew, for a new story. The API server's clock stays behind: pods that
#: it has told to go count as late after a minute.
DRIFT: Final = 20.0
OPERATOR, SCHEDULER, KUBE_SCHEDULER = "operator", "scheduler", "kube-scheduler"
COVEY_PROFILE: Final = "covey-scheduler"
EVERYTHING: Final = "*"
#: Kinds that are not recorded and that others than the test write, where there are some.
_OTHERS: Final = frozenset({"resourceclaims", "persistentvolumeclaims", "persistentvolumes"})
Settings = Mapping[str, Any]


class NotAtRestError(AssertionError):
    """Nothing moves, and somebody still owes something."""


class _Cluster(Cluster):
    """Notes what a test itself writes, which nobody else may have to do with."""

    def __init__(self) -> None:
        groups = native_groups(KUBERNETES)
        features = {**groups.features, "EvictionRequestAPI": True}
        super().__init__(gates=Gates(features, (*groups.runtime_config, EVICTIONS.api_version)))
        #: Requests of the test that changed something, and the last words of their paths.
        self.writes = 0
        self.written: set[str] = set()

    def api(self, method: str, path: str, body: Any = None, *, patch: str | None = None) -> Any:
        if method != "GET":
            self.writes += 1
            self.written |= set(path.partition("?")[0].split("/"))
        return super().api(method, path, body, patch=patch)

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002 - as there
        self.writes += 1
        self.written.add(EVERYTHING)
        return super().kubectl(*arguments, input=input, check=check)


class Ground:
    """A context manager; ``begin`` starts Covey."""

    def __init__(self) -> None:
        self.time = Time()
        self.loop = Loop(self.time, self._is_busy)
        self.cluster = _Cluster()
        self.wires = {
            name: Wire(name, lambda name=name: self._die(name), self._note_change) for name in (OPERATOR, SCHEDULER)
        }
        #: Settings other than the default ones that Covey's processes have now, by process.
        self.settings: dict[str, Settings] = {OPERATOR: {}, SCHEDULER: {}}
        #: Names of the profiles that some kube-scheduler serves.
        self.profiles: set[str] = set()
        #: The address of the scheduler process, which kube-scheduler calls.
        self.extender = f"127.0.0.1:{free_port()}"
        self._processes: dict[str, OperatorProcess | SchedulerProcess] = {}
        self._running: dict[str, asyncio.Task[int]] = {}
        #: Nodes by name as they were made, and of what kind; and kinds that have been damaged, as often as they were.
        self._nodes: dict[str, Object] = {}
        self._kinds: dict[str, str] = {}
        self._worn: list[str] = []
        self._spare: list[str] = []
        self._moved = time.monotonic()
        #: How things stood at the last rest.
        self._rested: tuple[object, ...] = ()
        #: For how many seconds nothing was to be done then.
        self._calm = 0.0

    def __enter__(self) -> Self:
        self.cluster.start()
        self.cluster.install_rbac()
        self.cluster.install_account_policies()
        self._accounts = {
            name: str(self.cluster.service_account_kubeconfig("covey-system", f"covey-{name}")) for name in self.wires
        }
        self.loop.call(self._open())
        self.cluster.start_scheduler(scheduler_config(SimpleNamespace(url=f"http://{self.extender}")))  # type: ignore[arg-type] # its address is all that is read
        self.profiles.add(COVEY_PROFILE)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
            self.loop.call(self._client.close())
            self.loop.call(self._reader.close())
        finally:
            self.loop.end()
            self.cluster.stop()

    # Covey's processes

    def start(self, *names: str) -> None:
        """Start Covey's processes, or those that are named, and wait until they are ready."""
        for name in names or tuple(self.wires):
            if name not in self._running:
                self.loop.call(self._start(name))
        self.wait(lambda: all(process.ready()[0] for process in self._processes.values()), "Covey is ready")

    def stop(self, *names: str) -> None:
        """Stop them as at SIGTERM, and wait for their ends."""
        for name in names or tuple(self._running):
            self.loop.call_soon_threadsafe(self._processes[name].stop)
        for name in names or tuple(self._running):
            self.loop.call(self._end(name))

    def kill(self, *names: str) -> None:
        """End them at once."""
        for name in names:
            self._die(name)
            self.loop.call(self._end(name))

    def restart(self, **settings: Settings) -> None:
        """Begin both anew, in the machine's time, with these settings."""
        self.stop()
        self.time.ahead = 0.0
        self.settings = {name: settings.get(name, {}) for name in self.wires}
        self.start()

    def begin(self) -> None:
        """Make ready for a story: Covey as it is by default."""
        if len(self._running) < len(self.wires) or abs(self.time.ahead) > DRIFT or any(self.settings.values()):
            self.restart()
        for wire in self.wires.values():
            wire.denials.clear()
            wire.writes.clear()
            wire.dry_runs.clear()
            wire.death = None
        self.record.begin()

    async def _start(self, name: str) -> None:
        common: dict[str, Any] = {
            "kubeconfig": self._accounts[name],
            "leader_elect": False,
            "metrics_bind_address": "127.0.0.1:0",
            "health_probe_bind_address": "127.0.0.1:0",
        }
        self._rested = ()
        transport, clock = self.wires[name].connect, self.time.clock
        process: OperatorProcess | SchedulerProcess
        if name == OPERATOR:
            operator = OperatorSettings(**common, **self.settings[name])
            process = OperatorProcess(operator, clock, transport=transport, die=lambda _: None)
        else:
            scheduler = SchedulerSettings(**common, bind_address=self.extender, **self.settings[name])
            process = SchedulerProcess(scheduler, clock, transport=transport)
        self._processes[name] = process
        self._running[name] = asyncio.create_task(process.run(), name=f"covey {name}")

    def _die(self, name: str) -> None:
        """Cancel a process whose requests reach nobody from now on."""
        self.wires[name].cut()
        self.loop.call_soon_threadsafe(self._running[name].cancel)

    async def _end(self, name: str) -> None:
        task = self._running.pop(name)
        await asyncio.wait({task})
        self._processes.pop(name)
        await self.wires[name].renew()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    @contextlib.contextmanager
    def late(self, name: str, *plurals: str) -> Iterator[None]:
        """Keep the news of these kinds from a process for as long as the block lasts; no time passes by itself meanwhile."""
        wire, held = self.wires[name], dict.fromkeys(plurals, asyncio.Event())
        wire.late.update(held)
        try:
            with self.time.stand_still():
                yield
        finally:
            self._rested = ()
            for plural in plurals:
                self.loop.call_soon_threadsafe(wire.late.pop(plural).set)

    # Rest

    def settle(self, ahead: float = AHEAD, *, listed: bool = True) -> None:
        """Wait until nobody has anything to do, and Covey will have nothing for ``ahead`` seconds of its time.

        Covey's part is a fact: its loop waits and no request is open; its copies show what the API server lists; and
        the timers that are due within ``ahead`` seconds have fired, time having passed for them, without a write. Of
        others it is known what they owe (``debts``). Without ``listed`` that is so as far as the record knows.

        Raises:
            NotAtRestError: nothing has moved for minutes; the message says what is owed by whom.
        """
        if (
            self._rested == (*self._marks(), self.cluster.writes, self.time.ahead, *self.profiles)
            and ahead <= self._calm
        ):
            return
        moved, owed = (-1, -1), ["nothing is known yet"]
        end = self.time.ahead + 2 * ahead
        while True:
            self._revive()
            if self._marks() != moved:
                moved, self._moved = self._marks(), time.monotonic()
            if time.monotonic() - self._moved > PATIENCE:
                raise NotAtRestError("nothing has moved for minutes, and it is not at rest:\n" + "\n".join(owed))
            if not self.loop.wait_idle(1.0):
                owed = ["Covey: has something to do, or waits for an answer"]
                continue
            before = self._marks()
            owed = self.loop.call(self._find_owed(listed=False))
            if not owed and self._pass(ahead, end):
                # What is dear comes last: whether all this is what the API server has. Timers that were set meanwhile fire.
                writes = self.cluster.writes
                owed = self.loop.call(self._find_owed(listed=True)) if listed else []
                if not owed and self._pass(ahead, end) and self._marks() == before:
                    if listed:
                        self.record.rests += 1
                        self.cluster.written.clear()
                        self._rested = (*self._marks(), writes, self.time.ahead, *self.profiles)
                        self._calm = ahead
                    return
            with self.loop.changed:
                if self._marks() == before:
                    self.loop.changed.wait(0.1)

    def advance(self, seconds: float) -> None:
        """Let so much time pass at rest, in strides, and come to rest again."""
        self.settle()
        left = seconds
        while left > 0:
            stride = min(left, max(seconds / 16, 0.5))
            self.loop.pass_time(stride)
            left -= stride
            self.wait(self.loop.is_idle, "Covey has done what was due")
        self.settle()

    def _pass(self, ahead: float, end: float) -> bool:
        """Let timers fire that are due in ``ahead`` seconds, and by ``end``; False as soon as something is written or seen."""
        before, end = self._marks(), min(self.time.ahead + ahead, end)
        while True:
            if not self.loop.wait_idle(1.0) or self._marks() != before:
                return False
            due = self.loop.due()
            if due is None or self.time.ahead + due > end:
                return True
            self.loop.pass_time(max(due, 0.001))

    def _marks(self) -> tuple[int, int]:
        """What grows with everything that happens: events, and what Covey writes."""
        return self.record.count, sum(len(wire.writes) for wire in self.wires.values())

    async def _find_owed(self, *, listed: bool) -> list[str]:
        """Who has not seen yet what there is, and who has something to do with it: as recorded, or as listed now."""
        stored: Mapping[str, Mapping[Key, Object]]
        if listed:
            stored = await self._list()
        else:
            stored = {resource.path(None): self.record.objects[resource.kind] for resource in RECORDED}
        copies: list[tuple[str, Mapping[Key, int], Listing]] = [
            (name, wire.copies[listing], listing)
            for name, wire in self.wires.items()
            for listing in wire.watched & wire.copies.keys()
            if listing.path.rpartition("/")[2] not in wire.late
        ]
        for resource in RECORDED:
            known = self.record.objects[resource.kind]
            copies.append(
                ("record", {key: _version(item) for key, item in known.items()}, Listing(resource.path(None)))
            )
        operator = self._processes.get(OPERATOR)
        untold = operator.untold if isinstance(operator, OperatorProcess) else ()
        found = [f"{OPERATOR}: Kopf has not told of {'/'.join(key)}" for key in untold]
        found += [f"{name}: has died" for name, wire in self.wires.items() if wire.is_cut and name in self._running]
        for owner, copy, listing in copies:
            if listing.path in stored:
                items, within = stored[listing.path].items(), self.settings.get(owner, {}).get("namespaces")
                wanted = {
                    key: _version(item)
                    for key, item in items
                    if selects(listing, item) and (not within or key[0] in {"", *within})
                }
                found += [
                    f"{owner}: has not seen what has become of {listing.path} {'/'.join(key)}"
                    for key in wanted.keys() | copy.keys()
                    if copy.get(key) != wanted.get(key)
                ]
        lists = {resource.kind: stored[resource.path(None)].values() for resource in RECORDED}
        return found + list(find_debts(lists, self.profiles if SCHEDULER in self._running else ()))

    async def _list(self) -> dict[str, dict[Key, Object]]:
        """Everything that is recorded or that a process has a copy of, by path, as it is stored."""
        wanted = {resource.path(None) for resource in RECORDED}
        for wire in self.wires.values():
            for listing in wire.watched & wire.copies.keys():
                plural = listing.path.rpartition("/")[2]
                if self.cluster.written & {plural, EVERYTHING} or (plural in _OTHERS and wire.copies[listing]):
                    wanted.add(listing.path)
        order = list(wanted)
        found = await asyncio.gather(*map(self._read, order))
        return dict(zip(order, found, strict=True))

    async def _read(self, path: str) -> dict[Key, Object]:
        request = Request("list", "GET", path, path.rpartition("/")[2], repeatable=True)
        try:
            body = msgspec.json.decode(await self._reader.send(request, seconds=30.0))
        except NotFound:
            return {}
        return {_key(item): item for item in body["items"]}

    def _revive(self) -> None:
        """Start what has died at a write."""
        for name, task in list(self._running.items()):
            if task.done():
                self.loop.call(self._end(name))
                self.start(name)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is so, looking at each change; NotAtRestError where it is not for minutes."""
        until = time.monotonic() + PATIENCE
        while True:
            with self.loop.changed:
                if condition():
                    return
                self.loop.changed.wait(0.1)
            if time.monotonic() > until:
                raise NotAtRestError(f"not so for minutes: {what}")

    def _is_busy(self) -> bool:
        return any(wire.asking for wire in self.wires.values())

    def _note_change(self) -> None:
        with self.loop.changed:
            self.loop.changed.notify_all()

    async def _open(self) -> None:
        connection = await load(str(self.cluster.kubeconfig))
        self._client = Client(connection, user_agent="stage", connections=0, silence=86_400.0)
        self._reader = Transport(connection, user_agent="stage", connections=16, generator=random.Random(0))
        self.record = Record(self._client, self.loop.changed)
        begun = [asyncio.Event() for _ in RECORDED]
        for resource, event in zip(RECORDED, begun, strict=True):
            asyncio.create_task(self.record.keep(resource, event.set))  # noqa: RUF006 - the loop's end cancels it
        for event in begun:
            await event.wait()

    # Nodes and namespaces

    def lend_nodes(self, wanted: Nodes) -> list[str]:
        """Have these nodes, as if they were new; their names begin with what is theirs alone beside their numbers.

        kwok takes ten seconds to play a node that has come back under its name at once.
        """
        kind = replace(wanted, zones=1, blocks=1, racks=1, nodes=1)
        prefix = f"{wanted.prefix}{zlib.crc32(repr(kind).encode()) & 0xFFFF:04x}{self._worn.count(repr(kind)) or ''}-"
        nodes = replace(wanted, prefix=prefix)
        found = {manifest["metadata"]["name"]: manifest for manifest in nodes.manifests()}
        missing = [manifest for name, manifest in found.items() if name not in self._nodes]
        concurrently(lambda manifest: self.cluster.api("POST", "/api/v1/nodes", manifest), missing)
        self._nodes.update(found)
        self._kinds.update(dict.fromkeys(found, repr(kind)))
        return nodes.names

    def drop_nodes(self, names: Iterable[str]) -> None:
        """Delete nodes."""
        gone = list(names)
        self.cluster.delete_nodes(gone)
        for name in gone:
            self._nodes.pop(name, None)

    def keep_nodes(self, names: Iterable[str]) -> None:
        """Delete all nodes but these."""
        self.drop_nodes(self._nodes.keys() - set(names))

    def take_nodes_back(self, names: Iterable[str]) -> None:
        """Take lent nodes back; those that are no longer as they were are deleted."""
        known = self.record.objects["Node"]
        worn = {self._kinds[name] for name in names if not _is_as_new(known.get(("", name)), self._nodes.get(name))}
        self._worn += worn
        self.drop_nodes([name for name in self._nodes if self._kinds[name] in worn])

    def lend_namespace(self) -> str:
        """The name of an empty namespace."""
        if self._spare:
            return self._spare.pop()
        name = f"story-{len(self.cluster.api('GET', '/api/v1/namespaces')['items'])}"
        self.cluster.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"

        def exists() -> bool:
            with contextlib.suppress(Exception):
                return bool(self.cluster.api("GET", account))
            return False

        self.wait(exists, f"namespace {name} has its account")
        return name

    def take_namespace_back(self, name: str) -> None:
        """Empty a namespace: what makes other things first, then what is left."""
        try:
            self._empty(name, "DisaggregatedInference")
            self.settle(0.0, listed=False)
        finally:
            # What a story leaves behind that never comes to rest must not be in the way of the next.
            self._empty(name)
        self.settle()
        self._spare.append(name)

    def _empty(self, name: str, *kinds: str) -> None:
        """Delete what there is of these kinds in a namespace, or of all."""
        for resource in RECORDED:
            items = [key for key in list(self.record.objects[resource.kind]) if key[0] == name]
            wanted = resource.kind in kinds if kinds else resource.kind not in {"Event", "EndpointSlice"}
            if items and wanted:
                self.cluster.api("DELETE", f"{resource.path(name)}?gracePeriodSeconds=0&propagationPolicy=Background")


def _is_as_new(node: Object | None, manifest: Object | None) -> bool:
    if node is None or manifest is None:
        return False
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
    same = all(
        node["metadata"].get(part, {}).items() >= manifest["metadata"].get(part, {}).items()
        for part in ("labels", "annotations")
    )
    labels = node["metadata"].get("labels", {}).keys() == manifest["metadata"].get("labels", {}).keys()
    return (
        ready
        and same
        and labels
        and node["spec"].get("taints", []) == manifest["spec"].get("taints", [])
        and not node["spec"].get("unschedulable")
        and node["status"]["allocatable"] == manifest["status"]["allocatable"]
    )


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _version(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])
