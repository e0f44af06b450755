"""The history of failures: logs on objects, their tally in a pass, and the nodes that are avoided for it.

The failures of a unit's replicas, noted on one of its objects before anything is given up for them.

An operator that is killed after it has deleted all pods of a replica, and before it has made any new one, finds here
what it was about to tell them. And the nodes on which a resource has failed before are found here. Only the latest are
kept: pods themselves carry how often their replica has failed.

Nodes, and domains, on which a resource fails again and again: its new pods keep off them for a while.

A node is avoided when ``AvoidLimits.after`` failures of the resource fell on it within an hour; from the last of them on,
for the time of ``AvoidLimits``. After that it is tried again, and the next failure is enough. A domain is avoided when as
many nodes of it are, those of avoided narrower domains counting once together.

A fault of the resource itself hits every node that it is on. So nodes that the kubelet refused pods on are avoided
however many they are, others only as long as they are few among those that the resource is on; and a domain where
something of the resource is Ready is not avoided.

Failures of replicas in a row: counted, and noted on objects before anything is given up.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from covey.admission.topologies import recorded_domains
from covey.api import constants as names
from covey.api import core
from covey.api.annotations import Avoided, dump_avoided, read, read_json
from covey.api.constants import ANNOTATION_AVOID, HOSTNAME_LABEL
from covey.api.roles import Role
from covey.backends import Identity, Owned
from covey.compile import Slot, Tree, type_of
from covey.compile.groups import Levels
from covey.compile.pods import NO_PAST, Past, memory
from covey.compile.revision import RoleRevision
from covey.model import podstate
from covey.operator.model.actions import Annotate, AvoidLimits
from covey.operator.model.observed import Observed, Place
from covey.operator.repair.failures import FailureCause, Fault, age, creation_time, failing_since, pods_of, revision_of

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


#: Seconds for which failures count against their nodes.
WINDOW: Final = 3600.0
#: Nodes that may be avoided for other failures than refusals, however few the resource is on.
_FEW: Final = 2


def avoided_by(
    failures: Sequence[Failure], observed: Observed, levels: Levels, usual: Sequence[str]
) -> tuple[Avoided, ...]:
    """Nodes and domains that new pods of a resource keep off.

    Args:
        failures: all that are known, the oldest first.
        observed: the snapshot.
        levels: of the topology, from broad to narrow, with the keys of their node labels.
        usual: names of levels, where none are known.
    """
    if not any(failure.nodes for failure in failures):
        return ()
    places = [name for name in levels or usual if name != "host" and HOSTNAME_LABEL not in levels.get(name, ())]
    live = [pod for pod in observed.every_pod() if podstate.is_bound(pod) and not podstate.is_dead(pod)]
    ready = {
        domain_key(recorded_domains(pod), places, level) for pod in live if podstate.is_ready(pod) for level in places
    }
    occupied = {pod.spec.node_name or "" for pod in live}
    return find_avoided(failures, places, occupied, ready, observed.now, observed.limits)


def find_avoided(
    failures: Iterable[Failure],
    levels: Sequence[str],
    occupied: Collection[str],
    ready: Collection[tuple[tuple[str, str], ...]],
    now: float,
    limits: AvoidLimits,
) -> tuple[Avoided, ...]:
    """Nodes and domains that are avoided now.

    Args:
        failures: those of the resource, the oldest first.
        levels: of the topology, from broad to narrow, without one whose domains are nodes.
        occupied: nodes that live pods of the resource are on.
        ready: domains (``domain_key``) where one of them is Ready.
        now: seconds since the epoch.
        limits: when and for how long.
    """
    recent = [failure for failure in failures if now - WINDOW < failure.at] if limits.after else []
    counts, refusals = Counter[str](), Counter[str]()
    last: dict[str, Failure] = {}
    for failure in recent:
        for node in failure.nodes:
            counts[node] += 1
            refusals[node] += failure.why == FailureCause.REFUSED
            last[node] = failure
    bad = {node for node, count in counts.items() if count >= limits.after}
    certain = {node for node in bad if refusals[node] >= limits.after}
    if len(bad - certain) > max(_FEW, len({*counts, *occupied}) // 2):
        bad = certain
    nodes = {
        node: Avoided(last[node].at + limits.seconds, f"{counts[node]} failures there, the last {last[node].why}", node)
        for node in sorted(bad)
        if last[node].at + limits.seconds > now
    }
    within = {node: last[node].nodes[node] for node in nodes}
    return (*_domains(nodes, within, levels, ready, limits.after), *nodes.values())


def nodes_told(observed: Observed) -> frozenset[str]:
    """Nodes that new pods of a resource keep off, as the annotations of its objects say."""
    texts = (owned.metadata.annotation(ANNOTATION_AVOID) for owned in observed.objects.values())
    avoided = (entry for text in texts if text for entry in read(text))
    return frozenset(entry.node for entry in avoided if entry.node and entry.until > observed.now)


def domain_key(domain: Domain, levels: Sequence[str], level: str) -> tuple[tuple[str, str], ...]:
    """A domain of a level, with those around it; empty where a node lies in none."""
    if level not in domain:
        return ()
    return tuple((name, domain[name]) for name in levels[: levels.index(level) + 1] if name in domain)


def _domains(
    nodes: Mapping[str, Avoided],
    within: Mapping[str, Domain],
    levels: Sequence[str],
    ready: Collection[tuple[tuple[str, str], ...]],
    least: int,
) -> Iterator[Avoided]:
    #: What still counts by itself: nodes, then narrower domains in place of theirs.
    left: dict[str, tuple[Domain, Avoided]] = {node: (within[node], until) for node, until in nodes.items()}
    for level in reversed(levels):
        inside: defaultdict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
        for name, (domain, _) in left.items():
            if key := domain_key(domain, levels, level):
                inside[key].append(name)
        for key, members in sorted(inside.items()):
            if len(members) < least or key in ready:
                continue
            # It is over when the first of those is forgiven without which they are too few.
            until = sorted((left[member][1].until for member in members), reverse=True)[least - 1]
            what = "nodes or narrower domains of it are avoided"
            avoided = Avoided(until, f"{len(members)} {what}", domain=dict(key))
            yield avoided
            for member in members:
                del left[member]
            left[str(avoided)] = (dict(key), avoided)


class Tally:
    """The failures of one resource.

    Args:
        tree: what is wanted.
        observed: the snapshot, with the logs of earlier failures.
    """

    def __init__(self, tree: Tree, observed: Observed) -> None:
        self._observed = observed
        self._keepers = keepers(tree)
        there = {keeper: owned for keeper in set(self._keepers.values()) if (owned := observed.objects.get(keeper))}
        self._objects = there
        self._logs: dict[Identity, Log] = {keeper: read_log(owned) for keeper, owned in there.items()}
        #: Failures that are seen for the first time.
        self.new: list[Failure] = []
        #: What pods of units carry that were recreated as a whole.
        self.wholes: dict[int, Past] = {unit: past for log in self._logs.values() for unit, past in log.wholes.items()}

    @property
    def every(self) -> list[Failure]:
        """All failures that are known, the oldest first."""
        noted = [failure for log in self._logs.values() for failure in log.failures]
        return sorted([*noted, *self.new], key=lambda failure: failure.at)

    def count(
        self,
        places: Sequence[Place],
        revision: RoleRevision,
        role: Role,
        faults: Sequence[Fault],
        since: float | None,
        *,
        alone: bool,
    ) -> Past:
        """Count a failure that was not counted yet; return the past that the successors of the failed pods carry.

        Args:
            places: those of the replica, or of the one pod that is replaced ``alone``.
            revision: of the replica.
            role: its role.
            faults: the pods that have failed.
            since: time since which the replica counts as having been Ready; None before that.
            alone: the rest of the replica goes on.
        """
        lead = max((fault.pod for fault in faults), key=lambda pod: (podstate.restarts(pod), age(pod)))
        former = podstate.past(lead)
        noted = self._last(faults[0].slot, revision, alone=alone)
        forgiven = noted is not None and since is not None and since > noted.at
        known_fault = noted is not None and creation_time(lead) <= noted.at and noted.past.restarts > former.restarts
        if noted is not None and known_fault and not forgiven:
            return noted.past
        made = [podstate.past(place.now) for place in places if place.now is not None]
        latest = max(made, key=lambda past: past.restarts, default=NO_PAST)
        if latest.restarts > former.restarts:
            return latest
        known = failing_since(faults)
        at = max(self._observed.now, creation_time(lead)) if known is None else known
        lived = at - since if since is not None else 0.0
        forgotten = lived >= memory(role.backoff) or revision_of(lead) != revision.hash
        past = Past(former.restarts + 1, 1 if forgotten else former.failures + 1, float(int(at)), former.unit)
        if known is None:
            fault = next(fault for fault in faults if fault.pod is lead)
            nodes = nodes_of(fault.pod for fault in faults)
            slot = faults[0].slot
            self.new.append(
                Failure(slot.unit, key_of(slot, alone=alone), revision.hash, past, fault.why, nodes, fault.detail)
            )
        return past

    def pending(self, places: Sequence[Place], revision: RoleRevision, role: Role, *, alone: bool) -> Past:
        """The past noted for a failure of these places that perhaps no pod carries yet; ``NO_PAST`` without one."""
        noted = self._last(places[0].slot, revision, alone=alone)
        if noted is None or self._observed.now >= noted.at + memory(role.backoff):
            return NO_PAST
        pods = pods_of(places)
        tombstones = [place.tombstone for place in places if place.tombstone is not None]
        restarts = max((*map(podstate.restarts, pods), *(tombstone.restarts for tombstone in tombstones)), default=0)
        fresh = any(creation_time(pod) > noted.at for pod in pods) or any(tombstone.retired for tombstone in tombstones)
        return NO_PAST if fresh or restarts >= noted.past.restarts else noted.past

    def log_annotations(self, avoided: Sequence[Avoided], roles: Mapping[str, Role]) -> Iterator[Annotate]:
        """Annotations to write on the objects that keep logs."""
        text = dump_avoided(avoided)
        for identity, owned in self._objects.items():
            if owned.metadata.deletion_timestamp is not None:
                continue
            changes: dict[str, str | None] = {}
            log = self._logs[identity]
            kept = self._extend_log(identity, log, roles)
            if kept != log:
                changes[ANNOTATION] = dump_log(kept)
            if owned.metadata.annotation(names.ANNOTATION_AVOID) != text:
                changes[names.ANNOTATION_AVOID] = text
            if changes:
                yield Annotate(identity[0], owned.metadata.name, owned.metadata.uid, changes)

    def _extend_log(self, identity: Identity, log: Log, roles: Mapping[str, Role]) -> Log:
        new = [failure for failure in self.new if self._keepers.get(failure.unit) == identity]
        wholes = {unit: past for unit, past in self.wholes.items() if self._keepers.get(unit) == identity}
        if not new:
            return replace(log, wholes=wholes)
        longest = max((memory(role.backoff) for role in roles.values()), default=0.0)
        return replace(log.with_failures(new, self._observed.now - max(WINDOW, longest)), wholes=wholes)

    def _last(self, slot: Slot, revision: RoleRevision, *, alone: bool) -> Failure | None:
        """The failure of a replica, or of a pod of it, that was noted last, if it was of the same revision."""
        keeper = self._keepers.get(slot.unit)
        log = self._logs.get(keeper) if keeper is not None else None
        noted = log.last(slot.unit, key_of(slot, alone=alone)) if log is not None and log.failures else None
        return noted if noted is not None and noted.revision == revision.hash else None
