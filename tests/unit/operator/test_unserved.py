"""Kinds that the cluster does not serve keep nobody waiting."""

from __future__ import annotations

from typing import cast

from covey.api import core
from covey.api.inference import Backend
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.operator.observe.caches import Caches
from covey.operator.observe.scope import Scope
from covey.operator.observe.watched import Requeue


def made(*backends: Backend) -> Caches:
    nobody = cast("Client", None)  # no reflector runs
    caches = Caches(nobody, Requeue(), Scope(backends=backends), clock=SYSTEM)
    for informer in caches.informers:
        informer.lose()
    return caches


def test_a_group_that_nobody_serves_is_not_waited_for() -> None:
    caches = made(Backend.EXTENDER)
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


def hyper_node(tier: int) -> core.HyperNode:
    spec = core.HyperNodeSpec(tier, "rack", (core.HyperNodeMember("Node", {"regexMatch": {"pattern": ".*"}}),))
    return core.HyperNode(core.Meta(name="r", uid="1", resource_version=str(tier)), spec)


def test_hyper_nodes_are_waited_for_before_anything_is_judged_by_them() -> None:
    caches = made(Backend.VOLCANO)
    assert caches.domains is not None
    caches.probing.asked.set()
    for reflector in caches._reflectors():
        if reflector is not caches.domains.reflector:
            reflector._serve(served=True)
            reflector.synced.set()
    assert not caches.is_synced
    caches.domains.reflector._lose()
    assert caches.is_synced
    assert caches.cluster.hyper_nodes is not None
    assert isinstance(caches.cluster.hyper_nodes.tier("rack", {}), str)


def test_a_tier_that_changes_is_noticed_and_a_count_of_nodes_is_not() -> None:
    caches = made(Backend.VOLCANO)
    assert caches.domains is not None
    reflector = caches.domains.reflector
    reflector._take("ADDED", hyper_node(1))
    before = caches.domains.found
    assert before.tier("rack", {}) == 1
    reflector._take("MODIFIED", hyper_node(1))
    assert caches.domains.found is before
    reflector._take("MODIFIED", hyper_node(2))
    assert caches.domains.found.tier("rack", {}) == 2
    reflector._take("DELETED", hyper_node(2))
    assert isinstance(caches.domains.found.tier("rack", {}), str)
