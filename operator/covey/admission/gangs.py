"""A unit, its roles and its scopes as the planner's requests: pure.

Only whole replicas are shown to the planner, and only if every pod of them may be planned; of the others the first
missing thing is told, and the places that they have are facts, so that nobody is sent to another domain beside them. A
pod's place is a fact when it is bound, pinned, or decided a moment ago (``assumed``: the patch is under way); such
places are never moved. A replica whose groups have levels of their own is asked for as one thing with parts while
nothing of it is placed; placed in part, it is asked for in pieces, each a replica of a role of their own, which the
levels of its groups hold together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from covey.admission import obstacles
from covey.admission.nodes import TreeNode, number
from covey.admission.roles import Member, Replica, ReplicaPart, Scope, UnitRole
from covey.admission.tree import Unit, incomplete_sets
from covey.api import core
from covey.api.constants import LABEL_INDEX, REASON_INVALID, REASON_INVALID_TOPOLOGY, REASON_UNSUPPORTED
from covey.model import podstate
from covey.placement import model
from covey.placement.anti_affinity import PodSpread, pod_spread_of
from covey.placement.model import (
    Gang,
    Path,
    PodRequest,
    ReplicaRequest,
    RoleRequest,
    RolesTogether,
    Rule,
    Shape,
    Spread,
    Topology,
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The input of a gang from outside its own groups and pods.

    ``occupied`` counts the sibling units in each domain of the spread level. ``obstacle`` says why an unbound pod must
    not be planned.
    """

    priority: int = 0
    assumed: Mapping[str, str] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    occupied: Mapping[Path, int] = field(default_factory=dict)
    obstacle: Callable[[core.Pod], str | None] = obstacles.obstacle
    #: Why nothing can be planned that asks for a resource; None where anything can.
    refused: Callable[[str], str | None] | None = None


def build_gang(unit: Unit, topology: Topology, shape: Callable[[core.Pod], Shape], around: Surroundings) -> Gang:
    """The planner's request for a unit.

    Raises:
        UnplannableError: when the groups ask for something that the topology or the planner does not have.
    """
    if unit.problem is not None:
        raise UnplannableError(REASON_UNSUPPORTED, unit.problem)
    constraints = unit.root.spec.scheduling_constraints or core.SchedulingConstraints()
    required, preferred = levels(unit.root, topology)
    meta = unit.root.metadata
    reference = unit.root.spec.workload_ref
    unkept = find_unkept_spreads(unit, topology)

    def kept_shape(pod: core.Pod) -> Shape:
        pod_shape = shape(pod)
        return replace(pod_shape, pod_spread=None) if pod_shape.pod_spread in unkept else pod_shape

    reader = Reader(topology, kept_shape if unkept else shape, around.assumed, around.obstacle)
    roles, rules = requests(unit, reader)
    if around.refused is not None:
        _check_resources(roles, around.refused)
    return Gang(
        namespace=meta.namespace,
        # Units of one age are taken by number; by their roots' names llm-10 would come before llm-2.
        name=(reference.workload_name if reference else "") or meta.name,
        unit=unit.index,
        roles=roles,
        topology=topology.name,
        required=required,
        preferred=preferred,
        proximity=tuple(
            RolesTogether(
                _parts_of(constraint.roles, roles),
                check_level(constraint.level, topology),
                constraint.mode == "Required",
            )
            for constraint in constraints.proximity or ()
        ),
        rules=rules,
        spread=_spread(constraints.spread, topology, around),
        priority=around.priority,
        # Not the Workload's, which is there while no unit wants places. A unit that gets other pods keeps its own.
        created=meta.creation_timestamp,
        uid=meta.uid,
        excluded_nodes=dict(around.excluded),
        guessed=unit.guessed,
    )


def find_unkept_spreads(unit: Unit, topology: Topology) -> frozenset[PodSpread | None]:
    """Find the required spreads of pods that the planner cannot keep in a unit.

    It keeps one of replicas of one pod each that selects nobody else in the unit. One over a label that no level of the
    topology has is refused, but for units that have places by a former release.
    """
    spread = {pod.metadata.uid: pod_spread for pod in unit.pods() if (pod_spread := pod_spread_of(pod)) is not None}
    if not spread:
        return frozenset()
    keys = {key for level in topology.levels for key in level.keys}
    started = any(podstate.place_of(pod, {}) for pod in unit.pods())
    several = {
        pod.metadata.uid for role in unit.roles for replica in role.replicas if replica.size > 1 for pod in replica.pods
    }
    return frozenset(
        pod_spread
        for pod_spread in set(spread.values())
        if (started and pod_spread.term.key not in keys)
        or any(uid in several for uid, own in spread.items() if own == pod_spread)
        or any(
            spread.get(pod.metadata.uid) != pod_spread and pod_spread.term.matches(pod.metadata) for pod in unit.pods()
        )
    )


