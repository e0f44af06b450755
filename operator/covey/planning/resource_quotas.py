"""ResourceQuotas in a plan, as the operator counts them: pods that do not fit are not created, and so have no nodes.

Devices that claims ask for are not charged here, only the claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from covey.admission.nodes import Key
from covey.admission.tree import Unit
from covey.api import core
from covey.compile import ReplicaKey, Slot
from covey.model import podstate
from covey.operator.model.actions import CreatePod, Precedence
from covey.operator.model.observed import Observed
from covey.operator.resource_quota.balance import Balance
from covey.operator.resource_quota.charge import PodCharge, charge_of
from covey.operator.resource_quota.fit import find_fitting
from covey.placement.model import Reason, Refusal, Verdict

_OF_MINIMUM = (Precedence.RUNNING_MINIMUM, Precedence.MINIMUM)


@dataclass(frozen=True, slots=True)
class QuotaVerdicts:
    """What ResourceQuotas keep from being created: units by their keys, with a sentence each."""

    minimums: Mapping[Key, str] = field(default_factory=dict)
    surplus: Mapping[Key, str] = field(default_factory=dict)

    def refusal(self, unit: Unit) -> Refusal | None:
        """The refusal of a unit of which quotas do not allow the minimum; None where they do."""
        why = self.minimums.get(unit.key)
        return refuse(f"{why}; raise the quota, or ask for less") if why is not None else None


def judge_quotas(
    resources: Iterable[tuple[str, Sequence[Unit]]], quotas: Sequence[core.ResourceQuota], there: Collection[str]
) -> QuotaVerdicts:
    """Judge what is to be created by the ResourceQuotas of its namespaces, in the order of the resources.

    Args:
        resources: DisaggregatedInferences that are planned: their namespaces and units.
        quotas: of all namespaces, with their status.
        there: UIDs of the pods that exist, which are in the status of the quotas.
    """
    taken: dict[str, Counter[PodCharge]] = {}
    minimums: dict[Key, str] = {}
    surplus: dict[Key, str] = {}
    for namespace, units in resources:
        bounds = tuple(quota for quota in quotas if quota.metadata.namespace == namespace)
        missing = [pair for unit in units for pair in (_missing(unit, there) if bounds else ())]
        unfit = _fit(missing, bounds, taken.setdefault(namespace, Counter()))
        keys = {unit.index: unit.key for unit in units}
        for item, _ in missing:
            why = unfit.get(item.slot[:3])
            if why is not None:
                (minimums if item.precedence in _OF_MINIMUM else surplus)[keys[item.slot.unit]] = why
    return QuotaVerdicts(minimums, {key: why for key, why in surplus.items() if key not in minimums})


def _fit(
    missing: Sequence[tuple[CreatePod, core.Pod]], quotas: tuple[core.ResourceQuota, ...], taken: Counter[PodCharge]
) -> Mapping[ReplicaKey, str]:
    """Say what keeps replicas from being created, and add what fits to what is taken."""
    charges = {item.slot: charge_of_pod(pod) for item, pod in missing}
    create = sorted((item for item, _ in missing), key=lambda item: item.precedence)
    fitting = find_fitting(create, lambda item: charges[item.slot], Observed(quotas=quotas, reserved=taken))
    taken.update(charges[item.slot] for item in fitting.create)
    return fitting.unfit


def refuse_successors(
    quotas: Sequence[core.ResourceQuota], coming: Iterable[core.Pod], going: Iterable[core.Pod]
) -> Refusal | None:
    """Say why the quotas of a namespace do not allow successors once others have gone; None where they do."""
    balance = Balance(quotas)
    balance.take({charge: -count for charge, count in Counter(map(charge_of_pod, going)).items()})
    short = balance.shortages(Counter(map(charge_of_pod, coming)))
    return refuse("; ".join(map(str, short[:3]))) if short else None


def refuse(message: str, resource: str | None = None, short: str | None = None) -> Refusal:
    """The refusal of a whole unit for one reason; ``short`` of a resource."""
    return Refusal(Verdict.INFEASIBLE, (Reason("", "unit", None, (), 0, 0, resource, None, short, (), message),))


def charge_of_pod(pod: core.Pod) -> PodCharge:
    """Compute the charge of a pod as it would be stored."""
    return charge_of({"spec": msgspec.to_builtins(pod.spec)})


def _missing(unit: Unit, there: Collection[str]) -> Iterator[tuple[CreatePod, core.Pod]]:
    """The pods of a unit that do not exist, as the operator would create them."""
    runs = any(map(podstate.occupies_node, unit.pods()))
    first = Precedence.RUNNING_MINIMUM if runs else Precedence.MINIMUM
    for role in unit.roles:
        whole = [all(pod.metadata.uid in there for pod in replica.pods) for replica in role.replicas]
        lacking = role.minimum - sum(whole)
        for replica, is_whole in zip(role.replicas, whole, strict=True):
            precedence = first if lacking > 0 else Precedence.SURPLUS
            lacking -= not is_whole
            for index, pod in enumerate(replica.pods):
                if pod.metadata.uid not in there:
                    slot = Slot(unit.index, role.name, replica.number, index)
                    yield CreatePod(slot, precedence=precedence), pod
