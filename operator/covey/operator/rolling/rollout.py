"""Rollouts: the units and replicas that there shall be next, and how far a revision has come."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from covey.api import constants as names
from covey.backends.extender_only import can_reserve
from covey.compile import Layout, Scale
from covey.operator.feature import Changes, Feature, StatusPart
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.model.recorded_status import read_complete
from covey.operator.rolling.completion import is_complete
from covey.operator.rolling.first_set_marks import find_unmarked
from covey.operator.rolling.layout import Rolling, revision_left, roll
from covey.operator.rolling.rollout_status import rollout_status
from covey.operator.rolling.succession import Shortage, Successions, put_questions
from covey.operator.rolling.unrecorded import describe_unexplained


@dataclass
class Rollout(Feature):
    """Surplus goes, missing numbers are filled, revisions are rolled, and what leaves is replaced first."""

    HONOURS = frozenset({"spec.rollout", "spec.roles[].update", "edits of rolled fields"})

    _rolling: Rolling | None = field(init=False, default=None)

    def intent(self, intent: Intent) -> Intent:
        """The layout, and the rollout that it is a step of."""
        given = self.given
        if given.stands or given.backend is None:
            now = Intent(
                intent.running,
                intent.states,
                totals=intent.totals,
                can_update_in_place=intent.can_update_in_place,
                is_half_updated=intent.is_half_updated,
            )
            return replace(intent, layout=roll(replace(given, before={}), now).intent.layout)

        def shortage_in(layout: Layout) -> Shortage:
            return partial(intent.lacks, given.compile(layout))

        asks = can_reserve(given.backend.name)
        rolling = roll(given, intent, Successions(given.owner.name, given.observed, shortage_in, asks=asks))
        self._rolling = rolling
        return replace(rolling.intent, unexplained=describe_unexplained(given.observed, given.in_force))

    def outcome(self, changes: Changes) -> Outcome:
        """Questions about successors, marks that are superfluous, when time alone changes something, and ``Paused``."""
        if self._rolling is None:
            return Outcome()
        settings = self.given.spec.rollout
        message = "nothing is replaced until spec.rollout.paused is false"
        remarks = (Remark(names.PAUSED, names.REASON_PAUSED, message),) if settings and settings.paused else ()
        asked = tuple(put_questions(self.given.owner.name, self._rolling.questions, self.given.observed))
        unmarked = tuple(find_unmarked(changes.tree, self.given.observed, changes.gone))
        return Outcome(Actions(annotate=asked, relabel=unmarked), remarks, self._rolling.again)

    def status(self, intent: Intent) -> StatusPart:
        """How far the rollout has come, and the revision that every unit was last complete with."""
        given, progress = self.given, intent.progress
        complete = (
            self._rolling is not None
            and not intent.unexplained
            and is_complete(given.in_force, intent, Scale.of(given.spec))
        )
        written = {"complete_revision": (given.in_force.hash if complete else read_complete(given.before)) or None}
        if progress is None:
            return StatusPart(written)
        left = revision_left(given.in_force, given.observed, intent.running)
        return StatusPart({**written, "rollout": rollout_status(progress, left)})
