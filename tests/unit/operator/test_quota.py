"""ResourceQuotas: what a pod is charged, which quotas count it, and what fits before the first pod is created."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.operator.model.observed import Observed
from covey.operator.plan import Plan, plan
from covey.operator.process.features import FEATURES
from covey.operator.resource_quota.balance import Balance
from covey.operator.resource_quota.charge import PodCharge, charge_of
from covey.operator.resource_quota.scopes import counts
from covey.operator.status.status import compute
from covey.operator.status.units import describe_units
from unit.operator.world import World

GPU = "nvidia.com/gpu"


def quota(
    hard: dict[str, Any], used: dict[str, Any] | None = None, name: str = "gpus", **spec: Any
) -> core.ResourceQuota:
    used = {**dict.fromkeys(hard, "0"), **(used or {})}
    body = {
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }
    return msgspec.convert(body, core.ResourceQuota)


def container_of(limits: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    found = {"requests": requests, "limits": limits or {}}
    return {"name": "engine", "resources": {key: value for key, value in found.items() if value}}


def amounts(body: dict[str, Any], *ranges: core.LimitRange) -> dict[str, Fraction]:
    return {name: value for name, value in charge_of(body, ranges).amounts if name not in {"pods", "count/pods"}}


# What is charged


def test_a_pod_is_charged_as_kubernetes_does() -> None:
    body = template(
        container_of({GPU: "8", "memory": "2Gi"}, cpu="500m", memory="1Gi"),
        container_of(cpu="1", **{"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi"}),
        initContainers=[
            {**container_of(cpu="250m"), "restartPolicy": "Always"},
            container_of({"memory": "4Gi"}, cpu="2"),
        ],
        overhead={"cpu": "100m", "memory": "1Mi"},
    )
    gi, mi = 1024**3, 1024**2
    assert amounts(body) == {
        # The second init container beside the sidecar, and the overhead.
        "cpu": Fraction(235, 100),
        "requests.cpu": Fraction(235, 100),
        "memory": 4 * gi + mi,
        "requests.memory": 4 * gi + mi,
        "limits.memory": 4 * gi + mi,
        "ephemeral-storage": gi,
        "requests.ephemeral-storage": gi,
        "hugepages-2Mi": 4 * mi,
        "requests.hugepages-2Mi": 4 * mi,
        f"requests.{GPU}": 8,
    }


def test_defaults_of_a_limit_range_are_charged() -> None:
    item = {
        "type": "Container",
        "default": {"cpu": "2", "memory": "2Gi"},
        "defaultRequest": {"cpu": "1", "memory": "1Gi"},
    }
    found = msgspec.convert({"metadata": {"name": "defaults"}, "spec": {"limits": [item]}}, core.LimitRange)
    charged = amounts(template(container_of({"memory": "512Mi"})), found)
    assert (charged["requests.cpu"], charged["limits.cpu"]) == (1, 2)
    assert charged["requests.memory"] == charged["limits.memory"] == 512 * 1024**2


requirements = st.dictionaries(st.sampled_from(["cpu", "memory", GPU]), st.integers(0, 4).map(str), max_size=3)
container = st.builds(lambda found: {"name": "c", "resources": {"requests": found}}, requirements)
starting = st.builds(
    lambda found, always: {**found, **({"restartPolicy": "Always"} if always else {})}, container, st.booleans()
)


@given(st.lists(container, min_size=1, max_size=3), st.lists(starting, max_size=4))
def test_a_pod_is_charged_the_most_that_it_holds_at_any_time(running: list[Any], first: list[Any]) -> None:
    """Played: init containers one after another, sidecars staying from then on, then all containers together."""
    charged = amounts(template(*running, initContainers=first))
    for resource in ("cpu", "memory", GPU):

        def of(found: dict[str, Any], resource: str = resource) -> int:
            return int(found["resources"]["requests"].get(resource, "0"))

        most = held = 0
        for each in first:
            most = max(most, held + of(each))
            held += of(each) if each.get("restartPolicy") else 0
        most = max(most, held + sum(map(of, running)))
        assert charged.get(f"requests.{resource}", 0) == most


# Which quotas count


def quota_of(*expressions: dict[str, Any], scopes: tuple[str, ...] = ()) -> core.ResourceQuota:
    return quota({"pods": "1"}, scopes=scopes, scopeSelector={"matchExpressions": list(expressions)})


IN = {"scopeName": "PriorityClass", "operator": "In", "values": ["high", "higher"]}
NOT_IN = {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}
ACROSS = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"namespaceSelector": {}}}]
    }
}


@pytest.mark.parametrize(
    ("found", "spec", "expected"),
    [
        (quota_of(), {}, True),
        (quota_of(scopes=("Terminating",)), {"activeDeadlineSeconds": 0}, True),
        (quota_of(scopes=("Terminating",)), {}, False),
        (quota_of(scopes=("NotTerminating",)), {}, True),
        (quota_of(scopes=("NotTerminating",)), {"activeDeadlineSeconds": 9}, False),
        (quota_of(scopes=("BestEffort",)), {}, True),
        (quota_of(scopes=("BestEffort",)), {"containers": [container_of(cpu="1")]}, False),
        # Only cpu and memory make the class of service.
        (quota_of(scopes=("BestEffort",)), {"containers": [container_of({GPU: "8"})]}, True),
        (quota_of(scopes=("NotBestEffort",)), {"initContainers": [container_of({"memory": "1"})]}, True),
        (quota_of(scopes=("NotBestEffort", "Terminating")), {"containers": [container_of(cpu="1")]}, False),
        (quota_of(scopes=("PriorityClass",)), {"priorityClassName": "low"}, True),
        (quota_of(scopes=("PriorityClass",)), {}, False),
        (quota_of(IN), {"priorityClassName": "high"}, True),
        (quota_of(IN), {"priorityClassName": "low"}, False),
        (quota_of(IN), {}, False),
        (quota_of(NOT_IN), {"priorityClassName": "low"}, True),
        (quota_of(NOT_IN), {"priorityClassName": "high"}, False),
        # As a label selector has it: what is not there is in no list.
        (quota_of(NOT_IN), {}, True),
        (quota_of({"scopeName": "PriorityClass", "operator": "DoesNotExist"}), {}, True),
        (quota_of({"scopeName": "PriorityClass", "operator": "DoesNotExist"}), {"priorityClassName": "low"}, False),
        (quota_of(IN, NOT_IN), {"priorityClassName": "higher"}, True),
        (quota_of({"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}), {}, False),
        (quota_of({"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}), {"affinity": ACROSS}, True),
        (quota_of(scopes=("VolumeAttributesClass",)), {}, False),
    ],
)
def test_scopes(found: core.ResourceQuota, spec: dict[str, Any], *, expected: bool) -> None:
    assert counts(found, charge_of(template(**spec) if "containers" not in spec else {"spec": spec})) is expected


def test_a_quota_that_is_not_counted_yet_has_no_room() -> None:
    new = msgspec.structs.replace(quota({"pods": "9"}), status=core.ResourceQuotaStatus())
    assert [each.left for each in Balance([new]).shortages({charge_of(template()): 1})] == [None]


charge_strategy = st.builds(
    PodCharge,
    st.dictionaries(st.sampled_from(["pods", "cpu"]), st.integers(1, 4).map(Fraction)).map(lambda d: tuple(d.items())),
)


@given(st.lists(st.tuples(charge_strategy, st.integers(1, 3)), max_size=6), st.integers(0, 12), st.integers(0, 12))
def test_what_is_taken_never_exceeds_a_quota(demands: list[tuple[PodCharge, int]], pods: int, cpu: int) -> None:
    balance = Balance([quota({"pods": str(pods)}, name="a"), quota({"cpu": str(cpu)}, name="b")])
    taken = {"pods": Fraction(0), "cpu": Fraction(0)}
    for charge, number in demands:
        if not balance.shortages({charge: number}):
            balance.take({charge: number})
            for name, value in charge.amounts:
                taken[name] += value * number
    assert taken["pods"] <= pods
    assert taken["cpu"] <= cpu


# What fits


def engine(gpus: int, **fields: Any) -> dict[str, Any]:
    limits = {GPU: str(gpus)}
    return {
        "template": {"spec": {"containers": [{"name": "engine", "image": "e:1", "resources": {"limits": limits}}]}},
        **fields,
    }


def plan_with(world: World, *quotas: core.ResourceQuota, **more: Any) -> Plan:
    observed: Observed = dataclasses.replace(world.observe(), quotas=quotas, **more)
    return plan(world.judge(), observed, world.status, features=FEATURES)


def list_created(found: Plan) -> list[str]:
    return sorted(f"{i.slot.unit}-{i.slot.role}-{i.slot.replica}" for i in found.actions.create)


def lose(world: World, host: str) -> None:
    world.vanish(next(name for name, pod in world.pods.items() if pod.spec.hostname == host))


def gpus(hard: int, used: int = 0) -> core.ResourceQuota:
    return quota({f"requests.{GPU}": str(hard)}, {f"requests.{GPU}": str(used)})


PAIR = (role("prefill", **engine(8)), role("decode", **engine(8)))


def test_half_a_minimum_is_given_back() -> None:
    """As two gangs leave it that took a quota by halves, or a creation that was cut off."""
    world = World.settled(inference(*PAIR))
    lose(world, "0-decode-0-0")
    found = plan_with(world, gpus(12, 8))
    assert not found.actions.create
    assert [item.pod.spec.hostname for item in found.actions.delete_pods] == ["0-prefill-0-0"]


def test_pod_is_not_given_back_when_it_is_pinned_and_not_bound_yet() -> None:
    world = World.settled(inference(*PAIR))
    lose(world, "0-decode-0-0")
    (name,) = world.pods
    world.pin(name)
    assert not plan_with(world, gpus(12, 8)).actions.delete_pods


def test_a_lost_replica_comes_before_a_surge() -> None:
    """Else a rollout takes what is lost, pod by pod."""
    roles = [
        role("prefill", replicas=2, minReplicas=1, **engine(2)),
        role("decode", replicas=2, minReplicas=1, **engine(8)),
    ]
    world = World.serving(inference(*roles))
    roles[0]["template"]["spec"]["containers"][0]["image"] = "e:2"
    world.inference = inference(*roles)
    lose(world, "0-decode-1-0")
    found = plan_with(world, gpus(16, 12))
    assert not list_created(found)


def test_a_surge_that_does_not_fit_is_not_announced_again_and_again() -> None:
    roles = [role("prefill", replicas=2, minReplicas=1, **engine(8)), role("decode", **engine(8))]
    world = World.serving(inference(*roles))
    roles[0]["template"]["spec"]["containers"][0]["image"] = "e:2"
    world.inference = inference(*roles)
    found = plan_with(world, gpus(24, 24))
    assert not found.actions.create
    assert not [note for note in found.actions.notes if note.reason == "RollingOut"]
    tell(world, found)
    conditions = {each["type"]: each for each in world.status["conditions"]}
    assert conditions[names.QUOTA_LIMITED]["status"] == "True"
    assert conditions[names.PROGRESSING]["reason"] == "RollingOut"
    assert conditions[names.AVAILABLE]["status"] == "True"


def test_rollout_when_units_wait_for_one_quota_gives_up_no_more_than_places_successors() -> None:
    """What goes of one of them is free for all, and the quota has not seen it go for a while."""
    roles = [role("decode", replicas=4, minReplicas=1, **engine(1))]
    world = World.serving(inference(*roles, replicas=2))
    roles[0]["template"]["spec"]["containers"][0]["image"] = "e:2"
    world.inference = inference(*roles, replicas=2)
    # Two of six are free then, one for each of them.
    for gone in (4, 0):
        found = plan_with(world, gpus(6, 8))
        assert len(found.actions.delete_pods) == gone
        for step in world.steps(found.actions):
            step()
        tell(world, found)
    assert len(list_created(plan_with(world, gpus(6, 4)))) == 2


def tell(world: World, found: Plan) -> None:
    """Let the status be what the next plan remembers."""
    verdict, observed = world.judge(), world.observe()
    units = tuple(describe_units(verdict.inference, verdict.backend, observed, found))
    world.status = compute(verdict, observed, found, units, world.status, rfc3339(world.now))


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 60))
def test_a_unit_has_its_whole_minimum_or_nothing(units: int, prefill: int, decode: int, hard: int) -> None:
    roles = (
        role("prefill", replicas=3, minReplicas=prefill, **engine(4)),
        role("decode", replicas=3, minReplicas=decode, **engine(1)),
    )
    found = plan_with(World(inference(*roles, replicas=units)), gpus(hard))
    each = [[i.slot.role for i in found.actions.create if i.slot.unit == unit] for unit in range(units)]
    for pods in each:
        assert not pods or (pods.count("prefill") >= prefill and pods.count("decode") >= decode)
    assert sum(4 * pods.count("prefill") + pods.count("decode") for pods in each) <= hard
    # And none that could have been there is missing.
    assert sum(map(bool, each)) == min(units, hard // (4 * prefill + decode))


def test_what_is_short_is_told() -> None:
    demand = {charge_of(template(container_of({GPU: "8"}, memory="1Gi"))): 2}
    balance = Balance([quota({f"requests.{GPU}": "24", "requests.memory": "1Gi"}, {f"requests.{GPU}": "16"})])
    assert list(map(str, balance.shortages(demand))) == [
        "quota ml/gpus: requests.memory 2Gi needed, 1Gi left",
        "quota ml/gpus: requests.nvidia.com/gpu 16 needed, 8 left",
    ]
