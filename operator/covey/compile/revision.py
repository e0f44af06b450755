"""Revisions: the rolled fields of every role, and the hash that names them.

Only fields whose class is *rolled* take part (the class stands in the models' metadata), in a canonical form:
neither the order of keys nor a default written out changes the hash. A revision can be stored and read back, so that
pods of an earlier one can still be replaced by their like.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.model import ROLLED, values_of
from covey.api.roles import Role
from covey.compile.identity import short_hash

Template = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RoleRevision:
    """The rolled fields of one role. ``hash`` is the value of the pods' label ``covey.dev/revision``."""

    hash: str
    size: int
    template: Template
    leader_template: Template | None = None

    def template_of(self, index: int) -> Template:
        """The template of the pod with this index in its replica: the leader's may differ."""
        return self.leader_template if index == 0 and self.leader_template is not None else self.template


@dataclass(frozen=True, slots=True)
class Revision:
    """The rolled fields of a resource. ``hash`` changes when any role's does."""

    hash: str
    roles: Mapping[str, RoleRevision]
    lws: bool = True

    @classmethod
    def of(cls, spec: DisaggregatedInferenceSpec) -> Revision:
        """The revision that a spec asks for."""
        shared = dict(values_of(spec.compat, ROLLED))
        roles = {role.name: _role_revision(role, shared) for role in spec.roles}
        return cls(_hash({name: role.hash for name, role in roles.items()}), roles, spec.compat.lws)

    def as_data(self) -> dict[str, Any]:
        """Plain JSON, for ``ControllerRevision.data``."""
        roles = {
            name: {"hash": role.hash, "size": role.size, "template": role.template}
            | ({"leaderTemplate": role.leader_template} if role.leader_template is not None else {})
            for name, role in self.roles.items()
        }
        return {"hash": self.hash, "lws": self.lws, "roles": roles}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Revision:
        """What ``as_data`` wrote; hashes are taken as stored, a later release may compute them in another way.

        Raises:
            KeyError: when it is not such data.
        """
        roles = {
            name: RoleRevision(role["hash"], role["size"], role["template"], role.get("leaderTemplate"))
            for name, role in data["roles"].items()
        }
        return cls(data["hash"], roles, data["lws"])


def _role_revision(role: Role, shared: Mapping[str, Any]) -> RoleRevision:
    digest = _hash({"role": dict(values_of(role, ROLLED)), "shared": shared})
    return RoleRevision(digest, role.size, role.template, role.leader_template)


def _hash(value: object) -> str:
    return short_hash(json.dumps(_without_nulls(value), sort_keys=True, separators=(",", ":")), 10)


def _without_nulls(value: object) -> object:
    """Null means absent to the API server."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    return value
