import pytest

from covey.kube import resources
from covey.kube.resources import LEASES, NODES, PODS, WORKLOADS, Resource


@pytest.mark.parametrize(
    ("resource", "arguments", "expected"),
    [
        (PODS, (None,), "/api/v1/pods"),
        (PODS, ("ns",), "/api/v1/namespaces/ns/pods"),
        (PODS, ("ns", "p"), "/api/v1/namespaces/ns/pods/p"),
        (PODS, ("ns", "p", "binding"), "/api/v1/namespaces/ns/pods/p/binding"),
        (NODES, (None, "n"), "/api/v1/nodes/n"),
        (NODES, ("ignored", "n"), "/api/v1/nodes/n"),
        (LEASES, ("ns", "l"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"),
        (WORKLOADS, (None,), "/apis/scheduling.covey.dev/v1alpha1/workloads"),
        (NODES, (None, "system:x"), "/api/v1/nodes/system:x"),
        (PODS, ("ns", "../secrets?x=1"), "/api/v1/namespaces/ns/pods/..%2Fsecrets%3Fx%3D1"),
    ],
)
def test_path(resource: Resource, arguments: tuple[str | None, ...], expected: str) -> None:
    assert resource.path(*arguments) == expected


def test_a_namespaced_object_without_namespace_is_refused() -> None:
    with pytest.raises(ValueError, match="Pod p needs a namespace"):
        PODS.path(None, "p")


@pytest.mark.parametrize(("resource", "expected"), [(PODS, "v1"), (LEASES, "coordination.k8s.io/v1")])
def test_api_version(resource: Resource, expected: str) -> None:
    assert resource.api_version == expected


def test_every_resource_is_named_once() -> None:
    all_of_them = [value for value in vars(resources).values() if isinstance(value, Resource)]
    assert PODS in all_of_them
    assert len({(resource.api_version, resource.plural) for resource in all_of_them}) == len(all_of_them)
    assert len({resource.type for resource in all_of_them}) == len(all_of_them)


@pytest.mark.parametrize(
    ("resource", "expected"), [(PODS, "Pod.v1"), (WORKLOADS, "Workload.v1alpha1.scheduling.covey.dev")]
)
def test_a_type_is_kind_version_and_group(resource: Resource, expected: str) -> None:
    assert resource.type == expected
