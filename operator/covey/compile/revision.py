"""Revisions, and the layout of a resource: which replicas there are, and of which revision each is.

A revision is the rolled fields of every role, and the hash that names them. Only fields whose class is *rolled* take
part (the class stands in the models' metadata), in a canonical form: neither the order of keys nor a default written out
makes a difference. Two revisions are the same when their contents are, as this release reads them. A hash is only a
name, the value of a label on pods: a later release, with a field more, would compute another one, and no pod is replaced
for that.

The layout: unit → role → replica number → revision. Numbers need not be consecutive: scale-down takes what is not ready
first, so holes appear; they are filled lowest first when the resource grows again. Every replica has a revision of its
own, so that replicas of two revisions can stand side by side.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.model import ROLLED, values_of
from covey.api.roles import Role, Subdomain
from covey.api.routing import Compat
from covey.compile.identity import ReplicaKey, Slot, short_hash

Template = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RoleRevision:
    """The rolled fields of one role, by API name, defaults written out.

    ``hash`` is the value of the pods' label ``covey.dev/revision``, ``rolled`` has the role's own fields, ``shared``
    those that all roles of a resource have. ``gathered`` says that the pods have their addresses by the one headless
    Service of the resource, not by one of their role's; it is no content of the revision: pods keep the addresses that
    they were made with, and those of former releases were not gathered.
    """

    hash: str
    rolled: Mapping[str, Any]
    shared: Mapping[str, Any]
    gathered: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, role: Role, compat: Compat, name: str = "") -> RoleRevision:
        """The revision that a role asks for; under a recorded hash if given, and then as former releases made pods."""
        rolled, shared = dict(values_of(role, ROLLED)), dict(values_of(compat, ROLLED))
        # What happens anyway is left out: pods of former releases, which knew nothing else, are of this revision.
        if role.network and role.network.subdomain is Subdomain.UNIQUE_PER_REPLICA:
            rolled["network"] = {"subdomain": role.network.subdomain.value}
        own = role.network is not None and bool(role.network.ports or rolled.get("network"))
        return cls(name or _hash({"role": rolled, "shared": shared}), rolled, shared, gathered=not (name or own))

    @property
    def size(self) -> int:
        """Pods in one replica."""
        return int(self.rolled["size"])

    @property
    def has_own_subdomain(self) -> bool:
        """Tell whether each replica has a headless Service of its own."""
        return bool(self.rolled.get("network"))

    @property
    def lws(self) -> bool:
        """Tell whether LeaderWorkerSet's variables are set."""
        return bool(self.shared["lws"])

    def template_of(self, index: int) -> Template:
        """The template of the pod with this index in its replica: the leader's may differ."""
        leader: Template | None = self.rolled.get("leaderTemplate") if index == 0 else None
        worker: Template = self.rolled["template"]
        return worker if leader is None else leader

    def of_size(self, size: int) -> RoleRevision:
        """The same revision with another number of pods."""
        return replace(self, rolled={**self.rolled, "size": size})

    def is_same(self, other: RoleRevision) -> bool:
        """Tell whether both have the same content, whatever their hashes are."""
        one, another = (self.rolled, self.shared), (other.rolled, other.shared)
        return one == another or without_nulls(one) == without_nulls(another)


