"""Faults of a request that are found before planning: levels that do not exist, pods that do not exist yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Part, Path, PodRequest, Reason, Refusal, RoleRequest, Topology, Verdict, where


def unready(gang: Gang, inventory: Inventory) -> Refusal | None:
    """The refusal of a gang that cannot be planned at all: unknown levels, pods that do not exist yet."""
    topology = inventory.topologies.get(gang.topology)
    if topology is None:
        known = ", ".join(sorted(name for name in inventory.topologies if name)) or "none"
        return _refusal(f"there is no topology {gang.topology!r}; there are: {known}")
    reasons = [*_bad_levels(gang, topology), *_absent_levels(gang, inventory), *_missing(gang)]
    return Refusal(Verdict.INFEASIBLE, tuple(reasons)) if reasons else None


def unknown_refusal(gang: Gang, inventory: Inventory) -> Refusal:
    """The honest answer when the search limit was met."""
    shapes = {pod.shape for role in gang.roles for replica in role.replicas for pod in replica.pods}
    message = (
        f"the search limit was met: {len(shapes)} pod shapes on {len(inventory.nodes)} nodes; "
        "neither a placement nor a proof that there is none was found"
    )
    return Refusal(Verdict.UNKNOWN, (_reason("", message),))


def incomplete_refusal(missing: int) -> Refusal:
    """The honest answer when the plan that was found leaves pods out: a fault of the planner, never a plan."""
    message = f"the plan that was found leaves {missing} pod{'s' * (missing > 1)} without a node, which is a fault of the planner"
    return Refusal(Verdict.UNKNOWN, (_reason("", message),))


def no_spread_domains(gang: Gang, pod: PodRequest, topology: Topology) -> Refusal:
    """The refusal of pods to be spread over a label whose values are the domains of no level."""
    role = next(role for role in gang.roles if any(pod in replica.pods for replica in role.replicas))
    key = pod.shape.pod_spread.term.key if pod.shape.pod_spread is not None else ""
    keys = ", ".join(key for level in topology.levels for key in level.keys)
    message = (
        f"{role.name}: topologySpreadConstraints over {key} can be kept over a label whose values are the domains of a level"
        f" of topology {topology.name} ({keys}) alone: use one of these, or write ScheduleAnyway"
    )
    return Refusal(Verdict.INFEASIBLE, (_reason(role.name, message, None, role.minimum),))


def spread_refusal(gang: Gang, spread: Iterable[tuple[PodRequest, Mapping[Path, int]]]) -> Refusal:
    """The refusal of a minimum that has room, but not spread as its pods must be.

    Args:
        gang: the gang.
        spread: its pods that are spread, and how many of their kind each domain had if they were not.
    """
    reasons: dict[str, Reason] = {}
    for pod, counts in spread:
        role = next(role for role in gang.roles if any(pod in replica.pods for replica in role.replicas))
        if role.name in reasons or pod.shape.pod_spread is None:
            continue
        waiting = sum(member.node is None for replica in role.replicas for member in replica.pods)
        fewest = min(counts, key=lambda path: (counts[path], [value or "" for value in path]), default=())
        message = (
            f"{role.name}: {waiting} pods fit, but not as topologySpreadConstraints over {pod.shape.pod_spread.term.key}"
            f" with maxSkew {pod.shape.pod_spread.max_skew} ask: of {len(counts)} domains {where(fewest)} would have the"
            f" fewest, {counts.get(fewest, 0)}; free nodes there, raise maxSkew, or write ScheduleAnyway"
        )
        reasons[role.name] = _reason(role.name, message, None, role.minimum)
    return Refusal(Verdict.INFEASIBLE, tuple(reasons.values()))


def tell_split_labels(refused: Refusal, gang: Gang, inventory: Inventory) -> Refusal:
    """Return a refusal that tells, too, of required domains which some nodes seem to lie outside of for want of a broader label."""
    levels = {level for _, _, level, required in _levels(gang) if required}
    texts = [text for level in sorted(levels) if (text := inventory.split_label(gang.topology, level))]
    if not texts or not refused.reasons:
        return refused
    *others, last = refused.reasons
    return replace(refused, reasons=(*others, replace(last, message="; ".join([last.message, *texts]))))


def guessed_refusal(refused: Refusal, names: Sequence[str]) -> Refusal:
    """The honest answer when only some of the choices that groups leave open were looked at."""
    message = (
        f"of {' and '.join(names)} only some groups must come, which are not alike; not every choice was looked at, "
        f"and for those that were: {refused.message}"
    )
    return Refusal(Verdict.UNKNOWN, (_reason("", message),))


def _levels(gang: Gang, *, needed: bool = False) -> list[tuple[str, str, str, bool]]:
    """Every level that a gang names: role, where it is named, the level, whether it is required.

    With ``needed`` only those that the minimum depends on.
    """
    roles = [role for role in gang.roles if role.minimum or not needed]
    asked_levels: list[tuple[str, str, str | None, bool]] = []
    if any(role.follow_unit for role in roles):
        asked_levels += [("", "the unit", gang.required, True), ("", "the unit", gang.preferred, False)]
    for role in roles:
        asked_levels += [
            (role.name, f"role {role.name}", role.required, True),
            (role.name, f"role {role.name}", role.preferred, False),
        ]
    names = {role.name for role in roles}
    asked_levels += [("", "proximity", rule.level, rule.required) for rule in gang.proximity if names & set(rule.roles)]
    # Of replicas that are not alike others may do, which ask for nothing that is missing.
    certain = [role for role in roles if not (needed and role.free)]
    pairs = {(role.name, replica.replica) for role in certain for replica in role.replicas}
    for rule in gang.rules:
        if not pairs.isdisjoint(rule.members):
            asked_levels += [
                ("", f"group {rule.name}", rule.required, True),
                ("", f"group {rule.name}", rule.preferred, False),
            ]
    asked_levels += [
        (role.name, f"a group of role {role.name}", level, True)
        for role in certain
        if not (needed and gang.required)
        for level in sorted({level for replica in role.replicas for level in _inside(replica.parts)})
    ]
    if gang.spread is not None and any(role.follow_unit for role in roles):
        asked_levels.append(("", "spread", gang.spread.level, gang.spread.required))
    return [(role, where, level, required) for role, where, level, required in asked_levels if level is not None]


def _inside(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        yield part.required
        yield from _inside(part.parts)


def _bad_levels(gang: Gang, topology: Topology) -> list[Reason]:
    names = [level.name for level in topology.levels]
    reasons = [
        _reason(
            role,
            f"{where} asks for the level {level!r}; the topology {topology.name!r} has: {', '.join(names) or 'none'}",
            level,
            _minimum(gang, role),
        )
        for role, where, level, _ in _levels(gang)
        if level not in names
    ]
    if reasons:
        return reasons
    pairs: list[tuple[str, str, str | None, str | None]] = [("", "the unit", gang.required, gang.preferred)]
    pairs += [(role.name, f"role {role.name}", role.required, role.preferred) for role in gang.roles]
    pairs += [("", f"group {rule.name}", rule.required, rule.preferred) for rule in gang.rules]
    return [
        _reason(
            role,
            f"{where} prefers {preferred}, which is broader than {required}, which it requires",
            preferred,
            _minimum(gang, role),
        )
        for role, where, required, preferred in pairs
        if required is not None and preferred is not None and topology.depth(preferred) < topology.depth(required)
    ]


def _absent_levels(gang: Gang, inventory: Inventory) -> list[Reason]:
    tree = inventory.trees[gang.topology]
    depths = {level.name: depth for depth, level in enumerate(tree.topology.levels)}
    implied = {  # a level no finer than the unit's adds nothing to it
        role.name
        for role in gang.roles
        if role.follow_unit and depths.get(role.required or "", 0) <= depths.get(gang.required or "", -1)
    }
    return [
        _reason(role, f"{where} requires the level {level}, which no node carries", level, _minimum(gang, role))
        for role, where, level, required in _levels(gang, needed=True)
        if required and role not in implied and level in depths and next(tree.at(depths[level]), None) is None
    ]


def _missing(gang: Gang) -> list[Reason]:
    def short(role: RoleRequest) -> str | None:
        if role.missing:
            return role.missing
        if len(role.replicas) < role.minimum:
            return f"{len(role.replicas)} of {role.minimum} replicas exist"
        return None

    return [
        _reason(role.name, f"{role.name}: {text}", required=role.minimum)
        for role in gang.roles
        if (text := short(role))
    ]


def _minimum(gang: Gang, name: str) -> int:
    """The minimum of a role by name; 0 where the whole unit is meant."""
    return next((role.minimum for role in gang.roles if role.name == name), 0)


def _reason(role: str, message: str, level: str | None = None, required: int = 0) -> Reason:
    return Reason(
        role=role,
        scope="unit",
        level=level,
        best_domain=(),
        required=required,
        satisfied=0,
        resource=None,
        requested=None,
        short=None,
        excluded=(),
        message=message,
    )


def _refusal(message: str) -> Refusal:
    return Refusal(Verdict.INFEASIBLE, (_reason("", message),))
