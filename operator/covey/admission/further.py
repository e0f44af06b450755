"""A unit that is asked for more replicas of a role than anybody has asked for: pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from covey.admission.gangs import wants_minimum
from covey.api.constants import LABEL_DRAINING
from covey.placement.model import Gang, Part, PodRequest, ReplicaRequest, RoleRequest, Shape


@dataclass(frozen=True, slots=True)
class Site:
    """One unit of the resource, as its surplus would be planned now.

    ``lacks``: groups or pods of its minimum do not exist yet.
    """

    gang: Gang
    lacks: bool = False

    @property
    def is_open(self) -> bool:
        """Its minimum has its places, so that more may come."""
        return not self.lacks and not wants_minimum(self.gang)

    def request(self, role: str) -> RoleRequest | None:
        """The request of the unit for a role; None where it has none of that name."""
        return next((each for each in self.gang.roles if each.name == role), None)


@dataclass(frozen=True, slots=True)
class Own:
    """The role in one unit: how many of its replicas have their places, and those that wait for one by themselves."""

    request: RoleRequest
    placed: int
    waiting: tuple[ReplicaRequest, ...]

    @classmethod
    def of(cls, request: RoleRequest) -> Own:
        """The role as it is asked for now."""
        staying = [each for each in request.replicas if not _goes(each)]
        # What comes together with others, or after others, is not placed alone.
        waiting = [each for each in staying if not each.placed and each.together is None and not each.after]
        waiting.sort(key=lambda each: (all(pod.node is None for pod in each.pods), each.replica))
        return cls(request, sum(each.placed for each in staying), tuple(waiting))

    def candidates(self, count: int, template: ReplicaRequest) -> list[ReplicaRequest]:
        """So many replicas that might come: those that wait, then further ones."""
        own = list(self.waiting[:count])
        return own + [self.clone(number, template) for number in range(count - len(own))]

    def clone(self, number: int, template: ReplicaRequest) -> ReplicaRequest:
        """A further replica; ``number`` tells it from others."""
        last = max((each.replica for each in self.request.replicas), default=-1)
        return _copy(template, last + 1 + number)

    def asking(self, site: Site, candidates: Sequence[ReplicaRequest], *, must: bool = False) -> Gang:
        """The unit's gang with these candidates and nothing else to be placed; ``must``: all of them or none."""
        gang = site.gang
        asked, known = {each.replica for each in candidates}, {each.replica for each in self.request.replicas}
        there = [kept for each in self.request.replicas if each.replica not in asked and (kept := _there(each))]
        replicas = (*there, *candidates)
        grown = replace(
            self.request,
            replicas=replicas,
            minimum=len(replicas) if must else self.request.minimum,
            desired=max(self.request.desired, len(replicas)),
            missing=None,
        )
        roles = tuple(grown if each is self.request else _still(each) for each in gang.roles)
        new = [(self.request.name, number) for number in sorted(asked - known)]
        beside = {(self.request.name, number) for number in known}
        rules = tuple(
            replace(rule, members=(*rule.members, *new)) if beside and beside.issubset(rule.members) else rule
            for rule in gang.rules
        )
        return replace(gang, roles=roles, rules=rules)


def template(requests: Sequence[RoleRequest], shape: Callable[[PodRequest], Shape]) -> ReplicaRequest | None:
    """The model of a further replica that is asked for alone: the one that was made last. None without any.

    Args:
        requests: the role in each unit.
        shape: of the pod of a further replica, from that of one that exists.
    """
    known = [each for request in requests for each in request.replicas if each.pods]
    if not known:
        return None
    youngest = max(known, key=lambda each: (_created(each), -each.replica))
    pods = tuple(replace(pod, node=None, shape=shape(pod)) for pod in youngest.pods)
    return replace(youngest, pods=pods, together=None, after=())


def _created(replica: ReplicaRequest) -> str:
    return max(pod.meta.creation_timestamp if pod.meta is not None else "" for pod in replica.pods)


def _copy(template: ReplicaRequest, number: int) -> ReplicaRequest:
    keys = {pod.key: f"more/{number}/{place}" for place, pod in enumerate(template.pods)}

    def renamed(part: Part) -> Part:
        return replace(part, pods=tuple(keys[key] for key in part.pods), parts=tuple(map(renamed, part.parts)))

    pods = tuple(replace(pod, key=keys[pod.key]) for pod in template.pods)
    return replace(template, replica=number, pods=pods, parts=tuple(map(renamed, template.parts)))


def _goes(replica: ReplicaRequest) -> bool:
    """The replica is about to be taken away."""
    return any(pod.meta is not None and pod.meta.label(LABEL_DRAINING) == "true" for pod in replica.pods)


def _there(replica: ReplicaRequest) -> ReplicaRequest | None:
    """The part of a replica that has its places; None for nothing."""
    if replica.placed:
        return replica
    pods = tuple(pod for pod in replica.pods if pod.node is not None)
    return replace(replica, pods=pods, together=None, parts=(), after=()) if pods else None


def _still(role: RoleRequest) -> RoleRequest:
    """A role of which nothing is to be placed."""
    return replace(role, replicas=tuple(kept for each in role.replicas if (kept := _there(each))))


__all__ = ["Own", "Site", "template"]