def _check_resources(roles: Sequence[RoleRequest], refused: Callable[[str], str | None]) -> None:
    """Raise for the first resource that a pod without a place asks for and that cannot be planned with."""
    waiting = {pod.shape for role in roles for replica in role.replicas for pod in replica.pods if pod.node is None}
    for resource in sorted({name for shape in waiting for name, _ in shape.requests}):
        if problem := refused(resource):
            raise UnplannableError(REASON_UNSUPPORTED, problem)


def _parts_of(names: Sequence[str], roles: Sequence[RoleRequest]) -> tuple[str, ...]:
    """Names of roles with those of the requests that carry some of their replicas; a role's own name has no space."""
    return (*names, *(role.name for role in roles if " " in role.name and role.name.partition(" ")[0] in names))


def missing(unit: Unit, gang: Gang) -> str | None:
    """The reason for which a unit's minimum cannot be planned yet: groups or pods that are not there, or not ours to plan."""
    if unit.absent:
        return f"{unit.absent} of the unit's groups do not exist yet"
    texts = [
        f"{role.name}: {role.missing or f'{len(role.replicas)} of {role.minimum} replicas exist'}"
        for role in gang.roles
        if len(role.replicas) < role.minimum
    ]
    return "; ".join(texts) or None


def wants_minimum(gang: Gang) -> bool:
    """A replica of the minimum has no place yet."""
    return any(sum(replica.placed for replica in role.replicas) < role.minimum for role in gang.roles)


def wants_surplus(gang: Gang) -> bool:
    """A whole replica beyond the placed ones waits for a place."""
    return any(not replica.placed for role in gang.roles for replica in role.replicas)


def _spread(spread: core.SpreadConstraint | None, topology: Topology, around: Surroundings) -> Spread | None:
    if spread is None:
        return None
    if spread.max_per_domain < 1:
        raise UnplannableError(REASON_INVALID, "spread.maxPerDomain must be at least 1")
    level = check_level(spread.level, topology)
    return Spread(level, spread.mode == "Required", spread.max_per_domain, dict(around.occupied))


#: The required and the preferred level of a group.
Levels = tuple[str | None, str | None]


class UnplannableError(Exception):
    """The unit cannot be shown to the planner. ``reason`` is a reason of ``Admitted``, the text is for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Reader:
    """The means to read pods and groups: the topology, a pod's shape, and the places decided a moment ago."""

    topology: Topology
    shape: Callable[[core.Pod], Shape]
    assumed: Mapping[str, str]
    #: Why an unbound pod must not be planned.
    obstacle: Callable[[core.Pod], str | None] = obstacles.obstacle
    #: By kind and name of a group: the depth of the narrowest level that a group above it requires, the root aside.
    above: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def pod(self, pod: core.Pod, position: int) -> PodRequest:
        """A pod. ``position`` is its index where no label has one."""
        index = number(pod.metadata.label(LABEL_INDEX), position)
        place = podstate.place_of(pod, self.assumed)
        return PodRequest(pod.metadata.uid, index, self.shape(pod), place, pod.metadata)

    def own(self, group: core.Group) -> Levels:
        """The levels of a group for all its pods; one that is no narrower than a group's above adds nothing to it."""
        required, preferred = levels(group, self.topology, "Group")
        most = self.above.get((group.kind, group.metadata.name), -1)
        return (
            required if self.depth(required) > most else None,
            preferred if self.depth(preferred) > most else None,
        )

    def depth(self, level: str | None) -> int:
        """The depth of a level; -1 for none."""
        return -1 if level is None else self.topology.depth(level)


def requests(unit: Unit, reader: Reader) -> tuple[tuple[RoleRequest, ...], tuple[Rule, ...]]:
    """The roles that the planner is asked for, and the rules over their replicas; raises as ``build_gang``."""
    above: dict[tuple[str, str], int] = {}
    for child in unit.tree.children:
        above |= _depths_from_above(child, reader, -1)
    reader = replace(reader, above=above)
    lacking = incomplete_sets(unit)
    roles: list[RoleRequest] = []
    rules: list[Rule] = []
    stands: dict[Member, tuple[Member, ...]] = {}
    for role in unit.roles:
        request = _role(unit, role, reader, lacking)
        torn = [replica for replica in request.replicas if _has_inner_levels(replica) and _partial(replica)]
        for each in torn:
            request, pieces, held = _split_placed(request, each)
            roles.append(pieces)
            rules += held
            stands[role.name, each.replica] = tuple((pieces.name, piece.replica) for piece in pieces.replicas)
        remains = _remains(role, reader)
        if remains.replicas:
            roles.append(remains)
            stands |= {(role.name, replica.replica): ((remains.name, replica.replica),) for replica in remains.replicas}
        roles.append(request)
        stands |= {(role.name, replica.replica): ((role.name, replica.replica),) for replica in request.replicas}
    rules += (rule for scope in unit.scopes if (rule := _rule(scope, stands, reader)) is not None)
    narrower = tuple(rule for narrow in rules if (rule := _narrower_rule(narrow, unit, roles, reader)) is not None)
    return tuple(_after(role, stands) for role in roles), narrower


