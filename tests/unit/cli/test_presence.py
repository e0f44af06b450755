"""Where nobody looks after a resource the command line says who should, and where to look."""

from __future__ import annotations

import json
from typing import Any

import pytest

from builders.files import inference, role
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.watching.presence import Lease, LeaseSpec, find_absences, find_leader

CREATED = "2026-05-01T12:00:00Z"
NOW = (core.seconds(CREATED) or 0.0) + 40.0


def lease(name: str = "covey-operator", *, ago: float = 2.0, holder: str = "pod-1", **told: Any) -> Lease:
    leader = {"holder": holder, "version": "1.2.3", "namespaces": [], **told}
    meta = core.Meta(name=name, namespace="covey-system", annotations={"covey.dev/leader": json.dumps(leader)})
    return Lease(meta, LeaseSpec(holder, 15, core.rfc3339(NOW - ago)))


BOTH = (lease(), lease("covey-planner"))


def resource(status: dict[str, Any] | None = None, generation: int = 1) -> DisaggregatedInference:
    body = inference("llm", role("w"), namespace="serving")
    body["metadata"] |= {"creationTimestamp": CREATED, "generation": generation, "uid": "u"}
    return DisaggregatedInference.model_validate(body | ({"status": status} if status else {}))


def seen(generation: int = 1, reason: str = "Infeasible") -> dict[str, Any]:
    ready = {"type": "Ready", "status": "False", "reason": reason, "message": "", "lastTransitionTime": CREATED}
    units = [{"unit": 0, "phase": "Pending", "reason": reason}]
    return {"observedGeneration": generation, "conditions": [ready], "unitStatuses": units}


UNSEEN = {"observedGeneration": -1}


def told(found: DisaggregatedInference, *leases: Lease) -> str:
    return " ".join(f"{each.meaning} {each.remedy}" for each in find_absences(found, leases, NOW))


def test_resource_that_is_looked_after_has_nothing_said() -> None:
    assert told(resource(seen()), *BOTH) == ""


def test_resource_that_was_just_made_has_nothing_said() -> None:
    assert list(find_absences(resource(UNSEEN), BOTH, NOW - 35)) == []


@pytest.mark.parametrize(
    ("leases", "words"),
    [
        ((), ("No operator has looked at it for 40 s: there is no lease covey-operator", "Install Covey")),
        (
            (lease(ago=300),),
            (
                "No operator has looked at it for 40 s: lease covey-system/covey-operator of pod-1 was renewed 300 s ago",
                "kubectl get deployment,pods -n covey-system",
            ),
        ),
        ((lease(holder=""),), ("lease covey-system/covey-operator is held by nobody",)),
        (
            (lease(namespaces=["team-a", "team-b"]),),
            ("watches namespaces team-a, team-b, and not serving", "watchNamespaces of the chart"),
        ),
        (
            (lease(),),
            ("No operator has looked at it for 40 s", "kubectl logs -n covey-system deployment/covey-operator"),
        ),
    ],
    ids=["none", "stale", "released", "elsewhere", "stuck"],
)
def test_resource_that_no_operator_has_seen_says_who_should(leases: tuple[Lease, ...], words: tuple[str, ...]) -> None:
    said = told(resource(UNSEEN), *leases)
    assert [word for word in words if word not in said] == []


def test_resource_of_an_operator_that_is_gone_says_so_whatever_its_status() -> None:
    assert told(resource(seen()), lease(ago=60), BOTH[1]).startswith(
        "No operator leads: lease covey-system/covey-operator"
    )


def test_spec_that_no_operator_has_seen_is_not_said_to_be_new() -> None:
    said = told(resource(seen(1), generation=2), *BOTH)
    assert said.startswith("No operator has looked at it, though the operator of lease covey-system/covey-operator")


def test_resource_where_leases_may_not_be_read_says_whom_to_ask() -> None:
    (advice,) = find_absences(resource(UNSEEN), None, NOW)
    assert advice.meaning == "No operator has looked at it yet."
    assert "Ask who runs the cluster" in advice.remedy
    assert list(find_absences(resource(seen()), None, NOW)) == []


def test_unit_that_waits_without_a_scheduler_process_says_so() -> None:
    said = told(resource(seen(reason="Waiting")), lease(), lease("covey-planner", ago=90))
    assert said.startswith("No scheduler process has decided on it: lease covey-system/covey-planner of pod-1")
    assert told(resource(seen()), lease(), lease("covey-planner", ago=90)) == ""


def test_version_of_a_leader_is_its_own_alone() -> None:
    """An older release renews the lease and leaves what a newer one has written there."""
    leader = find_leader([lease()], "covey-operator", NOW)
    assert leader is not None
    assert (leader.version, leader.is_expired) == ("1.2.3", False)
    stale = lease()
    taken = Lease(stale.metadata, LeaseSpec("pod-2", 15, stale.spec.renew_time))
    found = find_leader([taken], "covey-operator", NOW)
    assert found is not None
    assert found.version == ""
