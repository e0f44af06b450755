from collections.abc import Iterator
from typing import Any

import pytest

from api_manifests import changed, inference
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.api.model import Model, NotYet
from covey.api.support import unsupported

PREFILL = "spec.roles[prefill]"
#: An edit, and the one sentence that refuses it.
REFUSED: list[tuple[str, Any, str]] = [
    (
        "spec.roles.0.update.inPlace",
        "IfPossible",
        f"{PREFILL}.update.inPlace IfPossible is not supported yet: use Never or remove it",
    ),
]


def spec_with(path: str, value: Any) -> DisaggregatedInferenceSpec:
    return DisaggregatedInference.model_validate(changed(inference(), {path: value})).spec


@pytest.mark.parametrize(("path", "value", "sentence"), REFUSED)
def test_a_field_that_is_not_honoured_is_named(path: str, value: Any, sentence: str) -> None:
    assert unsupported(spec_with(path, value)) == [sentence]


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
    assert unsupported(spec_with(path, value)) == []


@pytest.mark.parametrize("backend", ["Auto", "Extender", "Kubernetes"])
def test_only_volcano_has_queues(backend: str) -> None:
    edits = {"spec.queue": "gpus", "spec.backend": backend}
    (sentence,) = unsupported(DisaggregatedInference.model_validate(changed(inference(), edits)).spec)
    assert sentence.startswith(f"spec.queue with spec.backend {backend} is not supported yet: use backend Volcano")


def test_every_field_is_named_at_once() -> None:
    changes = {"inPlace": "IfPossible"}
    edits = {"spec.roles.0.update": changes, "spec.roles.1.update": changes}
    spec = DisaggregatedInference.model_validate(changed(inference(), edits)).spec
    assert [sentence.split(" is ")[0] for sentence in unsupported(spec)] == [
        f"{PREFILL}.update.inPlace IfPossible",
        "spec.roles[decode].update.inPlace IfPossible",
    ]


def marked(model: type[Model], path: str) -> Iterator[str]:
    """Paths of the fields that the models mark as not built yet."""
    for name, field in model.model_fields.items():
        below = f"{path}.{field.alias or name}"
        if any(isinstance(mark, NotYet) for mark in field.metadata):
            yield below
            continue
        for nested in nested_models(field.annotation):
            yield from marked(nested, below)


def nested_models(annotation: object) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from nested_models(part)


def test_fields_marked_as_not_built_yet_are_those_that_are_refused() -> None:
    refused = {path.replace(".0", "").replace(".2", "") for path, _, _ in REFUSED}
    assert set(marked(DisaggregatedInferenceSpec, "spec")) == refused
