"""What must hold at every event, each as a function of what was before, what changed, and the recent past.

half bound      A pod is bound while its replica is not decided as a whole: each of its other places is filled by a pod
                that is bound, or let go to its node. Excused while a pod of the replica was lost a moment ago.
torn            A replica has bound pods and places without, for a minute, and nobody was lost meanwhile. Places that only
                the order of starts holds count as bound.
minimum first   A pod of the surplus is let go while its unit lacks bound replicas of its minimum, and those that it comes
                together with are none of it. Excused while a pod of the unit was lost, or the spec changed, a moment ago.
budget          The operator deletes a pod of a serving replica, tells it to drain or updates it in place, and then fewer
                serve than the role's budget allows. What others took a moment ago counts as if it served still. With the default budget, and
                while the rollout has said that it finds no room, it was proven of the pod that its going places a successor, or its namespace
                has a ResourceQuota, by which the operator proves that itself, the floor is the minimum. Excused once the resource has
                said that it escalates: it gives up more than was lost.
taken           The operator gives up a serving replica of a resource that has been at rest, and nobody has given a reason
                since (``rests.py``). A taint NoSchedule on no list, a deleted Service or budget, a renamed key of a topology,
                a quota, an object that cannot be read and an operator that was away are none.
                Neither of the two holds for what gives way to a claim (``claims.py``).
double          Two live bound pods in one place; two pods under one address.
overcommitted   Bound pods of a node ask for more GPUs than it has, and Covey's scheduler was the last to bind there,
                though all others had been there for a while.
unfit           Covey's scheduler binds a pod to a node that has been unfit for a while.
astray          A replica, a unit, or roles that require proximity lie in two domains of the level that is required.
blind           A watch of the checker has ended by an error (``watching.py``): what it still judges it would judge by what
                was long ago.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from soak.facts import Pod, Replica, Side, Wanted
from soak.world import GRACE, World

#: Quiet seconds that a replica may be torn.
TORN: Final = 60.0


@dataclass(frozen=True, slots=True)
class Violation:
    """What was found, of whom, and when in quiet seconds."""

    rule: str
    what: str
    at: float

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


def told(replica: Replica) -> str:
    """A replica in words."""
    side = replica.side
    return f"{side.owner.namespace}/{side.owner.name} unit {side.unit} {side.role} {replica.number}"


def half_bound(world: World, before: Pod | None, pod: Pod, at: float) -> Iterator[Violation]:
    """See ``half bound``."""
    if not _is_bind(before, pod) or pod.replica is None or world.whole(pod.replica, placed=False):
        return
    if any(loss.replica == pod.replica for loss in world.recent_losses(at)):
        return
    there = {index: [each.decided for each in pods] for index, pods in sorted(world.live(pod.replica).items())}
    yield Violation("half bound", f"{pod.name} is bound, of {pod.size} places of its replica are decided {there}", at)


def torn(world: World, since: dict[Replica, float], at: float) -> Iterator[Violation]:
    """See ``torn``; ``since`` remembers from when each replica has been."""
    recent = {loss.replica for loss in world.recent_losses(at)}
    for replica in list(world.replicas):
        live = [pod for pods in world.live(replica).values() for pod in pods]
        if replica in recent or not any(pod.node for pod in live) or world.whole(replica, placed=True):
            since.pop(replica, None)
            continue
        begun = since.setdefault(replica, at)
        if at - begun > TORN:
            since[replica] = at
            states = {pod.name: pod.node or sorted(pod.gates) for pod in live}
            yield Violation("torn", f"{told(replica)} has been bound in part for {TORN:.0f} s: {states}", at)
    for replica in since.keys() - world.replicas.keys():
        del since[replica]


def minimum_first(world: World, before: Pod | None, pod: Pod, at: float) -> Iterator[Violation]:
    """See ``minimum first``."""
    if pod.replica is None or not pod.live or not pod.decided or before is None or before.decided:
        return
    side = pod.replica.side
    specs = world.wanted(side.owner, at)
    if len(specs) != 1 or any(_unit(loss.replica) == _unit(pod.replica) for loss in world.recent_losses(at)):
        return
    [spec] = specs
    part = spec.parts.get(side.role)
    if part is None or _bound(world, side, without=pod.replica) < part.minimum:
        return
    for role, other in spec.parts.items():
        found = _bound(world, Side(side.owner, side.unit, role), without=pod.replica, mark=pod.mark)
        if found < other.minimum:
            lacking = f"of {role} {found} of {other.minimum} are bound"
            yield Violation("minimum first", f"{pod.name} of the surplus is let go, {lacking}", at)


def budget(world: World, before: Pod | None, pod: Pod, at: float, *, served: bool) -> Iterator[Violation]:
    """See ``budget``; ``served`` says that the pod's replica did before."""
    if before is None or pod.replica is None or not served or pod.claimed or not gives_up(world, before, pod):
        return
    side = pod.replica.side
    specs = world.wanted(side.owner, at)
    resource = world.resources.get(side.owner)
    if any(spec.suspended for spec in specs) or resource is None:
        return
    if resource.escalates or at - world.escalated.get(side.owner, float("-inf")) <= GRACE:
        return
    if min((spec.units for spec in specs), default=0) < len(world.units(side.owner) | {side.unit}):
        return
    left = world.serving(side)
    lost = {
        loss.replica
        for loss in world.recent_losses(at)
        if loss.replica.side == side and loss.served and not loss.ours and not world.serves(loss.replica)
    }
    floor = min((_floor(world, spec, pod, at) for spec in specs), default=0)
    if left + len(lost - {pod.replica}) < floor:
        words = f"{left} {side.role} serve after it, {len(lost)} were lost just now, the budget asks for {floor}"
        words = f"{words}; there are {_pods_of(world, side)}"
        yield Violation("budget", f"{pod.name} of {told(pod.replica)} is deleted: {words}", at)


