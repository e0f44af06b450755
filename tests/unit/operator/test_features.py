"""The seam of features: what core makes of a list of them, and of none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from builders.inferences import CONTAINER, llama, template
from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.api.inference import DisaggregatedInference
from covey.operator.feature import Changes, Feature, PlanInput, StatusPart
from covey.operator.intent import Intent
from covey.operator.model.capacity import AutoscalerSettings, Provider
from covey.operator.model.claimed import RootClaim
from covey.operator.model.eviction import Eviction
from covey.operator.model.node_drain import Notice
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.plan import Plan, plan
from covey.operator.process.features import FEATURES
from covey.operator.rolling.rollout import Rollout
from covey.operator.status.status import compute
from covey.operator.status.units import describe_units
from covey.operator.unsupported import ASKED
from unit.operator.world import World


class Holding(Feature):
    """Creates the pods of decode alone, and says so."""

    def amend(self, changes: Changes) -> Changes:
        return replace(changes, create=tuple(item for item in changes.create if item.slot.role == "decode"))

    def outcome(self, changes: Changes) -> Outcome:
        return Outcome(remarks=(Remark("Held", "Held", f"{len(changes.create)} pods are created"),))

    def status(self, intent: Intent) -> StatusPart:
        return StatusPart(roles={"decode": {"max_feasible": len(intent.layout.units)}})


class Absent(Holding):
    """Does not apply to any resource."""

    @classmethod
    def applies(cls, given: PlanInput) -> bool:
        return not given.spec.roles


def planned(features: Sequence[type[Feature]]) -> Plan:
    world = World(llama())
    return plan(world.judge(), world.observe(), {}, features=features)


def roles(found: Plan) -> set[str]:
    return {item.slot.role for item in found.actions.create}


def test_a_resource_when_there_is_no_feature_has_the_same_pods() -> None:
    assert [item.slot for item in planned(()).actions.create] == [
        item.slot for item in planned(FEATURES).actions.create
    ]


def test_a_feature_when_it_is_listed_holds_pods_back_and_has_its_part_of_the_status() -> None:
    found = planned((*FEATURES, Holding))
    assert roles(found) == {"decode"}
    [remark] = (each for each in found.remarks if each.type == "Held")
    assert remark.message == f"{len(found.actions.create)} pods are created"
    assert found.status.roles == {"decode": {"max_feasible": 1}}


def test_a_feature_when_it_does_not_apply_is_not_asked() -> None:
    found = planned((*FEATURES, Absent))
    assert roles(found) == {"prefill", "decode"}
    assert not found.status.roles


# Without a feature: the plain thing is done, and what is ignored is told


def without(name: str) -> list[type[Feature]]:
    others = [feature for feature in FEATURES if feature.__name__ != name]
    assert len(others) == len(FEATURES) - 1, f"no feature {name}"
    return others


def running(inference: DisaggregatedInference) -> World:
    world = World.serving(inference)
    world.tell()
    return world


def conditions(world: World, observed: Observed, features: Sequence[type[Feature]]) -> dict[str, Any]:
    verdict = world.judge()
    found = plan(verdict, observed, world.status, features=features)
    units = tuple(describe_units(verdict.inference, verdict.backend, observed, found))
    status = compute(verdict, observed, found, units, world.status, rfc3339(world.now))
    return {condition["type"]: condition for condition in status["conditions"]}


def test_an_edit_when_no_rollout_is_listed_moves_nothing_and_is_unsupported() -> None:
    world = running(llama())
    world.inference = llama(decode={"template": template(nodeSelector={"new": "yes"})})
    moved, stands = (
        plan(world.judge(), world.observe(), world.status, features=features).actions
        for features in (FEATURES, without(Rollout.__name__))
    )
    assert moved.delete_pods or moved.create
    assert not stands.delete_pods
    assert not stands.create
    found = conditions(world, world.observe(), without(Rollout.__name__))
    for kind, status in ((names.BACKEND_SUPPORTED, "False"), (names.STALLED, "True"), (names.READY, "False")):
        assert (found[kind]["status"], found[kind]["reason"]) == (status, names.REASON_UNSUPPORTED)
        assert "edits of rolled fields" in found[kind]["message"]


def test_replicas_when_no_rollout_is_listed_keep_their_numbers() -> None:
    world = running(llama(decode={"replicas": 3, "minReplicas": 1}))
    world.vanish(world.name_at("0-decode-0-0"))
    world.inference = llama(decode={"replicas": 2, "minReplicas": 1})
    found = plan(world.judge(), world.observe(), world.status, features=without(Rollout.__name__)).actions
    assert not found.create
    assert not found.delete_pods


def test_a_replica_that_drains_when_no_rollout_is_listed_never_comes_back() -> None:
    features = without(Rollout.__name__)
    world = running(llama(decode={"replicas": 2, "minReplicas": 1, "drainSeconds": 30}))
    world.inference = llama(decode={"replicas": 1, "drainSeconds": 30})
    found = plan(world.judge(), world.observe(), world.status, features=features)
    [marked] = (drain.pod.spec.hostname for drain in found.actions.drain)
    for step in world.steps(found.actions):
        step()
    world.inference = llama(decode={"replicas": 2, "minReplicas": 1, "drainSeconds": 30})
    [created] = plan(world.judge(), world.observe(), world.status, features=features).actions.create
    assert (marked, created.slot.replica) == ("0-decode-1-0", 2)


def test_a_pause_when_a_rollout_is_listed_is_a_condition_and_otherwise_unsupported() -> None:
    world = running(llama(rollout={"paused": True}))
    assert conditions(world, world.observe(), FEATURES)[names.PAUSED]["reason"] == names.REASON_PAUSED
    found = conditions(world, world.observe(), without(Rollout.__name__))
    assert names.PAUSED not in found
    assert "spec.rollout" in found[names.STALLED]["message"]


def test_a_lost_pod_when_no_repair_is_listed_is_made_again_without_its_policy() -> None:
    world = running(llama(prefill={"restart": {"policy": "RecreateReplica"}}))
    world.vanish(world.name_at("0-prefill-0-1"))
    by_policy, plain = (
        plan(world.judge(), world.observe(), world.status, features=features).actions
        for features in (FEATURES, without("Repair"))
    )
    assert by_policy.delete_pods
    assert not plain.delete_pods
    assert [tuple(item.slot) for item in plain.create] == [(0, "prefill", 0, 1)]
    assert "spec.roles[].restart" in conditions(world, world.observe(), without("Repair"))[names.STALLED]["message"]


def test_other_images_when_no_updates_in_place_are_listed_replace_pods() -> None:
    update = {"inPlace": "IfPossible", "maxSurge": 0, "maxUnavailable": 1}
    world = running(llama(decode={"update": update}))
    world.inference = llama(decode={"update": update, "template": template({**CONTAINER, "image": "engine:2"})})
    in_place, replaced = (
        plan(world.judge(), world.observe(), world.status, features=features).actions
        for features in (FEATURES, without("InPlaceUpdates"))
    )
    assert in_place.in_place
    assert not in_place.delete_pods
    assert replaced.delete_pods
    assert not replaced.in_place


def annotated(key: str) -> DisaggregatedInference:
    inference = llama()
    metadata = inference.metadata.model_copy(update={"annotations": {key: "1"}})
    return inference.model_copy(update={"metadata": metadata})


def of_roles(**fields: Any) -> Callable[[], DisaggregatedInference]:
    return lambda: llama(prefill=fields, decode=fields)


_POOL = {"targetPorts": [{"number": 80}], "endpointPickerRef": {"name": "picker", "port": {"number": 1}}}
_GATED = template(readinessGates=[{"conditionType": names.GATE_SERVING}])

#: The feature that is left out, what it honours, and a resource that asks for it.
SPECS: tuple[tuple[str, str, Callable[[], DisaggregatedInference]], ...] = (
    (
        "Evacuation",
        "spec.disruption.allowBelowMinimum",
        lambda: llama(disruption={"allowBelowMinimum": True}),
    ),
    (
        "Evacuation",
        "spec.disruption.evacuateAfterSeconds",
        lambda: llama(disruption={"evacuateAfterSeconds": 0}),
    ),
    ("Repair", "spec.roles[].restart", of_roles(restart={"maxRestarts": 1})),
    ("Repair", "spec.roles[].startDeadlineSeconds", of_roles(startDeadlineSeconds=9)),
    (
        "Repair",
        "spec.gang.terminationDelaySeconds",
        lambda: llama(gang={"terminationDelaySeconds": 0}),
    ),
    ("Scalers", "spec.roles[].scaling.mode External", of_roles(scaling={"mode": "External"})),
    ("ExchangedRoles", "spec.roles[].scaling.mode Together", of_roles(scaling={"mode": "Together"})),
    (
        "ExchangedRoles",
        "spec.scaling",
        lambda: llama(scaling={"budget": {"resource": "nvidia.com/gpu", "max": 99}}),
    ),
    ("Drains", "spec.roles[].drainSeconds", of_roles(drainSeconds=9)),
    ("Drains", "the readiness gate covey.dev/serving", of_roles(template=_GATED)),
    ("StartOrder", "spec.roles[].startup", of_roles(startup="LeaderReady")),
    (
        "StartOrder",
        "spec.roles[].dependsOn",
        lambda: llama(decode={"dependsOn": [{"role": "prefill", "condition": "Ready"}]}),
    ),
    ("HeadRoom", "the annotation covey.dev/headroom", lambda: annotated(names.ANNOTATION_HEADROOM)),
    ("HeadRoom", "the annotation covey.dev/headroom-seconds", lambda: annotated(names.ANNOTATION_HEADROOM_SECONDS)),
    ("InferencePool", "spec.routing.pool", lambda: llama(routing={"pool": _POOL})),
    ("InPlaceUpdates", "spec.roles[].update.inPlace", of_roles(update={"inPlace": "IfPossible"})),
    ("RequestRouting", "spec.rollout.routing", lambda: llama(rollout={"routing": "Exclusive"})),
    ("RequestRouting", "spec.roles[].serves", of_roles(serves="Both")),
    ("Rollout", "spec.rollout", lambda: llama(rollout={"paused": True})),
    ("Rollout", "spec.roles[].update", of_roles(update={"partition": 1})),
    ("RecreatedGroups", "the annotation covey.dev/remake", lambda: annotated(names.ANNOTATION_REMAKE)),
)

#: The same, and what others ask for, as it is observed.
SNAPSHOTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Evacuation", "nodes that are to be empty", {"notices": {"node-1": Notice("cordoned")}}),
    ("Evacuation", "Evictions of its pods", {"evictions": {"uid": Eviction(core.Meta(name="e"))}}),
    ("PreemptedReplicas", "preemption of its replicas", {"claims": (RootClaim("r", "ml", "chat", "Preemption", ()),)}),
    ("ResourceQuotas", "ResourceQuotas of its namespace", {"quotas": (core.ResourceQuota(core.Meta(name="q")),)}),
    ("NodeRequests", "requests for nodes", {"capacity": AutoscalerSettings(Provider.CAPACITY_BUFFER)}),
)


@pytest.mark.parametrize(("name", "what", "make"), SPECS, ids=[f"{name}: {what}" for name, what, _ in SPECS])
def test_a_field_when_no_feature_honours_it_is_unsupported_by_name(
    name: str, what: str, make: Callable[[], DisaggregatedInference]
) -> None:
    world = World(make())
    assert conditions(world, world.observe(), FEATURES)[names.BACKEND_SUPPORTED]["status"] == "True"
    found = conditions(world, world.observe(), without(name))[names.BACKEND_SUPPORTED]
    assert (found["status"], found["reason"]) == ("False", names.REASON_UNSUPPORTED)
    assert what in found["message"]


@pytest.mark.parametrize(("name", "what", "seen"), SNAPSHOTS, ids=[f"{name}: {what}" for name, what, _ in SNAPSHOTS])
def test_a_request_of_others_when_no_feature_honours_it_is_unsupported_by_name(
    name: str, what: str, seen: dict[str, Any]
) -> None:
    world = running(llama())
    observed = replace(world.observe(), **seen)
    assert conditions(world, observed, FEATURES)[names.BACKEND_SUPPORTED]["status"] == "True"
    found = conditions(world, observed, without(name))[names.BACKEND_SUPPORTED]
    assert (found["status"], found["reason"]) == ("False", names.REASON_UNSUPPORTED)
    assert what in found["message"]


@pytest.mark.parametrize("feature", FEATURES, ids=[feature.__name__ for feature in FEATURES])
def test_a_feature_when_nobody_asks_for_it_is_not_missed(feature: type[Feature]) -> None:
    world = running(llama())
    found = conditions(world, world.observe(), without(feature.__name__))
    assert found[names.BACKEND_SUPPORTED]["status"] == "True"


def test_features_honour_all_that_can_be_asked_and_nothing_twice() -> None:
    honoured = [what for feature in FEATURES for what in feature.HONOURS]
    assert sorted(honoured) == sorted(ASKED)
    tested = [what for _, what, _ in (*SPECS, *SNAPSHOTS)]
    assert sorted((*tested, "edits of rolled fields")) == sorted(ASKED)