@dataclass(frozen=True, slots=True)
class Revision:
    """The rolled fields of a resource. ``hash`` changes when any role's does."""

    hash: str
    roles: Mapping[str, RoleRevision]

    @classmethod
    def of(cls, spec: DisaggregatedInferenceSpec) -> Revision:
        """The revision that a spec asks for."""
        return _of({role.name: RoleRevision.of(role, spec.compat) for role in spec.roles})

    @property
    def pod_claims(self) -> Iterator[Mapping[str, Any]]:
        """The claims of devices that its templates have (``spec.resourceClaims`` of pods), some more than once."""
        for role in self.roles.values():
            for index in range(min(role.size, 2)):
                yield from role.template_of(index)["spec"].get("resourceClaims") or ()

    def is_same(self, other: Revision) -> bool:
        """Tell whether all roles have the same content."""
        return self.roles.keys() == other.roles.keys() and all(
            role.is_same(other.roles[name]) for name, role in self.roles.items()
        )

    def pairing(self, roles: Iterable[str]) -> str:
        """The name of the combination of the revisions of these roles; ``hash`` where they are all."""
        return _hash({name: self.roles[name].hash for name in roles})

    def known_as(self, earlier: Iterable[Revision], stays: Collection[str] = ()) -> Revision:
        """The same content under the hashes that pods carry.

        Args:
            earlier: stored revisions, the newest first; the first one that has a role's content gives the role its
                hash.
            stays: roles whose pods may become ones of this revision, and keep the addresses of those before them.
        """
        given = tuple(earlier)
        whole = next((revision for revision in given if revision.is_same(self)), None)
        if whole is not None:
            return whole
        roles = {
            name: next(
                (
                    revision.roles[name]
                    for revision in given
                    if name in revision.roles and role.is_same(revision.roles[name])
                ),
                _as_before(role, name, given) if name in stays else role,
            )
            for name, role in self.roles.items()
        }
        return _of(roles)

    def with_hashes(self, hashes: Mapping[str, str], whole: str, gathered: Collection[str] = ()) -> Revision:
        """The same revision under recorded hashes, with the addresses that were recorded.

        Raises:
            KeyError: a role has no hash.
        """
        roles = {name: replace(role, hash=hashes[name], gathered=name in gathered) for name, role in self.roles.items()}
        return Revision(whole, roles)


def _as_before(role: RoleRevision, name: str, earlier: Iterable[Revision]) -> RoleRevision:
    """A role with the addresses that its newest revision has."""
    former = next((revision.roles[name] for revision in earlier if name in revision.roles), role)
    return replace(role, gathered=former.gathered)


def _of(roles: Mapping[str, RoleRevision]) -> Revision:
    return Revision(_hash({name: role.hash for name, role in roles.items()}), roles)


def _hash(value: object) -> str:
    return short_hash(json.dumps(without_nulls(value), sort_keys=True, separators=(",", ":")), 10)


