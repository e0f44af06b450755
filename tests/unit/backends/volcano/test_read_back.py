"""What is made of PodGroups as vc-scheduler 1.14.1 writes them, and that its writes are no reason for ours."""

from typing import Any

import msgspec
import pytest

from covey.api import core
from covey.backends import Identity, Owned
from covey.backends.volcano import Volcano
from covey.operator.objects.drift import add_digest, has_drifted
from unit.backends.volcano.objects import kthena

TYPE = "PodGroup.v1beta1.scheduling.volcano.sh"
UNSCHEDULABLE = {
    "type": "Unschedulable",
    "status": "True",
    "transitionID": "0c4e8b0e",
    "lastTransitionTime": "2026-11-22T05:00:00Z",
    "reason": "NotEnoughResources",
    "message": "1/8 tasks in gang unschedulable: pod group is not ready, 8 Pending, 6 minAvailable; Pending: 8 Unschedulable",
}
SCHEDULED = {**UNSCHEDULABLE, "type": "Scheduled", "reason": "tasks in gang are ready to be scheduled", "message": ""}


def objects(status: dict[str, Any]) -> dict[Identity, Owned]:
    body = next(Volcano().compile(kthena()).objects())
    metadata = {**body["metadata"], "uid": "uid-1", "creationTimestamp": "2026-11-22T04:59:59Z"}
    owned = msgspec.convert({**body, "metadata": metadata, "status": status}, Owned)
    return {(TYPE, "llama-0"): owned}


def admitted(status: dict[str, Any]) -> core.Condition:
    report = Volcano().read_back("llama", 0, objects(status))
    assert report is not None
    assert (report.uid, report.created) == ("uid-1", "2026-11-22T04:59:59Z")
    assert report.admitted is not None
    return report.admitted


@pytest.mark.parametrize("phase", ["Running", "Completed"])
def test_conditions_that_ceased_to_hold_are_not_told(phase: str) -> None:
    """Volcano only ever adds them."""
    assert admitted({"phase": phase, "conditions": [UNSCHEDULABLE, SCHEDULED], "running": 6}).status == "True"


def test_what_volcano_adds_is_no_drift() -> None:
    """Its scheduler writes the whole object, as Go writes it: the queue by default, every field, its annotation."""
    wanted = add_digest(next(Volcano().compile(kthena(topology={"required": "block"})).objects()))
    stored = msgspec.json.decode(msgspec.json.encode(wanted))
    stored["metadata"]["annotations"]["volcano.sh/job-allocated-hypernode"] = "b0"
    stored["metadata"]["managedFields"] = [
        {"manager": "covey-operator", "operation": "Update"},
        {"manager": "vc-scheduler", "operation": "Update"},
    ]
    stored["spec"]["queue"] = "default"
    stored["status"] = {"phase": "Running", "running": 6, "conditions": [UNSCHEDULABLE, SCHEDULED]}
    found = msgspec.convert(stored, Owned)
    assert not has_drifted(wanted, found)
    assert not Volcano().is_fixed(found, wanted)
    stored["spec"]["minMember"] = 1
    assert has_drifted(wanted, msgspec.convert(stored, Owned))
