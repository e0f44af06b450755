"""The small pure parts: drift, refusals of the API server, topology, revisions that cannot be read."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.api.inference import BackendName
from covey.backends import Owned
from covey.compile import compile_inference
from covey.kube.errors import ApiError, BadRequest, Forbidden, Invalid
from covey.operator.model.accepted import Resolved
from covey.operator.model.problem import Problem, of_pod_refusal
from covey.operator.objects.drift import add_digest, has_drifted
from covey.operator.validation import KeptTopology, find_unsupported, resolve_topology
from covey.placement.cluster import presets


def stored(body: dict[str, Any]) -> dict[str, Any]:
    """An object as the API server gives it back: with what it and others have added."""
    found = copy.deepcopy(add_digest(body))
    found["metadata"] |= {"uid": "u", "resourceVersion": "7", "labels": {**found["metadata"]["labels"], "team": "x"}}
    found["spec"]["defaulted"] = {"by": "the server"}
    return found


@pytest.fixture
def group() -> dict[str, Any]:
    tree = compile_inference(inference(role("r", topology={"required": "rack"}), topology={"required": "block"}))
    return copy.deepcopy(tree.levels[3].objects[0])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "desiredCount"), 9),
        (("spec", "schedulingPolicy"), {"basic": {}}),
        (("spec", "schedulingConstraints", "topology"), []),
        (("spec", "workloadRef"), None),
        (("metadata", "labels", "covey.dev/role"), "else"),
        (("metadata", "annotations"), {}),
    ],
)
def test_drift(group: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    found = stored(group)
    *above, last = path
    node = found
    for step in above:
        node = node[step]
    node[last] = value
    assert has_drifted(add_digest(group), msgspec.convert(found, Owned))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            Invalid(422, "Invalid", 'Pod "x" is invalid: spec.containers'),
            Problem("TemplateRejected", "spec.containers"),
        ),
        (
            BadRequest(400, "BadRequest", 'Pod in version "v1" cannot be handled as a Pod: unknown field "spec.x"'),
            Problem("TemplateRejected", 'unknown field "spec.x"'),
        ),
        (
            Forbidden(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: few'),
            Problem("QuotaExceeded", "exceeded quota: few; raise the quota, or ask for less", retry=True),
        ),
        (
            Forbidden(403, "Forbidden", "no PriorityClass with name high was found"),
            Problem("TemplateRejected", "no PriorityClass with name high was found", retry=True),
        ),
        (
            BadRequest(400, "BadRequest", 'admission webhook "x.io" denied the request: no limits'),
            Problem("TemplateRejected", 'admission webhook "x.io" denied the request: no limits', retry=True),
        ),
        (
            Invalid(
                422,
                "Invalid",
                "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no limits",
            ),
            Problem(
                "TemplateRejected",
                "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no limits",
                retry=True,
            ),
        ),
    ],
)
def test_refusals_that_a_person_has_to_know_of(error: ApiError, said: Problem) -> None:
    assert of_pod_refusal(error) == said


@pytest.mark.parametrize(
    "error",
    [
        BadRequest(400, "BadRequest", 'admission webhook "x" does not support dry run'),
        Forbidden(403, "Forbidden", "namespace x because it is being terminated"),
        Forbidden(403, "Forbidden", 'User "covey" cannot create resource "pods"'),
        ApiError(500, "InternalError", 'failed calling webhook "x"'),
    ],
)
def test_answers_that_say_nothing_about_the_pod(error: ApiError) -> None:
    assert of_pod_refusal(error) is None


def topology(name: str, *levels: str, default: bool = False) -> core.ClusterTopology:
    annotations = {names.ANNOTATION_DEFAULT_TOPOLOGY: "true"} if default else None
    spec = core.ClusterTopologySpec(tuple(core.TopologyLevel(level, (f"x/{level}",)) for level in levels))
    return core.ClusterTopology(core.Meta(name=name, annotations=annotations), spec)


@pytest.mark.parametrize(
    ("spec", "topologies", "words"),
    [
        (
            {"topology": {"required": "hall"}},
            [topology("one", "rack")],
            "level hall is not in topology one: use one of rack",
        ),
        ({"topology": {"required": "hall"}}, [], "level hall is not in any topology that Covey can detect"),
        ({"topology": {"name": "none"}}, [topology("one", "rack")], "there is no ClusterTopology 'none'"),
        ({}, [topology("one", "rack"), topology("two", "rack")], "none marked default"),
        (
            {"topology": {"required": "rack", "preferred": "hall"}},
            [topology("one", "hall", "rack")],
            "spec.topology: preferred level hall is coarser than the required rack",
        ),
    ],
)
def test_wrong_levels(spec: dict[str, Any], topologies: list[core.ClusterTopology], words: str) -> None:
    _, _, problem = resolve_topology(inference(role("r"), **spec).spec, topologies)
    assert problem is not None
    assert problem.reason == names.REASON_INVALID_TOPOLOGY
    assert words in problem.message


def test_level_that_no_preset_has_is_refused_with_those_that_nodes_show() -> None:
    spec = inference(role("r"), topology={"required": "racks"}).spec
    labels = {"cloud.provider.com/topology-block": "b", "cloud.provider.com/topology-rack": "r"}
    shown = presets.detect([core.Node(core.Meta(name="n", labels=labels))])
    _, _, problem = resolve_topology(spec, [], detected=shown)
    assert problem is not None
    words = "level racks is not in topology kueue, which the nodes' labels show: use one of zone, block, rack, host"
    assert problem.message == words


def resolved(name: str | None, *levels: str) -> Resolved:
    """What was recorded when a spec was accepted."""
    keys = {level: (f"x/{level}",) for level in levels}
    return Resolved(BackendName.EXTENDER, "covey-scheduler", name, keys if name else None)


def test_a_new_level_of_what_runs_then_is_judged_by_the_topology_that_it_keeps() -> None:
    spec = inference(role("r"), topology={"required": "hall"}).spec
    there = [topology("two", "hall", default=True)]
    _, _, problem = resolve_topology(spec, there, resolved(None), KeptTopology("kueue"))
    assert problem is not None
    assert "level hall is not in topology kueue (which its running units keep): use one of zone" in problem.message
    assert resolve_topology(spec, there) == ("two", {"hall": ("x/hall",)}, None)


def spread_over(key: str, **more: Any) -> dict[str, Any]:
    """A role whose pods are to be spread."""
    spread = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **more}
    return role("router", template={"spec": {"containers": [{"name": "c"}], "topologySpreadConstraints": [spread]}})


OWN = {"labelSelector": {"matchLabels": {"app": "router"}}}


def router_with_labels(labels: dict[str, str], **more: Any) -> dict[str, Any]:
    made = spread_over("x/rack", **more)
    made["template"]["metadata"] = {"labels": labels}
    return made


def test_a_required_spread_of_pods_when_it_selects_the_role_alone_then_is_accepted() -> None:
    routers = router_with_labels({"app": "router"}, **OWN)
    assert find_unsupported(inference(routers, role("decode")).spec) is None
    by_role = router_with_labels({}, labelSelector={"matchLabels": {"covey.dev/role": "router"}})
    assert find_unsupported(inference(by_role, role("decode")).spec) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made["template"]["metadata"].update(labels={"app": "other"}),
        lambda made: made.update(size=2),
        lambda made: made["template"]["spec"]["topologySpreadConstraints"].append(
            {**made["template"]["spec"]["topologySpreadConstraints"][0], "topologyKey": "x/zone"}
        ),
        lambda made: made["template"]["spec"]["topologySpreadConstraints"][0].update(minDomains=2),
        lambda made: made["template"]["spec"]["topologySpreadConstraints"][0].update(matchLabelKeys=["x"]),
        lambda made: made["template"]["spec"]["topologySpreadConstraints"][0].pop("labelSelector"),
    ],
    ids=["others", "several pods", "two keys", "minDomains", "matchLabelKeys", "no selector"],
)
def test_a_required_spread_of_pods_when_it_asks_for_more_then_is_refused_by_name(
    change: Callable[[dict[str, Any]], None],
) -> None:
    routers = router_with_labels({"app": "router"}, **OWN)
    change(routers)
    problem = find_unsupported(inference(routers).spec)
    assert problem is not None
    assert "spec.roles[router].template: topologySpreadConstraints over x/" in problem.message


def test_a_required_spread_of_pods_when_another_role_has_its_labels_then_is_refused_by_name() -> None:
    routers = router_with_labels({"app": "llm"}, labelSelector={"matchLabels": {"app": "llm"}})
    decode = role("decode", template={"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": [{"name": "c"}]}})
    problem = find_unsupported(inference(routers, decode).spec)
    assert problem is not None
    assert "spec.roles[router].template" in problem.message


def test_a_required_spread_of_pods_when_it_was_accepted_before_then_is_no_refusal() -> None:
    before = inference(spread_over("x/rack")).spec
    edited = spread_over("x/rack") | {"replicas": 3}
    assert find_unsupported(inference(edited).spec, before) is None
    problem = find_unsupported(inference(spread_over("x/block")).spec, before)
    assert problem is not None
    assert "over x/block" in problem.message


def test_unsupported_fields_are_named() -> None:
    problem = find_unsupported(inference(role("r"), queue="q", backend="Kubernetes").spec)
    assert problem is not None
    assert "spec.queue" in problem.message
