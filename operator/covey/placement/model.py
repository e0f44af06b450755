"""Questions to the planner and its answers: plain frozen values, no clock, no network.

A *gang* is one serving unit: roles, each a number of replicas, each replica one or more pods that are placed all or
none. Levels are names of a topology (``zone``, ``block``, ``rack`` …), ordered from broad to narrow; a *domain* is
identified by its path of label values, never by the bare value, because ``rack-1`` may exist in two blocks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import zip_longest
from typing import Final, NamedTuple

from covey.api import core
from covey.placement.anti_affinity import PodSpread, Term

#: Label values from the topology's broadest level down to one level; None where a node lacks that level.
Path = tuple[str | None, ...]
#: Text and numbers in turns, a number by its length first; then the whole text.
NaturalOrder = tuple[tuple[tuple[int, str], ...], str]
_NUMBER: Final = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a topology. The first of ``keys`` that a node carries gives its value.

    ``optional`` only silences the warning about nodes that lack the level.
    """

    name: str
    keys: tuple[str, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Topology:
    """Levels from broad to narrow, under the name of the ClusterTopology or preset that they come from."""

    name: str
    levels: tuple[Level, ...]

    def depth(self, level: str) -> int:
        """The index of a level, 0 = broadest.

        Raises:
            KeyError: when the topology has no such level.
        """
        for index, candidate in enumerate(self.levels):
            if candidate.name == level:
                return index
        raise KeyError(level)


class Clique(NamedTuple):
    """The interconnect that a pod joins, as far as cliques of nodes matter.

    ``owner``: its namespace, the UID of its controller, and the number of its unit; pods of one owner share a domain.
    ``exclusive``: it shares no clique with pods of another owner that join an interconnect.
    """

    owner: tuple[str, str, str]
    exclusive: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """All that decides where a pod may go: pods of one shape are interchangeable.

    ``requests`` are integers, sorted by name: cpu in milli-units, every other resource in its own unit (bytes,
    devices), and ``pods`` = 1.
    """

    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...] = ()
    node_affinity: core.NodeSelector | None = None
    tolerations: tuple[core.Toleration, ...] = ()
    host_ports: tuple[tuple[str, str, int], ...] = ()  # (ip, protocol, port)
    #: Its required anti-affinity, on the host and on broader domains.
    anti_affinity: tuple[Term, ...] = ()
    wide_terms: tuple[Term, ...] = ()
    #: What a node must declare (``status.declaredFeatures``), sorted.
    features: tuple[str, ...] = ()
    #: Which anti-affinity terms in play speak of the pod; known once it is planned, and never more than can matter.
    matched: frozenset[Term] = frozenset()
    #: Whether its interconnect shares no clique; and that interconnect, once it is planned and cliques can matter.
    exclusive_clique: bool = False
    clique: Clique | None = None
    pod_spread: PodSpread | None = None
    #: It keeps off nodes with devices, as a plan that is tried first.
    off_devices: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Shapes are keys everywhere.
        parts = (
            self.requests,
            self.node_selector,
            self.node_affinity,
            self.tolerations,
            self.host_ports,
            self.features,
        )
        object.__setattr__(
            self,
            "_hash",
            hash(
                (
                    *parts,
                    self.anti_affinity,
                    self.wide_terms,
                    self.matched,
                    self.clique,
                    self.pod_spread,
                    self.off_devices,
                )
            ),
        )

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class PodRequest:
    """One pod of a replica.

    ``key`` identifies it to the caller (a UID, or a name). ``node`` is set when it is already bound or pinned: then it
    is a fact, never moved. ``meta`` has the namespace and the labels that anti-affinity of others looks at; without it
    nobody's does.
    """

    key: str
    index: int
    shape: Shape
    node: str | None = None
    meta: core.Meta | None = field(default=None, compare=False, repr=False)


#: A replica of a gang: its role's name and its number.
Member = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Part:
    """Pods of one replica (by key) that must not straddle a level of their own, narrower than the replica's.

    ``pods`` are all of them, those of ``parts`` too.
    """

    required: str
    pods: tuple[str, ...]
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaRequest:
    """One replica: its pods by ascending index, all of them or none."""

    replica: int
    pods: tuple[PodRequest, ...]
    #: Replicas of a unit that share this mark are admitted all or none.
    together: str | None = None
    #: What of it has a level of its own. A replica that is placed in part has no parts.
    parts: tuple[Part, ...] = ()
    #: What it is surplus of: it is placed only once all of them are.
    after: tuple[Member, ...] = ()

    @property
    def placed(self) -> bool:
        """Tell whether every pod has its node."""
        return None not in [pod.node for pod in self.pods]


