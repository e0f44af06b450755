"""Faults of templates are known by the fields of the release of Kubernetes that Covey is built for."""

from __future__ import annotations

import pytest
from kubernetes.client.models.v1_container import V1Container
from kubernetes.client.models.v1_pod_spec import V1PodSpec
from kubernetes.client.models.v1_resource_requirements import V1ResourceRequirements

from covey.operator.model.template_faults import asks_for_devices, find_template_faults

IMAGE = {"name": "engine", "image": "engine:1"}


def test_every_field_of_a_pod_and_of_a_container_is_known() -> None:
    """One that was left out would be taken for another one that is misspelt."""
    resources = {key: {} for key in V1ResourceRequirements.attribute_map.values()}
    container = dict.fromkeys(V1Container.attribute_map.values(), "engine") | {"resources": resources}
    spec = {key: {} for key in V1PodSpec.attribute_map.values()} | {
        "containers": [container],
        "initContainers": [container],
    }
    assert list(find_template_faults(spec)) == []


@pytest.mark.parametrize(
    ("spec", "asks"),
    [
        ({"containers": [IMAGE]}, False),
        ({"containers": [IMAGE | {"resources": {"limits": {"cpu": "1"}}}]}, False),
        ({"containers": [IMAGE | {"resources": {"limits": {"amd.com/gpu": 1}}}]}, True),
        ({"containers": [IMAGE], "initContainers": [IMAGE | {"resources": {"requests": {"a.b/c": 1}}}]}, True),
        ({"containers": [IMAGE], "resourceClaims": [{"name": "gpu"}]}, True),
        ({"containers": [IMAGE], "resources": {"limits": {"nvidia.com/gpu": 1}}}, True),
    ],
)
def test_devices_are_asked_for_by_containers_pods_and_claims(spec: dict[str, object], asks: bool) -> None:  # noqa: FBT001 - a parameter
    assert asks_for_devices(spec) is asks