def levels(group: core.Group, topology: Topology, *scopes: str) -> Levels:
    """The narrowest required and the narrowest preferred level of a group; of these scopes, if any are named."""
    constraints = group.spec.scheduling_constraints
    levels_by_mode: dict[str, str] = {}
    for constraint in (constraints.topology or ()) if constraints else ():
        level = check_level(constraint.level, topology) if constraint.level else _by_key(constraint.key or "", topology)
        wider = constraint.mode in levels_by_mode and topology.depth(level) <= topology.depth(
            levels_by_mode[constraint.mode]
        )
        if not wider and (not scopes or constraint.scope in scopes):
            levels_by_mode[constraint.mode] = level
    return levels_by_mode.get("Required"), levels_by_mode.get("Preferred")


def check_level(level: str, topology: Topology) -> str:
    """The level, which the topology has.

    Raises:
        UnplannableError: it has not.
    """
    try:
        topology.depth(level)
    except KeyError:
        names = ", ".join(known.name for known in topology.levels)
        raise UnplannableError(
            REASON_INVALID_TOPOLOGY,
            f"topology {topology.name} has no level {level} but {names}: use one of these, label the nodes for"
            f" {level}, or name a ClusterTopology that has it in spec.topology.name",
        ) from None
    return level


def _by_key(key: str, topology: Topology) -> str:
    for level in topology.levels:
        if key in level.keys:
            return level.name
    raise UnplannableError(REASON_INVALID_TOPOLOGY, f"no level of topology {topology.name} has the label key {key}")


def _role(unit: Unit, role: UnitRole, reader: Reader, lacking: frozenset[str]) -> RoleRequest:
    obstacles = {id(replica): _obstacle(replica, reader, lacking) for replica in role.replicas}
    plannable = [replica for replica in role.replicas if obstacles[id(replica)] is None]
    first = next((text for text in obstacles.values() if text is not None), None)
    alike: Levels = (None, None)
    own: dict[int, Levels] = {}
    if role.whole:
        own = {id(replica): reader.own(replica.group) for replica in role.replicas}
        alike = next(iter(own.values()), alike) if len(set(own.values())) == 1 else alike
    elif role.group is not unit.root:
        alike = levels(role.group, reader.topology, "Pod")
    return RoleRequest(
        name=role.name,
        minimum=role.minimum,
        desired=role.desired,
        replicas=tuple(
            _replica(replica, reader, None if own.get(id(replica), alike) == alike else own[id(replica)][0])
            for replica in plannable
        ),
        required=alike[0],
        preferred=alike[1],
        follow_unit=role.follows,
        missing=first if len(plannable) < role.minimum else None,
        free=role.free,
    )


def _remains(role: UnitRole, reader: Reader) -> RoleRequest:
    """The bound pods of replicas that lack one, as a role that asks for nothing; pins, which can be undone, bind nobody."""
    pieces: list[ReplicaRequest] = []
    for replica in (remaining for remaining in role.replicas if not remaining.whole):
        if bound := [pod for pod in replica.pods if podstate.occupies_node(pod)]:
            pods = tuple(reader.pod(pod, position) for position, pod in enumerate(bound))
            pieces.append(ReplicaRequest(replica.number, pods))
    return RoleRequest(f"{role.name} (incomplete)", 0, 0, tuple(pieces), follow_unit=role.follows)


def _replica(replica: Replica, reader: Reader, level: str | None) -> ReplicaRequest:
    """A replica; ``level`` is its own where the replicas of its role do not have the same."""
    pods = tuple(reader.pod(pod, position) for position, pod in enumerate(replica.pods))
    parts = tuple(part for own in replica.parts for part in _parts(own, reader))
    if level is not None:
        parts = (model.Part(level, tuple(pod.key for pod in pods), parts),)
    return ReplicaRequest(replica.number, pods, replica.together, parts, (replica.after,) if replica.after else ())


def _parts(part: ReplicaPart, reader: Reader) -> Iterator[model.Part]:
    """A part of a replica, or where it has no level what is inside it."""
    required, _ = reader.own(part.group)
    inside = tuple(below for inner in part.parts for below in _parts(inner, reader))
    if required is None:
        yield from inside
    else:
        yield model.Part(required, tuple(pod.metadata.uid for pod in part.pods), inside)


