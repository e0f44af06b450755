"""The seam of features: what core makes of a list of them, and of none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from builders.inferences import llama, template
from covey.operator.feature import Changes, Feature, PlanInput, StatusPart
from covey.operator.intent import Intent
from covey.operator.model.actions import Outcome, Remark
from covey.operator.plan import Plan, plan
from covey.operator.process.features import FEATURES
from covey.operator.rolling.rollout import Rollout
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


def test_an_edit_when_no_rollout_is_listed_moves_nothing() -> None:
    world = World(llama())
    world.settle()
    world.serve()
    world.tell()
    world.inference = llama(decode={"template": template(nodeSelector={"new": "yes"})})
    others = tuple(feature for feature in FEATURES if feature is not Rollout)
    moved, stands = (plan(world.judge(), world.observe(), world.status, features=f).actions for f in (FEATURES, others))
    assert moved.delete_pods or moved.create
    assert not stands.delete_pods
    assert not stands.create
