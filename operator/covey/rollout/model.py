"""The terms of a rollout: what is observed of a unit, what it shall be next, and the window of a role.

The budget of a role while it is rolled: replicas beyond the wanted number, and missing from it.

A percentage is of the wanted number; surge is rounded up, unavailability down. Where both come to nothing one replica
may be missing, for otherwise nothing could ever be replaced. These are the rules of Deployments
(``ResolveFenceposts`` of ``k8s.io/kubernetes/pkg/controller/deployment/util``).

The window of a rollout: replicas of each side that a unit may have next.

Of each role, with ``n`` wanted, ``s`` surge and ``u`` unavailable:

=========  ============================================================================================================
ceiling    ``n + s``: replicas of both sides together. Those on their way out are not counted.
floor      ``n - u``: serving replicas that must stay. Not below ``minReplicas`` where the role has more than its
           minimum, and not zero for a role of the gang where a second replica may exist.
need       The old side ends, in all roles at once, when the new one serves as many as the floor everywhere.
keep       Old replicas that must stay until then: what the new side lacks of the floor, and one, so that no role of a
           revision is there without the others.
room       ``ceiling - keep``: new replicas that may exist.
pace       The share of their replicas that all changing roles may have now: as large as every room allows. A role that
           keeps a single old replica does not hold the others up by one.
=========  ============================================================================================================

A role whose ceiling is one replica cannot have two revisions: it has its old one replaced when the others begin.

What does not serve counts as if it did until the new side has shown that it can serve: otherwise a new revision that
never gets ready would take the place of every old replica that is lost. After that it goes first.

**Where a surge has no place** and it is proven that it would have one without some old replicas, these are ``cleared``: a
role whose new replicas wait then has no surge, and where ``maxUnavailable`` is not given exactly these go, in one step.
Who asks for the proof, and where it comes from, is none of this (``operator.rolling.succession``).

Lower bound of waves (a wave: all that was created gets Ready): whatever the other roles do, ``w`` new replicas serving
allow at most ``n + s - max(1, n - u - w)`` of them, one being kept until ``w`` is at the floor; so a role alone needs
as many waves as it takes ``w -> min(n, n + s - max(1, n - u - w))`` to get from 0 to ``n``, about ``n / (s + u)``, and
a unit at least as many as its slowest role. ``tests/unit/rollout/test_waves.py`` compares.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from covey.api.roles import Role
from covey.compile.revision import RoleRevision


class Stage(IntEnum):
    """The stage of a replica; the later, the more is lost with it."""

    #: Its deletion has been asked for. It is lost, whatever its pods say.
    GOING = 0
    #: Not all of its pods have a node.
    WAITING = 1
    #: All its pods have nodes and are not Ready, or no longer.
    STARTING = 2
    #: It was Ready a moment ago, and may be again.
    DOUBTFUL = 3
    #: All its pods are Ready.
    SERVING = 4


@dataclass(frozen=True, slots=True)
class RolloutReplica:
    """One replica. ``standing`` ranks replicas of one stage; more is more. ``fresh``: it has never had its nodes.

    ``leaving``: a node of its is to be empty, so it needs a successor whatever its revision; ``patient``: it does not
    go without one yet. ``updatable``: its pods can be given the images of the target where they are. ``updating``:
    they were given others, and do not serve with them yet.
    """

    revision: RoleRevision
    stage: Stage
    standing: tuple[float, ...] = ()
    fresh: bool = False
    leaving: bool = False
    patient: bool = False
    updatable: bool = False
    updating: bool = False


@dataclass(frozen=True, slots=True)
class RoleState:
    """One role of one unit: the revision and the number of replicas that are wanted, and those that exist.

    ``spare`` has numbers without replicas whose objects exist already; they are taken first. ``yields``: where there is
    no room for the successor of a replica that leaves, it goes even though the role has no more than its minimum.
    ``cleared``: old replicas that may go although nothing serves in their place yet, for it is proven that their going
    gives successors their places, or that nothing does and they have to go all the same. ``refusal``: why replicas that
    wait have no places, in the words of whoever refused them; empty where nobody has. ``starved``: it is proven that
    those which wait have none.
    """

    target: RoleRevision
    wanted: int
    minimum: int
    budget: RolloutBudget
    replicas: Mapping[int, RolloutReplica]
    spare: Collection[int] = ()
    yields: bool = False
    cleared: frozenset[int] = frozenset()
    refusal: str = ""
    starved: bool = False

    @property
    def alive(self) -> Mapping[int, RolloutReplica]:
        """The replicas that are not on their way out."""
        return {number: replica for number, replica in self.replicas.items() if replica.stage is not Stage.GOING}

    @property
    def outdated(self) -> Mapping[int, RolloutReplica]:
        """Those of another revision than the target."""
        return {n: replica for n, replica in self.alive.items() if replica.revision.hash != self.target.hash}

    @property
    def updated(self) -> Mapping[int, RolloutReplica]:
        """Those of the target."""
        return {n: replica for n, replica in self.alive.items() if replica.revision.hash == self.target.hash}

    @property
    def old(self) -> Mapping[int, RolloutReplica]:
        """Those that are to be replaced: of another revision, or leaving."""
        return {
            n: replica
            for n, replica in self.alive.items()
            if replica.leaving or replica.revision.hash != self.target.hash
        }

    @property
    def new(self) -> Mapping[int, RolloutReplica]:
        """Those that are to stay."""
        return {
            n: replica
            for n, replica in self.alive.items()
            if not replica.leaving and replica.revision.hash == self.target.hash
        }

    @property
    def leaving(self) -> Mapping[int, RolloutReplica]:
        """Those whose nodes are to be empty."""
        return {n: replica for n, replica in self.alive.items() if replica.leaving}

    @property
    def makes_room(self) -> bool:
        """Tell whether replicas that wait are to have the places of old ones: then there is no surge."""
        waits = any(replica.stage is Stage.WAITING for replica in self.new.values())
        return waits and not self.cleared.isdisjoint(self.old)


@dataclass(frozen=True, slots=True)
class UnitState:
    """One unit.

    Args:
        roles: by name.
        stays: nothing is replaced now (paused, or given up).
        blocked: why nothing of it that has run can be replaced at all; empty where it can.
        ranks: age of each role's revisions by (role, hash), a greater number being newer; of what is not there nothing
            is known.
    """

    roles: Mapping[str, RoleState]
    stays: bool = False
    blocked: str = ""
    ranks: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def is_held(self) -> bool:
        """No other revision is brought in now."""
        states = self.roles.values()
        # What leaves comes before a rollout that keeps some of the revision that they have.
        behind = any(state.leaving for state in states) and any(state.budget.partition for state in states)
        return self.stays or bool(self.blocked) or behind

    def staying(self, role: str) -> Mapping[int, RolloutReplica]:
        """Replicas of a role that are to stay: of the target, or of whichever revision while none is brought in."""
        state = self.roles[role]
        return {n: replica for n, replica in state.alive.items() if not replica.leaving} if self.is_held else state.new


@dataclass(frozen=True, slots=True)
class UnitStep:
    """The next state of a unit: the revision of each replica.

    ``together``: replicas (role and number) that must come all or none; they are the first of their revision.
    """

    roles: Mapping[str, Mapping[int, RoleRevision]]
    together: frozenset[tuple[str, int]] = frozenset()


def serving(replicas: Mapping[int, RolloutReplica]) -> int:
    """Count the replicas that serve."""
    return sum(replica.stage is Stage.SERVING for replica in replicas.values())


_SURGE = 1


@dataclass(frozen=True, slots=True)
class RolloutBudget:
    """The budget of a role, in replicas of one unit. ``unavailable`` is None where nobody set it: none while a surge fits.

    ``partition``: so many replicas keep the revision that they have.
    """

    surge: int = _SURGE
    unavailable: int | None = None
    partition: int = 0

    @classmethod
    def of(cls, role: Role, wanted: int) -> RolloutBudget:
        """The budget by a role's ``update`` where ``wanted`` replicas are wanted in a unit."""
        update = role.update
        if update is None:
            return cls()
        surge = _SURGE if update.max_surge is None else _resolve_percent(update.max_surge, wanted, up=True)
        missing = None if update.max_unavailable is None else _resolve_percent(update.max_unavailable, wanted, up=False)
        return cls(surge, 1 if not surge and not missing else missing, update.partition or 0)


