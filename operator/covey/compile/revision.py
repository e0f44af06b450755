"""Revisions: the rolled fields of every role, and the hash that names them.

Only fields whose class is *rolled* take part (the class stands in the models' metadata), in a canonical form: neither
the order of keys nor a default written out makes a difference. Two revisions are the same when their contents are, as
this release reads them. A hash is only a name, the value of a label on pods: a later release, with a field more, would
compute another one, and no pod is replaced for that.
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
from covey.compile.identity import short_hash

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
