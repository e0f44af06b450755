"""The seam of features: what one is given, what it may say of the plan that is made, and what it answers with.

A plan asks the features of one list in its order: what is wanted (``intent``), who of those without a place goes later
(``remove``), which replicas are broken (``judge``) and what goes with them (``complete``), which creations wait or look
otherwise (``amend``), what else is to be done (``outcome``), and what there is to say of it (``status``). Core knows none
of them. What one feature has to know of another is a field of ``Intent``, by what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Any

from covey.api.annotations import Avoided
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.backends import Backend
from covey.compile import Layout, Owner, ReplicaKey, Revision, Scale, Slot, Tree, UnitCount
from covey.compile.groups import Levels
from covey.operator.model.actions import CreatePod, Outcome
from covey.operator.model.claimed import Claimed
from covey.operator.model.observed import Observed
from covey.operator.model.problem import Problem
from covey.operator.replicas.replace import Fate, ReplicaActions
from covey.operator.replicas.scale import Running, States
from covey.rollout import UnitState


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What a plan is made from: the spec that is kept up and the snapshot, whose time is the only clock.

    ``in_force`` is the revision that is rolled out, ``backend`` makes the groups (None where this release has none for
    the resource), ``levels`` are of the topology, where they are known, ``before`` is the status so far, which alone
    remembers how a rollout went.
    """

    inference: DisaggregatedInference
    in_force: Revision
    backend: Backend | None
    levels: Levels | None
    observed: Observed
    before: Mapping[str, Any]

    @property
    def spec(self) -> DisaggregatedInferenceSpec:
        """The spec that is kept up."""
        return self.inference.spec

    @property
    def owner(self) -> Owner:
        """The resource, as owner of what is made for it."""
        metadata = self.inference.metadata
        return Owner(metadata.namespace, metadata.name, metadata.uid)


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
    #: The units and replicas that there shall be.
    layout: Layout = field(default_factory=lambda: Layout({}))
    #: The number of a unit that counts for nothing yet: it is to take the place of another.
    arriving: int | None = None
    #: A rollout is on its way.
    rolls: bool = False
    #: The units that there shall be, each as it is next to what it shall become; None for one of which nothing is known yet.
    units: Mapping[int, UnitState | None] = field(default_factory=dict)
    #: What new pods keep off.
    avoided: tuple[Avoided, ...] = ()

    def scale(self, spec: DisaggregatedInferenceSpec) -> Scale:
        """Units and replicas that are wanted."""
        return self.layout.scale or Scale.of(spec)


@dataclass(frozen=True, slots=True)
class Completion:
    """Pods that are created and deleted to make replicas whole."""

    replicas: tuple[ReplicaActions, ...]
    #: Places where no pod is created yet.
    held: frozenset[Slot] = frozenset()
    #: What goes besides.
    outcome: Outcome = field(default_factory=Outcome)


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """Replicas that cannot be had, and why: they wait like those that no node has."""

    replicas: Mapping[ReplicaKey, str] = field(default_factory=dict)
    #: What keeps a unit from its minimum.
    problem: Problem | None = None
    #: Pods of minimums that run, by what each is charged: they come before those of other resources.
    reserve: Mapping[Any, int] | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """Pods that are created and deleted, on the way from what is observed to ``tree``, which is wanted."""

    intent: Intent
    #: Without a unit that is taken down to be made again.
    tree: Tree
    #: First those that matter most.
    create: tuple[CreatePod, ...]
    #: UIDs of pods that are deleted.
    gone: Collection[str] = frozenset()
    unplaceable: Unplaceable = field(default_factory=Unplaceable)
    #: Roles of which a feature decides who takes requests; of others whoever lives does.
    routed: Collection[str] = ()

    def with_labels(self, labels: Mapping[Slot, Mapping[str, str]]) -> Changes:
        """The changes with further labels on pods that are created, by place."""
        create = (
            replace(item, told=replace(item.told, labels={**item.told.labels, **labels[item.slot]}))
            if item.slot in labels
            else item
            for item in self.create
        )
        return replace(self, create=tuple(create))


