from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field

from builders.manifests import changed, inference
from covey.api.crds import KINDS, CustomResource, definition, render
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.api.model import IMMUTABLE, LIVE, CelRule, Model
from covey.api.schema import immutability, structural
from covey.api.unsupported import unsupported_fields

ROOT = Path(__file__).parents[3]
#: What takes a second.
rendered = cache(render)
KIND_NAMES = [kind.model.__name__ for kind in KINDS]

#: All that a structural schema of ours is made of.
KEYWORDS = {
    "description",
    "type",
    "format",
    "enum",
    "default",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "nullable",
    "anyOf",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}

Schema = dict[str, Any]


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every node of a schema with its path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


@cache
def schemas() -> dict[str, Schema]:
    return {kind.plural: definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}


def schema_of(kind: CustomResource) -> Schema:
    return schemas()[kind.plural]


@pytest.mark.parametrize("folder", ["crds", "helm/covey/files/crds"])
def test_committed_crds_are_those_of_the_models(folder: str) -> None:
    """The chart has a copy; each is a real directory, for kubectl enters no link and Helm warns of one."""
    directories = [each for each in (ROOT / folder, *(ROOT / folder).parents) if each.is_relative_to(ROOT)]
    assert not any(each.is_symlink() for each in directories)
    committed = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / folder).iterdir()}
    assert committed == rendered()


@pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES)
def test_schemas_are_structural(kind: CustomResource) -> None:
    for path, node in nodes(schema_of(kind)):
        assert set(node) <= KEYWORDS, path
        if "x-kubernetes-int-or-string" in node:
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
            assert "type" not in node, path
        else:
            assert isinstance(node["type"], str), path
            assert "anyOf" not in node, path


@pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES)
def test_every_list_and_string_is_bounded(kind: CustomResource) -> None:
    for path, node in nodes(schema_of(kind)):
        if path.split(".")[0] in {"apiVersion", "kind", "metadata"}:
            continue
        if node.get("type") == "array":
            assert "maxItems" in node, path
            assert "x-kubernetes-list-type" in node, path
        if node.get("type") == "string":
            assert "maxLength" in node or "enum" in node, path


@pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES)
def test_every_field_is_described(kind: CustomResource) -> None:
    for path, node in nodes(schema_of(kind)):
        if path and path != "metadata" and not path.startswith("metadata.") and not path.endswith("]"):
            assert node.get("description", "").endswith("."), path


@pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES)
def test_parts_of_a_status_are_values_of_one_owner_each(kind: CustomResource) -> None:
    for path, node in nodes(schema_of(kind).get("properties", {}).get("status", {})):
        is_part = "properties" in node and path.removesuffix("[]").isalpha()
        assert (node.get("x-kubernetes-map-type") == "atomic") == is_part, path


@pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES)
def test_a_status_has_no_defaults(kind: CustomResource) -> None:
    """But for the one by which kstatus knows that nobody has looked yet."""
    for path, node in nodes(schema_of(kind)):
        if path == "status" and kind.unseen is not None:
            assert node["default"] == {"observedGeneration": -1}
            continue
        assert not (path.startswith("status") and "default" in node), path


def test_defaults_of_an_inference_are_those_of_the_reference() -> None:
    (kind,) = [kind for kind in KINDS if kind.model.__name__ == "DisaggregatedInference"]
    found = {path: node["default"] for path, node in nodes(schema_of(kind)) if "default" in node}
    assert found == {
        "spec.suspend": False,
        "spec.interconnect.type": "ComputeDomain",
        "spec.interconnect.scope": "Unit",
        "spec.interconnect.exclusive": False,
        "spec.replicas": 1,
        "spec.backend": "Auto",
        "spec.proximity[].mode": "Preferred",
        "spec.spread.mode": "Preferred",
        "spec.spread.maxPerDomain": 1,
        "spec.gang": {},
        "spec.gang.timeoutSeconds": 300,
        "spec.roles[].replicas": 1,
        "spec.roles[].size": 1,
        "spec.roles[].topology": {},
        "spec.roles[].topology.followUnit": True,
        "spec.roles[].network.ports[].protocol": "TCP",
        "spec.roles[].network.service.endpoints": "Leaders",
        "spec.compat": {},
        "spec.compat.lws": True,
        "status": {"observedGeneration": -1},
    }


def test_nothing_that_is_not_built_yet_has_a_stored_default() -> None:
    (kind,) = [kind for kind in KINDS if kind.model.__name__ == "DisaggregatedInference"]
    for path, node in nodes(schema_of(kind)):
        if "Not supported yet." in node.get("description", ""):
            assert all("default" not in below for _, below in nodes(node)), path


