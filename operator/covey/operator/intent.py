"""What is wanted of a resource: features say it one after the other, each to those behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from covey.api import core
from covey.api.annotations import Avoided
from covey.api.inference import DisaggregatedInferenceSpec
from covey.backends import Identity
from covey.compile import Layout, ReplicaKey, RoleRevision, Scale, Slot, Tree
from covey.operator.model.claimed import Claimed
from covey.operator.replicas.progress import Running, States
from covey.rollout import UnitState, UnitStep
from covey.rollout.progress import RolloutProgress

#: ``evacuateAfterSeconds`` where nothing is said.
PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Leaving:
    """Replicas that have to leave their nodes: why, by place; and seconds after which there will be more.

    ``patient`` are those that do not go without a successor yet, however many of their role serve; ``patience`` is for
    how long, in seconds since their nodes were cordoned. ``idle`` serve nobody: their pods may be evicted.
    """

    places: Mapping[ReplicaKey, str] = field(default_factory=dict)
    again: float | None = None
    patient: Collection[ReplicaKey] = frozenset()
    patience: float = PATIENCE
    #: What successors keep off: a scheduler keeps them off cordons and hard taints, not off soft ones.
    avoided: tuple[Avoided, ...] = ()
    idle: Collection[ReplicaKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Move:
    """A unit, the one that is to take its place, and whether that serves as much: then the first one goes."""

    unit: int
    to: int
    done: bool = False
    #: Its groups cannot be changed in place.
    is_remake: bool = False

    def count_into(self, scale: Scale) -> Scale:
        """The scale with the replicas of the other unit, which are as many."""
        if not scale.shares:
            return scale
        shares = {**scale.shares, self.to: scale.unit(self.unit)}
        if self.done:
            shares.pop(self.unit)
        return replace(scale, shares=shares)


@dataclass(frozen=True, slots=True)
class Intent:
    """What is wanted, as far as the features asked so far have said."""

    #: Of which revision each replica is, and how far it has come: what is wanted is decided from these.
    running: Running
    states: States
    #: Replicas that give way now, without a successor, and to whom; units of which no pod is made before the last has
    #: gone; and units that lost nothing, for they are queued anew.
    preempted: Mapping[ReplicaKey, Claimed] = field(default_factory=dict)
    emptying: frozenset[int] = frozenset()
    queued: frozenset[int] = frozenset()
    #: Replicas over all units, by role, where it is not the spec that says how many.
    totals: Mapping[str, int] = field(default_factory=dict)
    #: Says what is lacking for replicas of a tree that come, once others of it are gone; empty where nothing is known to.
    lacks: Callable[[Tree, Iterable[ReplicaKey], Iterable[ReplicaKey]], str] = lambda _tree, _coming, _gone: ""
    #: Tell of the pods of a replica, by place, whether all of them (its size) can become ones of a revision where they are,
    #: and whether some are yet to.
    can_update_in_place: Callable[[Mapping[Slot, core.Pod], int, RoleRevision], bool] = lambda _pods, _size, _to: False
    is_half_updated: Callable[[Mapping[Slot, core.Pod], RoleRevision], bool] = lambda _pods, _to: False
    #: Replicas that have to leave their nodes.
    leaving: Leaving = field(default_factory=Leaving)
    #: The units and replicas that there shall be.
    layout: Layout = field(default_factory=lambda: Layout({}))
    #: Each unit as it is, and as it shall be next; the unit that is moved as a whole; and the rollout that it is a step of.
    steps: Mapping[int, tuple[UnitState, UnitStep]] = field(default_factory=dict)
    move: Move | None = None
    progress: RolloutProgress | None = None
    #: Something is on its way out, and the clock of a rollout stands still.
    stands: bool = False
    #: What there is to say of replicas of revisions that no record explains.
    unexplained: str = ""
    #: Units whose objects the API server would not change: one that serves, and whose place another one is to take, and one
    #: that is taken down now. And the objects, which are not changed meanwhile.
    remade: int | None = None
    taken_down: int | None = None
    fixed: frozenset[Identity] = frozenset()

    @property
    def arriving(self) -> int | None:
        """The number of a unit that counts for nothing yet: it is to take the place of another."""
        return self.move.to if self.move is not None and not self.move.done else None

    @property
    def units(self) -> dict[int, UnitState | None]:
        """Each unit that there shall be as it is; None for one of which nothing is known yet."""
        return {unit: self.steps[unit][0] if unit in self.steps else None for unit in self.layout.units}

    def scale(self, spec: DisaggregatedInferenceSpec) -> Scale:
        """Units and replicas that are wanted."""
        return self.layout.scale or Scale.of(spec)
