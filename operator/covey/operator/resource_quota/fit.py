"""Pods that fit the ResourceQuotas of their namespace: the whole minimum of a unit or nothing of it.

Quotas charge pods from their creation on, gated ones as well: two gangs that are created side by side may take a quota
by halves, and neither ever starts. So pods are counted before the first of them is created.

======================================  ===============================================================================
pods of                                 fit
======================================  ===============================================================================
a minimum that runs and lost some       replica by replica; what does not fit is reserved, before anything else is
any other minimum                       all of it, or none; what is there of one that does not fit is given back
replacements                            replica by replica; what does not fit is reserved against what comes after
surplus, surge                          replica by replica
======================================  ===============================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from covey.api import constants as names
from covey.compile import PodFactory, ReplicaKey, Tree
from covey.compile.identity import hostname
from covey.model import podstate
from covey.operator.feature import Changes, Feature, PlanInput, Unplaceable
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions, CreatePod, DeletePod, Precedence, Relabel
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.model.problem import Problem
from covey.operator.resource_quota.balance import Balance, Demand, QuotaShortage, merge_demands
from covey.operator.resource_quota.charge import PodCharge, charge_of

_RESERVES = (Precedence.RUNNING_MINIMUM, Precedence.REPLACEMENT)
_OF_MINIMUM = (Precedence.RUNNING_MINIMUM, Precedence.MINIMUM)


@dataclass(frozen=True, slots=True)
class Fitting:
    """The pods that may be created now, and what quotas lack for the others."""

    create: tuple[CreatePod, ...] = ()
    outcome: Outcome = field(default_factory=Outcome)
    #: Replicas that do not fit, and what keeps those of their unit from fitting, in a sentence.
    unfit: Mapping[ReplicaKey, str] = field(default_factory=dict)
    #: What keeps a unit from its minimum.
    problem: Problem | None = None
    #: Pods of minimums that run: they come before those of other resources.
    reserve: Demand | None = None


@dataclass
class ResourceQuotas(Feature):
    """Pods wait for the ResourceQuotas of their namespace, before the first of them is created."""

    HONOURS = frozenset({"ResourceQuotas of its namespace"})

    _fitting: Fitting = field(init=False, default_factory=Fitting)

    @classmethod
    def applies(cls, given: PlanInput) -> bool:
        """Tell whether there are any."""
        return bool(given.observed.quotas)

    def intent(self, intent: Intent) -> Intent:
        """Quotas may lack what a successor needs beside what it is to succeed."""

        def lacks(tree: Tree, coming: Iterable[ReplicaKey], gone: Iterable[ReplicaKey]) -> str:
            return "; ".join(map(str, _find_shortage(tree, self.given.observed, coming, gone)))

        return replace(intent, lacks=lacks)

    def amend(self, changes: Changes) -> Changes:
        """Only pods that fit are created."""
        observed, known = self.given.observed, changes.unplaceable
        fitting = find_fitting(changes.create, charging(changes.tree.pods, observed), observed, changes.intent.arriving)
        self._fitting = fitting
        unplaceable = Unplaceable({**known.replicas, **fitting.unfit}, fitting.problem, fitting.reserve)
        return replace(changes, create=fitting.create, unplaceable=unplaceable)

    def outcome(self, changes: Changes) -> Outcome:
        """What quotas lack, and pods of minimums that are given back."""
        del changes
        return self._fitting.outcome


@dataclass(frozen=True, slots=True)
class _Batch:
    """Pods that are created together or not at all."""

    precedence: Precedence
    items: tuple[CreatePod, ...]


def find_fitting(
    create: Sequence[CreatePod],
    charge: Callable[[CreatePod], PodCharge],
    observed: Observed,
    arriving: int | None = None,
) -> Fitting:
    """Find the pods that fit.

    Args:
        create: the pods, in the order in which they are to be created.
        charge: what a pod is charged.
        observed: the snapshot, with the quotas of the namespace.
        arriving: a unit that is to take the place of another, which serves until then.
    """
    if not observed.quotas or not create:
        return Fitting(tuple(create))
    balance = Balance(observed.quotas, observed.reserved)
    taken: list[CreatePod] = []
    missed: list[tuple[_Batch, tuple[QuotaShortage, ...]]] = []
    kept: list[Demand] = []
    waiting: set[int] = set()
    for batch in _batches(create):
        unit = batch.items[0].slot.unit
        if unit in waiting:
            continue
        demand = Counter(map(charge, batch.items))
        short = balance.shortages(demand)
        if short:
            missed.append((batch, short))
            # Nothing of a unit is there before its minimum is.
            waiting |= {unit} if batch.precedence is Precedence.MINIMUM else set()
        else:
            taken += batch.items
        if not short or batch.precedence in _RESERVES:
            balance.take(demand)
        if short and batch.precedence is Precedence.RUNNING_MINIMUM:
            kept.append(demand)
    if not missed:
        return Fitting(tuple(taken))
    by_unit: dict[int, list[tuple[_Batch, tuple[QuotaShortage, ...]]]] = {}
    for batch, short in missed:
        by_unit.setdefault(batch.items[0].slot.unit, []).append((batch, short))
    return Fitting(
        tuple(taken),
        Outcome(
            _give_back(missed, observed),
            (Remark(names.QUOTA_LIMITED, names.REASON_QUOTA_EXCEEDED, _describe(missed)),),
        ),
        {
            creation.slot[:3]: why
            for batches in by_unit.values()
            for why in [_describe(batches)]
            for batch, _ in batches
            for creation in batch.items
        },
        _problem(batch for batch in missed if batch[0].items[0].slot.unit != arriving),
        merge_demands(kept) if kept else None,
    )


def _batches(create: Iterable[CreatePod]) -> Iterator[_Batch]:
    def together(creation: CreatePod) -> tuple[Precedence, tuple[object, ...]]:
        whole = creation.precedence is Precedence.MINIMUM
        return creation.precedence, (creation.slot.unit,) if whole else creation.slot[:3]

    for (precedence, _), items_of_batch in groupby(create, key=together):
        yield _Batch(precedence, tuple(items_of_batch))


def _give_back(missed: Iterable[tuple[_Batch, object]], observed: Observed) -> Actions:
    """Delete pods of minimums that do not fit: they would only keep others from starting."""
    units = {batch.items[0].slot.unit for batch, _ in missed if batch.precedence is Precedence.MINIMUM}
    pods = [pod for slot, pod in observed.current.items() if slot.unit in units]
    let_go = {pod.metadata.label(names.LABEL_UNIT) for pod in pods if podstate.is_admitted(pod)}
    given = [pod for pod in pods if pod.metadata.label(names.LABEL_UNIT) not in let_go]
    return Actions(
        relabel=tuple(Relabel(pod, {names.LABEL_ADDRESS: None}) for pod in given if podstate.is_addressed(pod)),
        delete_pods=tuple(DeletePod(pod, "the rest of its minimum does not fit the quota") for pod in given),
    )


def _describe(missed: Sequence[tuple[_Batch, tuple[QuotaShortage, ...]]]) -> str:
    batch, short = missed[0]
    more = f" (and {len(missed) - 1} more)" if len(missed) > 1 else ""
    return f"{_what(batch)}{more}: {_list_shortages(short)}"


def _problem(missed: Iterable[tuple[_Batch, tuple[QuotaShortage, ...]]]) -> Problem | None:
    """Report a unit that is below its minimum for want of quota."""
    for batch, short in missed:
        if batch.precedence in _OF_MINIMUM:
            message = f"{_what(batch)}: {_list_shortages(short)}; raise the quota, or ask for less"
            return Problem(names.REASON_QUOTA_EXCEEDED, message, retry=True)
    return None


def _what(batch: _Batch) -> str:
    slot = batch.items[0].slot
    match batch.precedence:
        case Precedence.MINIMUM:
            return f"no pod of unit {slot.unit} is created before its whole minimum fits"
        case Precedence.RUNNING_MINIMUM:
            return f"unit {slot.unit} lacks replica {slot.replica} of {slot.role}"
        case Precedence.SURGE:
            return f"nothing left for another replica of {slot.role} beside those of unit {slot.unit}"
        case _:
            return f"unit {slot.unit} cannot have replica {slot.replica} of {slot.role}"


def _list_shortages(short: Sequence[QuotaShortage]) -> str:
    first = "; ".join(map(str, short[:3]))
    return f"{first}; and {len(short) - 3} more" if len(short) > 3 else first


def _find_shortage(
    tree: Tree, observed: Observed, coming: Iterable[ReplicaKey], gone: Iterable[ReplicaKey]
) -> tuple[QuotaShortage, ...]:
    """Find what quotas lack for replicas of a tree that are to be created, once others of it are gone."""
    charge = charging(tree.pods, observed)

    def demand(replicas: Iterable[ReplicaKey], sign: int) -> Demand:
        slots = (slot for replica in replicas for slot in tree.replicas.get(replica, ()))
        return {charged: sign * count for charged, count in Counter(charge(CreatePod(slot)) for slot in slots).items()}

    balance = Balance(observed.quotas, observed.reserved)
    balance.take(demand(gone, -1))
    return balance.shortages(demand(coming, 1))


def charging(factory: PodFactory, observed: Observed) -> Callable[[CreatePod], PodCharge]:
    """Make a function for the charge of a pod, computed once for those of one role, revision and template."""
    charges: dict[tuple[str, str, bool], PodCharge] = {}

    def charge(creation: CreatePod) -> PodCharge:
        slot = creation.slot
        kind = (slot.role, factory.revision_of(slot).hash, slot.index == 0)
        if kind not in charges:
            body = factory.build_named(slot, hostname(slot), creation.told)
            charges[kind] = charge_of(body, observed.ranges, observed.claim_charges)
        return charges[kind]

    return charge