def _obstacle(replica: Replica, reader: Reader, lacking: frozenset[str]) -> str | None:
    assumed = reader.assumed
    if not replica.whole:
        return f"{len(replica.pods)} of {replica.size} pods of replica {replica.number} exist"
    if replica.together in lacking and not any(podstate.place_of(pod, assumed) for pod in replica.pods):
        return f"what replica {replica.number} comes together with is not there yet"
    return next(
        (
            text
            for pod in replica.pods
            if podstate.place_of(pod, assumed) is None and (text := reader.obstacle(pod)) is not None
        ),
        None,
    )


def _partial(replica: ReplicaRequest) -> bool:
    return len({pod.node is None for pod in replica.pods}) > 1


def _has_inner_levels(replica: ReplicaRequest) -> bool:
    """Tell whether it has levels inside that are not just its own."""
    return any(part.parts or len(part.pods) < len(replica.pods) for part in replica.parts)


def _after(role: RoleRequest, stands: Mapping[Member, tuple[Member, ...]]) -> RoleRequest:
    """Replace references to replicas that were split by references to their pieces; a missing one is never placed."""
    if not any(replica.after for replica in role.replicas):
        return role
    replicas = (
        replace(r, after=tuple(m for member in r.after for m in stands.get(member, (member,)))) for r in role.replicas
    )
    return replace(role, replicas=tuple(replicas))


def _split_placed(role: RoleRequest, replica: ReplicaRequest) -> tuple[RoleRequest, RoleRequest, list[Rule]]:
    """The role without a replica that is placed in part, its pieces as a role, and the rules between them."""
    name = f"{role.name} (replica {replica.replica})"
    ahead = sum(other.placed or (_partial(other) and other.replica < replica.replica) for other in role.replicas)
    needed = ahead < role.minimum
    pods = {pod.key: pod for pod in replica.pods}
    mark = replica.together or name
    pieces: list[ReplicaRequest] = []
    rules: list[Rule] = []

    def cut(keys: tuple[str, ...], parts: tuple[model.Part, ...], level: str | None) -> list[Member]:
        """Pieces of some pods: one for each that is in no part, and those of each part."""
        inside = {key for part in parts for key in part.pods}
        members: list[Member] = []
        for key in keys:
            if key not in inside:
                members.append((name, len(pieces)))
                pieces.append(ReplicaRequest(len(pieces), (pods[key],), mark))
        for part in parts:
            members += cut(part.pods, part.parts, part.required)
        if level is not None:
            rules.append(Rule(name, tuple(members), level))
        return members

    cut(tuple(pods), replica.parts, role.required)
    rest = tuple(other for other in role.replicas if other is not replica)
    left = replace(
        role, replicas=rest, minimum=role.minimum - needed, desired=max(role.desired - 1, role.minimum - needed)
    )
    count = len(pieces)
    own = RoleRequest(name, count if needed else 0, count, tuple(pieces), follow_unit=role.follow_unit)
    return left, own, rules


def _depths_from_above(node: TreeNode, reader: Reader, most: int) -> dict[tuple[str, str], int]:
    """Depths of the narrowest level that holds from above, for a node and all below; ``most`` for the node."""
    depths = {(node.group.kind, node.group.metadata.name): most}
    inside = max(most, reader.depth(levels(node.group, reader.topology, "Group")[0]))
    for child in node.children:
        depths |= _depths_from_above(child, reader, inside)
    return depths


def _narrower_rule(rule: Rule, unit: Unit, roles: Sequence[RoleRequest], reader: Reader) -> Rule | None:
    """The part of a rule that adds something: a level that is no narrower than the unit's adds nothing to it where all lie in its domain."""
    most = reader.depth(levels(unit.root, reader.topology)[0])
    following = {role.name for role in roles if role.follow_unit}
    if not all(name in following for name, _ in rule.members):
        return rule
    required = rule.required if reader.depth(rule.required) > most else None
    preferred = rule.preferred if reader.depth(rule.preferred) > most else None
    return replace(rule, required=required, preferred=preferred) if required or preferred else None


def _rule(scope: Scope, stands: Mapping[Member, tuple[Member, ...]], reader: Reader) -> Rule | None:
    required, preferred = reader.own(scope.group)
    members = tuple(stand for member in scope.members for stand in stands.get(member, ()))
    if required is None and preferred is None:
        return None
    beside = tuple(reader.pod(pod, position) for position, pod in enumerate(scope.beside))
    return Rule(scope.group.metadata.name, members, required, preferred, beside)
