"""The client against a real API server: what each call does, and which error says what went wrong."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from covey.api.core import Node, Pod
from covey.kube import errors
from covey.kube.client import Client
from covey.kube.connection import bearer, load_server
from covey.kube.resources import NODES, PODS, Resource
from localcluster import Cluster

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
GATE = "example.com/gate"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/x:1"}
    return {"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"containers": [container], **spec}}


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="test", field_manager="test") as made:
        yield made


OTHER = "00000000-0000-0000-0000-000000000000"


async def test_version(client: Client) -> None:
    assert (await client.version())["gitVersion"].startswith("v1.")


async def test_the_newest_version_is_no_older_than_what_was_just_written(client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("newest"), namespace, type=Pod)
    assert int(await client.newest(PODS)) >= int(made.metadata.resource_version)
    await client.delete(PODS, "newest", namespace, uid=made.metadata.uid, grace_seconds=0)


async def test_an_object_s_life(client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("p"), namespace, type=Pod)
    assert made.metadata.key == (namespace, "p")
    with pytest.raises(errors.AlreadyExists):
        await client.create(PODS, pod("p"), namespace)
    read = await client.get(PODS, "p", namespace)
    assert (read["kind"], read["metadata"]["uid"]) == ("Pod", made.metadata.uid)
    assert {entry["manager"] for entry in read["metadata"]["managedFields"]} == {"test"}
    changed = await client.merge_patch(
        PODS, "p", namespace, {"metadata": {"labels": {"app": None, "b": "c"}}}, type=Pod
    )
    assert changed.metadata.labels == {"b": "c"}
    with pytest.raises(errors.Conflict):
        await client.delete(PODS, "p", namespace, uid=OTHER)
    with pytest.raises(errors.Conflict):
        await client.merge_patch(PODS, "p", namespace, {"metadata": {"uid": OTHER, "labels": {"app": "x"}}})
    await client.delete(PODS, "p", namespace, uid=made.metadata.uid, grace_seconds=0)
    with pytest.raises(errors.NotFound):
        await client.get(PODS, "p", namespace)
    with pytest.raises(errors.NotFound):
        await client.delete(PODS, "p", namespace, uid=made.metadata.uid)


async def test_a_resource_that_is_not_served(client: Client, namespace: str) -> None:
    with pytest.raises(errors.NotFound):
        await client.list(Resource("example.com", "v1", "things", "Thing"), namespace)


async def test_a_strict_dry_run_finds_unknown_fields_and_stores_nothing(client: Client, namespace: str) -> None:
    wrong = pod("p", nodSelector={"a": "b"})
    with pytest.raises(errors.BadRequest, match=r'unknown field "spec\.nodSelector"'):
        await client.create(PODS, wrong, namespace, dry_run=True, strict=True)
    dropped = await client.create(PODS, wrong, namespace, dry_run=True)
    assert "nodSelector" not in dropped["spec"]
    with pytest.raises(errors.NotFound):
        await client.get(PODS, "p", namespace)


async def test_what_is_not_valid_is_named(client: Client, namespace: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await client.create(PODS, pod("p", restartPolicy="Sometimes"), namespace)
    assert "spec.restartPolicy" in [cause["field"] for cause in caught.value.details["causes"]]
    assert "Sometimes" in caught.value.message


async def test_server_side_apply(client: Client, namespace: str) -> None:
    body = {"metadata": {"name": "c", "namespace": namespace}, "data": {"a": "1", "b": "1"}}
    made = await client.apply(CONFIG_MAPS, body, manager="one")
    same = await client.apply(CONFIG_MAPS, body, manager="one")
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    with pytest.raises(errors.Conflict, match="one"):
        await client.apply(CONFIG_MAPS, {**body, "data": {"a": "2"}}, manager="two", force=False)
    taken = await client.apply(CONFIG_MAPS, {**body, "data": {"a": "2"}}, manager="two")
    assert taken["data"] == {"a": "2", "b": "1"}
    # What the first no longer names, it gives up; what the second owns stays.
    left = await client.apply(CONFIG_MAPS, {"metadata": body["metadata"]}, manager="one")
    assert left["data"] == {"a": "2"}


async def test_apply_to_a_status(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("p"), namespace)
    body = {"metadata": {"name": "p", "namespace": namespace}, "status": {"message": "said"}}
    assert (await client.apply(PODS, body, manager="m"))["status"].get("message") is None
    assert (await client.apply(PODS, body, manager="m", subresource="status"))["status"]["message"] == "said"
    patched = await client.merge_patch(PODS, "p", namespace, {"status": {"message": "more"}}, subresource="status")
    assert patched["status"]["message"] == "more"


async def test_a_tested_patch_applies_whole_or_not_at_all(client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("p", schedulingGates=[{"name": GATE}]), namespace, type=Pod)
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    patch: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": made.metadata.uid},
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE},
        {"op": "add", "path": "/spec/affinity", "value": affinity},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    with pytest.raises(errors.Invalid):
        await client.json_patch(PODS, "p", namespace, [{**patch[0], "value": "other"}, *patch[1:]])
    assert (await client.get(PODS, "p", namespace, type=Pod)).spec == made.spec
    pinned = await client.json_patch(PODS, "p", namespace, patch, type=Pod)
    assert not pinned.spec.scheduling_gates
    assert pinned.spec.affinity is not None
    # As after an attempt whose answer was lost: the repetition fails and changes nothing.
    with pytest.raises(errors.Invalid):
        await client.json_patch(PODS, "p", namespace, patch)
    with pytest.raises(errors.NotFound):
        await client.json_patch(PODS, "q", namespace, patch)


async def test_a_pod_is_bound_once_and_only_in_its_incarnation(client: Client, namespace: str, nodes: Any) -> None:
    first, second = nodes(blocks=1, racks=1, nodes=2)
    made = await client.create(
        PODS, pod("p", schedulerName="nobody", schedulingGates=[{"name": GATE}]), namespace, type=Pod
    )
    uid = made.metadata.uid
    with pytest.raises(errors.Conflict, match="schedulingGates"):
        await client.bind(namespace, "p", uid, first)
    await client.json_patch(PODS, "p", namespace, [{"op": "remove", "path": "/spec/schedulingGates/0"}])
    with pytest.raises(errors.Conflict):
        await client.bind(namespace, "p", "00000000-0000-0000-0000-000000000000", first)
    await client.bind(namespace, "p", uid, first)
    for node in (first, second):
        with pytest.raises(errors.Conflict):
            await client.bind(namespace, "p", uid, node)
    with pytest.raises(errors.NotFound):
        await client.bind(namespace, "q", uid, first)
    bound, _ = await client.list(PODS, namespace, type=Pod, fields=f"spec.nodeName={first}")
    assert [item.metadata.name for item in bound] == ["p"]
    node = await client.get(NODES, first, type=Node)
    assert node.metadata.name == first


async def test_replace_only_over_the_version_that_was_read(client: Client, namespace: str) -> None:
    old = await client.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "1"}}, namespace)
    new = await client.replace(CONFIG_MAPS, {**old, "data": {"a": "2"}})
    assert new["data"] == {"a": "2"}
    with pytest.raises(errors.Conflict):
        await client.replace(CONFIG_MAPS, {**old, "data": {"a": "3"}})


async def test_a_list_in_chunks(client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.kube.client.CHUNK", 2)
    names = [f"c{number}" for number in range(5)]
    for name in names:
        await client.create(CONFIG_MAPS, {"metadata": {"name": name, "labels": {"l": "x"}}}, namespace)
    items, version = await client.list(CONFIG_MAPS, namespace, labels="l=x")
    assert [item["metadata"]["name"] for item in items] == names
    assert int(version) >= int(items[-1]["metadata"]["resourceVersion"])


async def test_a_watch_tells_what_happens_after_its_version(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, {"metadata": {"name": "before", "labels": {"l": "x"}}}, namespace)
    _, version = await client.list(CONFIG_MAPS, namespace)
    events: list[tuple[str, str]] = []

    async def follow() -> None:
        selector = {"labels": "l=x", "resource_version": version}
        async for kind, item in client.watch(CONFIG_MAPS, namespace, type=dict[str, Any], **selector):
            events.append((kind, item["metadata"]["name"]))
            if kind == "DELETED" and item["metadata"]["name"] == "a":
                return

    following = asyncio.create_task(follow())
    for name in "ab":
        await client.create(CONFIG_MAPS, {"metadata": {"name": name, "labels": {"l": "x"}}}, namespace)
    await client.merge_patch(CONFIG_MAPS, "a", namespace, {"data": {"x": "y" * 500_000}})
    # Who leaves the selector is deleted for whoever watches it.
    await client.merge_patch(CONFIG_MAPS, "b", namespace, {"metadata": {"labels": None}})
    await client.delete(CONFIG_MAPS, "a", namespace)
    await asyncio.wait_for(following, 30)
    assert events == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"), ("DELETED", "a")]


async def test_who_one_is_and_what_one_may(cluster: Cluster, namespace: str) -> None:
    server = await load_server(str(cluster.kubeconfig))
    token = cluster.service_account_token(namespace, "nobody")
    async with Client(bearer(server, token), user_agent="test") as client:
        with pytest.raises(errors.Forbidden, match=f"system:serviceaccount:{namespace}:nobody"):
            await client.list(NODES)
    async with Client(bearer(server, "wrong"), user_agent="test") as client:
        with pytest.raises(errors.Unauthorized):
            await client.list(NODES)
