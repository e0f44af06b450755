"""A unit on a stage: replicas that come, get ready, die and go, as a test tells them to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from covey.compile.revision import RoleRevision
from covey.rollout import RoleState, RolloutBudget, RolloutReplica, Stage, UnitState, UnitStep, next_step
from covey.rollout.model import serving
from covey.rollout.step import order_of_loss


def revision(name: str) -> RoleRevision:
    """A revision called so."""
    return RoleRevision(name, {"size": 1}, {"lws": True})


@dataclass
class Role:
    """What is wanted of a role, and its replicas."""

    wanted: int
    minimum: int = 1
    budget: RolloutBudget = field(default_factory=RolloutBudget)
    target: str = "a"
    replicas: dict[int, RolloutReplica] = field(default_factory=dict)
    yields: bool = False
    #: Every change is one of images alone, and they may be updated in place.
    in_place: bool = False

    @classmethod
    def serving(
        cls,
        wanted: int,
        minimum: int = 1,
        budget: RolloutBudget | None = None,
        target: str = "a",
        *,
        in_place: bool = False,
    ) -> Role:
        """All of it serves."""
        made = cls(wanted, minimum, budget or RolloutBudget(), target, in_place=in_place)
        made.replicas = {n: RolloutReplica(revision(target), Stage.SERVING) for n in range(wanted)}
        return made

    @property
    def state(self) -> RoleState:
        replicas = self.seen()
        return RoleState(revision(self.target), self.wanted, self.minimum, self.budget, replicas, yields=self.yields)

    def seen(self) -> dict[int, RolloutReplica]:
        """The replicas, those that can be updated in place marked."""
        return {
            n: replace(
                each,
                updatable=self.in_place
                and not each.leaving
                and each.stage > Stage.WAITING
                and each.revision.hash != self.target,
            )
            for n, each in self.replicas.items()
        }

    def count(self, name: str, *stages: Stage) -> int:
        """Replicas of a revision that are not going, in these stages where any are given."""
        return sum(
            each.revision.hash == name and each.stage is not Stage.GOING and (not stages or each.stage in stages)
            for each in self.replicas.values()
        )

    @property
    def ready(self) -> int:
        return sum(each.stage is Stage.SERVING for each in self.replicas.values())


@dataclass
class Unit:
    """A unit."""

    roles: dict[str, Role]
    ages: dict[tuple[str, str], int] = field(default_factory=dict)
    stays: bool = False
    #: By role, the old replicas that may go now, as somebody has proven.
    cleared: dict[str, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, role in self.roles.items():
            self.ages.setdefault((name, role.target), 0)

    @property
    def state(self) -> UnitState:
        roles = {
            name: replace(role.state, cleared=self.cleared.get(name, frozenset())) for name, role in self.roles.items()
        }
        return UnitState(roles, self.stays, ranks=dict(self.ages))

    def clear(self) -> None:
        """Clear one old replica of each role of which a new one waits, down to its minimum, where nothing goes."""
        self.cleared = {}
        for name in self.roles if not self.all(Stage.GOING) else ():
            role, state = self.roles[name], self.state.roles[name]
            rolled = bool(state.outdated) and not self.state.is_held
            waits = any(each.stage is Stage.WAITING for each in self.state.staying(name).values())
            old = {n: each for n, each in state.old.items() if each.stage > Stage.WAITING}
            if not rolled:
                old = {n: each for n, each in old.items() if each.leaving and not each.patient}
            least = 0 if role.yields and not rolled else role.minimum
            room = serving(state.alive) > least
            order = [n for n in order_of_loss(self.state, name) if n in old and (room or old[n].stage < Stage.SERVING)]
            if waits and order:
                self.cleared[name] = frozenset(order[:1])

    def edit(self, target: str, *names: str) -> None:
        """Another revision of these roles (all when none is named) is wanted."""
        age = max(self.ages.values()) + 1
        for name in names or self.roles:
            self.roles[name].target = target
            self.ages[name, target] = age

    def step(self) -> UnitStep:
        """Plan, and do what is planned: what goes is going, what is new waits."""
        planned = next_step(self.state)
        for name, role in self.roles.items():
            wanted = planned.roles[name]
            for number, each in role.replicas.items():
                if number not in wanted:
                    role.replicas[number] = replace(each, stage=Stage.GOING)
                elif wanted[number].hash != each.revision.hash and role.seen()[number].updatable:
                    role.replicas[number] = RolloutReplica(wanted[number], Stage.STARTING, updating=True)
                elif wanted[number].hash != each.revision.hash:
                    role.replicas[number] = RolloutReplica(wanted[number], Stage.WAITING, fresh=True)
            for number, each in wanted.items():
                if number not in role.replicas:
                    role.replicas[number] = RolloutReplica(each, Stage.WAITING, fresh=True)
        return planned

    def begin(self, target: str, *names: str) -> UnitStep:
        """Another revision of these roles is wanted; the first step to it."""
        self.edit(target, *names)
        return self.step()

    def gone(self) -> None:
        """What was going is no longer there."""
        for role in self.roles.values():
            role.replicas = {n: each for n, each in role.replicas.items() if each.stage is not Stage.GOING}

    def set(self, stage: Stage, replicas: Iterable[tuple[str, int]]) -> None:
        for name, number in replicas:
            role = self.roles[name]
            if number in role.replicas and role.replicas[number].stage is not Stage.GOING:
                each = role.replicas[number]
                leaving = each.leaving and stage is not Stage.WAITING
                goes_on = each.updating and stage in {Stage.STARTING, Stage.DOUBTFUL}
                role.replicas[number] = replace(each, stage=stage, fresh=False, leaving=leaving, updating=goes_on)

    def leave(self, name: str, number: int, *, leaving: bool = True, patient: bool = False) -> None:
        """The nodes of a replica are to be empty, or no longer."""
        each = self.roles[name].replicas[number]
        self.roles[name].replicas[number] = replace(
            each, leaving=leaving and each.stage > Stage.WAITING, patient=patient
        )

    def all(self, *stages: Stage) -> list[tuple[str, int]]:
        return [
            (name, number)
            for name, role in self.roles.items()
            for number, each in sorted(role.replicas.items())
            if not stages or each.stage in stages
        ]

    def thrive(self) -> None:
        """Everything gets ready, and everything that goes is gone."""
        self.gone()
        self.set(Stage.SERVING, self.all())

    def shape(self) -> dict[str, dict[str, int]]:
        """How many replicas of each revision there are that are not going."""
        return {
            name: {
                each: role.count(each)
                for each in sorted({r.revision.hash for r in role.replicas.values()})
                if role.count(each)
            }
            for name, role in self.roles.items()
        }

    @property
    def is_rolled(self) -> bool:
        states = self.roles.values()
        return all(role.ready == role.wanted == role.count(role.target) for role in states) and not any(
            role.state.leaving for role in states
        )


def least(role: Role, *, makes_room: bool = False) -> int:
    """Serving replicas that must be left by the budget, said in other words than the planner's."""
    found = role.wanted - (role.budget.unavailable or 0)
    if role.minimum < role.wanted:
        found = max(found, role.minimum)
    if role.minimum and role.wanted + (0 if makes_room else role.budget.surge) > 1:
        found = max(found, 1)
    return min(max(found, 0), role.wanted)
