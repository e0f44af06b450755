from __future__ import annotations

from typing import Any

import msgspec
import pydantic
import pytest
from pydantic import ValidationError

from builders.manifests import Object, changed, composite, inference, pod_group, topology, workload
from cluster.test_api_rules import BAD_INFERENCES, GOOD
from covey.api import core
from covey.api.annotations import read_json
from covey.api.crds import KINDS
from covey.api.groups import CompositePodGroup, PodGroup
from covey.api.inference import BackendName, DisaggregatedInference, DisaggregatedInferenceSpec
from covey.api.model import ROLLED, Model, class_of, values_of
from covey.api.roles import RestartPolicy
from covey.api.rules import broken_rules
from covey.api.structs import model_of_struct
from covey.api.workload import Workload


def read(**edits: object) -> DisaggregatedInference:
    paths = {path.replace("__", "."): value for path, value in edits.items()}
    return DisaggregatedInference.model_validate(changed(inference(), paths))


def test_defaults() -> None:
    spec = read().spec
    assert (spec.suspend, spec.replicas, spec.backend) == (False, 1, BackendName.AUTO)
    assert spec.gang.timeout_seconds == 300
    assert spec.compat.lws
    role = spec.roles[2]
    assert (role.replicas, role.min_replicas, role.size, role.topology.follow_unit) == (1, 1, 1, True)


@pytest.mark.parametrize(
    ("kind", "manifest"),
    [
        (DisaggregatedInference, inference()),
        (model_of_struct(core.ClusterTopology), topology()),
        (model_of_struct(CompositePodGroup), composite()),
        (model_of_struct(PodGroup), pod_group()),
        (model_of_struct(Workload), workload()),
    ],
)
def test_what_is_written_reads_back_the_same(kind: type[Model], manifest: dict[str, object]) -> None:
    once = kind.model_validate(manifest)
    assert kind.model_validate(once.as_object()) == once


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.replicas", 1000),
        ("spec.roles", []),
        ("spec.roles.0.name", "Upper"),
        ("spec.roles.0.size", 0),
        ("spec.backend", "Slurm"),
        ("spec.gang.timeoutSeconds", 3601),
        ("spec.spread", {"level": "block", "maxPerDomain": 0}),
        ("spec.roles.0.update", {"maxSurge": "lots"}),
    ],
)
def test_bounds_hold_without_an_api_server_too(path: str, value: object) -> None:
    with pytest.raises(pydantic.ValidationError):
        DisaggregatedInference.model_validate(changed(inference(), {path: value}))


def test_a_level_that_a_node_lacks_is_null_in_a_path() -> None:
    status = {"placement": [{"level": "rack", "path": ["zone-1", None, "rack-1"]}]}
    written = composite() | {"status": status}
    group = model_of_struct(CompositePodGroup).model_validate(written)
    assert group.as_object()["status"]["placement"][0]["path"] == ["zone-1", None, "rack-1"]
    read = msgspec.convert(written, core.Group).status.placement
    assert read == (core.GroupPlacement("rack", ("zone-1", None, "rack-1")),)


def test_backend_and_scheduler_in_force() -> None:
    assert read().spec.effective_backend is BackendName.EXTENDER
    assert read().spec.effective_scheduler_name == "covey-scheduler"
    assert read(spec__backend="Volcano").spec.effective_scheduler_name == "volcano"
    assert read(spec__backend="Kubernetes").spec.effective_scheduler_name == "default-scheduler"
    assert read(spec__schedulerName="mine").spec.effective_scheduler_name == "mine"


def test_the_restart_policy_in_force_follows_the_size() -> None:
    several, single = read().spec.roles[0], read().spec.roles[2]
    assert several.restart_policy is RestartPolicy.RECREATE_REPLICA
    assert single.restart_policy is RestartPolicy.NONE
    assert read(spec__roles__0__restart__policy="None").spec.roles[0].restart_policy is RestartPolicy.NONE


def test_rolled_values_are_those_that_a_revision_is_made_of() -> None:
    spec = read(spec__roles__0__replicas=9).spec
    assert dict(values_of(spec.roles[0], ROLLED)) == {
        "size": 2,
        "template": inference()["spec"]["roles"][0]["template"],
    }
    assert dict(values_of(spec.compat, ROLLED)) == {"lws": True}