def _resolve_percent(value: int | str, wanted: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    share = int(value.removesuffix("%")) * wanted
    return -(-share // 100) if up else share // 100


@dataclass(frozen=True, slots=True)
class Window:
    """Replicas of each side that one role may have next."""

    old: int
    new: int


@dataclass(frozen=True, slots=True)
class _CountedRole:
    """One changing role, counted."""

    state: RoleState
    old: int
    new: int
    #: New replicas that serve.
    ready: int
    #: Old replicas that may serve, as far as that is known.
    hopeful: int
    ceiling: int
    floor: int
    #: Old replicas that are to stay for good.
    kept: int
    #: Those that are cleared, of the ones that may serve.
    cleared: int

    @property
    def most(self) -> int:
        """New replicas that it may have in the end."""
        return max(0, self.state.wanted - self.kept)

    @property
    def is_carried(self) -> bool:
        """The new side can do without the old one."""
        return self.ready >= self.floor

    @property
    def keep(self) -> int:
        """Old replicas that must stay now."""
        pair = 1 if self.ceiling > 1 and self.state.wanted else 0
        lacking = self.state.wanted - self.ready if self.cleared else self.floor - self.ready
        return min(self.old, max(self.kept, pair, min(self.hopeful - self.cleared, lacking)))

    @property
    def room(self) -> int:
        """New replicas that may exist now."""
        return max(0, self.ceiling - self.keep)

    def pace(self, of: int) -> int:
        """The fastest pace, ``of`` at most, that its room allows."""
        # Only its last old replica may be in the way of one more: that goes when the others are as far.
        limit = self.room + (self.keep == 1)
        return of if self.most <= limit else limit * of // self.state.wanted

    def share(self, pace: int, of: int) -> int:
        """New replicas at a pace, rounded up."""
        return min(-(-self.state.wanted * pace // of), self.most)


def windows(roles: Mapping[str, RoleState]) -> Mapping[str, Window] | None:
    """The window of each changing role; None where a partition holds them all.

    Args:
        roles: the roles that have replicas of another revision than their target.
    """
    # A role that shall have none keeps none, and is gone in the next step.
    partitioned = any(state.budget.partition for state in roles.values() if state.wanted)
    proven = all(serving(state.new) or not state.wanted for state in roles.values())
    counted = {name: _count(state, partitioned=partitioned, proven=proven) for name, state in roles.items()}
    active = [role for role in counted.values() if role.state.wanted]
    if any(role.most == 0 for role in active):
        return None
    if all(role.is_carried for role in active) and not any(role.kept for role in active):
        return {name: Window(0, role.most) for name, role in counted.items()}
    of = max((role.state.wanted for role in active), default=0)
    pace = min((role.pace(of) for role in active), default=0)
    return {name: _window(role, pace, of) for name, role in counted.items()}


def floor(state: RoleState) -> int:
    """Serving replicas of a role that no deletion may go below."""
    wanted, least, budget = state.wanted, state.minimum, state.budget
    if state.makes_room and budget.unavailable is None:
        going = serving({n: replica for n, replica in state.old.items() if n in state.cleared})
        return min(wanted, max(least, serving(state.alive) - going))
    kept = max(0, wanted - (budget.unavailable or 0))
    if least < wanted:
        kept = max(kept, least)
    return max(kept, 1) if least and wanted + (0 if state.makes_room else budget.surge) > 1 else kept


def _count(state: RoleState, *, partitioned: bool, proven: bool) -> _CountedRole:
    old = state.old
    hopeful = {n for n, replica in old.items() if not proven or replica.stage >= Stage.DOUBTFUL}
    kept = max(state.budget.partition, 1 if partitioned else 0)
    kept = min(kept, len(old), state.wanted)
    gives = state.makes_room and state.budget.unavailable is None
    return _CountedRole(
        state,
        old=len(old),
        new=len(state.new),
        ready=min(serving(state.new), state.wanted - kept),
        hopeful=len(hopeful),
        ceiling=state.wanted + (0 if state.makes_room else state.budget.surge),
        floor=floor(state),
        kept=kept,
        cleared=len(hopeful & state.cleared) if gives else 0,
    )


def _window(role: _CountedRole, pace: int, of: int) -> Window:
    if not role.state.wanted:
        return Window(0, 0)
    new = max(min(role.new, role.most), min(role.share(pace, of), role.room))
    # The surge is given back when there is nothing more to bring, or no room for it.
    old = role.keep if role.state.makes_room or role.ready >= role.most else max(role.keep, role.ceiling - new)
    return Window(min(role.old, old), new)
