"""Takes the events of the watches in their order and says what they broke. No I/O and no clock of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from soak import invariants
from soak.claims import Claims
from soak.facts import Json, Owner, Pod, Replica, read_node, read_pod, read_resource, read_wanted
from soak.invariants import Violation
from soak.routes import Routes
from soak.world import GRACE, Loss, World

#: Quiet seconds after which watches of two kinds have told the same.
LATE: Final = 3.0


@dataclass
class Checker:
    """The world, and what was found in it so far."""

    world: World = field(default_factory=World)
    violations: list[Violation] = field(default_factory=list)
    events: int = 0
    #: How often there was something to judge: binds, pods let go, serving replicas that the operator gave up.
    binds: int = 0
    pins: int = 0
    given_up: int = 0
    claims: Claims = field(init=False)
    routes: Routes = field(init=False)
    #: Pods on nodes that were unfit as far as was seen: when, and the version with which the node had become fit before.
    _unfit: list[tuple[float, Pod, int, Violation]] = field(default_factory=list)
    _torn: dict[Replica, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.claims = Claims(self.world)
        self.routes = Routes(self.world)

    def take(self, kind: str, change: str, found: Json, at: float) -> list[Violation]:
        """One event: kind ``Pod``, ``Node`` or ``DisaggregatedInference``; returns what it broke."""
        self.events += 1
        match kind, change:
            case "Pod", "DELETED":
                pod = read_pod(found)
                return self._keep([*self._pod_gone(pod, at), *self.routes.take(found, pod, gone=True, at=at)])
            case "Pod", _:
                pod = read_pod(found)
                return self._keep([*self._pod(pod, at), *self.routes.take(found, pod, gone=False, at=at)])
            case "CompositePodGroup" | "PodGroup", _:
                self.world.note_proofs(found)
                return self._keep(self.claims.take_root(change, found, at))
            case "Node", "DELETED":
                self.world.drop_node(found["metadata"]["name"], at)
            case "Node", _:
                self.world.put_node(read_node(found), at)
            case "DisaggregatedInference", "DELETED":
                self.world.drop_resource(Owner(found["metadata"]["namespace"], found["metadata"]["name"]))
            case "DisaggregatedInference", _:
                resource = read_resource(found)
                self.world.put_resource(resource, at)
                self.routes.note_spec(resource.owner, found["spec"])
        return []

    def take_unseen(self, kind: str, change: str, found: Json, at: float) -> None:
        """What a list says, after events were missed: taken as it is, not judged."""
        before = len(self.violations)
        self.take(kind, change, found, at)
        del self.violations[before:]
        self.claims.forget_unseen()

    def tick(self, at: float) -> list[Violation]:
        """Time has passed."""
        self.world.rests.look(self.world, at, GRACE)
        torn = invariants.torn(self.world, self._torn, at)
        return self._keep([*torn, *self._still_unfit(at), *self.claims.tick(at), *self.routes.tick(at)])

    def will_write(self, owner: Owner, spec: Json, at: float) -> None:
        """A spec is about to be written: whoever is quick acts upon it before it is seen here."""
        self.world.note_spec(owner, read_wanted(spec), at)
        self.routes.note_spec(owner, spec)
        self.world.rests.stir(owner)

    def _pod(self, pod: Pod, at: float) -> Iterable[Violation]:
        world = self.world
        served = pod.replica is not None and world.serves(pod.replica)
        before = world.put_pod(pod, at)
        if pod.node and (before is None or not before.node):
            self.binds += 1
        if before is not None and pod.decided and not before.decided:
            self.pins += 1
        self.given_up += served and before is not None and invariants.gives_up(world, before, pod)
        yield from invariants.budget(world, before, pod, at, served=served)
        yield from invariants.taken(world, before, pod, at, served=served)
        self._note_loss(before, pod, at, served=served)
        for rule in invariants.AT_EVENTS:
            yield from rule(world, before, pod, at)
        known = world.became_fit.get(pod.node, 0)
        self._unfit += ((at, pod, known, each) for each in invariants.unfit(world, before, pod, at))
        self.claims.take_pod(before, pod, at)

    def _still_unfit(self, at: float) -> Iterable[Violation]:
        """Judge binds to unfit nodes once the watch of nodes, which may be late, has told all that was before them."""
        while self._unfit and at - self._unfit[0][0] > LATE:
            _, pod, known, found = self._unfit.pop(0)
            now = self.world.became_fit.get(pod.node, 0)
            if not known < now < pod.version:
                yield found

    def _pod_gone(self, pod: Pod, at: float) -> Iterable[Violation]:
        """One that went without a grace period is seen for the last time as it was before."""
        world = self.world
        known = world.pods.get(pod.uid)
        served = known is not None and known.replica is not None and world.serves(known.replica)
        before = world.drop_pod(pod.uid)
        if before is None or not before.live:
            return
        gone = replace(pod, going=True)
        self.given_up += served and invariants.gives_up(world, before, gone)
        yield from invariants.budget(world, before, gone, at, served=served)
        yield from invariants.taken(world, before, gone, at, served=served)
        self._note_loss(before, gone, at, served=served)
        self.claims.take_pod(before, gone, at)

    def _note_loss(self, before: Pod | None, pod: Pod, at: float, *, served: bool) -> None:
        if before is None or pod.replica is None or not before.live:
            return
        lost = not pod.live or (pod.leaves and not before.leaves) or (before.ready and not pod.ready)
        if lost or (pod.released and not before.released):
            ours = self._is_ours(pod) and not pod.claimed
            self.world.losses.append(Loss(at, pod.replica, ours, served, bool(pod.claimed)))
            if not ours:
                self.world.rests.stir(pod.replica.side.owner)

    def _is_ours(self, pod: Pod) -> bool:
        """The operator, and nobody else, has asked it to go."""
        asked = (pod.namespace, pod.name) in self.world.condemned or not pod.going
        return pod.leaves and asked and pod.uid not in self.world.touched

    def _keep(self, found: Iterable[Violation]) -> list[Violation]:
        violations = list(found)
        self.violations += violations
        return violations
