"""Nodes, and domains, on which a resource fails again and again: its new pods keep off them for a while.

A node is avoided when ``AvoidLimits.after`` failures of the resource fell on it within an hour; from the last of them on,
for the time of ``AvoidLimits``. After that it is tried again, and the next failure is enough. A domain is avoided when as
many nodes of it are, those of avoided narrower domains counting once together.

A fault of the resource itself hits every node that it is on. So nodes that the kubelet refused pods on are avoided
however many they are, others only as long as they are few among those that the resource is on; and a domain where
something of the resource is Ready is not avoided.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from covey.admission.topologies import recorded_domains
from covey.api.annotations import Avoided, read
from covey.api.constants import ANNOTATION_AVOID, HOSTNAME_LABEL
from covey.compile.groups import Levels
from covey.model import podstate
from covey.operator.model.avoid_limits import AvoidLimits
from covey.operator.model.observed import Observed
from covey.operator.repair.failure_log import Domain, Failure
from covey.operator.repair.failures import FailureCause

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
