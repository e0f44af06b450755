"""The world with an operator that is a process: late watches, refused requests, kills between any two writes.

``World`` is what is true; a test changes it by ``hands``, and the operator finds it changed when a watch tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Self

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.api.inference import DisaggregatedInference
from covey.backends import Owned
from covey.kube.resources import (
    COMPOSITE_POD_GROUPS,
    DISAGGREGATED_INFERENCES,
    NODES,
    PODS,
    ROLE_SCALERS,
    Resource,
)
from covey.operator.model.accepted import read_record
from covey.operator.model.claimed import RootClaim, read_claim
from covey.operator.model.node_drain import Notice
from covey.operator.model.objects import BY_TYPE, CONTROLLER_REVISIONS, ControllerRevision, RoleScaler
from covey.operator.model.observed import SHARED_BUDGET, read_revisions
from covey.operator.observe.expectations import PATIENCE
from unit.operator.wild.api_server import ApiServer, Json
from unit.operator.wild.line import Line, Trouble, read_object
from unit.operator.wild.process import OperatorRun
from unit.operator.world import World
from virtual_time import VirtualTimeLoop

_EPOCH: Final = 1_800_000_000.0
#: Seconds without a write after which nothing more comes: every retry is sooner.
_REST: Final = 150.0
_TURNS: Final = 60
#: Seconds after which a process that works has seen everything.
_SEEN: Final = 2.0
#: Seconds in which a process that is about to be killed may write.
_WHILE: Final = 2.0


class Wild:
    """One resource, its API server and its operator, which runs until the end of the context.

    Args:
        inference: The resource.
        seed: Decides how long everything takes, and which requests fail.
    """

    def __init__(self, inference: DisaggregatedInference, seed: int) -> None:
        self._runner = asyncio.Runner(loop_factory=partial(VirtualTimeLoop, 1_000.0))
        self._loop = self._runner.get_loop()
        self.server = ApiServer(lambda: self.now)
        self.trouble = Trouble(random.Random(seed))
        self.server.create(DISAGGREGATED_INFERENCES, inference.as_object(), None)
        self._name, self._namespace = inference.metadata.name, inference.metadata.namespace
        self._statuses: dict[str, tuple[core.ContainerStatus, ...]] = {}
        self._before: World | None = None
        #: Further checks of what is true after each write, and what they found broken.
        self.checks: list[Callable[[World], None]] = [self._check_pods]
        self.broken: list[str] = []
        #: When whatever was done, and not answered, has been seen.
        self._known_at = 0.0
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._run.kill())
        self._runner.close()

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return _EPOCH + self._loop.time()

    # What the operator does

    def _start(self) -> None:
        self._run = OperatorRun(Line(self.server, self.trouble, self._check), lambda: self.now)
        self._runner.run(self._run.start())

    def run(self, seconds: float) -> None:
        """Let it work for so long."""
        self._note_lost()
        self._runner.run(asyncio.sleep(seconds))
        self._note_lost()
        self._run.check()
        assert not self.broken, self.broken

    def restart(self, change: Callable[[World], None] | None = None) -> None:
        """Kill it, change something while none runs, and start it anew."""
        self._runner.run(self._run.kill())
        if change is not None:
            with self.hands() as world:
                change(world)
        self._start()

    def expire(self, plural: str) -> None:
        """The version of a watch is too old: what came since is known by a list alone."""
        self.trouble.expired.add(plural)
        with self.hands() as world:
            for name in list(world.pods)[:1]:
                world.annotate(name, {"example.com/touched": str(self.server.version)})

    def crash(self, writes: int) -> None:
        """Kill it after so many writes more, or a while."""
        line = self._run.line
        line.fuse = writes

        async def wait() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(line.cut.wait(), _WHILE if writes else 0.0)

        self._runner.run(wait())
        self.restart()

    def settle(self) -> None:
        """Let all go well until nothing more is done."""
        self.trouble.end()
        for _ in range(_TURNS):
            before = self.server.version
            with self.hands() as world:
                world.finish()
            self.run(_REST)
            if self.server.version == before:
                return
        raise AssertionError("it does not come to rest")

    def _check_pods(self, world: World) -> None:
        """What was done is unknown until a watch has told of it, where the answer was lost, or is forgotten meanwhile."""
        self._note_lost()
        if self.now < self._known_at:
            world.check_pods()
        else:
            world.check()

    def _note_lost(self) -> None:
        lag = max(self.trouble.lags.values(), default=0.0)
        if self.trouble.share or lag > PATIENCE:
            self._known_at = self.now + _SEEN + lag

    def _check(self) -> None:
        world = self.truth()
        for check in self.checks:
            try:
                check(world)
            except AssertionError as error:
                self.broken.append(f"{self.now - _EPOCH:.2f}: {error}")

    # What happens to it

    @contextmanager
    def hands(self) -> Iterator[World]:
        """What is true, to be changed by others than the operator."""
        world, before = self.truth(), self.truth()
        yield world
        self._statuses = world.statuses
        for name in before.pods.keys() - world.pods.keys():
            self.server.remove(PODS, name, self._namespace)
        for name in before.pods.keys() & world.pods.keys():
            self._put(PODS, name, before.pods[name], world.pods[name])
        for stored, found in ((before.objects, world.objects), (before.shared, world.shared)):
            for type_, name in stored.keys() - found.keys():
                self.server.remove(BY_TYPE[type_], name, self._namespace)
            for identity in found.keys() - stored.keys():
                body = msgspec.to_builtins(found[identity])
                self.server.create(BY_TYPE[identity[0]], body, self._namespace)
        if world.inference != before.inference:
            self._edit(world.inference)
        self._claim(world)
        self._notice(world)
        if world.now > self.now:
            self.run(world.now - self.now)

    def _put(self, kind: Resource, name: str, before: core.Pod, after: core.Pod) -> None:
        if after is before or after == before:
            return
        found = self.server.find(kind, name, self._namespace)
        changes = _difference(msgspec.to_builtins(before), msgspec.to_builtins(after))
        self.server.store(kind, _merged(found, changes))

    def _edit(self, inference: DisaggregatedInference) -> None:
        found = self.server.find(DISAGGREGATED_INFERENCES, self._name, self._namespace)
        generation = found["metadata"]["generation"] + 1
        metadata = {**found["metadata"], "generation": generation}
        self.server.store(
            DISAGGREGATED_INFERENCES, {**found, "metadata": metadata, "spec": inference.as_object()["spec"]}
        )

    def _claim(self, world: World) -> None:
        """The roots of others, in another namespace, have the claims that the world says."""
        wanted = {each.uid: each for each in world.claims}
        stored = {each.uid: each for each in self._claims()}
        for uid in stored.keys() - wanted.keys():
            self.server.remove(COMPOSITE_POD_GROUPS, uid, stored[uid].namespace)
        for uid, each in wanted.items():
            if each != stored.get(uid):
                told = {"path": [], "purpose": each.purpose, "victims": msgspec.to_builtins(each.victims)}
                labels = {names.LABEL_INFERENCE: each.name}
                metadata = {"name": uid, "uid": uid, "namespace": each.namespace, "labels": labels}
                since = rfc3339(self.now)
                body = {"metadata": metadata, "spec": {}, "status": {"claim": {**told, "since": since}}}
                self.server.store(COMPOSITE_POD_GROUPS, body)

    def _claims(self) -> Iterator[RootClaim]:
        for each in self.server.items(COMPOSITE_POD_GROUPS):
            if each["metadata"]["namespace"] != self._namespace:
                found = read_claim(read_object(each, Owned))
                if found is not None:
                    yield found

    def _notice(self, world: World) -> None:
        """Nodes are there, and cordoned where the world says so."""
        wanted = {pod.spec.node_name for pod in world.pods.values() if pod.spec.node_name} | world.notices.keys()
        for name in sorted(wanted | {each["metadata"]["name"] for each in self.server.items(NODES)}):
            found = self.server.objects.get((NODES.type, "", name))
            cordoned = name in world.notices
            if found is None:
                status = {"conditions": [{"type": "Ready", "status": "True"}]}
                self.server.create(NODES, {"metadata": {"name": name}, "spec": {}, "status": status}, None)
                found = self.server.find(NODES, name, None)
            if bool(found["spec"].get("unschedulable")) != cordoned:
                self.server.store(NODES, {**found, "spec": {"unschedulable": True} if cordoned else {}})

    # What is true

    @property
    def inference(self) -> DisaggregatedInference:
        """The resource as it is stored."""
        found = self.server.find(DISAGGREGATED_INFERENCES, self._name, self._namespace)
        kept = {key: found["metadata"][key] for key in ("name", "namespace", "uid", "generation")}
        return DisaggregatedInference.model_validate({"metadata": kept, "spec": found["spec"]})

    def truth(self) -> World:
        """Everything that is stored."""
        world = World(self.inference)
        world.now, world.statuses = self.now, dict(self._statuses)
        world.pods = {each["metadata"]["name"]: read_object(each, core.Pod) for each in self.server.items(PODS)}
        world.claims = tuple(self._claims())
        for (type_, namespace, name), body in self.server.objects.items():
            others = namespace not in {"", self._namespace}
            if type_ in BY_TYPE and type_ not in {CONTROLLER_REVISIONS.type, ROLE_SCALERS.type} and not others:
                store = world.shared if (type_, name) == SHARED_BUDGET else world.objects
                store[type_, name] = read_object(body, Owned)
        revisions = (read_object(each, ControllerRevision) for each in self.server.items(CONTROLLER_REVISIONS))
        world.revisions = list(read_revisions(revisions, lambda item: read_record(item.data)))
        world.scalers = {
            each["metadata"]["name"]: read_object(each, RoleScaler) for each in self.server.items(ROLE_SCALERS)
        }
        cordoned = (each for each in self.server.items(NODES) if each["spec"].get("unschedulable"))
        world.notices = {each["metadata"]["name"]: Notice("cordoned") for each in cordoned}
        stored = self.server.find(DISAGGREGATED_INFERENCES, self._name, self._namespace)
        world.status = stored.get("status") or {}
        return world


def _difference(before: Any, after: Any) -> Json:
    """The merge patch from one to the other."""
    found: Json = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        if key not in before:
            found[key] = value
        elif isinstance(value, dict) and isinstance(before[key], dict):
            if inner := _difference(before[key], value):
                found[key] = inner
        elif value != before[key]:
            found[key] = value
    return found


def _merged(found: Json, changes: Json) -> Json:
    made = dict(found)
    for key, value in changes.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key] = _merged(made[key], value)
        else:
            made[key] = value
    return made