def test_null_has_a_meaning_in_paths_only() -> None:
    found = {path for kind in KINDS for path, node in nodes(schema_of(kind)) if node.get("nullable")}
    assert {path for path in found if "path[]" in path} == {
        "status.unitStatuses[].path[]",
        "status.placement[].path[]",
        "status.claim.path[]",
    }
    assert all(path.endswith(("path[]", "metadata.creationTimestamp")) for path in found)


class Inner(Model):
    """Inner."""

    fixed: Annotated[str | None, IMMUTABLE] = None
    """Fixed."""
    certain: Annotated[int, IMMUTABLE]
    """Certain."""


class Spec(Model):
    """Spec."""

    RULES: ClassVar = (CelRule("self.count > 0", "count is 0: raise it", at=".count"),)

    fixed: Annotated[str, IMMUTABLE]
    """Fixed."""
    inner: Inner | None = None
    """Inner."""
    count: Annotated[int, LIVE, Field(ge=0)] = 1
    """How many."""
    names: Annotated[dict[str, str] | None, LIVE] = None
    """Has no structural form here."""


def test_immutable_fields_are_guarded_from_the_outermost_object_that_is_always_there() -> None:
    rules = {rule.at: rule.cel for rule in immutability(Spec)}
    assert rules == {
        ".fixed": "self.fixed == oldSelf.fixed",
        ".inner.fixed": (
            "(has(self.inner) && has(self.inner.fixed)) ? (has(oldSelf.inner) && has(oldSelf.inner.fixed)) && "
            "self.inner.fixed == oldSelf.inner.fixed : !(has(oldSelf.inner) && has(oldSelf.inner.fixed))"
        ),
        ".inner.certain": (
            "(has(self.inner)) ? (has(oldSelf.inner)) && self.inner.certain == oldSelf.inner.certain : "
            "!(has(oldSelf.inner))"
        ),
    }


def test_what_has_no_structural_form_is_an_error() -> None:
    class Whole(Model):
        """Whole."""

        spec: Spec
        """Spec."""

    with pytest.raises(TypeError, match="no structural form for \\['additionalProperties'\\]"):
        structural(Whole)


def spec_with(path: str, value: Any) -> DisaggregatedInferenceSpec:
    return DisaggregatedInference.model_validate(changed(inference(), {path: value})).spec


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.backend", "Extender"),
        ("spec.backend", "Volcano"),
        ("spec.schedulerName", "my-scheduler"),
        ("spec.priorityClassName", "high"),
        ("spec.topology", {"required": "block", "preferred": "rack"}),
        ("spec.proximity", [{"roles": ["prefill", "decode"], "level": "rack"}]),
        ("spec.spread", {"level": "block"}),
        ("spec.gang.timeoutSeconds", 60),
        ("spec.gang.terminationDelaySeconds", 60),
        ("spec.disruption.holdSeconds", 0),
        ("spec.roles.0.topology", {"preferred": "rack", "followUnit": False}),
        ("spec.roles.0.startup", "Parallel"),
        ("spec.roles.0.startup", "LeaderReady"),
        ("spec.roles.0.dependsOn", [{"role": "decode", "condition": "Ready"}]),
        ("spec.roles.0.restart", {}),
        ("spec.roles.0.restart.policy", "RecreateReplica"),
        ("spec.roles.2.restart.policy", "None"),
        ("spec.roles.2.restart.policy", "RecreateReplica"),
        ("spec.roles.0.restart.policy", "RecreateReplicaAfterStart"),
        ("spec.roles.0.restart.policy", "RecreateUnit"),
        ("spec.roles.0.restart.backoff", {"baseSeconds": 10, "maxSeconds": 100}),
        ("spec.roles.0.restart.maxRestarts", 3),
        ("spec.roles.0.startDeadlineSeconds", 3600),
        ("spec.roles.0.update.inPlace", "IfPossible"),
        ("spec.roles.0.scaling", {"mode": "Static"}),
        ("spec.roles.0.scaling", {"mode": "External", "min": 1, "max": 7}),
        ("spec.roles.0.network", {"subdomain": "Shared", "ports": [{"name": "http", "port": 8000}]}),
        ("spec.roles.0.network", {"subdomain": "UniquePerReplica"}),
        ("spec.roles.0.network", {"service": {"endpoints": "All"}, "ports": [{"name": "http", "port": 8000}]}),
        ("spec.compat.lws", False),
        ("spec.compat.lwsLabels", "Always"),
    ],
)
def test_what_is_honoured_or_happens_anyway_is_not_refused(path: str, value: Any) -> None:
    assert unsupported_fields(spec_with(path, value)) == []


@pytest.mark.parametrize("backend", ["Auto", "Extender", "Volcano"])
def test_a_queue_is_honoured_where_there_are_queues(backend: str) -> None:
    edits = {"spec.queue": "gpus", "spec.backend": backend}
    assert unsupported_fields(DisaggregatedInference.model_validate(changed(inference(), edits)).spec) == []