def taken(world: World, before: Pod | None, pod: Pod, at: float, *, served: bool) -> Iterator[Violation]:
    """See ``taken``; ``served`` says that the pod's replica did before."""
    if before is None or pod.replica is None or not served or pod.claimed or not gives_up(world, before, pod):
        return
    if pod.replica.side.owner in world.rests.settled:
        pods = _pods_of(world, pod.replica.side)
        yield Violation("taken", f"{pod.name} of {told(pod.replica)} is given up for no reason; there are {pods}", at)


def _pods_of(world: World, side: Side) -> dict[str, str]:
    """The pods of a role of a unit, and how each is."""
    return {
        pod.name: f"{pod.labels.get('covey.dev/revision')} {'Ready' if pod.ready else 'not Ready'}"
        f"{' leaves' if pod.leaves else ''}{' ended' if pod.ended else ''}{'' if pod.node else ' unbound'}"
        for replica in world.numbers(side)
        for pod in world.members(replica)
    }


def gives_up(world: World, before: Pod, pod: Pod) -> bool:
    """The operator, and nobody else, has just asked a pod to go."""
    if not before.live or before.leaves or not pod.leaves or pod.uid in world.touched:
        return False
    return not pod.going or (pod.namespace, pod.name) in world.condemned


def _floor(world: World, spec: Wanted, pod: Pod, at: float) -> int:
    assert pod.replica is not None
    side = pod.replica.side
    part = spec.parts.get(side.role)
    if part is None:
        return 0
    says = world.resources[side.owner].gate == "Nodes"
    proven = pod.uid in world.proven or side.owner.namespace in world.limited
    cramped = says or proven or at - world.cramped.get(side.owner, float("-inf")) <= GRACE
    return part.least if cramped else part.floor


def double(world: World, _before: Pod | None, pod: Pod, at: float) -> Iterator[Violation]:
    """See ``double``."""
    if pod.replica is None:
        return
    others = [
        each
        for each in world.members(pod.replica)
        if each.uid != pod.uid and each.index == pod.index and each.owner_uid == pod.owner_uid
    ]
    for other in others:
        if pod.node and other.node and pod.live and other.live:
            yield Violation("double", f"{pod.name} and {other.name} are bound in one place", at)
        if pod.addressed and other.addressed:
            yield Violation("double", f"{pod.name} and {other.name} have one address", at)


def overcommitted(world: World, before: Pod | None, pod: Pod, at: float) -> Iterator[Violation]:
    """See ``overcommitted``."""
    node = world.nodes.get(pod.node)
    if not _is_bind(before, pod) or node is None or not pod.ours or not pod.gpus:
        return
    there = [each for each in world.on_node[pod.node].values() if not each.ended]
    settled = [each for each in there if each.ours or at - world.bound[each.uid] > GRACE]
    if sum(each.gpus for each in settled) > node.gpus:
        taken = {each.name: each.gpus for each in there}
        yield Violation("overcommitted", f"{pod.node} has {node.gpus} GPUs, bound there are {taken}", at)


def unfit(world: World, before: Pod | None, pod: Pod, at: float) -> Iterator[Violation]:
    """See ``unfit``."""
    since = world.unfit.get(pod.node)
    if not _is_bind(before, pod) or not pod.ours or since is None or at - since <= GRACE:
        return
    if before is not None:
        yield Violation("unfit", f"{pod.name} is bound to {pod.node}, unfit for {at - since:.0f} s", at)


def astray(world: World, before: Pod | None, pod: Pod, at: float) -> Iterator[Violation]:
    """See ``astray``."""
    if not _is_bind(before, pod) or pod.replica is None:
        return
    side = pod.replica.side
    spec = world.specs[side.owner][-1][1] if world.specs.get(side.owner) else None
    part = spec.parts.get(side.role) if spec is not None else None
    if spec is None or part is None:
        return
    unit = [replica for replica in world.replicas if _unit(replica) == _unit(pod.replica)]
    near = [
        (each.label, [replica for replica in unit if replica.side.role in each.roles])
        for each in spec.near
        if side.role in each.roles
    ]
    for level, replicas in ((part.required, [pod.replica]), (spec.required, unit), *near):
        # A replica that was told to go binds nobody to its domain: its successor may have another.
        staying = [
            each for replica in replicas for each in world.members(replica) if each.updated_in_place or not each.leaves
        ]
        nodes = {each.node for each in staying if each.live and each.node}
        domains = {world.nodes[name].labels.get(level) for name in nodes if name in world.nodes}
        if level and len(domains) > 1:
            yield Violation("astray", f"{told(replicas[0])} lies in {sorted(map(str, domains))}", at)


#: Those that need nothing but the change.
AT_EVENTS: Final = (half_bound, minimum_first, double, overcommitted, astray)


def _is_bind(before: Pod | None, pod: Pod) -> bool:
    return bool(pod.node) and pod.live and (before is None or not before.node)


def _unit(replica: Replica) -> tuple[object, int]:
    return (replica.side.owner, replica.side.unit)


def _bound(world: World, side: Side, *, without: Replica, mark: str = "") -> int:
    """Bound replicas of a role; those of the same set, which is placed all or none, count as well."""
    return sum(
        world.whole(replica, placed=True) or bool(mark and any(pod.mark == mark for pod in world.members(replica)))
        for replica in world.numbers(side)
        if replica != without
    )
