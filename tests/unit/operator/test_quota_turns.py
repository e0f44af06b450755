"""Turns of the resources of a namespace with quotas, and who has to be looked at first."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from covey.api import core
from covey.kube.client import Client
from covey.kube.watch import ADDED, DELETED, MODIFIED
from covey.operator.observe.quotas import REST, Quotas
from covey.operator.quota.charge import charge_of
from unit.operator.test_quota import gpus, pod

ONE, OTHER, ELSEWHERE = ("ml", "one"), ("ml", "other"), ("web", "one")
CHARGE = charge_of(pod())


class Lists:
    """An API server that has these quotas."""

    def __init__(self, *quotas: core.ResourceQuota) -> None:
        self.quotas = quotas
        self.asked = 0

    async def list(self, *_: Any, **__: Any) -> tuple[list[core.ResourceQuota], str]:
        self.asked += 1
        return list(self.quotas), "1"


class Stage:
    def __init__(self, *quotas: core.ResourceQuota) -> None:
        self.server = Lists(*quotas)
        self.now = 1000.0
        self.woken: list[tuple[str, str]] = []
        self.quotas = Quotas(cast("Client", self.server), (), lambda key, _: self.woken.append(key), lambda: self.now)
        for each in quotas:
            self.show(each)

    def show(self, quota: core.ResourceQuota, kind: Any = ADDED) -> None:
        """As the watch does."""
        reflector = self.quotas.reflectors[0]
        before = reflector.store.get(quota.metadata.key)
        objects = reflector._objects
        list(objects.drop(quota) if kind == DELETED else objects.update(quota))
        self.quotas._on_quota(kind, quota, before)


async def test_resources_of_a_namespace_create_one_after_another() -> None:
    stage = Stage(gpus(8))
    inside: list[int] = []
    most = 0

    async def create() -> None:
        nonlocal most
        async with stage.quotas.turn("ml", wanted=True) as found:
            assert found
            inside.append(1)
            most = max(most, len(inside))
            await asyncio.sleep(0)
            inside.pop()

    await asyncio.gather(*(create() for _ in range(8)))
    assert most == 1
    assert stage.server.asked == 8


async def test_where_there_is_no_quota_nobody_takes_turns() -> None:
    stage = Stage(gpus(8))
    async with stage.quotas.turn("web", wanted=True) as first, stage.quotas.turn("web", wanted=True) as second:
        assert (first, second) == (None, None)
    async with stage.quotas.turn("ml", wanted=False) as unwanted:
        assert unwanted is None
    assert not stage.server.asked


def test_a_change_of_a_quota_wakes_who_waits_for_it() -> None:
    stage = Stage(gpus(8))
    stage.quotas.note(ONE, waits=True, first=None)
    stage.quotas.note(OTHER, waits=False, first=None)
    stage.quotas.note(ELSEWHERE, waits=True, first=None)
    stage.show(gpus(16), MODIFIED)
    stage.show(gpus(16), DELETED)
    assert stage.woken == [ONE, ONE]
    stage.quotas.note(ONE, waits=False, first=None)
    stage.show(gpus(24))
    assert stage.woken == [ONE, ONE]


def test_pods_of_a_minimum_that_runs_are_reserved_until_they_are_there() -> None:
    quotas = Stage(gpus(8)).quotas
    quotas.note(ONE, waits=True, first={CHARGE: 2})
    assert quotas.reserved_demand(OTHER) == {CHARGE: 2}
    assert not quotas.reserved_demand(ONE)
    assert not quotas.reserved_demand(ELSEWHERE)
    quotas.note(ONE, waits=False, first=None)
    assert not quotas.reserved_demand(OTHER)
    quotas.note(ONE, waits=True, first={CHARGE: 2})
    quotas.forget(ONE)
    assert not quotas.reserved_demand(OTHER)


def test_after_a_start_every_resource_is_looked_at_once_first() -> None:
    quotas = Stage(gpus(8)).quotas
    keys = [ONE, OTHER, ELSEWHERE]
    quotas.note_look(ONE)
    assert quotas.settles("ml", keys)
    quotas.note_look(OTHER)
    assert not quotas.settles("ml", keys)
    # A resource that comes later does not run yet.
    assert not quotas.settles("ml", [*keys, ("ml", "new")])


def test_what_is_gone_is_not_remembered() -> None:
    quotas = Stage().quotas
    quotas.note_look(ONE)
    quotas.note(ONE, waits=True, first={CHARGE: 1})
    quotas.forget(ONE)
    assert not any((quotas._waiting, quotas._first, quotas._kept, *quotas._seen.values()))


def test_room_rests_after_it_has_come_free_but_not_for_ever() -> None:
    stage = Stage(gpus(8, 8))
    stage.quotas.note_look(ONE)
    assert not stage.quotas.rests(ONE)
    stage.show(gpus(8, 4), MODIFIED)
    assert stage.quotas.rests(ONE)
    stage.now += 2 * REST
    assert not stage.quotas.rests(ONE)
    stage.show(gpus(80, 81), MODIFIED)
    for step in range(40):
        stage.show(gpus(80, 80 - step), MODIFIED)
        if not stage.quotas.rests(ONE):
            break
        stage.now += REST / 2
    assert 0 < step < 39