def without_nulls(value: object) -> object:
    """Copy a JSON value without the fields that are null, which mean absent to the API server."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(item) for item in value]
    return value


#: The revision of each replica, by number, ascending.
Replicas = Mapping[int, RoleRevision]
#: The replicas of each role.
Unit = Mapping[str, Replicas]


@dataclass(frozen=True, slots=True)
class RoleCount:
    """Replicas of a role that each unit shall have, and the minimum without which it must not start."""

    replicas: int
    minimum: int


@dataclass(frozen=True, slots=True)
class UnitCount:
    """Replicas of one unit that have come as far as is asked, by role, next to the minimum of each.

    The one place where that is decided: whether a unit has its minimum of bound, of Ready or of any other replicas.
    """

    counts: Mapping[str, int]
    minimums: Mapping[str, int]

    @classmethod
    def of(cls, counts: Mapping[str, int], roles: Mapping[str, RoleCount]) -> UnitCount:
        """Compare counts of replicas with the minimums of ``roles``."""
        return cls(counts, {name: count.minimum for name, count in roles.items()})

    @property
    def has_minimum(self) -> bool:
        """Tell whether every role has as many replicas as its minimum."""
        return not self.lacking

    @property
    def lacking(self) -> Mapping[str, tuple[int, int]]:
        """The roles that have too few: their replicas and their minimum."""
        counts = ((name, self.counts.get(name, 0), least) for name, least in self.minimums.items())
        return {name: (count, least) for name, count, least in counts if count < least}

    def __str__(self) -> str:
        """``prefill 1/2, decode 0/1``: the roles that have too few."""
        return ", ".join(f"{name} {count}/{least}" for name, (count, least) in self.lacking.items())


@dataclass(frozen=True, slots=True)
class Scale:
    """Units and replicas that are wanted: the one place where a spec's numbers are read.

    ``roles`` has what the spec says of each unit. ``totals`` has the replicas of roles that somebody else sets, over
    all units; ``shares`` what that makes of each unit.
    """

    units: int
    roles: Mapping[str, RoleCount]
    totals: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[int, Mapping[str, RoleCount]] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: DisaggregatedInferenceSpec, totals: Mapping[str, int] | None = None) -> Scale:
        """The scale that a spec asks for; no units while it is suspended.

        Args:
            spec: the spec.
            totals: replicas over all units, by role, where it is not the spec that says how many.
        """
        roles = {role.name: RoleCount(role.replicas, role.min_replicas) for role in spec.roles}
        units = 0 if spec.suspend else spec.replicas
        return cls(units, roles, totals or {}).over(range(units))

    def over(self, units: Iterable[int]) -> Scale:
        """The same scale for these units: totals are spread evenly, and units of lower number have the remainder."""
        numbers = sorted(units)
        spread = {
            name: dict(zip(numbers, shares(total, len(numbers), self.roles[name].minimum), strict=True))
            for name, total in self.totals.items()
        }
        by_unit = {
            unit: {**self.roles}
            | {name: replace(self.roles[name], replicas=counts[unit]) for name, counts in spread.items()}
            for unit in (numbers if spread else ())
        }
        return replace(self, shares=by_unit)

    def unit(self, unit: int) -> Mapping[str, RoleCount]:
        """Replicas and minimum of each role of one unit."""
        return self.shares.get(unit, self.roles)

    def count(self, unit: int, role: str) -> RoleCount:
        """Replicas and minimum of one role of one unit."""
        return self.unit(unit)[role]

    def total(self, role: str) -> int:
        """Replicas of a role that all units shall have together."""
        if role not in self.totals:
            return self.roles[role].replicas * self.units
        return sum(share[role].replicas for share in self.shares.values())


def shares(total: int, units: int, minimum: int) -> list[int]:
    """Replicas of each unit: as even as can be, none below its minimum, the greater ones first."""
    share, rest = divmod(max(total, minimum * units), units) if units else (0, 0)
    return [share + (rank < rest) for rank in range(units)]


@dataclass(frozen=True, slots=True)
class Layout:
    """The units of a resource, ascending, each with its replicas by role.

    ``together``: labels of replicas (unit, role, number) that are placed all or none. ``scale``: how many there are
    meant to be, where that is not what the spec says of each unit.
    """

    units: Mapping[int, Unit]
    together: Mapping[ReplicaKey, Mapping[str, str]] = field(default_factory=dict)
    scale: Scale | None = None

    @classmethod
    def of(cls, numbers: Mapping[int, Mapping[str, Iterable[int]]], revision: Revision) -> Layout:
        """Units and replicas by number, all of one revision."""
        return cls(
            {
                unit: {role: dict.fromkeys(numbers, revision.roles[role]) for role, numbers in roles.items()}
                for unit, roles in numbers.items()
            }
        )

    @classmethod
    def fresh(cls, scale: Scale, revision: Revision) -> Layout:
        """Units and replicas numbered from 0, as of a resource that is new."""
        units = {
            unit: {name: range(count.replicas) for name, count in scale.unit(unit).items()}
            for unit in range(scale.units)
        }
        return replace(cls.of(units, revision), scale=scale if scale.totals else None)

    def replicas(self) -> Iterator[tuple[int, str, int, RoleRevision]]:
        """Every unit, role and replica with its revision, in order."""
        for unit, roles in self.units.items():
            for role, replicas in roles.items():
                for number, revision in replicas.items():
                    yield unit, role, number, revision

    def slots(self) -> Iterator[Slot]:
        """The place of every pod, by unit, role, replica and index."""
        for unit, role, replica, revision in self.replicas():
            for index in range(revision.size):
                yield Slot(unit, role, replica, index)

    def revision_of(self, slot: Slot) -> RoleRevision | None:
        """The revision of a place's replica; None outside the layout."""
        return self.units.get(slot.unit, {}).get(slot.role, {}).get(slot.replica)
