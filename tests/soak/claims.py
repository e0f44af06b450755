"""Claims as the watches show them, and the laws that hold for what they take.

unnamed         The operator has marked a pod for a root, and no claim that was stored on that root before names its replica
                or its unit (L1, L5). Versions of objects say which was before: watches of two kinds may be late.
in part         A replica is marked, and its role keeps fewer replicas with places than its minimum, though no claim names
                the whole unit (L3). Excused while something else of the unit was lost a moment ago.
rank            A claim names somebody of no lower priority, or of another queue; one that reclaims: somebody whose queue
                has not more than its nominal (L7).
too many        More claims in a minute than the scheduler process may make, with those by right beside the others.
quota           Places are decided for a pod, and then those of its queue, or of the cohort, ask for more than there is (C1).
                Pods of a resource that has been deleted do not count: they go, and their groups may have gone before them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import ceil
from typing import Any, Final

from soak.facts import Json, Owner, Pod, Replica, Side
from soak.invariants import Violation, told
from soak.settings import BORROW, NOMINAL, PER_MINUTE
from soak.world import GRACE, World

#: Quiet seconds after which all that was written before a pod was marked has been seen.
_SEEN: Final = 4.0
_MINUTE: Final = 60.0
RECLAIM: Final = "Reclaim"
_OWN: Final = "Exchange"


@dataclass(frozen=True, slots=True)
class Victim:
    """A replica, or with ``replica`` None all of a unit, and the UIDs of its pods."""

    owner: Owner
    unit: int
    role: str
    replica: int | None
    pods: frozenset[str]

    def names(self, replica: Replica, kin: frozenset[str]) -> bool:
        """Tell whether it is this replica, or its unit; ``kin``: UIDs of the unit's pods."""
        side = replica.side
        whole = self.replica is None or (side.role, replica.number) == (self.role, self.replica)
        return (side.owner, side.unit) == (self.owner, self.unit) and whole and not self.pods.isdisjoint(kin)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim with victims, as it was stored."""

    owner: Owner
    unit: int
    purpose: str
    since: str
    victims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A pod that was marked: when, by the version of the object, and with whom."""

    at: float
    version: int
    root: str
    pod: str
    replica: Replica
    kin: frozenset[str]
    #: Others of its role that keep their places, and the minimum; None where nobody can tell.
    kept: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Use:
    """GPUs by resource and its UID at the moment when a pod of a namespace got its place."""

    at: float
    pod: str
    namespace: str
    gpus: Counter[tuple[Owner, str]]

    def is_too_much(self) -> bool:
        """Tell whether the pod's queue has more than it may borrow, or the cohort more than there is."""
        uses = Counter[str]()
        for (owner, _), gpus in self.gpus.items():
            uses[owner.namespace] += gpus
        most = NOMINAL.get(self.namespace, 0) + BORROW.get(self.namespace, 1 << 30)
        return uses[self.namespace] > most or sum(uses[name] for name in NOMINAL) > sum(NOMINAL.values())


def read_claim(root: Json) -> Claim | None:
    """Read the claim of a root; None where it claims nobody's room."""
    metadata, claim = root["metadata"], (root.get("status") or {}).get("claim") or {}
    if not claim.get("victims"):
        return None
    labels = metadata.get("labels") or {}
    owner = Owner(metadata["namespace"], labels.get("covey.dev/inference", metadata["name"]))
    victims = tuple(map(_victim, claim["victims"]))
    return Claim(owner, int(labels.get("covey.dev/unit", 0)), claim.get("purpose", ""), claim["since"], victims)


def _victim(found: Json) -> Victim:
    whole = found["kind"] != "Replica"
    return Victim(
        Owner(found["namespace"], found["name"]),
        found.get("unit", 0),
        "" if whole else found["role"],
        None if whole else found["replica"],
        frozenset(found.get("pods") or ()),
    )


