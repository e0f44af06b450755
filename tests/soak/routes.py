"""Laws of routing: a router that keeps to ``covey.dev/pairing`` (``screener.py``) in front of every resource.

mixed       A request could go from prefill to decode of a combination of images that was in no spec (R2), or engines of one
            role of one pairing have had different images. Nothing excuses it.
routed      A pod is marked as draining and may still be found by routers (R3). Nothing excuses it: one write does both.
handed over A label of a pod that serves is changed, and then no pairing of its unit is whole, though one was before (R4).
            Excused while others took a pod of the unit a moment ago: whoever relabels need not have seen it.
refused     For half a minute no pairing of a unit is whole, though engines of a combination that was whole before are
            Ready in every role (R1). Excused while a pod of the unit was lost a moment ago, and for a resource that is
            suspended or going.

out of reach  A prefill takes requests in a domain, and of its pairing no decode does, though one does elsewhere in the unit:
            a router that keeps to the domain of a level for which ``proximity`` is required would fail them (R5). Nothing
            excuses it.

Combinations are told apart by images in ``mixed``, since only
the image says what runs, and by revisions in ``refused``, since other combinations may have the same images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from screener import Endpoint, find_routes
from soak.facts import Json, Owner, Pod, Side
from soak.invariants import Violation
from soak.world import World

#: Roles that serve by their names.
ROLES: Final = ("prefill", "decode")
#: Quiet seconds for which nothing may be whole.
UNPAIRED: Final = 30.0
_Unit = tuple[Owner, int]


@dataclass(frozen=True)
class _Engine:
    """A pod that a router may choose."""

    body: Json
    unit: _Unit
    role: str
    pairing: str
    image: str
    revision: str
    owner_uid: str
    node: str


@dataclass
class Routes:
    """What a router could do, and what it could have done before."""

    world: World
    #: How many events a request could go somewhere after, and how many labels of pods that serve were changed.
    judged: int = 0
    handed_over: int = 0
    #: How many events a prefill had a decode in its domain after, where it has to.
    in_reach: int = 0
    _engines: dict[Owner, dict[str, _Engine]] = field(default_factory=dict)
    #: Images of all roles that serve, as they were in specs.
    _specs: dict[Owner, set[tuple[str, ...]]] = field(default_factory=dict)
    #: The image of each role of each pairing; the revisions of each pairing that was whole.
    _images: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _known: dict[Owner, dict[str, Mapping[str, str]]] = field(default_factory=dict)
    _since: dict[_Unit, float] = field(default_factory=dict)

    def note_spec(self, owner: Owner, spec: Json) -> None:
        """A spec is about to be written, or was seen: it may be in force from now on."""
        # A tenant's container may lack an image: then no pod can be made of it, and no request can go there.
        images = {each["name"]: each["template"]["spec"]["containers"][0].get("image") for each in _serving(spec)}
        if all(images.values()):
            self._specs.setdefault(owner, set()).add(tuple(images[role] for role in _roles(images)))

    def take(self, body: Json, pod: Pod, *, gone: bool, at: float) -> Iterator[Violation]:
        """Judge an event of a pod."""
        if pod.replica is None or pod.replica.side.role not in ROLES:
            return
        side, engines = pod.replica.side, self._engines.setdefault(pod.replica.side.owner, {})
        whole = self._whole(side)
        before, found = engines.pop(pod.uid, None), None if gone else Endpoint.of(body)
        if not gone and {"covey.dev/draining", "covey.dev/endpoint"} <= pod.labels.keys():
            yield Violation("routed", f"{pod.name} drains, and routers find it", at)
        unit = (side.owner, side.unit)
        if found is None:
            yield from self._out_of_reach(unit, at)
            return
        revision = pod.labels.get("covey.dev/revision", "")
        engine = _Engine(body, unit, side.role, found.revision, found.image, revision, pod.owner_uid, pod.node)
        engines[pod.uid] = engine
        yield from self._out_of_reach(unit, at)
        yield from self._mixed(pod, engine, at)
        if before is not None and before.pairing and found.revision and before.pairing != found.revision:
            self.handed_over += 1
            if whole and not self._whole(side) and not self._is_lost(engine.unit, at, ours=False):
                words = f"{pod.name} went from {before.pairing} to {found.revision}, and nothing is whole"
                yield Violation("handed over", f"{words}: {self._told(engine.unit)}", at)
        self._learn(side.owner)

    def tick(self, at: float) -> Iterator[Violation]:
        """Judge what lasts."""
        for unit in {each.unit for engines in self._engines.values() for each in engines.values()} | self._since.keys():
            owner, number = unit
            if self._whole(Side(owner, number, "")) or self._is_lost(unit, at) or not self._could_serve(unit):
                self._since.pop(unit, None)
                continue
            begun = self._since.setdefault(unit, at)
            if at - begun > UNPAIRED:
                self._since[unit] = at
                words = f"{owner.namespace}/{owner.name} unit {number} could serve, and has no whole pairing"
                yield Violation("refused", f"{words}: {self._told(unit)}", at)

    def describe(self) -> str:
        """Say what there was to judge."""
        somewhere = (
            f"routers had somewhere to go after {self.judged} events, and had to keep to a domain after {self.in_reach}"
        )
        return f"{somewhere}; {self.handed_over} pods were handed over"

    def _mixed(self, pod: Pod, engine: _Engine, at: float) -> Iterator[Violation]:
        owner = engine.unit[0]
        roles = self._roles_of(owner)
        routes = find_routes((each.body for each in self._engines[owner].values()), roles)
        self.judged += bool(routes)
        if mixed := routes - self._specs.get(owner, set()):
            yield Violation("mixed", f"after {pod.name} {roles} could be {sorted(mixed)}, which no spec has had", at)
        if engine.pairing:
            known = self._images.setdefault((pod.owner_uid, engine.pairing, engine.role), engine.image)
            if known != engine.image:
                words = f"{pod.name} runs {engine.image} in {engine.pairing}, of which {engine.role} is {known}"
                yield Violation("mixed", words, at)

    def _out_of_reach(self, unit: _Unit, at: float) -> Iterator[Violation]:
        resource = self.world.resources.get(unit[0])
        for near in resource.wanted.near if resource is not None else ():
            found: dict[tuple[str, str], dict[str, set[str | None]]] = {}
            for each in self._of(unit) if near.roles.issuperset(ROLES) else ():
                node = self.world.nodes.get(each.node)
                domain = node.labels.get(near.label) if node is not None else None
                found.setdefault((each.owner_uid, each.pairing), {}).setdefault(each.role, set()).add(domain)
            for (_, pairing), domains in found.items():
                prefill, decode = (domains.get(role, set()) for role in ROLES)
                # Nobody knows where a node lies that was deleted, and whose pods are about to go.
                if not pairing or not prefill or not decode or None in prefill | decode:
                    continue
                self.in_reach += 1
                if alone := prefill - decode:
                    words = f"{unit[0].namespace}/{unit[0].name} unit {unit[1]}: prefill of {pairing} in {sorted(map(str, alone))}"
                    yield Violation("out of reach", f"{words}, its decode in {sorted(map(str, decode))}", at)

    def _whole(self, side: Side) -> set[str]:
        """The pairings that are whole in a unit."""
        found: dict[str, set[str]] = {}
        for each in self._of((side.owner, side.unit)):
            if each.pairing:
                found.setdefault(each.pairing, set()).add(each.role)
        return {pairing for pairing, there in found.items() if there >= set(self._roles_of(side.owner))}

    def _learn(self, owner: Owner) -> None:
        """Remember the revisions of pairings that are whole."""
        found: dict[str, dict[str, str]] = {}
        for each in self._engines[owner].values():
            if each.pairing:
                found.setdefault(each.pairing, {})[each.role] = each.revision
        roles = set(self._roles_of(owner))
        self._known.setdefault(owner, {}).update(
            (name, parts) for name, parts in found.items() if parts.keys() >= roles
        )

    def _could_serve(self, unit: _Unit) -> bool:
        resource = self.world.resources.get(unit[0])
        if resource is None or resource.going or resource.wanted.suspended:
            return False
        there = {(each.role, each.revision) for each in self._of(unit) if each.pairing}
        return any(parts.items() <= there for parts in self._known.get(unit[0], {}).values())

    def _of(self, unit: _Unit) -> Iterable[_Engine]:
        return [each for each in self._engines.get(unit[0], {}).values() if each.unit == unit]

    def _roles_of(self, owner: Owner) -> tuple[str, ...]:
        resource = self.world.resources.get(owner)
        return _roles(resource.wanted.parts) if resource is not None else ROLES

    def _is_lost(self, unit: _Unit, at: float, *, ours: bool = True) -> bool:
        losses = self.world.recent_losses(at)
        return any((ours or not e.ours) and (e.replica.side.owner, e.replica.side.unit) == unit for e in losses)

    def _told(self, unit: _Unit) -> list[str]:
        found = (
            f"{each.body['metadata']['name']} {each.revision} in {each.pairing or None}" for each in self._of(unit)
        )
        return sorted(found)


def _serving(spec: Json) -> Iterator[Json]:
    return (each for each in spec["roles"] if each["name"] in ROLES and each.get("template"))


def _roles(names: Iterable[str]) -> tuple[str, ...]:
    there = set(names)
    return tuple(role for role in ROLES if role in there)