@dataclass(frozen=True, slots=True)
class MinimumShortage:
    """A unit below its minimum.

    ``count``: replicas that are assigned nodes. ``since``: seconds since the epoch. ``lost``: the minimum that it had
    met last is not met any more.
    """

    unit: int
    count: UnitCount
    since: float
    lost: bool

    @property
    def roles(self) -> Mapping[str, tuple[int, int]]:
        """Replicas that are assigned nodes, and the minimum, of every role that has too few."""
        return self.count.lacking

    @property
    def text(self) -> str:
        """``prefill 1/2, decode 0/1``."""
        return str(self.count)


@dataclass(frozen=True, slots=True)
class StatusPart:
    """What features say beside their remarks: in the status, and in metrics."""

    #: Fields of the status; of its row of a role, by role; and of its row of a unit, by unit.
    fields: Mapping[str, Any] = field(default_factory=dict)
    roles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    units: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    #: By unit, what pods that have their nodes wait for before they start.
    waits: Mapping[int, str] = field(default_factory=dict)
    #: Units below their minimum, by unit; and units that are queued like new ones, as if they had never served.
    shortages: Mapping[int, MinimumShortage] = field(default_factory=dict)
    anew: frozenset[int] = frozenset()
    #: Nodes that new pods keep off.
    avoided: frozenset[str] = frozenset()
    #: Failures that are seen for the first time, by cause; and by UID of a pod, the step of an escalation by which it goes.
    failures: Mapping[str, int] = field(default_factory=dict)
    escalated: Mapping[str, str] = field(default_factory=dict)

    def join(self, other: StatusPart) -> StatusPart:
        """Both parts together."""
        return StatusPart(*(getattr(self, part.name) | getattr(other, part.name) for part in fields(self)))


@dataclass
class Feature:
    """One feature, for one plan: it may keep what it has found from one question to the next.

    Each method answers for a feature that has nothing to say. ``given``: what the plan is made from.
    """

    given: PlanInput

    @classmethod
    def applies(cls, given: PlanInput) -> bool:
        """Tell whether it has anything to say of a resource; it is not asked otherwise."""
        del given
        return True

    def see(self) -> Observed:
        """Say how the snapshot is to be taken: from then on all look at that one."""
        return self.given.observed

    def intent(self, intent: Intent) -> Intent:
        """Say what is wanted: how many, where, of which revision."""
        return intent

    def remove(self, removal: Outcome, intent: Intent) -> Outcome:
        """Delay deletions of pods that have no place any more: what is created may depend on who goes."""
        del intent
        return removal

    def judge(self, intent: Intent, tree: Tree) -> Mapping[ReplicaKey, Fate]:
        """Say what becomes of replicas of which pods have failed or are lost."""
        del intent, tree
        return {}

    def complete(self, completion: Completion, intent: Intent) -> Completion:
        """Hold successors back, and give up what replicas cannot be made whole beside."""
        del intent
        return completion

    def amend(self, changes: Changes) -> Changes:
        """Hold creations back, or change what is created."""
        return changes

    def outcome(self, changes: Changes) -> Outcome:
        """Answer with all else that is to be done, said, and waited for."""
        del changes
        return Outcome()

    def status(self, intent: Intent) -> StatusPart:
        """Say what the status has of it: the last question, and the only one but the first while nothing has been accepted."""
        del intent
        return StatusPart()


#: In order of precedence.
Features = Sequence[type[Feature]]


def begin(features: Features, given: PlanInput) -> tuple[tuple[Feature, ...], PlanInput]:
    """Make the features of one plan, and the input with the snapshot as they see it."""
    begun: list[Feature] = []
    for kind in features:
        if kind.applies(given):
            begun.append(kind(given))
            for feature in at(begun[-1:], "see"):
                given = replace(given, observed=feature.see())
    for feature in begun:
        feature.given = given
    return tuple(begun), given


def at(features: Iterable[Feature], question: str) -> list[Feature]:
    """Those that have something to say to a question, by the name of its method, in their order."""
    default = getattr(Feature, question)
    return [feature for feature in features if getattr(type(feature), question) is not default]


def find_intent(features: Iterable[Feature], intent: Intent) -> Intent:
    """Ask all features what is wanted."""
    for feature in at(features, "intent"):
        intent = feature.intent(intent)
    return intent


def find_status(features: Iterable[Feature], intent: Intent) -> StatusPart:
    """Ask all features what the status has of them."""
    return reduce(StatusPart.join, (feature.status(intent) for feature in at(features, "status")), StatusPart())
