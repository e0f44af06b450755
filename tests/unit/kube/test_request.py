import json

import pytest

from covey.kube import request, resources
from covey.kube.request import Request
from covey.kube.resources import LEASES, NODES, PODS, WORKLOADS, Resource

POD = {"metadata": {"name": "p", "namespace": "ns"}}
FULL = {"apiVersion": "v1", "kind": "Pod", **POD}
TEST = {"op": "test", "path": "/metadata/uid", "value": "u"}
ADD = {"op": "add", "path": "/metadata/labels/x", "value": "y"}


@pytest.mark.parametrize(
    ("made", "line", "repeatable"),
    [
        (request.get(PODS, "p", "ns"), "get GET /api/v1/namespaces/ns/pods/p", True),
        (request.list_(NODES, None), "list GET /api/v1/nodes", True),
        (
            request.list_(PODS, None, labels="a=b,c!=d", fields="spec.nodeName=n", limit=500, continue_="x/y=="),
            "list GET /api/v1/pods?labelSelector=a%3Db%2Cc%21%3Dd&fieldSelector=spec.nodeName%3Dn&limit=500&continue=x%2Fy%3D%3D",
            True,
        ),
        (
            request.watch(PODS, "ns", resource_version="7", seconds=300, labels="a"),
            "watch GET /api/v1/namespaces/ns/pods?labelSelector=a&resourceVersion=7&watch=true&allowWatchBookmarks=true&timeoutSeconds=300",
            False,
        ),
        (request.create(PODS, POD, None), "create POST /api/v1/namespaces/ns/pods", False),
        (
            request.create(PODS, POD, "ns", manager="m", dry_run=True, strict=True),
            "create POST /api/v1/namespaces/ns/pods?fieldManager=m&dryRun=All&fieldValidation=Strict",
            True,
        ),
        (
            request.apply(PODS, POD, manager="m", force=True, subresource="status"),
            "apply PATCH /api/v1/namespaces/ns/pods/p/status?fieldManager=m&force=true",
            True,
        ),
        (
            request.apply(PODS, POD, manager="m", force=False, subresource=None),
            "apply PATCH /api/v1/namespaces/ns/pods/p?fieldManager=m",
            True,
        ),
        (
            request.json_patch(PODS, "p", "ns", [TEST, ADD], manager=None),
            "patch PATCH /api/v1/namespaces/ns/pods/p",
            True,
        ),
        (
            request.json_patch(PODS, "p", "ns", [ADD], manager="m"),
            "patch PATCH /api/v1/namespaces/ns/pods/p?fieldManager=m",
            False,
        ),
        (
            request.merge_patch(PODS, "p", "ns", {}, manager=None, dry_run=True),
            "patch PATCH /api/v1/namespaces/ns/pods/p?dryRun=All",
            True,
        ),
        (
            request.merge_patch(PODS, "p", "ns", {}, manager=None, subresource="status"),
            "patch PATCH /api/v1/namespaces/ns/pods/p/status",
            True,
        ),
        (request.replace(PODS, POD, manager=None), "update PUT /api/v1/namespaces/ns/pods/p", False),
        (
            request.delete(PODS, "p", "ns", uid=None, version=None, propagation="Background", grace_seconds=None),
            "delete DELETE /api/v1/namespaces/ns/pods/p",
            False,
        ),
        (
            request.delete(PODS, "p", "ns", uid="u", version=None, propagation="Background", grace_seconds=0),
            "delete DELETE /api/v1/namespaces/ns/pods/p",
            True,
        ),
        (request.bind("ns", "p", "u", "n"), "bind POST /api/v1/namespaces/ns/pods/p/binding", True),
        (request.version(), "get GET /version", True),
    ],
)
def test_line(made: Request, line: str, *, repeatable: bool) -> None:
    assert (f"{made.verb} {made.method} {made.url}", made.repeatable) == (line, repeatable)


@pytest.mark.parametrize(
    ("made", "content_type", "body"),
    [
        (request.create(PODS, POD, None), "application/json", FULL),
        (
            request.create(LEASES, POD, None),
            "application/json",
            {**FULL, "apiVersion": LEASES.api_version, "kind": "Lease"},
        ),
        (request.apply(PODS, POD, manager="m", force=True, subresource=None), "application/apply-patch+yaml", FULL),
        (request.replace(PODS, POD, manager=None), "application/json", FULL),
        (request.json_patch(PODS, "p", "ns", (TEST, ADD), manager=None), "application/json-patch+json", [TEST, ADD]),
        (
            request.merge_patch(PODS, "p", "ns", {"spec": None}, manager=None),
            "application/merge-patch+json",
            {"spec": None},
        ),
        (
            request.delete(PODS, "p", "ns", uid="u", version="7", propagation="Foreground", grace_seconds=0),
            "application/json",
            {
                "propagationPolicy": "Foreground",
                "preconditions": {"uid": "u", "resourceVersion": "7"},
                "gracePeriodSeconds": 0,
            },
        ),
        (
            request.delete(PODS, "p", "ns", uid=None, version=None, propagation="Background", grace_seconds=None),
            "application/json",
            {"propagationPolicy": "Background"},
        ),
        (
            request.bind("ns", "p", "u", "n1"),
            "application/json",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
            },
        ),
    ],
)
def test_body(made: Request, content_type: str, body: object) -> None:
    assert made.content_type == content_type
    assert json.loads(made.body or b"") == body


@pytest.mark.parametrize(
    ("resource", "arguments", "expected"),
    [
        (NODES, ("ignored", "n"), "/api/v1/nodes/n"),
        (LEASES, ("ns", "l"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"),
        (WORKLOADS, (None,), "/apis/scheduling.covey.dev/v1alpha1/workloads"),
        (NODES, (None, "system:x"), "/api/v1/nodes/system:x"),
        (PODS, ("ns", "../secrets?x=1"), "/api/v1/namespaces/ns/pods/..%2Fsecrets%3Fx%3D1"),
    ],
)
def test_path(resource: Resource, arguments: tuple[str | None, ...], expected: str) -> None:
    assert resource.path(*arguments) == expected


def test_every_resource_is_named_once() -> None:
    all_of_them = [value for value in vars(resources).values() if isinstance(value, Resource)]
    assert PODS in all_of_them
    assert len({(resource.api_version, resource.plural) for resource in all_of_them}) == len(all_of_them)
    assert len({resource.type for resource in all_of_them}) == len(all_of_them)
