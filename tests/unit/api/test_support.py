from typing import Any

import pytest

from builders.manifests import changed, inference
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.api.rules import unsupported_fields


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


def test_kubernetes_has_no_queues() -> None:
    edits = {"spec.queue": "gpus", "spec.backend": "Kubernetes"}
    (sentence,) = unsupported_fields(DisaggregatedInference.model_validate(changed(inference(), edits)).spec)
    assert sentence.startswith(
        "spec.queue with spec.backend Kubernetes is not supported yet: use backend Extender or Vol"
    )
