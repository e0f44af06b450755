"""Pods whose claims are bound go where their volumes are."""

from __future__ import annotations

from typing import Any

import msgspec

from builders.members import GATE, cache, drop, group, member, node, pod, put, role_groups, root_key
from covey.admission.volumes import PersistentVolume, VolumeClaim, Volumes
from covey.api import core
from covey.scheduler.cache import Cache
from unit.scheduler.test_admission import Loop

DISK: dict[str, Any] = {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]}


def on(*names: str) -> PersistentVolume:
    terms = [{"matchExpressions": [{"key": "host", "operator": "In", "values": [name]}]} for name in names]
    body = {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
    return msgspec.convert(body, PersistentVolume)


def claim(volume: str = "", name: str = "disk") -> VolumeClaim:
    body = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"volumeName": volume}}
    return msgspec.convert(body, VolumeClaim)


def world(**spec: Any) -> Cache:
    return cache(
        *(node(name, labels={"host": name}) for name in ("a", "b", "c")),
        group("root", composite=True, minimum=1, desired=1),
        *role_groups("decode", replicas=1, minimum=1, size=1),
        member("decode", 0, gates=(GATE,), gpus=8, spec=DISK | spec),
    )


async def test_a_bound_claim_ties_its_pod_to_the_volumes_node() -> None:
    made = world()
    put(made, on("c"))
    put(made, claim("pv"))
    assert await Loop(made).turn() == {"root-decode-0-0": "c"}


async def test_a_claim_that_is_bound_later_is_looked_at_again() -> None:
    made = world()
    put(made, pod("occupant", node="c", gpus=8))
    put(made, claim())
    put(made, claim("pv"))
    put(made, on("c"))
    loop = Loop(made)
    assert await loop.turn() == {}
    assert loop.admission.decision(root_key("root")).reason == "Infeasible"
    put(made, on("b", "c"))
    assert await loop.turn() == {"root-decode-0-0": "b"}


def shaped(made: Cache) -> core.NodeSelector | None:
    return made.capacity.shape(made.pods.store["ns", "root-decode-0-0"]).node_affinity


async def test_the_pods_own_affinity_and_its_volumes_must_all_hold() -> None:
    own = {"key": "zone", "operator": "In", "values": ["z"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [own]}]}
    made = world(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    put(made, on("b", "c"))
    put(made, claim("pv"))
    found = shaped(made)
    assert found is not None
    keys = [[each.key for each in term.match_expressions or ()] for term in found.node_selector_terms]
    assert keys == [["zone", "host"], ["zone", "host"]]
    put(made, member("decode", 0, pin="b", gpus=8, spec=DISK))  # a pin is no part of the shape, a volume is
    found = shaped(made)
    assert found is not None
    assert [term.match_fields for term in found.node_selector_terms] == [None, None]
    drop(made, claim("pv"))
    assert shaped(made) is None


async def test_a_volume_that_nothing_reaches_matches_no_node() -> None:
    made = world()
    put(made, on())
    put(made, claim("pv"))
    assert await Loop(made).turn() == {}


async def test_an_ephemeral_volumes_claim_is_named_after_pod_and_volume() -> None:
    made = world(volumes=[{"name": "scratch", "ephemeral": {}}])
    put(made, on("b"))
    put(made, claim("pv", "root-decode-0-0-scratch"))
    assert await Loop(made).turn() == {"root-decode-0-0": "b"}


def test_nothing_is_kept_of_what_is_gone() -> None:
    found = Volumes()
    waiting = member("decode", 0, gates=(GATE,), spec=DISK)
    required = on("a").spec.node_affinity
    assert required is not None
    for _ in range(2):
        found.set_pod(waiting)
        assert found.set_claim(("ns", "disk"), "pv") == {waiting.metadata.uid}
        assert found.set_volume("pv", required.required) == {waiting.metadata.uid}
        found.set_volume("pv", None)
        found.set_claim(("ns", "disk"), "")
        found.remove_pod(waiting.metadata.uid)
    assert not any(vars(found).values())
