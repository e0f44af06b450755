"""One pass over one resource, from top to bottom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import structlog

from covey.api import constants as names
from covey.api.core import rfc3339
from covey.api.inference import DisaggregatedInference
from covey.backends import Cluster, Owned, within
from covey.backends.extender_only import can_reserve
from covey.compile import Owner, Scale, pod_budget
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.errors import AlreadyExists, ApiError, Conflict, Retryable, TooManyRequests
from covey.kube.event_series import ObjectRef
from covey.kube.events import EventRecorder
from covey.kube.turns import Rank, Turns
from covey.observability.logging import get_logger
from covey.observability.operator_metrics import RECONCILE_DURATION, RECONCILE_TOTAL, REPLICA_FAILURES
from covey.operator.execute.denials import Allowance
from covey.operator.execute.executor import Executor
from covey.operator.execute.pods import PodCallbacks
from covey.operator.execute.put_status import InferenceStatusWriter
from covey.operator.feature import Features
from covey.operator.model.actions import Actions, Note, Object, Precedence
from covey.operator.model.avoid_limits import DEFAULT, AvoidLimits
from covey.operator.model.objects import Inference
from covey.operator.model.observed import Observed
from covey.operator.model.problem import REASON_REFUSED, Blocked, Problem, is_of_quota, retry_delay, sum_up
from covey.operator.model.recorded_status import differ, find_served
from covey.operator.objects.drift import has_drifted
from covey.operator.observe.caches import Caches
from covey.operator.observe.devices import read_charges
from covey.operator.observe.missing import find_remaining, missing_pods
from covey.operator.observe.resource_quotas import REST
from covey.operator.observe.templates import TemplateCheck
from covey.operator.observe.watched import Key
from covey.operator.plan import Plan, plan
from covey.operator.resource_quota.balance import merge_demands
from covey.operator.resource_quota.charge import charge_of_claims
from covey.operator.rolling.respond import find_answers
from covey.operator.status import status
from covey.operator.status.departures import Departures
from covey.operator.status.gauges import WorkloadGauges
from covey.operator.status.pace import Pace, is_news, is_passing
from covey.operator.status.rollout_counts import RolloutCounts
from covey.operator.status.startup_times import StartupTimes
from covey.operator.status.transitions import find_transitions
from covey.operator.status.units import UnitSummary, describe_units
from covey.operator.validation import AcceptedSpec, read_spec, validate
from covey.placement.cluster.device_claims import unmade_claims

Result = TypeVar("Result")

_log = get_logger(__name__)

#: Seconds that the watch has to show what kept a status from being written.
_AGAIN: Final = 0.2
#: Pods that run and get another budget, a second; and seconds until the next of them.
_PROTECTIONS: Final = 50.0
_NEXT: Final = 1.0
#: Seconds after which pods are looked at again that wait for a quota beside claims that are still to be made.
_CLAIMING: Final = 30.0
#: Seconds after which a resource that still creates pods keeps no other from doing so: it may have many, or its requests
#: be slow.
_TURN: Final = 0.2
#: Pods of a resource from which on it is planned in a thread: 30 to 50 ms of work.
_LARGE: Final = 1_000


class Reconciler:
    """Reconciles resources; one call looks at one of them.

    Args:
        client: to the API server.
        caches: the observed state.
        recorder: for Events.
        gauges: where the state of each resource is shown.
        clock: the time.
        features: make the plan, in this order.
        limits: when nodes are avoided.
    """

    def __init__(
        self,
        client: Client,
        caches: Caches,
        recorder: EventRecorder,
        gauges: WorkloadGauges,
        *,
        clock: Clock,
        features: Features,
        limits: AvoidLimits = DEFAULT,
    ) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._gauges = gauges
        self._startup_times = StartupTimes(clock.wall)
        self._rollout_counts = RolloutCounts()
        self._limits = limits
        self._plan = partial(plan, features=features)
        self._clock = clock
        self._templates = TemplateCheck(client, clock.monotonic)
        self._pace = Pace(clock.monotonic)
        self._statuses = InferenceStatusWriter(client, caches.tell)
        #: By turns, by priority and then the oldest first, so that the first of many are whole early.
        self._creations = Turns(1)
        self._protections = Allowance(_PROTECTIONS, clock.monotonic)
        self._attempts: dict[str, int] = {}
        self._uids: dict[Key, str] = {}

    async def __call__(self, key: Key) -> None:
        """Reconcile one resource.

        Raises:
            Retryable: it has to be looked at again after a while.
            KubeError: a request failed.
        """
        with structlog.contextvars.bound_contextvars(namespace=key[0], name=key[1]), RECONCILE_DURATION.time():
            try:
                await self._reconcile(key)
            except Retryable:
                RECONCILE_TOTAL.labels("requeue").inc()
                raise
            except Exception:
                RECONCILE_TOTAL.labels("error").inc()
                raise
            finally:
                if self._caches.inferences.get(key) is not None:
                    self._caches.quotas.note_look(key)
            RECONCILE_TOTAL.labels("success").inc()

    async def _reconcile(self, key: Key) -> None:
        text = self._caches.inferences.get(key)
        # 1. Gone, or going: owner references remove everything.
        if text is None:
            self._forget(key)
            return
        stored = text.read()
        if self._uids.get(key, stored.metadata.uid) != stored.metadata.uid:
            self._forget(key)
        self._uids[key] = stored.metadata.uid
        owner = Owner(*key, stored.metadata.uid)
        if stored.metadata.deletion_timestamp is not None:
            await self._report_deletion(stored, owner)
            self._caches.forget(key)
            self._gauges.drop(key)
            return
        # 2. Observe.
        observed = await self._observe(owner)
        # 3. Judge: what of the spec is accepted, and what is kept up meanwhile.
        verdict = await self._judge(stored, observed)
        if verdict is None:
            return
        # 4. Plan and execute.
        if verdict.backend is not None and verdict.backend.needs_room:
            observed = replace(observed, room=self._caches.room.view(key))
        observed = replace(observed, limits=self._limits)
        before = self._statuses.current(stored)
        planned = await _aside(observed, partial(self._plan, verdict, observed, before))
        self._caches.clock.note(key, observed.now, stands=planned.intent.stands)
        wanted = verdict.is_kept_up and bool(planned.actions.create or planned.unplaceable.replicas)
        async with self._caches.quotas.turn(key[0], wanted=wanted) as quotas:
            if quotas is not None:
                observed = await self._count_claims(key, verdict, replace(observed, quotas=quotas))
                planned = self._without_room(
                    key, await _aside(observed, partial(self._plan, verdict, observed, before))
                )
            failure = await self._act(owner, verdict, observed, planned)
            unplaceable = planned.unplaceable
            waits = bool(unplaceable.replicas) or is_of_quota(failure)
            self._caches.quotas.note(key, waits=waits, first=unplaceable.reserve)
        failure = sum_up([problem for problem in (unplaceable.problem, failure) if problem is not None])
        if observed.evictions and self._caches.evicted is not None:
            answers, due = find_answers(
                verdict.inference.spec,
                observed,
                planned.intent if verdict.is_kept_up and verdict.backend is not None else None,
            )
            self._caches.evicted.answer(observed.evictions, answers)
            if due is not None:
                self._caches.look_again(key, due)
        # 5. Tell.
        now = rfc3339(self._clock.wall())
        units, after = await _aside(observed, partial(_describe, verdict, observed, planned, before, now, failure))
        self._gauges.update(key, after, units, Scale.of(verdict.inference.spec).units, planned.status.avoided)
        self._tell(stored, () if failure else planned.actions.notes)
        for cause, count in planned.status.failures.items():
            REPLICA_FAILURES.labels(cause).inc(count)
        problem = failure or verdict.problem
        served = find_served((unit.number for unit in units), before)
        if await self._report(stored, before, after, passing=is_passing(units, problem, served)):
            self._startup_times.observe_status(owner.uid, verdict.inference, observed, units, before)
            self._rollout_counts.count_status(owner.uid, verdict, before, after)
        # 6. Come back where time alone can help.
        if planned.again is not None:
            self._caches.look_again(key, planned.again)
        if planned.actions.create and failure is None and verdict.backend and not can_reserve(verdict.backend.name):
            # This process lets them go, as soon as all are there.
            self._caches.look_again(key, 0.0)
        self._come_back(owner.uid, problem)

    def _without_room(self, key: Key, planned: Plan) -> Plan:
        """Leave only running minimums in a plan's creations while others of the namespace may need the room first."""
        later = [item for item in planned.actions.create if item.precedence is not Precedence.RUNNING_MINIMUM]
        if not later or not (self._caches.may_need_room(key[0]) or self._caches.quotas.rests(key)):
            return planned
        self._caches.look_again(key, REST)
        create = tuple(item for item in planned.actions.create if item.precedence is Precedence.RUNNING_MINIMUM)
        return replace(planned, actions=replace(planned.actions, create=create))

    async def _count_claims(self, key: Key, verdict: AcceptedSpec, observed: Observed) -> Observed:
        """Count what quotas will charge for claims, which are made after the pods, and the demand that comes first."""
        reserved, waiting = self._caches.quotas.reserved_demand(key), self._caches.find_claimants(key[0])
        records = (each.record for each in observed.revisions)
        # Never what is only wanted: nobody may have taken its templates.
        revisions = [each.revision for each in (verdict.accepted, *records) if each is not None]
        claims = chain.from_iterable((*(each.pod_claims for each in revisions), *map(unmade_claims, waiting)))
        named = {
            each.get("resourceClaimTemplateName")
            for each in claims
            if each.get("name") not in names.INTERCONNECT_CLAIMS
        }
        charges = await read_charges(self._client, {(key[0], name) for name in named if name})
        if waiting:
            # They may go without a change of any quota.
            self._caches.look_again(key, _CLAIMING)
            # One charge for all of them: a tenant may have as many kinds as pods.
            unmade = charge_of_claims(chain.from_iterable(map(unmade_claims, waiting)), charges)
            reserved = merge_demands((reserved, {unmade: 1}))
        return replace(observed, reserved=reserved, claim_charges=charges)

    async def _observe(self, owner: Owner) -> Observed:
        """Take the snapshot; pods that have lost their label are asked for by name."""
        key = (owner.namespace, owner.name)
        observed = self._caches.observe(owner, self._clock.wall())
        missing = missing_pods(observed)
        if not missing:
            return observed
        remaining = await find_remaining(self._client, owner, missing)
        self._caches.pod_expectations.confirm(key, missing.keys() - remaining.keys())
        return self._caches.observe(owner, self._clock.wall()).with_pods(remaining)

    async def _judge(self, stored: Inference, observed: Observed) -> AcceptedSpec | None:
        """Decide which spec is kept up; None when that cannot be known, which is then reported."""
        cluster = self._caches.cluster
        case = read_spec(stored, self._caches.find_topologies(), cluster, observed)
        verdict = _within(await _aside(observed, partial(validate, case, observed)), cluster)
        if verdict is None:
            await self._report_invalid(stored, case.problem)
            return None
        if not verdict.unproven or verdict.backend is None:
            return verdict
        tree = verdict.backend.compile(verdict.inference, revision=verdict.wanted, levels=verdict.levels)
        counted = can_reserve(verdict.backend.name)
        bad_template = await self._templates.find_problem(tree, counted=counted)
        return _within(validate(case, observed, bad_template), cluster) if bad_template else verdict

    async def _act(self, owner: Owner, verdict: AcceptedSpec, observed: Observed, planned: Plan) -> Problem | None:
        """Do what is planned; return the problem that stopped it, if any."""
        if not verdict.is_kept_up:
            return None
        key = (owner.namespace, owner.name)
        self._caches.pod_expectations.retire(key, observed, planned.intent.layout.slots())
        departures = Departures(planned)
        needs_budget = pod_budget.needs_budget(verdict.inference.spec)
        if needs_budget:
            self._caches.budgets.note(key, needed=True)
        actions = self._limit_protections(key, planned.actions)
        rank = self._rank_of(verdict.inference, observed)
        failure = await self._execute(owner, observed, actions, departures, rank)
        if not needs_budget and not planned.actions.protect:
            self._caches.budgets.note(key, needed=False)
        return failure

    def _limit_protections(self, key: Key, actions: Actions) -> Actions:
        """Limit the actions to those allowed now: the pods of a large cluster do not get another budget all at once."""
        allowed = self._protections.take(len(actions.protect))
        if allowed < len(actions.protect):
            self._caches.look_again(key, _NEXT)
        return replace(actions, protect=actions.protect[:allowed])

    def _rank_of(self, inference: DisaggregatedInference, observed: Observed) -> Rank:
        """The turn of a resource at creating pods: as its gangs are planned, by priority and then by age."""
        known = next((pod.spec.priority for pod in observed.every_pod() if pod.spec.priority is not None), None)
        priority = self._templates.find_priority(inference.spec.priority_class_name) if known is None else known
        return -priority, inference.metadata.creation_timestamp

    async def _execute(
        self, owner: Owner, observed: Observed, actions: Actions, departures: Departures, rank: Rank
    ) -> Problem | None:
        if not any((actions, actions.annotate, actions.protect, actions.ask)):
            return None
        if counts := actions.counts():
            _log.info("reconciling", **counts)
        key = (owner.namespace, owner.name)
        executor = Executor(
            self._client,
            owner,
            observed,
            partial(self._caches.welcome_object, key),
            pods=PodCallbacks(
                created=partial(self._caches.pod_expectations.note_creation, key),
                deleting=partial(self._caches.pod_expectations.note_deletion, key),
                deletion_failed=partial(self._caches.pod_expectations.note_failed_deletion, key),
                deleted=departures.count_deletion,
                changed=partial(self._caches.pod_expectations.note_change, key),
            ),
            width=self._client.connections,
            turn=self._creations.take(rank, _TURN),
            applied=partial(self._note_application, key),
        )
        try:
            await executor.run(actions)
        except Blocked as blocked:
            return blocked.problem
        except (AlreadyExists, Conflict, TooManyRequests):
            raise
        except ApiError as refused:
            # Not about a pod: rules of access, a webhook that does not answer, a validation of a later release.
            _log.warning("refused", error=str(refused))
            return Problem(REASON_REFUSED, refused.message, retry=True)
        return None

    def _note_application(self, key: Key, body: Object, before: Owned, result: Owned) -> None:
        """Note what was applied; where the API server made something else of it, nothing else might bring the resource back."""
        self._caches.applications.note(key, body, before.metadata, result.metadata, self._clock.wall())
        if has_drifted(body, result):
            self._caches.look_again(key, 0.0)

    def _tell(self, stored: Inference, notes: Iterable[Note]) -> None:
        for note in notes:
            kind = "Warning" if note.warning else "Normal"
            self._recorder.event(_reference(stored), kind, note.reason, note.message, note.action)  # type: ignore[arg-type] # one of the two

    async def _report(
        self, stored: Inference, before: dict[str, Any], after: dict[str, Any], *, passing: bool = False
    ) -> bool:
        """Bring the stored status up to date; False when that has to wait a little."""
        metadata = stored.metadata
        if not differ(before, after):
            self._pace.note_current(metadata.uid)
            return True
        delay = self._pace.delay(metadata.uid, passing=passing, news=is_news(before, after))
        if delay > 0:
            self._caches.look_again(metadata.key, delay)
            return False
        if not await self._statuses.write(stored, after):
            self._caches.look_again(metadata.key, _AGAIN)
            return False
        self._tell(stored, find_transitions(before, after))
        self._pace.note_write(metadata.uid)
        return True

    async def _report_invalid(self, stored: Inference, problem: Problem | None) -> None:
        assert problem is not None
        before = self._statuses.current(stored)
        after = status.of_invalid(problem, before, stored.metadata.generation, rfc3339(self._clock.wall()))
        self._gauges.update(stored.metadata.key, after, (), 0)
        await self._report(stored, before, after)

    async def _report_deletion(self, stored: Inference, owner: Owner) -> None:
        left = sum(1 for _ in self._caches.observe(owner, self._clock.wall()).every_pod())
        before = self._statuses.current(stored)
        after = status.of_deleted(left, before, stored.metadata.generation, rfc3339(self._clock.wall()))
        await self._report(stored, before, after)

    def _come_back(self, uid: str, problem: Problem | None) -> None:
        if problem is None or not problem.retry:
            self._attempts.pop(uid, None)
            return
        attempt = self._attempts.get(uid, 0)
        self._attempts[uid] = attempt + 1
        raise Retryable(retry_delay(attempt), problem.message)

    def _forget(self, key: Key) -> None:
        self._caches.forget(key)
        self._gauges.drop(key)
        uid = self._uids.pop(key, None)
        if uid is not None:
            self._templates.forget(uid)
            self._statuses.forget(uid)
            self._pace.forget(uid)
            self._startup_times.forget(uid)
            self._rollout_counts.forget(uid)
            self._attempts.pop(uid, None)


