"""The log of a unit's failures, on one of its objects: written before anything is given up for them.

An operator that is killed after it has deleted all pods of a replica, and before it has made any new one, finds here
what it was about to tell them. And the nodes on which a resource has failed before are found here. Only the latest are
kept: pods themselves carry how often their replica has failed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from covey.admission.topologies import recorded_domains
from covey.api import constants as names
from covey.api import core
from covey.api.annotations import read_json
from covey.backends import Identity, Owned
from covey.compile import Slot, Tree, type_of
from covey.compile.restarts import Past

#: On the first object of a unit, or of the resource where units have none.
ANNOTATION: Final = "covey.dev/failure-log"
#: Failures kept of a unit. One takes about 200 bytes; all annotations of an object may have 256 KiB.
_KEPT: Final = 128
#: Nodes that are kept of one failure.
_NODES: Final = 8

#: Levels and values of a domain, from broad to narrow or in no order.
Domain = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a replica, or of one pod of it.

    ``replica`` is role, number and, of a single pod, index, with slashes; ``revision`` what it was made from; ``past``
    what its successors carry; ``why`` a ``FailureCause``; ``nodes`` those that its pods failed on, with their domains.
    """

    unit: int
    replica: str
    revision: str
    past: Past
    why: str
    nodes: Mapping[str, Domain] = field(default_factory=dict)
    #: Which container, and how it ended: for the Event alone, it is not kept.
    detail: str = field(default="", compare=False)

    @property
    def at(self) -> float:
        """Time at which the failure was seen, in seconds since the epoch."""
        return self.past.failed_at


@dataclass(frozen=True, slots=True)
class Log:
    """Failures, the oldest first. ``wholes``: what pods of a unit carry since it was recreated as a whole."""

    failures: tuple[Failure, ...] = ()
    wholes: Mapping[int, Past] = field(default_factory=dict)

    def last(self, unit: int, replica: str) -> Failure | None:
        """The latest failure of a replica."""
        return next(
            (failure for failure in reversed(self.failures) if (failure.unit, failure.replica) == (unit, replica)), None
        )

    def with_failures(self, more: Iterable[Failure], since: float) -> Log:
        """The log with more failures, without those from before ``since`` and the oldest beyond ``_KEPT``."""
        kept = [*(failure for failure in self.failures if failure.at >= since), *more]
        return replace(self, failures=tuple(kept[-_KEPT:]))


def keepers(tree: Tree) -> dict[int, Identity]:
    """The object that keeps the log of each unit: the first one of it, else the first of all."""
    keepers: dict[int, Identity] = {}
    first: Identity | None = None
    for level in tree.levels:
        for body in level.objects:
            identity = type_of(body), body["metadata"]["name"]
            first = first or identity
            unit = body["metadata"]["labels"].get(names.LABEL_UNIT)
            if unit is not None:
                keepers.setdefault(int(unit), identity)
    return {unit: keeper for unit in tree.layout.units if (keeper := keepers.get(unit, first)) is not None}


def key_of(slot: Slot, *, alone: bool) -> str:
    """Key under which a failure of a replica, or of one pod of it (``alone``), is noted."""
    return f"{slot.role}/{slot.replica}/{slot.index}" if alone else f"{slot.role}/{slot.replica}"


def read_log(owned: Owned | None) -> Log:
    """The log that an object carries; what cannot be understood is left out."""
    content = read_json(owned.metadata.annotation(ANNOTATION) if owned else None) or {}
    try:
        wholes = {int(unit): _past(entry) for unit, entry in content.get("units", {}).items()}
        return Log(tuple(map(_failure, content.get("log", ()))), wholes)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return Log()


def dump_log(log: Log) -> str | None:
    """The annotation of a log; None for an empty one."""
    content: dict[str, Any] = {}
    if log.wholes:
        content["units"] = {str(unit): _dump_past(past) for unit, past in log.wholes.items()}
    if log.failures:
        content["log"] = [
            {"unit": failure.unit, "replica": failure.replica, "revision": failure.revision, "why": failure.why}
            | _dump_past(failure.past)
            | ({"nodes": {node: dict(domain) for node, domain in failure.nodes.items()}} if failure.nodes else {})
            for failure in log.failures
        ]
    return json.dumps(content, separators=(",", ":")) if content else None


def nodes_of(pods: Iterable[core.Pod]) -> dict[str, Domain]:
    """The nodes of pods, with the domains that the scheduler process has written on them."""
    domains: dict[str, Domain] = {}
    for pod in pods:
        if pod.spec.node_name and len(domains) < _NODES:
            domains[pod.spec.node_name] = recorded_domains(pod)
    return domains


def _dump_past(past: Past) -> dict[str, Any]:
    content: dict[str, Any] = {"restarts": past.restarts, "failures": past.failures}
    return content | {"at": core.rfc3339(past.failed_at)} | ({"units": past.unit} if past.unit else {})


def _past(entry: Mapping[str, Any]) -> Past:
    at = core.seconds(entry["at"])
    return Past(int(entry["restarts"]), int(entry["failures"]), at or 0.0, int(entry.get("units", 0)))


def _failure(entry: Mapping[str, Any]) -> Failure:
    nodes = {str(node): dict(domain) for node, domain in entry.get("nodes", {}).items()}
    return Failure(
        int(entry["unit"]), str(entry["replica"]), str(entry["revision"]), _past(entry), str(entry["why"]), nodes
    )
