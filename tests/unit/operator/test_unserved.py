"""Kinds that the cluster does not serve keep nobody waiting."""

from __future__ import annotations

from typing import cast

from covey.api.inference import Backend
from covey.kube.client import Client
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.operator.caches import Caches


def made() -> Caches:
    nobody = cast("Client", None)  # no reflector runs
    return Caches(nobody, (), lambda _: None, lambda _key, _delay: None, backends=(Backend.EXTENDER,))


def test_a_group_that_nobody_serves_is_not_waited_for() -> None:
    caches = made()
    every = caches._reflectors()
    missing = [
        reflector for kind in (POD_GROUPS, COMPOSITE_POD_GROUPS) for reflector in caches.objects[kind.type].reflectors
    ]
    for reflector in every:
        if reflector not in missing:
            reflector._serve(served=True)
            reflector.synced.set()
    assert not caches.is_synced
    for reflector in missing:
        reflector._lose()
    assert caches.is_synced
    assert caches.cluster.unserved == {POD_GROUPS, COMPOSITE_POD_GROUPS}


def test_pods_are_always_waited_for() -> None:
    caches = made()
    for reflector in caches._reflectors():
        reflector._lose()
    assert not caches.is_synced