async def _aside(observed: Observed, work: Callable[[], Result]) -> Result:
    """Do pure work on a snapshot; on a large one in a thread, since all others would have to wait for it.

    Work that may ask for room stays here: that changes what other resources see of it.
    """
    if observed.room is not None or len(observed.pods) < _LARGE:
        return work()
    return await asyncio.to_thread(work)


def _describe(
    verdict: AcceptedSpec,
    observed: Observed,
    planned: Plan,
    before: Mapping[str, Any],
    now: str,
    failure: Problem | None,
) -> tuple[tuple[UnitSummary, ...], dict[str, Any]]:
    """Compute the description of each unit, and the new status."""
    units = tuple(describe_units(verdict.inference, verdict.backend, observed, planned))
    return units, status.compute(verdict, observed, planned, units, before, now, failure=failure)


def _within(verdict: AcceptedSpec | None, cluster: Cluster) -> AcceptedSpec | None:
    """The verdict with its backend as the cluster has it."""
    if verdict is None or verdict.backend is None:
        return verdict
    return replace(verdict, backend=within(verdict.backend, cluster))


def _reference(stored: Inference) -> ObjectRef:
    metadata = stored.metadata
    return ObjectRef(names.INFERENCE_API, "DisaggregatedInference", metadata.name, metadata.namespace, metadata.uid)