@dataclass
class Claims:
    """All claims so far, and what was taken for them."""

    world: World
    #: By the UID of the root: version of the object, and the claim.
    stored: dict[str, list[tuple[int, Claim | None]]] = field(default_factory=dict)
    made: int = 0
    purposes: Counter[tuple[str, str]] = field(default_factory=Counter)
    evicted: set[str] = field(default_factory=set)
    pardoned: int = 0
    _marks: deque[Mark] = field(default_factory=deque)
    _too_much: deque[Use] = field(default_factory=deque)
    _ended: deque[tuple[float, Claim]] = field(default_factory=deque)
    #: When claims were made since the scheduler process began, in its own time.
    _minute: deque[float] = field(default_factory=deque)
    #: The GPUs that each namespace had, and when.
    _uses: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def forget_unseen(self) -> None:
        """Forget what cannot be judged since events were missed."""
        self._marks.clear()
        self._too_much.clear()

    def begin_anew(self) -> None:
        """Another scheduler process counts its claims from none."""
        self._minute.clear()

    @property
    def standing(self) -> list[str]:
        """The claims of which something lives that is to give way."""
        live = {uid for uid, pod in self.world.pods.items() if pod.live}
        return [
            f"the claim of {claim.owner.namespace}/{claim.owner.name} unit {claim.unit}"
            for versions in self.stored.values()
            if (claim := versions[-1][1]) is not None and any(live & each.pods for each in claim.victims)
        ]

    def take_root(self, change: str, found: Json, at: float) -> Iterator[Violation]:
        """Take a group as it is now."""
        uid, version = found["metadata"]["uid"], int(found["metadata"]["resourceVersion"])
        claim = read_claim(found) if change != "DELETED" else None
        before = self.stored[uid][-1][1] if uid in self.stored else None
        if claim == before:
            return
        self.stored.setdefault(uid, []).append((version, claim))
        if before is not None and (claim is None or claim.since != before.since):
            if change == "DELETED":
                self.purposes[before.purpose, "its root is gone"] += 1
            else:
                self._ended.append((at, before))
        if claim is not None:
            if before is None or claim.since != before.since:
                self.made += 1
                yield from self._count(claim, at)
            known = before.victims if before is not None else ()
            yield from self._rank(claim, [each for each in claim.victims if each not in known], at)

    def _count(self, claim: Claim, at: float) -> Iterator[Violation]:
        now = datetime.fromisoformat(claim.since).timestamp()
        self._minute.append(now)
        recent = [each for each in self._minute if now - _MINUTE < each <= now]
        if claim.purpose != _OWN and len(recent) > PER_MINUTE + ceil(PER_MINUTE / 10):
            yield Violation("too many", f"{len(recent)} claims in a minute", at)

    def _rank(self, claim: Claim, victims: list[Victim], at: float) -> Iterator[Violation]:
        mine, name = self.world.resources.get(claim.owner), f"{claim.owner.namespace}/{claim.owner.name}"
        for each in victims if claim.purpose != _OWN else ():
            other = self.world.resources.get(each.owner)
            whom = f"{each.owner.namespace}/{each.owner.name}"
            same = each.owner.namespace == claim.owner.namespace
            if (each.owner, each.unit) == (claim.owner, claim.unit):
                yield Violation("rank", f"unit {each.unit} of {name} takes from itself", at)
            elif claim.purpose == RECLAIM:
                peak = max(
                    (use for when, use in self._uses.get(each.owner.namespace, ()) if at - when <= GRACE), default=0
                )
                if not same and max(peak, self._use(each.owner.namespace, going=True)) <= NOMINAL[each.owner.namespace]:
                    yield Violation("rank", f"{name} reclaims from {whom}, whose queue has borrowed nothing", at)
            elif not same:
                yield Violation("rank", f"{name} takes from {whom} of another queue", at)
            elif mine is not None and other is not None and other.priority >= mine.priority:
                yield Violation("rank", f"{name} ({mine.priority}) takes from {whom} ({other.priority})", at)

    def take_pod(self, before: Pod | None, pod: Pod, at: float) -> None:
        """Take a pod as it is now, which the world knows already."""
        if pod.replica is None:
            return
        if pod.claimed and not pod.live:
            self.evicted.add(pod.uid)
        if before is not None and before.claimed and not pod.claimed:
            self.pardoned += 1
        if pod.claimed and before is not None and not before.claimed:
            self._marks.append(self._mark(pod, pod.replica, at))
        if before is not None and pod.live and pod.decided and not before.decided:
            self._note_use(pod, at)
        self._uses.setdefault(pod.namespace, deque(maxlen=256)).append((at, self._use(pod.namespace, going=True)))

    def _mark(self, pod: Pod, replica: Replica, at: float) -> Mark:
        world, side = self.world, replica.side
        unit = [each for each in world.replicas if each.side[:2] == side[:2]]
        kin = frozenset(each.uid for other in unit for each in world.members(other)) | {pod.uid}
        lost = any(loss.replica.side == side and not loss.claimed for loss in world.recent_losses(at))
        minimums = [spec.parts[side.role].minimum for spec in world.wanted(side.owner, at) if side.role in spec.parts]
        placed = before_whole(world, side, replica)
        return Mark(
            at,
            pod.version,
            pod.claimed,
            pod.name,
            replica,
            kin,
            None if lost or not minimums or not pod.node else (placed, min(minimums)),
        )

    def tick(self, at: float) -> Iterator[Violation]:
        """Judge what was marked some time ago, and say what became of claims."""
        while self._marks and at - self._marks[0].at > _SEEN:
            yield from self._judge(self._marks.popleft(), at)
        while self._too_much and at - self._too_much[0].at > _SEEN:
            yield from self._judge_use(self._too_much.popleft(), at)
        while self._ended and at - self._ended[0][0] > _SEEN:
            claim = self._ended.popleft()[1]
            self.purposes[claim.purpose, "placed" if self._is_placed(claim) else "given up"] += 1

    def _judge(self, mark: Mark, at: float) -> Iterator[Violation]:
        versions = [claim for version, claim in self.stored.get(mark.root, ()) if version < mark.version and claim]
        found = [each for claim in versions for each in claim.victims if each.names(mark.replica, mark.kin)]
        if not found:
            words = f"{mark.pod} of {told(mark.replica)} is marked for {mark.root}, and no claim of that names it"
            yield Violation("unnamed", f"{words}; there were {len(versions)} claims with victims", at)
        elif mark.kept is not None and mark.kept[0] < mark.kept[1] and all(each.replica is not None for each in found):
            words = f"{mark.kept[0]} others have places, the minimum is {mark.kept[1]}"
            yield Violation("in part", f"{mark.pod} of {told(mark.replica)} gives way alone: {words}", at)

    def _is_placed(self, claim: Claim) -> bool:
        resource = self.world.resources.get(claim.owner)
        return resource is not None and all(
            sum(
                self.world.whole(each, placed=False) for each in self.world.numbers(Side(claim.owner, claim.unit, role))
            )
            >= part.minimum
            for role, part in resource.wanted.parts.items()
        )

    def _note_use(self, pod: Pod, at: float) -> None:
        """Remember who used what when a pod got its place, if that was too much."""
        use = Use(at, pod.name, pod.namespace, Counter())
        for each in self.world.pods.values():
            if each.replica is not None and each.decided and each.live:
                use.gpus[each.replica.side.owner, each.owner_uid] += each.gpus
        if pod.gpus and use.is_too_much():
            self._too_much.append(use)

    def _judge_use(self, use: Use, at: float) -> Iterator[Violation]:
        """Judge what was used by resources that had not been deleted: of others, pods only have not gone yet."""
        known = {(owner, each.uid) for owner, each in self.world.resources.items() if not each.going}
        found = replace(use, gpus=Counter({who: gpus for who, gpus in use.gpus.items() if who in known}))
        if found.is_too_much():
            users = {f"{owner.namespace}/{owner.name}": gpus for (owner, _), gpus in found.gpus.items()}
            yield Violation("quota", f"{use.pod} gets its place, and of {dict(NOMINAL)} are used {users}", at)

    def _use(self, namespace: str, *, going: bool) -> int:
        return sum(
            pod.gpus
            for pod in self.world.pods.values()
            if pod.namespace == namespace and pod.replica is not None and pod.decided
            if pod.live or (going and not pod.ended)
        )


def before_whole(world: World, side: Side, replica: Replica) -> int:
    """Count the other replicas of a role that have all their places and stay."""
    return sum(
        world.whole(each, placed=True) and not any(pod.leaves for pods in world.live(each).values() for pod in pods)
        for each in world.numbers(side)
        if each != replica
    )


def describe_claims(claims: Claims, binds: int) -> str:
    """Say what was taken, and what came of it."""
    listed = ", ".join(f"{number} {purpose}: {end}" for (purpose, end), number in sorted(claims.purposes.items()))
    share = len(claims.evicted) / binds if binds else 0.0
    rows: list[Any] = [f"{claims.made} claims ({listed or 'none has ended'})", f"{claims.pardoned} pods pardoned"]
    rows.append(
        f"{len(claims.evicted)} pods evicted for claims, {binds} bound: {share:.3f} evicted for each that is bound"
    )
    return "; ".join(rows)
