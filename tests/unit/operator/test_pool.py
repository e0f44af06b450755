"""The InferencePool of a resource: what it selects, and where there can be none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builders.inferences import llama
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.api.routing import RoutingSettings
from covey.api.rules import broken_rules
from covey.backends import Owned
from covey.compile import Owner
from covey.kube.resources import INFERENCE_POOLS
from covey.operator.model.observed import Observed
from covey.operator.objects import add_digest
from covey.operator.rolling.pool import find_pool
from unit.operator.world import World

PICKER = {"name": "epp", "port": {"number": 9002}}
OWNER = Owner("ns", "llama", "uid-llama")


def pooled(picker: dict[str, Any] = PICKER, **roles: Any) -> DisaggregatedInference:
    made = llama(**roles)
    pool = {"pool": {"targetPorts": [{"number": 8000}], "endpointPickerRef": picker}}
    spec = made.spec.model_copy(update={"routing": RoutingSettings.model_validate(pool)})
    return made.model_copy(update={"spec": spec})


def wanted(inference: DisaggregatedInference) -> dict[str, Any]:
    ((body,),) = find_pool(inference.spec, OWNER, Observed(pools=True)).actions.ask
    return dict(body)


def stored(body: dict[str, Any], **metadata: Any) -> Observed:
    found = {**body["metadata"], "uid": "uid-pool", "resourceVersion": "1", **metadata}
    owned = msgspec.convert({"metadata": found, "spec": body["spec"]}, Owned)
    return Observed(objects={(INFERENCE_POOLS.type, body["metadata"]["name"]): owned}, pools=True)


def test_it_is_of_all_roles_where_all_serve() -> None:
    body = wanted(pooled())
    assert body["metadata"]["name"] == "llama"
    assert body["spec"] == {
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": PICKER,
        "selector": {
            "matchLabels": {"covey.dev/inference": "llama", "covey.dev/index": "0", "covey.dev/endpoint": "true"}
        },
    }


def test_what_is_stored_as_it_should_be_is_left() -> None:
    inference = pooled()
    body = wanted(inference)
    assert not find_pool(inference.spec, OWNER, stored(body)).actions.ask
    defaults = {**body["spec"], "endpointPickerRef": {**PICKER, "group": "", "kind": "Service"}}
    assert not find_pool(inference.spec, OWNER, stored({**body, "spec": defaults})).actions.ask
    other = pooled({**PICKER, "failureMode": "FailOpen"})
    assert find_pool(other.spec, OWNER, stored(body)).actions.ask
    # Nor is one written that is on its way out: it is made again when it has gone.
    going = stored(body, deletionTimestamp="2026-01-01T00:00:00Z")
    assert not find_pool(other.spec, OWNER, going).actions.ask


def test_it_goes_with_the_field_and_is_not_deleted_twice() -> None:
    body = add_digest(wanted(pooled()))
    (found,) = find_pool(llama().spec, OWNER, stored(body)).actions.delete_objects
    assert (found.type, found.name, found.uid) == (INFERENCE_POOLS.type, "llama", "uid-pool")
    going = stored(body, deletionTimestamp="2026-01-01T00:00:00Z")
    assert not find_pool(llama().spec, OWNER, going).actions.delete_objects


@pytest.mark.parametrize(("pools", "reason"), [(None, "PoolsSwitchedOff"), (False, "PoolsNotServed")])
def test_where_none_can_be_the_resource_says_so_and_runs(*, pools: bool | None, reason: str) -> None:
    world = World(pooled())
    world.pools = pools
    found = world.plan()
    assert [each.reason for each in found.remarks if each.type == names.POOL_MISSING] == [reason]
    assert not found.actions.ask
    plain = World(llama()).plan()
    assert [each.slot for each in found.actions.create] == [each.slot for each in plain.actions.create] != []


def test_what_does_not_take_requests_is_not_in_it() -> None:
    spec = pooled().spec
    prefill, *others = spec.roles
    alone = spec.model_copy(
        update={"roles": (prefill, *(each.model_copy(update={"name": f"x{n}"}) for n, each in enumerate(others)))}
    )
    labels = wanted(pooled().model_copy(update={"spec": alone}))["spec"]["selector"]["matchLabels"]
    assert labels["covey.dev/role"] == prefill.name
    assert not list(broken_rules(alone))


def test_rules() -> None:
    assert not list(broken_rules(pooled().spec))
    ((path, *_),) = broken_rules(pooled({"name": "epp"}).spec)
    assert path == "spec.routing.pool.endpointPickerRef.port"
    spec = pooled().spec
    strange = spec.model_copy(
        update={"roles": tuple(each.model_copy(update={"name": f"x{n}"}) for n, each in enumerate(spec.roles))}
    )
    ((path, *_),) = broken_rules(strange)
    assert path == "spec.routing.pool"
