"""How the process ends: in which order, and with which status. Its parts are stand-ins; nothing is sent."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from covey.kube.clock import SYSTEM
from covey.kube.connection import Connection
from covey.kube.official_client import Configuration
from covey.observability.families import REGISTRY
from covey.operator.observe.watched import Requeue
from covey.operator.process import main
from covey.operator.process.settings import OperatorSettings


class Parts:
    """Everything that the process wires, and what happened to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.happened: list[str] = []
        self.process = main.OperatorProcess(
            OperatorSettings(metrics_bind_address="127.0.0.1:0", health_probe_bind_address="127.0.0.1:0"), SYSTEM
        )
        self.watch: Callable[[], Any] = asyncio.Event().wait
        self.acquire: Callable[[], Any] = self._at_once
        monkeypatch.setattr(main, "load", self._load)
        monkeypatch.setattr(main, "_DRAIN", 0.01)
        for name in ("Caches", "LeaseElector", "Reconciler", "KopfRunner"):
            monkeypatch.setattr(main, name, getattr(self, f"_{name.lower()}"))

    def run(self) -> int:
        return asyncio.run(self.process.run())

    def _caches(self, _client: object, requeue: Requeue, _scope: object, **_: object) -> object:
        parts = self

        class Caches:
            is_synced = True
            topologies = evicted = None
            find = is_needed = kinds_that_evict = priority_of = None

            @property
            def budgets(self) -> Caches:
                return self

            claims = budgets

            def begin_leading(self, _now: float) -> None:
                parts.happened.append("tombstones forgotten")

            async def run(self) -> None:
                await parts.watch()

            async def wait_until_synced(self) -> None:
                requeue.resource(("ns", "llm"))

        return Caches()

    def _leaseelector(self, *_: object, **__: object) -> object:
        parts = self

        class Elector:
            async def acquire(self) -> None:
                await parts.acquire()

            async def hold(self) -> None:
                await asyncio.Event().wait()

            async def release(self) -> None:
                parts.happened.append("released")

        return Elector()

    def _reconciler(self, *_: object, **__: object) -> Callable[[object], Any]:
        async def reconcile(_: object) -> None:
            self.process.stop()
            try:
                await asyncio.Event().wait()
            finally:
                self.happened.append("ended")

        return reconcile

    def _kopfrunner(self, *_: object) -> object:
        class Runner:
            async def run(self) -> None:
                await asyncio.Event().wait()

        return Runner()

    async def _at_once(self) -> None:
        return

    async def _load(self, *_: object) -> Connection:
        return Connection(Configuration(host="http://127.0.0.1:9"))


def test_the_lease_is_released_when_nobody_acts_on_it_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch)
    assert parts.run() == 0
    assert parts.happened == ["tombstones forgotten", "ended", "released"]


def test_a_part_that_fails_while_the_process_waits_to_lead_is_told_by_the_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts(monkeypatch)
    parts.acquire = asyncio.Event().wait

    async def fails() -> None:
        raise LookupError

    parts.watch = fails
    assert parts.run() == 1
    assert parts.happened == ["released"]


def shown() -> set[str]:
    return {family.name for family in REGISTRY.collect()}


def test_process_when_run_again_in_any_thread_leaves_nothing_in_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold(), gc.get_freeze_count(), shown()
    with ThreadPoolExecutor(1) as beside:
        for _ in range(2):
            assert beside.submit(Parts(monkeypatch).run).result() == 0
    assert (gc.get_threshold(), gc.get_freeze_count(), shown()) == before
