"""The DisaggregatedInference that a conversion builds, and what there is to remark on the way.

What this release would refuse is left out with a remark, for a resource that does not start helps nobody. Which fields
those are is asked of :mod:`covey.api.unsupported`, field by field, so that a release that honours one converts it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from covey.api.constants import INFERENCE_API
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.model import DNS_LABEL
from covey.api.unsupported import unsupported_fields
from covey.convert.fields import ConversionError, FieldRemark, Fields
from covey.convert.levels import Levels

Object = dict[str, Any]

_LONGEST_ROLE: Final = 20
_MOST_PROXIMITIES: Final = 8
#: Labels and annotations under these are read by other controllers and schedulers, never by Covey.
_FOREIGN: Final = (
    "disaggregatedset.x-k8s.io/",
    "grove.io/",
    "kai.scheduler/",
    "kueue.x-k8s.io/",
    "leaderworkerset.sigs.k8s.io/",
    "nvidia.com/",
    "rbg.workloads.x-k8s.io/",
    "scheduling.k8s.io/",
    "scheduling.volcano.sh/",
    "volcano.sh/",
    "workload.serving.volcano.sh/",
)
#: What the API server keeps in an object's metadata, and what kubectl does.
_KEPT_BY_SERVER: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
#: The order in which a person writes the fields of a role.
_ORDER: Final = ("name", "replicas", "minReplicas", "size", "topology", "template", "leaderTemplate")


@dataclass(frozen=True, slots=True)
class _OptionalField:
    """A field that this release may not honour; ``role`` is None for one of the spec."""

    source: str
    role: Object | None
    keys: tuple[str, ...]
    value: Any


@dataclass(slots=True)
class Draft:
    """A DisaggregatedInference in the making."""

    levels: Levels
    metadata: Object = field(default_factory=dict)
    spec: Object = field(default_factory=dict)
    roles: list[Object] = field(default_factory=list)
    remarks: list[FieldRemark] = field(default_factory=list)
    #: Where a pod template stands in the source, and the PriorityClass it names; None for one that names none.
    priorities: list[tuple[str, str | None]] = field(default_factory=list)
    _wishes: list[_OptionalField] = field(default_factory=list)

    def remark(self, path: str, what: str, instead: str = "") -> None:
        """Say that something does not carry over."""
        self.remarks.append(FieldRemark(path, what, instead))

    def take_metadata(self, document: Fields) -> Fields:
        """Carry the object's name, namespace, labels and annotations over.

        Returns:
            The annotations, for what the converter itself understands; the rest is settled by ``finish``.

        Raises:
            ConversionError: it has no name.
        """
        source = document.child("metadata")
        for key in _KEPT_BY_SERVER:
            source.take(key)
        name = source.text("name")
        if not name:
            raise ConversionError(source.at("name"), "is missing", "give the resource a name")
        self.metadata["name"] = name
        if namespace := source.text("namespace"):
            self.metadata["namespace"] = namespace
        if labels := self._carry(source.at("labels"), source.strings("labels")):
            self.metadata["labels"] = labels
        source.child("annotations").take(_LAST_APPLIED)
        return source.child("annotations")

    def _carry(self, path: str, given: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in given.items() if not self._foreign(f"{path}[{key}]", key)}

    def _foreign(self, path: str, key: str) -> bool:
        if key.startswith(_FOREIGN):
            self.remark(path, "is for another controller or scheduler; left out")
            return True
        if is_ours(key):
            self.remark(path, "is under covey.dev, which is Covey's own; left out")
            return True
        return False

    def add_role(self, path: str, name: str, **fields: Any) -> Object:
        """A role, under the nearest name that a role may have.

        Args:
            path: where its name stands in the source.
            name: what the source calls it.
            fields: of the role, by API name; None is left out.
        """
        called = _role_name(name, {role["name"] for role in self.roles})
        if called != name:
            what = f"{name!r} is no name for a role (at most {_LONGEST_ROLE} lower-case letters, digits and -)"
            self.remark(path, what, f"it is called {called}")
        role: Object = {"name": called, **{key: value for key, value in fields.items() if value is not None}}
        self.roles.append(role)
        return role

    def wish(self, source: str, role: Object | None, keys: str, value: Any) -> None:
        """A field that carries over if this release honours it.

        Args:
            source: its path in the source.
            role: the role it belongs to, None for the spec.
            keys: its path below that, with dots.
            value: what it is set to.
        """
        self._wishes.append(_OptionalField(source, role, tuple(keys.split(".")), value))

    def level_of(self, path: str, key: str) -> str | None:
        """The level of a node label's key; a remark where there is none."""
        level = self.levels.by_key.get(key)
        if level is None:
            what = f"the node label {key} is in no level of a known topology; the constraint is left out"
            self.remark(path, what, "give a ClusterTopology that has it with --topology")
        return level

    def domain(self, path: str, name: str) -> str | None:
        """The level of a name that an administrator gave; the name itself, where a level may be called so."""
        if not name or re.fullmatch(DNS_LABEL, name):
            return name or None
        self.remark(path, f"{name!r} is no name for a level; the constraint is left out")
        return None

    def topology_name(self, path: str, name: str) -> None:
        """Use the ClusterTopology of this name if there is one; the same name elsewhere is another object."""
        if not name:
            return
        if name in self.levels.topologies:
            self.spec.setdefault("topology", {})["name"] = name
        else:
            what = f"there is no ClusterTopology {name} of Covey's; left out, the default one is used"
            self.remark(path, what, "give one with --topology, or set spec.topology.name")

    def constrain(self, target: Object, required: str | None, preferred: str | None) -> None:
        """Set ``topology`` of a role or of the spec; a preferred level that is required too adds nothing."""
        wanted = {"required": required, "preferred": preferred if preferred != required else None}
        kept = {key: value for key, value in wanted.items() if value}
        if kept:
            target.setdefault("topology", {}).update(kept)

    def together(self, path: str, roles: Sequence[Object], level: str, mode: str) -> None:
        """All pods of some roles in one domain, whatever their number."""
        rules = self.spec.setdefault("proximity", [])
        if len(rules) == _MOST_PROXIMITIES:
            self.remark(path, f"there are {_MOST_PROXIMITIES} such rules already, which is all there may be; left out")
        else:
            rules.append({"roles": [role["name"] for role in roles], "level": level, "mode": mode})

    def finish(self, document: Fields) -> Object:
        """The whole resource, once the converter has taken what it understands.

        Raises:
            ConversionError: nothing would make up the gang.
        """
        document.take("apiVersion")
        document.take("kind")
        document.take("status")
        self._annotations(document.child("metadata").child("annotations"))
        if not any(role["minReplicas"] for role in self.roles):
            what = "every role has 0 replicas, so nothing would make up the gang"
            raise ConversionError("spec", what, "set the replicas that it runs with, and spec.suspend afterwards")
        self._priority()
        for wish in self._wishes:
            self._grant(wish)
        for path in document.left():
            self.remark(path, "has no counterpart; left out")
        self.remarks = list(dict.fromkeys(self.remarks))
        roles = [{key: role[key] for key in sorted(role, key=_position)} for role in self.roles]
        spec = {**self.spec, "roles": roles}
        return {"apiVersion": INFERENCE_API, "kind": "DisaggregatedInference", "metadata": self.metadata, "spec": spec}

    def _annotations(self, source: Fields) -> None:
        if carried := self._carry(source.path, {key: source.text(key) for key in source.rest()}):
            self.metadata["annotations"] = carried

    def _priority(self) -> None:
        """One PriorityClass for the whole gang: the one that all pod templates name."""
        named = {name for _, name in self.priorities}
        whole = self.spec.get("priorityClassName")
        if whole is None and len(named) == 1:
            (whole,) = named
            if whole is not None:
                self.spec["priorityClassName"] = whole
        for path, name in self.priorities:
            if name is not None and name != whole:
                what = f"{name} is not the PriorityClass of all pods, and a gang has one; left out"
                self.remark(path, what, "set spec.priorityClassName")

    def _grant(self, wish: _OptionalField) -> None:
        role = None if wish.role is None else {"name": wish.role["name"], "size": wish.role.get("size", 1)}
        probe: Object = {"template": {}, **(role or {"name": "any"})}
        spec: Object = {"roles": [probe]}
        _set_path(spec if role is None else probe, wish.keys, wish.value)
        where = ".".join(wish.keys)
        where = f"spec.{where}" if role is None else f"{where} of role {role['name']}"
        detail = f"it would be {str(wish.value).lower() if wish.value is True else wish.value}"
        detail = detail if isinstance(wish.value, (str, int)) else ""
        try:
            refused = unsupported_fields(DisaggregatedInferenceSpec.model_validate_json(json.dumps(spec), strict=True))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_context=False)[0]["msg"]
            self.remark(wish.source, f"stands for {where}, which it cannot be ({problem}); left out")
            return
        if refused:
            self.remark(wish.source, f"stands for {where}, which this release does not support yet; left out", detail)
        else:
            _set_path(self.spec if wish.role is None else wish.role, wish.keys, wish.value)


def _set_path(target: Object, keys: tuple[str, ...], value: Any) -> None:
    for key in keys[:-1]:
        target = target.setdefault(key, {})
    target[keys[-1]] = value


def _position(key: str) -> int:
    return _ORDER.index(key) if key in _ORDER else len(_ORDER)


def _role_name(name: str, taken: set[str]) -> str:
    """A name that a role may have: ``VllmDecodeWorker`` → ``vllm-decode-worker``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    plain = re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "role"
    return next(candidate for candidate in _shorten(plain) if candidate not in taken)


def _shorten(plain: str) -> Iterator[str]:
    yield plain[:_LONGEST_ROLE].strip("-")
    number = 2
    while True:
        end = f"-{number}"
        yield plain[: _LONGEST_ROLE - len(end)].strip("-") + end
        number += 1


def is_ours(key: str) -> bool:
    """Tell whether a label or annotation is under ``covey.dev``, which the CRD refuses to users."""
    prefix = key.partition("/")[0] if "/" in key else ""
    return prefix == "covey.dev" or prefix.endswith(".covey.dev")
