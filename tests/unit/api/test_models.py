import pydantic
import pytest

from builders.manifests import changed, composite, inference, pod_group, topology, workload
from covey.api.groups import CompositePodGroup, PodGroup
from covey.api.inference import Backend, DisaggregatedInference
from covey.api.model import IMMUTABLE, LIVE, ROLLED, Mode, Model, class_of, values_of
from covey.api.roles import RestartPolicy, Role
from covey.api.topology import ClusterTopology
from covey.api.workload import Workload


def read(**edits: object) -> DisaggregatedInference:
    paths = {path.replace("__", "."): value for path, value in edits.items()}
    return DisaggregatedInference.model_validate(changed(inference(), paths))


def test_defaults() -> None:
    spec = read().spec
    assert (spec.suspend, spec.replicas, spec.backend) == (False, 1, Backend.AUTO)
    assert spec.gang.timeout_seconds == 300
    assert spec.compat.lws
    role = spec.roles[2]
    assert (role.replicas, role.min_replicas, role.size, role.topology.follow_unit) == (1, 1, 1, True)


def test_a_role_without_replicas_needs_no_minimum_written() -> None:
    assert read(spec__roles__2__replicas=0).spec.roles[2].min_replicas == 0
    assert read(spec__roles__2__replicas=3).spec.roles[2].min_replicas == 1
    with pytest.raises(pydantic.ValidationError, match="replicas"):
        read(spec__roles__2__replicas="many")


def test_camel_case_outside_snake_case_inside() -> None:
    assert read(spec__roles__0__minReplicas=2).spec.roles[0].min_replicas == 2
    assert Role(name="a", template={}, min_replicas=0).as_object()["minReplicas"] == 0


def test_unknown_fields_are_ignored_as_stored_objects_may_be_newer() -> None:
    assert read(spec__ofANewerRelease=1) == read()


@pytest.mark.parametrize(
    ("kind", "manifest"),
    [
        (DisaggregatedInference, inference()),
        (ClusterTopology, topology()),
        (CompositePodGroup, composite()),
        (PodGroup, pod_group()),
        (Workload, workload()),
    ],
)
def test_what_is_written_reads_back_the_same(kind: type[Model], manifest: dict[str, object]) -> None:
    once = kind.model_validate(manifest)
    assert kind.model_validate(once.as_object()) == once


def test_templates_are_kept_to_the_letter() -> None:
    spec = {"containers": [{"name": "a", "env": [{"name": "X", "value": ""}]}], "unknownToCovey": {"a": [1, "b"]}}
    role = read(spec__roles__0__template__spec=spec).spec.roles[0]
    assert role.as_object()["template"] == {"spec": spec}


def test_models_do_not_change() -> None:
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        read().spec.replicas = 2  # type: ignore[misc]


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
    group = CompositePodGroup.model_validate(composite() | {"status": status})
    assert group.status is not None
    assert group.status.placement[0].path == ("zone-1", None, "rack-1")
    assert group.as_object()["status"]["placement"][0]["path"] == ["zone-1", None, "rack-1"]


def test_backend_and_scheduler_in_force() -> None:
    assert read().spec.effective_backend is Backend.EXTENDER
    assert read().spec.effective_scheduler_name == "covey-scheduler"
    assert read(spec__backend="Volcano").spec.effective_scheduler_name == "volcano"
    assert read(spec__backend="Kubernetes").spec.effective_scheduler_name == "default-scheduler"
    assert read(spec__schedulerName="mine").spec.effective_scheduler_name == "mine"


def test_the_restart_policy_in_force_follows_the_size() -> None:
    several, single = read().spec.roles[0], read().spec.roles[2]
    assert several.restart_policy is RestartPolicy.RECREATE_REPLICA
    assert single.restart_policy is RestartPolicy.NONE
    assert read(spec__roles__0__restart__policy="None").spec.roles[0].restart_policy is RestartPolicy.NONE


def test_a_wish_without_a_mode_is_a_preference() -> None:
    spec = read(spec__spread={"level": "block"}, spec__proximity=[{"roles": ["prefill"], "level": "rack"}]).spec
    assert spec.spread is not None
    assert spec.spread.mode is Mode.PREFERRED
    assert spec.proximity[0].mode is Mode.PREFERRED


def test_classes_stand_with_the_fields() -> None:
    fields = Role.model_fields
    assert class_of(fields["replicas"]) is LIVE
    assert class_of(fields["size"]) is ROLLED
    assert class_of(fields["name"]) is IMMUTABLE
    assert class_of(fields["topology"]) is None


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


@pytest.mark.parametrize("kind", [DisaggregatedInference, CompositePodGroup, PodGroup, Workload, ClusterTopology])
def test_every_field_of_a_spec_says_what_a_change_does(kind: type[Model]) -> None:
    (spec,) = nested_models(kind.model_fields["spec"].annotation)
    assert classless(spec, "spec") == []
