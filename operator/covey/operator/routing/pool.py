"""The InferencePool of a resource (``spec.routing.pool``), for gateways that follow the Gateway API Inference Extension.

It selects the pods that take requests, as a Service does: ``covey.dev/endpoint`` is gone from what drains, and with
``rollout.routing: Exclusive`` one pairing alone has it, so the selector is the same for every revision. Nothing waits for
it; it is written last.
"""

from __future__ import annotations

from typing import Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Endpoints, Role
from covey.api.routing import InferencePoolSettings
from covey.compile import Owner
from covey.compile.network import ADDRESSED
from covey.kube.resources import INFERENCE_POOLS
from covey.operator.feature import Changes, Feature, PlanInput
from covey.operator.model.actions import Actions, DeleteObject, Object
from covey.operator.model.outcome import Outcome, Remark, sum_outcomes
from covey.operator.objects.apply import find_applicable, find_deviations, find_undone, report_undone

REASON_SWITCHED_OFF: Final = "PoolsSwitchedOff"
REASON_NOT_SERVED: Final = "PoolsNotServed"


class InferencePool(Feature):
    """The InferencePool that is wanted, or not any more."""

    HONOURS = frozenset({"spec.routing.pool"})

    @classmethod
    def applies(cls, given: PlanInput) -> bool:
        """Tell whether one is wanted, or may be there."""
        return bool(given.spec.routing or given.observed.pools)

    def outcome(self, changes: Changes) -> Outcome:
        """The InferencePool to write, or to delete, and what there is to say where none can be."""
        del changes
        spec, owner, observed = self.given.spec, self.given.owner, self.given.observed
        pool = spec.routing.pool if spec.routing is not None else None
        stored = {key: owned for key, owned in observed.objects.items() if key[0] == INFERENCE_POOLS.type}
        if pool is None:
            unwanted = (key for key, owned in stored.items() if owned.metadata.deletion_timestamp is None)
            return Outcome(
                Actions(delete_objects=tuple(DeleteObject(*key, stored[key].metadata.uid) for key in unwanted))
            )
        if observed.pools is None:
            return _lacks(
                REASON_SWITCHED_OFF, "the operator makes no InferencePools: set routing.inferencePools of its chart"
            )
        if not observed.pools:
            kind = f"{INFERENCE_POOLS.kind} ({INFERENCE_POOLS.api_version})"
            return _lacks(
                REASON_NOT_SERVED, f"the cluster does not know {kind}: install the CRD that the gateway brings"
            )
        changed = find_deviations([_pool_body(pool, spec, owner)], observed)
        undone = find_undone(changed, observed)
        ready = find_applicable(changed, undone)
        actions = Actions(ask=(ready,) if ready else ())
        return sum_outcomes((Outcome(actions), report_undone(undone.values(), observed)))


def _lacks(reason: str, message: str) -> Outcome:
    return Outcome(remarks=(Remark(names.POOL_MISSING, reason, message),))


def _pool_body(pool: InferencePoolSettings, spec: DisaggregatedInferenceSpec, owner: Owner) -> Object:
    said = pool.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {
        "apiVersion": INFERENCE_POOLS.api_version,
        "kind": INFERENCE_POOLS.kind,
        "metadata": owner.metadata(owner.name, {}),
        "spec": {**said, "selector": {"matchLabels": _select(spec, owner)}},
    }


def _select(spec: DisaggregatedInferenceSpec, owner: Owner) -> dict[str, str]:
    """Labels of the pods that take requests. Where other roles serve nothing, the one that does is named."""
    serving = [role for role in spec.roles if role.capability is not None]
    of_role = {names.LABEL_ROLE: serving[0].name} if len(serving) < len(spec.roles) else {}
    of_leader = {} if all(map(_takes_all, serving)) else {names.LABEL_INDEX: "0"}
    return {names.LABEL_INFERENCE: owner.name, **of_role, **of_leader, names.LABEL_ENDPOINT: ADDRESSED}


def _takes_all(role: Role) -> bool:
    service = role.network.service if role.network else None
    return service is not None and service.endpoints is Endpoints.ALL
