"""The terms of a rollout: what is observed of a unit, what it shall be next, and the budget of a role.

A percentage is of the wanted number; surge is rounded up, unavailability down. Where both come to nothing one replica
may be missing, for otherwise nothing could ever be replaced. These are the rules of Deployments
(``ResolveFenceposts`` of ``k8s.io/kubernetes/pkg/controller/deployment/util``).
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
