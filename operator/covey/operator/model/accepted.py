"""The last accepted spec, as a ControllerRevision keeps it: it is what is repaired.

==========  ===========================================================================================================
``format``  2. Without it the data are of format 1: ``hash``, ``lws`` and the rolled fields of each role, no spec.
``spec``    the spec as the user stored it. While a change of rolled fields is held, these fields are the ones that run.
resolved    ``backend``, ``dialect`` (left out where it has one only), ``schedulerName``, ``topology`` (``name``, ``levels`` and the
            label ``keys`` of each; empty where none was chosen, null in records of former releases): what the spec was
            resolved to. It does not change by itself.
``hashes``  ``revision`` and, by role, the values of the label ``covey.dev/revision`` that pods carry.
gathered    roles whose pods have their addresses by the Service of the whole resource (``RoleRevision.gathered``); left out
            where there are none, as in records of former releases.
==========  ===========================================================================================================

The content is read again with this release's models and compared as read. What this release does not know of it
(after a downgrade) is left out; when that leaves no spec the record cannot be read. Neither can a record of a later
format, or one that asks for pods that the CRD lets nobody ask for: the API server asks nobody about what a
ControllerRevision contains, and the operator makes pods from it. Rules about anything else may be younger than the
record. Decisions must then go by the pods themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from covey.api.inference import BackendName, DisaggregatedInferenceSpec
from covey.api.model import ROLLED, class_of
from covey.api.roles import Role
from covey.api.routing import Compat
from covey.api.rules import Broken, broken_bounds, broken_rules_of_template
from covey.compile.groups import Levels
from covey.compile.revision import Revision, RoleRevision, without_nulls

FORMAT: Final = 2
#: Values that are left out of one spec before it counts as unreadable.
_PATIENCE: Final = 16

#: Fields of a role that format 1 has.
_FIRST: Final = frozenset({"size", "template", "leaderTemplate"})
_ROLLED: Final = frozenset(
    field.alias or name for name, field in Role.model_fields.items() if class_of(field) is ROLLED
)

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Choices that a spec was resolved to: backend, scheduler, topology.

    ``topology`` is None where the scheduler process detects one, and so are its levels.
    """

    backend: BackendName
    scheduler_name: str
    topology: str | None = None
    levels: Levels | None = None
    dialect: str = ""

    def is_same(self, other: Resolved) -> bool:
        """Tell whether both say the same, as far as both know: a record of a former release has no keys."""
        known = all(record.levels and any(record.levels.values()) for record in (self, other))
        if known or self.levels is None or other.levels is None:
            return self == other
        return replace(self, levels=None) == replace(other, levels=None) and list(self.levels) == list(other.levels)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A spec that has been accepted: as stored, as read, and what it was resolved to."""

    spec: DisaggregatedInferenceSpec
    content: Content
    resolved: Resolved
    revision: Revision

    @property
    def effective(self) -> DisaggregatedInferenceSpec:
        """The spec with all choices written out that it was resolved to."""
        topology = self.spec.topology.model_copy(update={"name": self.spec.topology.name or self.resolved.topology})
        resolved = {"backend": self.resolved.backend, "scheduler_name": self.resolved.scheduler_name}
        return self.spec.model_copy(update={**resolved, "topology": topology})

    def is_same(self, other: Accepted) -> bool:
        """Tell whether both say the same to this release."""
        same_spec = self.spec == other.spec or without_nulls(self.content) == without_nulls(other.content)
        return same_spec and self.resolved.is_same(other.resolved) and self.revision.hash == other.revision.hash

    def as_data(self) -> dict[str, Any]:
        """Plain JSON, for ``ControllerRevision.data``; without nulls, with which kubectl cannot create it again."""
        topology: dict[str, Any] = {}
        if self.resolved.topology is not None:
            levels = self.resolved.levels or {}
            topology = {"name": self.resolved.topology, "levels": list(levels)}
            if any(levels.values()):
                topology["keys"] = [list(keys) for keys in levels.values()]
        gathered = [name for name, role in self.revision.roles.items() if role.gathered]
        return {
            "format": FORMAT,
            "spec": without_nulls(self.content),
            "backend": self.resolved.backend.value,
            **({"dialect": self.resolved.dialect} if self.resolved.dialect else {}),
            "schedulerName": self.resolved.scheduler_name,
            "topology": topology,
            "hashes": {
                "revision": self.revision.hash,
                "roles": {name: role.hash for name, role in self.revision.roles.items()},
            },
            **({"gathered": gathered} if gathered else {}),
        }


@dataclass(frozen=True, slots=True)
class Record:
    """The content of a ControllerRevision; one of format 1 has no accepted spec."""

    revision: Revision
    accepted: Accepted | None = None


def read_record(data: Mapping[str, Any]) -> Record | None:
    """Read the data of a ControllerRevision; None when this release cannot read them."""
    try:
        if "format" not in data:
            return Record(_read_first(data))
        return _read_second(data) if data["format"] == FORMAT else None
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def _read_first(data: Mapping[str, Any]) -> Revision:
    compat = Compat(lws=data["lws"])
    roles = {
        name: RoleRevision.of(
            Role.model_validate({"name": name, **{key: role[key] for key in _FIRST & role.keys()}}),
            compat,
            role["hash"],
        )
        for name, role in data["roles"].items()
    }
    for name, role in data["roles"].items():
        for key in ("template", "leaderTemplate"):
            if role.get(key) is not None:
                _refuse(broken_rules_of_template(f"{name}.{key}", role[key]))
    return Revision(data["hash"], roles)


def _read_second(data: Mapping[str, Any]) -> Record:
    spec = read_leniently(data["spec"])
    _refuse(broken_bounds(spec))
    topology = data["topology"] or {}
    levels = None
    if topology:
        keys = topology.get("keys", [()] * len(topology["levels"]))
        levels = {name: tuple(key) for name, key in zip(topology["levels"], keys, strict=True)}
    resolved = Resolved(
        BackendName(data["backend"]), data["schedulerName"], topology.get("name"), levels, data.get("dialect", "")
    )
    hashes = data["hashes"]
    revision = Revision.of(spec).with_hashes(hashes["roles"], hashes["revision"], data.get("gathered", ()))
    return Record(revision, Accepted(spec, data["spec"], resolved, revision))


def _refuse(broken: Iterable[Broken]) -> None:
    """Raise a ValueError for the first rule that is broken."""
    for path, what, _ in broken:
        raise ValueError(f"{path}: {what}")


def read_leniently(content: Content) -> DisaggregatedInferenceSpec:
    """Read a spec without the values that this release does not know.

    Raises:
        ValidationError: something that cannot be done without is wrong.
    """
    rest = content
    for _ in range(_PATIENCE):
        try:
            return DisaggregatedInferenceSpec.model_validate(rest)
        except ValidationError as error:
            if any(problem["type"] == "missing" for problem in error.errors()):
                raise
            rest = _without(rest, [problem["loc"] for problem in error.errors()])
    return DisaggregatedInferenceSpec.model_validate(rest)


def _without(content: Content, places: Sequence[tuple[str | int, ...]]) -> Content:
    """Copy a spec without the values at these places: of each place the innermost key that exists is removed."""
    copy = deepcopy(dict(content))
    # One value can have several things wrong with it, and spoil the list that it lies in: what goes is found first.
    finest = [own for own in places if not any(own == other[: len(own)] != other for other in places)]
    for parent, key in [innermost for place in finest if (innermost := _innermost(copy, place)) is not None]:
        parent.pop(key, None)
    return copy


def _innermost(content: dict[str, Any], place: Sequence[str | int]) -> tuple[dict[str, Any], str] | None:
    node: Any = content
    innermost = None
    for step in place:
        if isinstance(node, dict) and isinstance(step, str) and step in node:
            innermost, node = (node, step), node[step]
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
        else:
            break
    return innermost


def with_rolled(content: Content, revision: Revision) -> Content:
    """The spec with the rolled fields of a revision; its other fields stay."""
    roles = [_with_rolled(role, revision.roles[role["name"]]) for role in content["roles"]]
    shared = next(iter(revision.roles.values())).shared
    return {**content, "roles": roles, "compat": {**(content.get("compat") or {}), **shared}}


def _with_rolled(role: Mapping[str, Any], revision: RoleRevision) -> Mapping[str, Any]:
    kept = {key: value for key, value in role.items() if key not in _ROLLED}
    network = {key: value for key, value in (role.get("network") or {}).items() if key != "subdomain"}
    network |= revision.rolled.get("network") or {}
    return {**kept, **revision.rolled, **({"network": network} if network else {})}
