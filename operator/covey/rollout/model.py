"""The terms of a rollout: what is observed of a unit, and what it shall be next."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from covey.compile.revision import RoleRevision
from covey.rollout.budget import Budget


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
class Replica:
    """One replica. ``standing`` ranks replicas of one stage; more is more. ``fresh``: it has never had its nodes.

    ``leaving``: a node of its is to be empty, so it needs a successor whatever its revision; ``patient``: it does not go
    without one yet. ``exchangeable``: its pods
    can be given the images of the target where they are. ``exchanging``: they were given others, and do not serve with
    them yet.
    """

    revision: RoleRevision
    stage: Stage
    standing: tuple[float, ...] = ()
    fresh: bool = False
    leaving: bool = False
    patient: bool = False
    exchangeable: bool = False
    exchanging: bool = False


@dataclass(frozen=True, slots=True)
class RoleState:
    """One role of one unit: the revision and the number of replicas that are wanted, and those that exist.

    ``spare`` has numbers without replicas whose objects exist already; they are taken first. ``yields``: where there is
    no room for the successor of a replica that leaves, it goes even though the role has no more than its minimum.
    """

    target: RoleRevision
    wanted: int
    minimum: int
    budget: Budget
    replicas: Mapping[int, Replica]
    spare: Collection[int] = ()
    yields: bool = False

    @property
    def alive(self) -> Mapping[int, Replica]:
        """The replicas that are not on their way out."""
        return {number: each for number, each in self.replicas.items() if each.stage is not Stage.GOING}

    @property
    def outdated(self) -> Mapping[int, Replica]:
        """Those of another revision than the target."""
        return {n: each for n, each in self.alive.items() if each.revision.hash != self.target.hash}

    @property
    def updated(self) -> Mapping[int, Replica]:
        """Those of the target."""
        return {n: each for n, each in self.alive.items() if each.revision.hash == self.target.hash}

    @property
    def old(self) -> Mapping[int, Replica]:
        """Those that are to be replaced: of another revision, or leaving."""
        return {n: each for n, each in self.alive.items() if each.leaving or each.revision.hash != self.target.hash}

    @property
    def new(self) -> Mapping[int, Replica]:
        """Those that are to stay."""
        return {
            n: each for n, each in self.alive.items() if not each.leaving and each.revision.hash == self.target.hash
        }

    @property
    def leaving(self) -> Mapping[int, Replica]:
        """Those whose nodes are to be empty."""
        return {n: each for n, each in self.alive.items() if each.leaving}


@dataclass(frozen=True, slots=True)
class UnitState:
    """One unit.

    Args:
        roles: by name.
        stays: nothing is replaced now (paused, or given up).
        blocked: why nothing of it that has run can be replaced at all; empty where it can.
        starved: new replicas have found no room for a while, and nothing is going that would leave any.
        ranks: age of each role's revisions by (role, hash), a greater number being newer; of what is not there nothing
            is known.
    """

    roles: Mapping[str, RoleState]
    stays: bool = False
    blocked: str = ""
    starved: bool = False
    ranks: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def is_held(self) -> bool:
        """No other revision is brought in now."""
        states = self.roles.values()
        # What leaves comes before a rollout that keeps some of the revision that they have.
        behind = any(state.leaving for state in states) and any(state.budget.partition for state in states)
        return self.stays or bool(self.blocked) or behind

    def staying(self, role: str) -> Mapping[int, Replica]:
        """Replicas of a role that are to stay: of the target, or of whichever revision while none is brought in."""
        state = self.roles[role]
        return {n: each for n, each in state.alive.items() if not each.leaving} if self.is_held else state.new


@dataclass(frozen=True, slots=True)
class UnitStep:
    """The next state of a unit: the revision of each replica.

    ``together``: replicas (role and number) that must come all or none; they are the first of their revision.
    """

    roles: Mapping[str, Mapping[int, RoleRevision]]
    together: frozenset[tuple[str, int]] = frozenset()


def serving(replicas: Mapping[int, Replica]) -> int:
    """Count the replicas that serve."""
    return sum(each.stage is Stage.SERVING for each in replicas.values())
