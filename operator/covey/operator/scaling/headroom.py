"""Head-room on request: the question goes from the resource to the scheduler process, the answer into the status.

Anybody who wants to know writes a text that was not there before into the annotation ``covey.dev/headroom``; with a
number in ``covey.dev/headroom-seconds`` it is asked again each time that many seconds have passed, by the clock alone.
It is carried to the root of the first unit, where the scheduler process answers (``scheduler.whatif.headroom``), and what it
answers is copied. The status says which text it answers, so a question is carried until it is answered, and once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.api import headroom as questions
from covey.api.core import rfc3339
from covey.api.headroom import Question
from covey.api.inference import BackendName, DisaggregatedInference
from covey.api.status import Headroom
from covey.backends import Backend
from covey.compile import Layout
from covey.kube.resources import COMPOSITE_POD_GROUPS
from covey.operator.feature import Changes, Feature, PlanInput, StatusPart
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions, Annotate
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome

#: Seconds that pass at least before it is asked again by the clock.
LEAST_PERIOD: Final = 10
#: Longest text that is taken of somebody; the time goes with it.
_LONGEST: Final = questions.LONGEST - 32
_DIGITS: Final = 9
_FIELD: Final = "headroom"
#: Annotations by which somebody asks.
_ASKS: Final = frozenset({names.ANNOTATION_HEADROOM, names.ANNOTATION_HEADROOM_SECONDS})
_ROW: Final = "maxFeasible"


@dataclass(frozen=True, slots=True)
class HeadroomState:
    """Head-room as it is reported, and the question to be carried.

    ``answer`` is ``status.headroom``, ``most`` the ``maxFeasible`` of each role that has one. ``again``: seconds until it
    is asked again.
    """

    answer: Mapping[str, Any] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    annotate: tuple[Annotate, ...] = ()
    again: float | None = None


class HeadRoom(Feature):
    """How many replicas more there would be nodes for, where somebody asks."""

    HONOURS = frozenset({"the annotation covey.dev/headroom", "the annotation covey.dev/headroom-seconds"})

    @classmethod
    def applies(cls, given: PlanInput) -> bool:
        """Tell whether somebody asks; nothing is reported otherwise."""
        return not _ASKS.isdisjoint(given.inference.metadata.annotations or ())

    def outcome(self, changes: Changes) -> Outcome:
        """The question to be carried, and when it is asked again."""
        state = self._find(changes.intent)
        return Outcome(Actions(annotate=state.annotate), again=state.again)

    def status(self, intent: Intent) -> StatusPart:
        """The last answer."""
        state = self._find(intent)
        fields = {"headroom": Headroom.model_validate(state.answer)} if state.answer else {}
        return StatusPart(fields, {name: {"max_feasible": most} for name, most in state.most.items()})

    def _find(self, intent: Intent) -> HeadroomState:
        given = self.given
        asked, again = _question(given.inference.metadata.annotations or {}, given.observed.now)
        # 1. Nobody asks (any more): nothing is reported.
        if not asked:
            return HeadroomState()
        last = _last(given.before)
        return replace(
            _find_answer(asked, given.inference, given.backend, intent.layout, given.observed, last), again=again
        )


def _find_answer(
    asked: str,
    inference: DisaggregatedInference,
    backend: Backend | None,
    layout: Layout,
    observed: Observed,
    last: HeadroomState,
) -> HeadroomState:
    # 2. It is answered.
    if last.answer.get("asked") == asked:
        return last
    # 3. Nobody can answer it as things are.
    why = _why_not(inference, backend)
    if why:
        return HeadroomState({"asked": asked, "observedAt": rfc3339(observed.now), "message": why})
    root = next((root for _, root in observed.find_roots(inference.metadata.name, layout.units)), None)
    if root is None:
        return last
    # 4. The scheduler process has answered it.
    answer = root.status.headroom
    if answer is not None and answer.asked == asked:
        return _read_answer(answer)
    # 5. It is asked, or asked already.
    wanted = questions.dump_question(Question(asked, {role.name: role.is_scaled for role in inference.spec.roles}))
    if root.metadata.annotation(names.ANNOTATION_QUESTION) == wanted:
        return last
    change = {names.ANNOTATION_QUESTION: wanted}
    annotate = Annotate(COMPOSITE_POD_GROUPS.type, root.metadata.name, root.metadata.uid, change)
    return replace(last, annotate=(annotate,))


def _question(annotations: Mapping[str, str], now: float) -> tuple[str, float | None]:
    """The question that is asked now, and seconds until the clock makes it another one."""
    asked = annotations.get(names.ANNOTATION_HEADROOM, "")[:_LONGEST]
    text = annotations.get(names.ANNOTATION_HEADROOM_SECONDS, "")
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS or not int(text):
        return asked, None
    period = max(int(text), LEAST_PERIOD)
    begun = now // period * period
    return f"{asked} {rfc3339(begun)}".strip(), begun + period - now


def _last(before: Mapping[str, Any]) -> HeadroomState:
    recorded, rows = before.get(_FIELD), before.get("roles")
    if not isinstance(recorded, Mapping):
        return HeadroomState()
    counts = {
        str(row.get("name")): most
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, Mapping) and isinstance(most := row.get(_ROW), int)
    }
    return HeadroomState(recorded, counts)


def _why_not(inference: DisaggregatedInference, backend: Backend | None) -> str:
    if backend is None or backend.name is not BackendName.EXTENDER:
        used = f"the backend is {backend.name.value}" if backend is not None else "the backend cannot be had"
        return f"only Covey's own scheduler knows how many would fit, and {used}"
    if inference.spec.suspend:
        return "the resource is suspended, and has no nodes"
    return "" if inference.spec.replicas else "there are no units"


def _read_answer(answer: core.GroupHeadroom) -> HeadroomState:
    rows = answer.roles or ()
    texts = [f"{row.name}: {row.message}" for row in rows if row.message]
    texts += [f"{row.name}: there may be capacity for more" for row in rows if row.at_least]
    written = {"asked": answer.asked, "observedAt": answer.observed_at, "message": "; ".join(texts)}
    return HeadroomState(written, {row.name: row.replicas for row in rows if row.replicas is not None})