@dataclass(frozen=True, slots=True)
class RoleRequest:
    """One role. ``replicas`` holds the replicas that exist (all their pods created), by ascending number.

    ``minimum`` counts replicas; ``required`` and ``preferred`` are levels that each replica must, or should, not
    straddle. A role with ``minimum`` 0 is outside the gang: placed only once the gang is.
    """

    name: str
    minimum: int
    desired: int
    replicas: tuple[ReplicaRequest, ...]
    required: str | None = None
    preferred: str | None = None
    follow_unit: bool = True
    #: Replicas below the minimum's count whose pods are not all there yet, e.g. ``"3 of 4 pods exist"``.
    missing: str | None = None
    #: The replicas are not alike, and any ``minimum`` of them will do; those in ``first`` are tried first.
    free: bool = False
    first: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class RolesTogether:
    """All pods of these roles in one domain of ``level``."""

    roles: tuple[str, ...]
    level: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """All pods of these replicas in one domain of the required level; those of the minimum in one of the preferred.

    ``beside`` are pods of other replicas that lie in the same domain.
    """

    name: str
    members: tuple[Member, ...]
    required: str | None = None
    preferred: str | None = None
    beside: tuple[PodRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class Spread:
    """At most ``max_per_domain`` units of one resource in a domain of ``level``.

    ``occupied`` counts the other units of the resource that lie in each domain now.
    """

    level: str
    required: bool = False
    max_per_domain: int = 1
    occupied: Mapping[Path, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gang:
    """One unit to be placed. Ordered among gangs by ``order``: priority (higher first), then age, then unit index."""

    namespace: str
    name: str
    unit: int
    roles: tuple[RoleRequest, ...]
    topology: str = ""
    required: str | None = None
    preferred: str | None = None
    proximity: tuple[RolesTogether, ...] = ()
    rules: tuple[Rule, ...] = ()
    spread: Spread | None = None
    priority: int = 0
    created: str = ""
    uid: str = ""
    #: Nodes that this gang must not use now (reported failures the planner does not model), with the reason.
    excluded_nodes: Mapping[str, str] = field(default_factory=dict)
    #: Groups of which only some must come that are not alike: another choice than the one made here may fit.
    guessed: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, str, str, str, int, str]:
        """Sort key among gangs: a gang of other pods, as after an edit, keeps its place."""
        return (-self.priority, self.created, self.namespace, self.name, self.unit, self.uid)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A pod and the node it shall be pinned to. ``path`` is the node's domain path, all levels."""

    pod: str
    node: str
    path: Path


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain of a level."""

    level: str
    path: Path


def where(path: Path) -> str:
    """A domain as people write it: its values from broad to narrow."""
    return "/".join(value or "-" for value in path)


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """A replica that has all its places, after the plan.

    ``placement`` names the domain at each level that holds all its pods, broad to narrow.
    """

    role: str
    replica: int
    minimum: bool
    placement: tuple[Domain, ...]


@dataclass(frozen=True, slots=True)
class PreferenceOutcome:
    """A preference, and whether it was met.

    ``scope``: ``unit``, ``role/NAME``, ``group/NAME``, ``proximity/INDEX``, ``spread``.
    """

    scope: str
    level: str
    achieved: bool
    reached: str | None


class Verdict(StrEnum):
    """``ADMITTED``: a plan. ``INFEASIBLE``: proven that there is none. ``UNKNOWN``: the search limit was met."""

    ADMITTED = "Admitted"
    INFEASIBLE = "Infeasible"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Plan:
    """Places for pods that had none. ``replicas`` lists every replica that is whole after it, earlier ones too."""

    assignments: tuple[Assignment, ...]
    replicas: tuple[ReplicaPlan, ...]
    placement: tuple[Domain, ...]
    preferred: tuple[PreferenceOutcome, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Always ``ADMITTED``."""
        return Verdict.ADMITTED


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Nodes that no pod of the role may use, by cause (``taint nvidia.com/gpu:NoSchedule``, ``cordoned`` …)."""

    cause: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why a minimum has no place, for one role or for the roles together (``scope`` ``unit``).

    ``satisfied`` and ``required`` count whole replicas in ``best_domain`` (the other minimums being placed);
    ``resource``, ``requested`` and ``short`` name the first resource that is short: what one pod asks, and how much
    is missing, in the units of the API (integers; cpu in milli-units with the suffix m).
    """

    role: str
    scope: str
    level: str | None
    best_domain: Path
    required: int
    satisfied: int
    resource: str | None
    requested: str | None
    short: str | None
    excluded: tuple[Exclusion, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer that there is no plan, and why."""

    verdict: Verdict
    reasons: tuple[Reason, ...]

    @property
    def message(self) -> str:
        """One sentence for a person."""
        return "; ".join(dict.fromkeys(reason.message for reason in self.reasons))


@lru_cache(maxsize=65_536)
def natural(name: str | None) -> NaturalOrder:
    """A sort key that puts ``rack-2`` before ``rack-10``; no two names have the same one. None is as the empty name."""
    text = name or ""
    texts, numbers = (parts := _NUMBER.split(text))[::2], [part.lstrip("0") for part in parts[1::2]]
    pairs = zip_longest(((0, part) for part in texts), ((len(part), part) for part in numbers))
    return tuple(part for pair in pairs for part in pair if part is not None), text
