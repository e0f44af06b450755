"""Reports of units: how far each has come, and why it is not further."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.backends import Backend, UnitReport
from covey.compile import Scale
from covey.compile.layout import RoleCount
from covey.model import podstate
from covey.operator.model.observed import Observed
from covey.operator.model.phase import Phase
from covey.operator.model.refusals import describe_refusal
from covey.operator.plan import Plan
from covey.operator.replicas.progress import ReplicaState, count_unit

#: Reason of a unit whose minimum serves and that wants more.
REASON_SURPLUS: Final = "SurplusWaiting"
#: Reason of a unit whose minimum is bound, and of which some pods are not Ready.
REASON_NOT_READY: Final = "NotReady"
#: Reason of a unit in which some pods wait for others to start.
REASON_START_HELD: Final = "StartHeld"


@dataclass(frozen=True, slots=True)
class UnitSummary:
    """One unit.

    ``reason`` is the one word for programs, ``message`` the sentence for people; ``path`` is the finest domain that
    holds all its pods.
    """

    number: int
    phase: Phase
    reason: str
    message: str
    path: tuple[str | None, ...] = ()
    #: The root's condition about preferred levels, where there are any.
    topology: core.Condition | None = None
    #: What the scheduler says; None where it has no root.
    report: UnitReport | None = None
    #: What keeps a container of a bound pod from running: of the first such pod by name.
    trouble: core.Trouble | None = None

    @property
    def is_admitted(self) -> bool:
        """Tell whether its minimum has its nodes."""
        return self.phase is not Phase.PENDING

    @property
    def is_scheduled(self) -> bool:
        """Tell whether its minimum is bound."""
        return self.phase not in {Phase.PENDING, Phase.ADMITTED}

    @property
    def is_available(self) -> bool:
        """Tell whether its minimum is Ready."""
        return self.phase in {Phase.PARTIAL, Phase.READY}


def describe_units(
    inference: DisaggregatedInference, backend: Backend | None, observed: Observed, plan: Plan
) -> Iterator[UnitSummary]:
    """Describe every unit that there shall be, in order; ``backend`` is None where this release has none for it."""
    scale = plan.intent.layout.scale or Scale.of(inference.spec)
    for number in (unit for unit in plan.intent.layout.units if unit != plan.intent.arriving):
        report = backend.read_back(inference.metadata.name, number, observed.of_unit(number)) if backend else None
        # The scheduler has not been asked about a unit that the operator keeps.
        kept = plan.release.waits.get(number)
        admitted = kept or (report.admitted if report else None)
        silence = backend.silence if backend else ""
        phase, reason, message = _progress(
            scale.unit(number),
            plan.intent.states.get(number, {}),
            admitted,
            silence,
            plan.status.waits.get(number, ""),
            partial(_why_surplus_waits, number, report, observed, plan),
        )
        if phase is Phase.PENDING and reason == names.REASON_WAITING and (quotas := _list_quota_refusals(number, plan)):
            # Nobody can decide on pods that are not created.
            reason, message = names.REASON_QUOTA_EXCEEDED, describe_refusal((), "", quotas)
        trouble = find_trouble(pod for slot, pod in observed.current.items() if slot.unit == number)
        if reason in {REASON_NOT_READY, REASON_SURPLUS} and trouble is not None:
            message = f"{trouble.message}; {message}"
        elif reason == REASON_NOT_READY:
            message += ": see its pods"
        if kept is not None and phase is Phase.PARTIAL:
            reason, message = kept.reason, f"the minimum is Ready; {kept.message}"
        yield UnitSummary(
            number,
            phase,
            reason,
            message,
            report.path if report else (),
            report.topology if report else None,
            report,
            trouble,
        )


def _progress(
    roles: Mapping[str, RoleCount],
    states: Mapping[str, Mapping[int, ReplicaState]],
    admitted: core.Condition | None,
    silence: str,
    starting: str,
    why: Callable[[], str],
) -> tuple[Phase, str, str]:
    bound = count_unit(roles, states, attrgetter("is_bound"))
    if not bound.has_minimum:
        # Pods that are bound need nobody's word for it: their root may be new, after somebody has deleted it.
        if admitted is None and not count_unit(roles, states, attrgetter("is_admitted")).has_minimum:
            return Phase.PENDING, names.REASON_WAITING, silence
        if admitted is not None and admitted.status != "True":
            return Phase.PENDING, admitted.reason or names.REASON_WAITING, admitted.message
        if starting:
            return Phase.ADMITTED, REASON_START_HELD, f"admitted; bound {bound} of the minimum: {starting}"
        return Phase.ADMITTED, "NotBound", f"admitted; kube-scheduler has bound {bound} of the minimum"
    ready = count_unit(roles, states, attrgetter("is_ready"))
    if not ready.has_minimum:
        return Phase.SCHEDULED, REASON_NOT_READY, f"bound; Ready are {ready} of the minimum"
    surplus = [
        _surplus(name, count.replicas, states.get(name, {}))
        for name, count in roles.items()
        if ready.counts[name] < count.replicas
    ]
    if surplus:
        waits = any(
            sum(state.is_admitted for state in states.get(name, {}).values()) < count.replicas
            for name, count in roles.items()
        )
        detail = f": {reason}" if waits and (reason := why()) else ""
        return Phase.PARTIAL, REASON_SURPLUS, f"the minimum is Ready; {'; '.join(surplus)}{detail}"
    return Phase.READY, "Ready", "every replica is Ready"


def find_trouble(pods: Iterable[core.Pod]) -> core.Trouble | None:
    """Find what keeps containers of bound pods from running, by the first pod; None where nothing is known to be wrong."""
    troubles = sorted(
        (pod.metadata.name, trouble)
        for pod in pods
        if podstate.is_bound(pod)
        and not podstate.is_ready(pod)
        and (trouble := core.container_trouble(pod)) is not None
    )
    if not troubles:
        return None
    name, trouble = troubles[0]
    more = f" (and {len(troubles) - 1} more pod{'s' * (len(troubles) > 2)})" if len(troubles) > 1 else ""
    return core.Trouble(trouble.reason, f"pod {name}: {trouble.message}{more}")


def _why_surplus_waits(unit: int, report: UnitReport | None, observed: Observed, plan: Plan) -> str:
    """Say why replicas beyond the minimum have no nodes."""
    planner = report.surplus if report is not None else ""
    return describe_refusal(observed.in_unit(unit).values(), planner, _list_quota_refusals(unit, plan))


def _list_quota_refusals(unit: int, plan: Plan) -> list[str]:
    return [why for (number, _, _), why in plan.unplaceable.replicas.items() if number == unit]


def _surplus(role: str, wanted: int, states: Mapping[int, ReplicaState]) -> str:
    """``prefill 1/4: 1 replica starts, 2 replicas beyond the minimum have no nodes``."""
    ready = sum(state.is_ready for state in states.values())
    waiting = wanted - sum(state.is_admitted for state in states.values())
    starting = wanted - ready - waiting
    texts = []
    if starting > 0:
        texts.append("1 replica starts" if starting == 1 else f"{starting} replicas start")
    if waiting > 0:
        what = "1 replica beyond the minimum has" if waiting == 1 else f"{waiting} replicas beyond the minimum have"
        texts.append(f"{what} no nodes")
    return f"{role} {ready}/{wanted}: {', '.join(texts)}"
