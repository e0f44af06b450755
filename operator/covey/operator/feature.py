"""The seam of features: what one is given, what it may say of the plan that is made, and what it answers with.

A plan asks the features of one list in its order: what is wanted (``intent``), what of it cannot be changed in place
(``recreate``), who of those without a place goes later
(``remove``), which replicas are broken (``judge``) and what goes with them (``complete``), which creations wait or look
otherwise (``amend``), what else is to be done (``outcome``), and what there is to say of it (``status``). Core knows none
of them. What one feature has to know of another is a field of ``Intent``, by what it means.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Any, ClassVar

from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.backends import Backend
from covey.compile import Layout, Owner, ReplicaKey, Revision, Slot, Tree, UnitCount
from covey.compile.groups import Levels
from covey.operator.intent import Intent
from covey.operator.model.actions import CreatePod
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome
from covey.operator.model.problem import Problem
from covey.operator.objects.apply import Deviation
from covey.operator.objects.former_budget import with_former_budget
from covey.operator.replicas.raised import with_met_minimums
from covey.operator.replicas.replace import Fate, ReplicaActions


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What a plan is made from: the spec that is kept up and the snapshot, whose time is the only clock.

    ``in_force`` is the revision that is rolled out, ``backend`` makes the groups (None where this release has none for
    the resource), ``levels`` are of the topology, where they are known, ``before`` is the status so far, which alone
    remembers how a rollout went. ``stands``: nothing has been accepted, so nothing is planned, only said.
    """

    inference: DisaggregatedInference
    in_force: Revision
    backend: Backend | None
    levels: Levels | None
    observed: Observed
    before: Mapping[str, Any]
    stands: bool = False

    @property
    def spec(self) -> DisaggregatedInferenceSpec:
        """The spec that is kept up."""
        return self.inference.spec

    @property
    def owner(self) -> Owner:
        """The resource, as owner of what is made for it."""
        metadata = self.inference.metadata
        return Owner(metadata.namespace, metadata.name, metadata.uid)

    def compile(self, layout: Layout) -> Tree:
        """The objects and pods of a layout."""
        assert self.backend is not None, "nothing is planned without one"
        tree = self.backend.compile(self.inference, layout=layout, revision=self.in_force, levels=self.levels)
        return with_met_minimums(with_former_budget(tree, self.spec, self.observed), self.backend, self.observed)


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

    #: What it honours, in the words of ``unsupported``: it is told where no feature of the list does.
    HONOURS: ClassVar[frozenset[str]] = frozenset()

    given: PlanInput

    @classmethod
    def applies(cls, given: PlanInput) -> bool:
        """Tell whether it has anything to say of a resource; it is not asked otherwise."""
        return True

    def see(self) -> Observed:
        """Say how the snapshot is to be taken: from then on all look at that one."""
        return self.given.observed

    def intent(self, intent: Intent) -> Intent:
        """Say what is wanted: how many, where, of which revision."""
        return intent

    def recreate(self, intent: Intent, deviations: Iterable[Iterable[Deviation]]) -> Intent:
        """Say which objects are not changed but made again, by how they deviate from what is wanted, level by level."""
        return intent

    def remove(self, removal: Outcome, intent: Intent) -> Outcome:
        """Delay deletions of pods that have no place any more: what is created may depend on who goes."""
        return removal

    def judge(self, intent: Intent, tree: Tree) -> Mapping[ReplicaKey, Fate]:
        """Say what becomes of replicas of which pods have failed or are lost."""
        return {}

    def complete(self, completion: Completion, intent: Intent) -> Completion:
        """Hold successors back, and give up what replicas cannot be made whole beside."""
        return completion

    def amend(self, changes: Changes) -> Changes:
        """Hold creations back, or change what is created."""
        return changes

    def outcome(self, changes: Changes) -> Outcome:
        """Answer with all else that is to be done, said, and waited for."""
        return Outcome()

    def status(self, intent: Intent) -> StatusPart:
        """Say what the status has of it: the last question, and the only one but the first while nothing has been accepted."""
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
