"""Roles that are scaled together: one vector, judged as a whole before anything moves, and taken as a whole or not at all.

==========  ============================================================================================================
targets     what a planner asks for: ``spec.targets`` of the RoleScaler ``<resource>.together``. Covey creates it with the
            numbers of today and never writes them again
committed   what is in force: ``status.committed``. Layouts are made from it alone. It is written before anybody is
            touched, so that a process which is killed is followed by one that goes on
judged      against the budget, the minimums, and the scheduler process: the root of each unit that changes is asked
            (``api.exchange``), and answers beside a claim on those that would give way. One no, and nothing moves
donors      those that the claims name, as many as the vector in force has too many, and never before it is in force. They
            drain and go whole; where no claim names any, the layout chooses
receivers   are created once there is room for their devices beside what is left of the donors of their unit, so that there
            are never more devices than before or than the vector asks for, nor than the budget
==========  ============================================================================================================

A newer vector is judged against what there is, and takes the place of the former: donors that it keeps are pardoned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.api.exchange import ExchangeQuestion, describe_vector, dump_question, read_question
from covey.api.inference import MOST_PODS, DisaggregatedInferenceSpec
from covey.api.roles import Role
from covey.backends import Owned
from covey.compile import Layout, Owner, ReplicaKey, Scale
from covey.compile.identity import slot_of
from covey.compile.revision import Revision
from covey.kube.resources import COMPOSITE_POD_GROUPS, ROLE_SCALERS
from covey.model import podstate
from covey.operator.feature import Changes, Feature, PlanInput, Unplaceable
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions, Annotate, DeletePod, PutScaler
from covey.operator.model.claimed import RootClaim
from covey.operator.model.objects import StoredScaler
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.model.refusals import OVER_BUDGET
from covey.operator.replicas.progress import States, replica_states, running_revisions
from covey.operator.replicas.scale_down import choose_units
from covey.operator.scaling.receivers import devices_of_replica, find_withheld

#: Reasons of the condition ``Committed``.
REASON_COMMITTED: Final = "Committed"
REASON_DRAINING: Final = "Draining"
REASON_JUDGING: Final = "Judging"
REASON_NO_PLAN: Final = "NoPlan"
REASON_OVER_BUDGET: Final = "OverBudget"
REASON_BELOW_MINIMUM: Final = "BelowMinimum"
#: Seconds after which a vector that found no plan is asked for again.
RETRY: Final = 60.0
#: Seconds that an exchange may take beyond the drains of all roles before its claim ends.
SLACK: Final = 600

Vector = Mapping[str, int]


def together_name(inference: str) -> str:
    """The RoleScaler of all roles that are scaled together: a dot is in no name of a resource or role."""
    return f"{inference}.together"


def roles_of(spec: DisaggregatedInferenceSpec) -> tuple[Role, ...]:
    """The roles with ``scaling.mode: Together``."""
    return tuple(role for role in spec.roles if role.is_exchanged)


@dataclass
class ExchangedRoles(Feature):
    """Roles with ``scaling.mode: Together``."""

    HONOURS = frozenset({"spec.roles[].scaling.mode Together", "spec.scaling"})

    _committed: Vector = field(init=False, default_factory=dict)
    _exchange: Exchange | None = field(init=False, default=None)

    @classmethod
    def applies(cls, given: PlanInput) -> bool:
        """Tell whether there are such roles."""
        return given.spec.is_exchanged

    def see(self) -> Observed:
        """No more donors than the vector in force has too many of."""
        given = self.given
        return confine_claims(given.spec, given.owner.name, given.in_force, given.observed, given.before)

    def intent(self, intent: Intent) -> Intent:
        """The vector in force."""
        given = self.given
        self._committed = find_committed(given.spec, given.owner.name, given.observed, intent.states, given.before)
        return replace(intent, totals={**intent.totals, **self._committed})

    def remove(self, removal: Outcome, intent: Intent) -> Outcome:
        """Replicas that no claim names stay while another vector is judged."""
        given, committed = self.given, self._committed
        exchange = judge_vector(given.spec, given.owner, intent.layout, given.observed, committed)
        self._exchange = exchange
        surplus = hold_donors(removal.actions.delete_pods, exchange, intent.layout, committed, intent.preempted)
        return replace(removal, actions=replace(removal.actions, delete_pods=surplus))

    def amend(self, changes: Changes) -> Changes:
        """Receivers wait for the donors of their unit, and for the budget, which a surge may be beyond."""
        given, create = self.given, changes.create
        donors, over = find_withheld(
            given.spec, create, changes.intent.layout, given.observed, rolls=changes.intent.progress is not None
        )
        return replace(
            changes,
            create=tuple(item for item in create if item.slot not in donors and item.slot not in over),
            unplaceable=Unplaceable(dict.fromkeys((slot[:3] for slot in over), OVER_BUDGET)),
        )

    def outcome(self, changes: Changes) -> Outcome:
        """The RoleScaler, and what the roots of units are asked."""
        given, exchange = self.given, self._exchange
        return put_exchange(given.owner, exchange, changes.intent.layout, given.observed) if exchange else Outcome()


def find_committed(
    spec: DisaggregatedInferenceSpec, inference: str, observed: Observed, states: States, before: Mapping[str, Any]
) -> Vector:
    """Find the vector in force: of the status, else of a RoleScaler nobody has written yet, else the numbers of today."""
    stored = observed.scalers.get(together_name(inference))
    numbers = _numbers(stored.status.get("committed")) if stored is not None else {}
    if stored is not None and not numbers and stored.metadata.generation <= 1:
        numbers = _numbers(stored.spec.get("targets"))
    rows = {str(row.get("name")): row for row in before.get("roles") or () if isinstance(row, Mapping)}
    return {role.name: numbers.get(role.name, _seed(role, spec, states, rows)) for role in roles_of(spec)}


def _seed(role: Role, spec: DisaggregatedInferenceSpec, states: States, rows: Mapping[str, Mapping[str, Any]]) -> int:
    """Replicas of today: as many as were wanted so far, or as the spec says if none runs."""
    running = sum(state.live > 0 for unit in states.values() for state in unit.get(role.name, {}).values())
    stored_count = rows.get(role.name, {}).get("replicas")
    wanted = stored_count if running and isinstance(stored_count, int) and stored_count > 0 else running
    return min(max(wanted, role.min_replicas * spec.replicas), MOST_PODS) if running else role.replicas * spec.replicas


def _numbers(numbers: object) -> dict[str, int]:
    return {str(k): v for k, v in numbers.items() if isinstance(v, int)} if isinstance(numbers, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Exchange:
    """The judgement of a vector: the numbers that are in force from now on, and why others are not.

    ``questions``: what the root of each unit that changes is asked.
    """

    committed: Vector
    reason: str = REASON_COMMITTED
    message: str = "the targets are in force"
    questions: Mapping[int, ExchangeQuestion] | None = None
    again: float | None = None

    @property
    def is_refused(self) -> bool:
        """The targets are not in force, nor about to be."""
        return self.reason in {REASON_NO_PLAN, REASON_OVER_BUDGET, REASON_BELOW_MINIMUM}


def confine_claims(
    spec: DisaggregatedInferenceSpec, inference: str, in_force: Revision, observed: Observed, before: Mapping[str, Any]
) -> Observed:
    """The snapshot with no more donors named than the vector in force has too many of.

    A claim stands before its vector does: other units may have no plan. While targets are judged only those go that have
    been marked for a vector before.
    """
    if not any(claim.purpose == names.PURPOSE_EXCHANGE for claim in observed.claims):
        return observed
    states = replica_states(observed, in_force, running_revisions(observed, in_force))
    committed = find_committed(spec, inference, observed, states, before)
    scale = Scale.of(spec, committed)
    scale = scale.over(choose_units(scale, observed, states))
    stored = observed.scalers.get(together_name(inference))
    settled = stored is not None and {**committed, **_numbers(stored.spec.get("targets"))} == committed
    alive: dict[tuple[int, str], set[int]] = {}
    marked: set[ReplicaKey] = set()
    for slot, pods in observed.pods.items():
        if any(not podstate.is_terminating(pod) and not podstate.is_dead(pod) for pod in pods):
            alive.setdefault((slot.unit, slot.role), set()).add(slot.replica)
        if any(podstate.claimed_by(pod) for pod in pods):
            marked.add(slot[:3])
    excess = Counter(
        {
            (unit, role): len(live_pods) - scale.unit(unit)[role].replicas
            for (unit, role), live_pods in alive.items()
            if role in committed and unit in scale.shares
        }
    )
    claims = (
        replace(claim, victims=tuple(_confine(claim, alive, marked, excess, settled=settled)))
        if claim.purpose == names.PURPOSE_EXCHANGE
        else claim
        for claim in observed.claims
    )
    return replace(observed, claims=tuple(confined for confined in claims if confined.victims))


def _confine(
    claim: RootClaim,
    alive: Mapping[tuple[int, str], Collection[int]],
    marked: Collection[ReplicaKey],
    excess: Counter[tuple[int, str]],
    *,
    settled: bool,
) -> Iterator[core.Victim]:
    def place(victim: core.Victim) -> ReplicaKey:
        return victim.unit, victim.role, victim.replica or 0

    for victim in sorted(claim.victims, key=lambda victim: (place(victim) not in marked, place(victim))):
        of_role = place(victim)[:2]
        if place(victim)[2] not in alive.get(of_role, ()):
            yield victim  # it has gone, or ends
        elif excess[of_role] > 0 and (settled or place(victim) in marked):
            excess[of_role] -= 1
            yield victim


def judge_vector(
    spec: DisaggregatedInferenceSpec, owner: Owner, layout: Layout, observed: Observed, committed: Vector
) -> Exchange:
    """Judge the vector that is asked for, as a whole.

    Args:
        spec: what is kept up.
        owner: the resource.
        layout: the units that there shall be.
        observed: the snapshot.
        committed: the vector in force.
    """
    stored, roles = observed.scalers.get(together_name(owner.name)), roles_of(spec)
    asked = _numbers(stored.spec.get("targets")) if stored is not None else {}
    targets = {role.name: asked.get(role.name, committed[role.name]) for role in roles}
    # 1. It names roles that are not scaled together, or fewer than a role needs.
    unknown = sorted(asked.keys() - targets.keys())
    if unknown:
        return Exchange(committed, REASON_NO_PLAN, f"{', '.join(unknown)}: no role with scaling.mode Together")
    # 2. It is in force.
    if targets == committed or stored is None:
        return _follow(owner.name, layout, observed, committed)
    low = [(member, member.min_replicas * spec.replicas) for member in roles]
    short = [f"{role.name} {targets[role.name]} of {least}" for role, least in low if targets[role.name] < least]
    if short:
        return Exchange(committed, REASON_BELOW_MINIMUM, f"fewer than minReplicas times units: {', '.join(short)}")
    # 3. It asks for more than the budget, or than a resource may have.
    over = _describe_excess(spec, targets)
    if over:
        return Exchange(committed, REASON_OVER_BUDGET, over)
    # 4. The scheduler process knows whether all of it has room.
    return _ask(spec, owner, layout, observed, committed, targets, stored)


def hold_donors(
    surplus: tuple[DeletePod, ...],
    exchange: Exchange,
    layout: Layout,
    committed: Vector,
    claimed: Container[ReplicaKey],
) -> tuple[DeletePod, ...]:
    """Leave out replicas that no claim names while another vector is judged: it may need them, or others in their place."""
    if exchange.is_refused or (exchange.reason != REASON_JUDGING and exchange.committed == committed):
        return surplus

    def stays(item: DeletePod) -> bool:
        slot = slot_of(item.pod.spec.hostname)
        if slot is None or slot.role not in committed or slot.unit not in layout.units or slot[:3] in claimed:
            return False
        return podstate.is_bound(item.pod) and not podstate.is_dead(item.pod) and not podstate.is_draining(item.pod)

    return tuple(item for item in surplus if not stays(item))


def _follow(inference: str, layout: Layout, observed: Observed, committed: Vector) -> Exchange:
    wanted = {slot for slot in layout.slots() if slot.role in committed}
    left = {slot[:3] for slot, pods in observed.pods.items() if slot.role in committed and slot not in wanted and pods}
    lacking = {slot[:3] for slot in wanted if (pod := observed.current.get(slot)) is None or not podstate.is_bound(pod)}
    if not left and not lacking:
        return Exchange(committed)
    texts = [f"{len(left)} still on their way out" if left else "", f"{len(lacking)} without a node" if lacking else ""]
    message = f"in force; replicas: {', '.join(text for text in texts if text)}"
    held = {
        unit: question
        for unit, root in observed.find_roots(inference, layout.units)
        if (question := _question_of(root))
    }
    unsettled = {unit for unit, *_ in left | lacking}
    kept = {unit: question for unit, question in held.items() if unit in unsettled}
    return Exchange(committed, REASON_DRAINING if left else REASON_COMMITTED, message, kept)


def _describe_excess(spec: DisaggregatedInferenceSpec, targets: Vector) -> str:
    totals = {role.name: targets.get(role.name, role.replicas * spec.replicas) for role in spec.roles}
    pods = sum(totals[role.name] * role.size for role in spec.roles)
    if pods > MOST_PODS:
        return f"{pods} pods, of {MOST_PODS} that a resource may have"
    budget = spec.scaling.budget if spec.scaling is not None else None
    if budget is None:
        return ""
    devices = sum(totals[role.name] * devices_of_replica(role)[budget.resource] for role in spec.roles)
    return f"{devices} {budget.resource}, of {budget.max} in spec.scaling.budget" if devices > budget.max else ""


def _ask(
    spec: DisaggregatedInferenceSpec,
    owner: Owner,
    layout: Layout,
    observed: Observed,
    committed: Vector,
    targets: Vector,
    stored: StoredScaler,
) -> Exchange:
    scale = layout.scale if layout.scale is not None else Scale.of(spec, committed)
    after = replace(scale, totals={**scale.totals, **targets}).over(layout.units)
    shares = {unit: {name: after.count(unit, name).replicas for name in targets} for unit in layout.units}
    changed = {
        unit: share
        for unit, share in shares.items()
        if any(scale.count(unit, name).replicas != number for name, number in share.items())
    }
    roots = dict(observed.find_roots(owner.name, layout.units))
    # All that is known of the attempt stands on the roots: a new one begins where a question has changed, or is old.
    prefix = f"{stored.metadata.uid[:13]}-{stored.metadata.generation}-"
    held = {unit: question for unit, root in roots.items() if (question := _question_of(root))}
    same = {unit: group for unit, group in held.items() if group.asked.startswith(prefix) and unit in changed}
    attempt = max((_attempt(group.asked) for group in same.values()), default=0)
    if any(dict(group.roles) != changed[unit] for unit, group in same.items()):
        attempt += 1
    answers = {
        unit: answer
        for unit in changed
        if (root := roots.get(unit)) is not None and (answer := root.status.exchange) is not None
        if answer.asked == f"{prefix}{attempt}"
    }
    refused = {unit: answer for unit, answer in answers.items() if not answer.feasible}
    left = [(core.seconds(group.observed_at) or observed.now) + RETRY - observed.now for group in refused.values()]
    if refused and min(left) <= 0:
        attempt += 1
    # Replicas of several roles, of a unit that goes whole, drain role by role.
    seconds = sum(role.drain_seconds or 0 for role in spec.roles) + SLACK
    questions = {unit: ExchangeQuestion(f"{prefix}{attempt}", share, seconds) for unit, share in changed.items()}
    if refused:
        message = _describe_refusal(targets, refused, layout)
        return Exchange(committed, REASON_NO_PLAN, message, questions, max(0.0, min(left)) or None)
    if answers.keys() >= changed.keys():
        return Exchange(targets, REASON_DRAINING, "in force; nothing has moved yet", questions)
    waiting = len(changed) - len(answers)
    return Exchange(committed, REASON_JUDGING, f"{waiting} of {len(changed)} units are still to be planned", questions)


def _describe_refusal(targets: Vector, refused: Mapping[int, core.GroupExchange], layout: Layout) -> str:
    unit, answer = next(iter(sorted(refused.items())))
    where = f" in unit {unit}" if len(layout.units) > 1 else ""
    would = f"; {' and '.join(answer.nearest)} would{where}" if answer.nearest else ""
    return f"{describe_vector(targets)} does not fit{where}: {answer.message}{would}"


def _attempt(asked: str) -> int:
    text = asked.rpartition("-")[2]
    return int(text) if text.isdecimal() else 0


def _question_of(root: Owned) -> ExchangeQuestion | None:
    return read_question(root.metadata.annotation(names.ANNOTATION_EXCHANGE))


def put_exchange(owner: Owner, exchange: Exchange, layout: Layout, observed: Observed) -> Outcome:
    """Write the RoleScaler and the questions; a vector is committed here, before anything is done for it."""
    annotate = tuple(_annotations(owner.name, exchange, layout, observed))
    remarks = (Remark(names.SCALING_LIMITED, exchange.reason, exchange.message),) if exchange.is_refused else ()
    put = _put_scaler(owner, exchange, observed)
    return Outcome(Actions(annotate=annotate, scalers=(put,) if put is not None else ()), remarks, exchange.again)


def _annotations(inference: str, exchange: Exchange, layout: Layout, observed: Observed) -> Iterator[Annotate]:
    keeps = exchange.is_refused and exchange.questions is None  # nobody was asked: what was begun goes on
    for unit, root in observed.find_roots(inference, layout.units):
        question = (exchange.questions or {}).get(unit)
        wanted = dump_question(question) if question is not None else None
        if not keeps and root.metadata.annotation(names.ANNOTATION_EXCHANGE) != wanted:
            change = {names.ANNOTATION_EXCHANGE: wanted}
            yield Annotate(COMPOSITE_POD_GROUPS.type, root.metadata.name, root.metadata.uid, change)


def _put_scaler(owner: Owner, exchange: Exchange, observed: Observed) -> PutScaler | None:
    name = together_name(owner.name)
    stored, metadata = observed.scalers.get(name), owner.metadata(name, {})
    api = {"apiVersion": names.INFERENCE_API, "kind": ROLE_SCALERS.kind, "metadata": metadata}
    status = _status(exchange, observed, stored)
    if stored is None:
        return PutScaler(name, {**api, "spec": {"targets": dict(exchange.committed)}}, None, {}, status)
    if stored.metadata.deletion_timestamp is not None or stored.status == status:
        return None
    return PutScaler(name, api, stored, {}, status)


def _status(exchange: Exchange, observed: Observed, stored: StoredScaler | None) -> dict[str, Any]:
    condition = {
        "type": names.COMMITTED,
        "status": "True" if exchange.reason in {REASON_COMMITTED, REASON_DRAINING} else "False",
        "reason": exchange.reason,
        "message": exchange.message,
    }
    generation, before = (1, {}) if stored is None else (stored.metadata.generation, stored.status)
    bound = Counter(slot.role for slot, pod in observed.current.items() if slot.index == 0 and podstate.is_bound(pod))
    return {
        "observedGeneration": generation,
        "replicas": sum(bound[name] for name in exchange.committed),
        "committed": dict(exchange.committed),
        "observed": {name: bound[name] for name in exchange.committed},
        "conditions": core.stamp_conditions([condition], before, generation, core.rfc3339(observed.now)),
    }
