"""Repair of replicas: what has failed is judged by the restart policies, and what a unit cannot be whole with is given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from covey.backends.extender_only import can_reserve
from covey.compile import ReplicaKey, Tree
from covey.operator.feature import Changes, Completion, Feature, StatusPart
from covey.operator.intent import Intent
from covey.operator.model.outcome import Outcome, sum_outcomes
from covey.operator.repair.avoided_nodes import nodes_told
from covey.operator.repair.give_up import GivenUp, find_loss, loss_fields
from covey.operator.repair.judge import Failing, find_failing
from covey.operator.repair.lost_nodes import find_stranded
from covey.operator.replicas.replace import Fate


@dataclass
class Repair(Feature):
    """Restart policies, nodes that are avoided, lost minimums, and pods on lost nodes."""

    HONOURS = frozenset(
        {"spec.gang.terminationDelaySeconds", "spec.roles[].restart", "spec.roles[].startDeadlineSeconds"}
    )

    _failing: Failing = field(init=False, default_factory=Failing)
    _loss: GivenUp = field(init=False, default_factory=GivenUp)

    def judge(self, intent: Intent, tree: Tree) -> Mapping[ReplicaKey, Fate]:
        """Judge what has failed by the restart policy of its role."""
        given = self.given
        reserves = given.backend is not None and can_reserve(given.backend.name)
        self._failing = find_failing(
            given.inference, tree, given.observed, given.levels, reserves=reserves, also=intent.leaving.avoided
        )
        return self._failing.fates

    def complete(self, completion: Completion, intent: Intent) -> Completion:
        """Successors wait as the policies say; units that lost their minimum and pods on lost nodes go."""
        given = self.given
        assert given.backend is not None, "nothing is planned without one"
        replicas, late = self._failing.apply_to(completion.replicas, given.inference, given.observed)
        self._loss = find_loss(given, given.backend, intent)
        goes = (completion.outcome, self._loss.outcome, find_stranded(given.observed))
        outcome = sum_outcomes((*goes, Outcome(again=min(late.values(), default=None))))
        return replace(completion, replicas=replicas, held=completion.held | late.keys(), outcome=outcome)

    def outcome(self, changes: Changes) -> Outcome:
        """What is noted of failures, and said of them."""
        del changes
        return self._failing.outcome

    def status(self, intent: Intent) -> StatusPart:
        """What is remembered of losses, and counted of failures."""
        del intent
        loss = self._loss
        return StatusPart(
            units={unit: loss_fields(loss, unit) for unit in {**loss.met, **loss.shortages}},
            shortages=loss.shortages,
            anew=loss.anew,
            avoided=nodes_told(self.given.observed),
            failures=Counter(failure.why for failure in self._failing.seen),
            escalated=loss.steps,
        )