def classless(model: type[Model], path: str) -> list[str]:
    """Scalars of a spec that say nothing about what a change does."""
    found = []
    for name, field in model.model_fields.items():
        nested = [each for each in nested_models(field.annotation) if each is not model]
        for each in nested:
            found += classless(each, f"{path}.{name}")
        if not nested and class_of(field) is None:
            found.append(f"{path}.{name}")
    return found


def nested_models(annotation: object) -> list[type[Model]]:
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, Model) else []
    return [model for part in getattr(annotation, "__args__", ()) for model in nested_models(part)]


@pytest.mark.parametrize("kind", [kind.model for kind in KINDS if kind.model.__name__ != "RoleScaler"])
def test_every_field_of_a_spec_says_what_a_change_does(kind: type[Model]) -> None:
    (spec,) = nested_models(kind.model_fields["spec"].annotation)
    assert classless(spec, "spec") == []


#: Those of the name, which no spec has.
_BAD = [edits for edits, path, _ in BAD_INFERENCES if path.startswith("spec")]
_GOOD = [edits for manifest, edits in GOOD if manifest["kind"] == "DisaggregatedInference"]


def is_refused(edits: dict[str, Any]) -> bool:
    made: Object = changed(inference(), edits)
    try:
        spec = DisaggregatedInferenceSpec.model_validate(made["spec"])
    except ValidationError:
        return True
    return bool(list(broken_rules(spec)))


@pytest.mark.parametrize("edits", _BAD, ids=lambda edits: next(iter(edits)))
def test_what_the_api_server_refuses_is_refused(edits: dict[str, Any]) -> None:
    assert is_refused(edits)


@pytest.mark.parametrize("edits", _GOOD, ids=lambda edits: next(iter(edits), "as it is"))
def test_what_the_api_server_takes_is_taken(edits: dict[str, Any]) -> None:
    assert not is_refused(edits)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, None),
        ("", None),
        ("{", None),
        ("[" * 100_000, None),
        ("9" * 10_000, None),
        ('{"a": [1]}', {"a": [1]}),
        ("0", 0),
    ],
    ids=["none", "empty", "no JSON", "too deep", "too long a number", "an object", "a number"],
)
def test_what_cannot_be_read_is_nothing(text: str | None, value: object) -> None:
    assert read_json(text) == value


@pytest.mark.parametrize(
    "text", [None, "", "soon", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00", "٢٠٢٦-01-01T00:00:00Z", "9" * 5000]
)
def test_what_is_no_time_is_none(text: str | None) -> None:
    found = core.seconds(text)
    assert found is None or core.rfc3339(found) == "1000-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1_767_225_600.9, "2026-01-01T00:00:00Z"),
        (-1e12, "1000-01-01T00:00:00Z"),
        (1e15, "9999-12-31T23:59:59Z"),
        (float("inf"), "9999-12-31T23:59:59Z"),
    ],
)
def test_every_time_can_be_written(seconds: float, text: str) -> None:
    assert core.rfc3339(seconds) == text


def test_what_is_written_is_read() -> None:
    assert core.seconds(core.rfc3339(1_767_225_600.0)) == 1_767_225_600.0
    assert core.seconds("2026-01-01T01:00:00+01:00") == 1_767_225_600.0


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (core.TopologyConstraint, {"level": "rack", "mode": "Wanted", "scope": "Container"}),
        (core.SpreadConstraint, {"level": "Rack!", "maxPerDomain": -1}),
        (core.Victim, {"kind": "Node", "namespace": "ml", "name": "llama", "unit": -1}),
        (core.Claim, {"path": [], "since": "", "purpose": "Repair", "nodes": ["n"] * 5000}),
        (core.GroupHeadroom, {"asked": ""}),
        (core.QueueFlavor, {}),
        (core.QueueResource, {"name": "", "nominal": "much"}),
        (core.ElasticTaint, {"key": "k", "effect": "NoWork"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_struct_when_another_release_wrote_something_else_is_read_and_not_written(
    kind: type[core.Read], written: dict[str, Any]
) -> None:
    msgspec.convert(written | {"fieldOfAnother": {"release": True}}, kind)
    with pytest.raises(ValidationError):
        model_of_struct(kind).model_validate(written)


@pytest.mark.parametrize("kind", [core.Group, core.Queue, core.ClusterTopology])
def test_a_struct_when_a_bookmark_has_metadata_alone_is_read(kind: type[core.Read]) -> None:
    msgspec.convert({"metadata": {"resourceVersion": "7"}}, kind)
