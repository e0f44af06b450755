"""The UI's server shows what its viewer's credentials can read, and nothing else: a real API server with RBAC."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builders.files import inference, pod_spec, role
from builders.manifests import Object
from cluster.namespaces import empty_namespace, make_namespace
from cluster.viewers import Page, Rights, served, texts
from covey.kube.client import Client
from covey.kube.connection import bearer, load_server
from covey.kube.resources import PODS
from covey.ui.limits import PageLimits
from localcluster import Cluster, eventually
from screens.serving import Served

GROUP = "/apis/inference.covey.dev/v1alpha1/namespaces"
NODES = {"": ["nodes"]}
Create = Callable[..., Object]


@pytest.fixture
async def page(cluster: Cluster) -> AsyncIterator[Page]:
    async with served(cluster) as found:
        yield found


@pytest.fixture
def rights(cluster: Cluster) -> Rights:
    return Rights(cluster)


@pytest.fixture
def other(cluster: Cluster) -> Iterator[str]:
    """Somebody else's namespace."""
    name = make_namespace(cluster, "others")
    yield name
    empty_namespace(cluster, name)


@pytest.fixture
def create(cluster: Cluster) -> Create:
    """``create(namespace, name)``: a resource, and a pod of it."""

    def post(namespace: str, name: str, *roles: Object, node: str = "", **labels: str) -> Object:
        made: Object = cluster.api(
            "POST", f"{GROUP}/{namespace}/disaggregatedinferences", inference(name, *(roles or [role("w", 1, 1)]))
        )
        owner = {
            "apiVersion": "inference.covey.dev/v1alpha1",
            "kind": "DisaggregatedInference",
            "name": name,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        metadata = {"name": f"{name}-0-w-0-0", "labels": labels or {"covey.dev/role": "w"}, "ownerReferences": [owner]}
        spec = pod_spec() | ({"nodeName": node} if node else {})
        cluster.api("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})
        return made

    return post


@pytest.fixture
def signed_in(cluster: Cluster) -> Iterator[str]:
    """The address of ``covey ui --sign-in`` with the administrator's kubeconfig, of which only the server counts."""
    ui = Served(cluster, "covey-ui-sign-in", cluster.kubeconfig, ["--sign-in", "--memory=384"])
    try:
        yield ui.origin
    finally:
        cluster.forget(ui.process.name)


async def test_viewer_without_a_token_or_with_a_bad_one_does_not_get_in(
    page: Page, rights: Rights, namespace: str
) -> None:
    good = rights.token(namespace, rights.viewer(namespace))
    for token in (None, "nonsense", good[:-6] + "AAAAAA", rights.expired(good)):
        for path in ("/api/state", "/api/events", f"/api/gangs/{namespace}/llm/story"):
            async with page.get(path, token) as answer:
                assert answer.status == 401, f"{path} {token}: {await answer.text()}"
                assert (await answer.json())["mode"] == "token"
    async with page.get("/api/state", Authorization="Basic YTpi") as answer:
        assert answer.status == 401
    async with page.post("/api/plan", "{}", rights.expired(good), Content_Type="text/plain") as answer:
        assert answer.status == 401
    async with page.post("/api/session", '{"code": "x"}', Content_Type="application/json") as answer:
        assert answer.status == 401, "there are no links here"
    async with page.get("/") as answer:
        assert answer.status == 200, "the page itself is no secret"


async def test_viewer_without_rights_sees_nothing(
    page: Page, rights: Rights, create: Create, namespace: str, nodes: Any
) -> None:
    nodes(racks=1, nodes=2)
    create(namespace, "llm")
    state = await page.state(rights.token(namespace, rights.viewer(namespace)))
    assert (state["nodes"], state["gangs"], state["pods"], state["waiting"]) == ({}, {}, {}, {})
    assert {each["resource"] for each in state["denied"]} == {
        "nodes", "clustertopologies", "disaggregatedinferences", "compositepodgroups", "podgroups", "pods",
    }  # fmt: skip
    assert "cannot list resource" in state["denied"][0]["message"]
    assert state["viewer"]["name"].startswith(f"system:serviceaccount:{namespace}:")


async def test_viewer_of_one_namespace_sees_nothing_of_another(
    page: Page, rights: Rights, create: Create, namespace: str, other: str, nodes: Any
) -> None:
    (node,) = nodes(racks=1, nodes=1)
    create(namespace, "mine", node=node)
    create(other, "theirs", node=node)
    viewer = rights.viewer(namespace)
    token = rights.token(namespace, viewer)
    rights.allow(namespace, namespace, viewer)
    state = await page.state(token)
    assert list(state["gangs"]) == [f"{namespace}/mine"]
    assert list(state["pods"]) == [f"{namespace}/mine-0-w-0-0"]
    assert state["viewer"]["namespaces"] == [namespace], "its own, as all are not allowed"
    assert state["nodes"] == {}
    denied = {(each["resource"], each["namespace"]) for each in state["denied"]}
    assert {("nodes", None), ("pods", None), ("disaggregatedinferences", None)} <= denied
    for query in ("", f"?namespace={namespace}&namespace={other}"):
        found = await page.state(token, query)
        assert not [text for text in texts(found["gangs"]) if other in text or "theirs" in text]
        assert not [text for text in texts(found["pods"]) if other in text or "theirs" in text]
    assert ("pods", other) in {(each["resource"], each["namespace"]) for each in found["denied"]}
    async with page.get(f"/api/gangs/{other}/theirs/story", token) as answer:
        assert answer.status == 403
    async with page.get(f"/api/gangs/{namespace}/mine/story", token) as answer:
        assert answer.status == 200
        story = await answer.json()
    assert [each["resource"] for each in story["denied"]][-1] == "events"
    async with page.post(
        "/api/plan", json.dumps(inference("p", role("w"))), token, Content_Type="text/plain"
    ) as answer:
        assert answer.status == 403, "no plan without nodes"


async def test_rights_when_they_are_given_are_seen_without_coming_again(
    page: Page, rights: Rights, create: Create, namespace: str, other: str, nodes: Any
) -> None:
    (node,) = nodes(racks=1, nodes=1)
    create(namespace, "mine", node=node)
    create(other, "theirs")
    viewer = rights.viewer(namespace)
    async with page.events(rights.token(namespace, viewer)) as events:
        await events.until(lambda state: state["denied"])
        rights.allow(None, namespace, viewer, NODES)
        state = await events.until(lambda state: node in state["nodes"])
        assert (state["nodes"][node]["cells"], state["pods"]) == (8, {})
        rights.allow(namespace, namespace, viewer)
        state = await events.until(lambda state: state["pods"] and state["gangs"])
        assert list(state["gangs"]) == [f"{namespace}/mine"]
        rights.allow(None, namespace, viewer)
        state = await events.until(lambda state: f"{other}/theirs" in state["gangs"])
        assert f"{namespace}/mine" in state["gangs"]
        state = await events.until(lambda state: not state["viewer"]["namespaces"])
        await events.until(lambda state: {each["resource"] for each in state["denied"]} == {"clustertopologies"})


async def test_rights_when_they_are_taken_away_end_what_is_seen(
    cluster: Cluster, page: Page, rights: Rights, create: Create, namespace: str, nodes: Any
) -> None:
    (node,) = nodes(racks=1, nodes=1)
    create(namespace, "mine", node=node)
    viewer = rights.viewer(namespace)
    token = rights.token(namespace, viewer)
    binding = rights.allow(namespace, namespace, viewer)
    wide = rights.allow(None, namespace, viewer, NODES)
    async with page.events(token) as events:
        await events.until(lambda state: state["gangs"] and state["pods"] and node in state["nodes"])
        cluster.api("DELETE", wide)
        await events.until(lambda state: not state["nodes"])
        assert events.state["gangs"], "what is still allowed stays"
        cluster.api("DELETE", binding)
        state = await events.until(lambda state: not state["gangs"] and not state["pods"])
        assert ("pods", namespace) in {(each["resource"], each["namespace"]) for each in state["denied"]}
        rights.allow(namespace, namespace, viewer)
        await events.until(lambda state: state["gangs"] and state["pods"])
        cluster.api("DELETE", f"/api/v1/namespaces/{namespace}/serviceaccounts/{viewer}")
        assert "not take these credentials any more" in (await events.until_end())["error"]["what"]
    async with page.get("/api/state", token) as answer:
        assert answer.status == 401


async def test_pods_of_others_are_counted_and_not_named(
    cluster: Cluster, page: Page, create: Create, namespace: str, other: str, nodes: Any
) -> None:
    (node,) = nodes(racks=1, nodes=1)
    create(namespace, "mine")
    create(other, "theirs", node=node)
    state = await page.state(cluster.token, f"?namespace={namespace}")
    assert list(state["gangs"]) == [f"{namespace}/mine"]
    assert list(state["pods"]) == [f"{namespace}/mine-0-w-0-0"]
    assert state["nodes"][node]["others"] == 8


async def test_plan_is_what_the_command_says(cluster: Cluster, page: Page, namespace: str, nodes: Any) -> None:
    nodes(racks=1, nodes=2)
    token = cluster.token
    body = json.dumps(inference("p", role("w", 2, 2), namespace=namespace))
    async with page.post("/api/plan", body, token, Content_Type="application/json") as answer:
        found = await answer.json()
    assert (answer.status, found["status"], found["sentences"]) == (200, 0, [])
    assert len(found["floor"]["pods"]) == 2
    assert found["report"]["workloads"][0]["verdict"] == "Admitted"
    async with page.post(
        "/api/plan", body.replace('"replicas": 2', '"replicas": -1'), token, Content_Type="text/plain"
    ) as bad:
        assert bad.status == 400
        assert (await bad.json())["error"]["where"] == "manifest, document 1, spec.roles[0].replicas"


async def test_viewer_when_all_places_are_taken_is_told_so(cluster: Cluster, rights: Rights, namespace: str) -> None:
    limits = PageLimits(feeds=1, streams=1, recheck=0.3, pace=0.05, patience=120)
    first, second = (rights.token(namespace, rights.viewer(namespace)) for _ in range(2))
    async with served(cluster, limits) as page, page.events(first) as events:
        await events.until(lambda state: state["denied"])
        for token, words in ((first, "close some of its pages"), (second, "try again later")):
            async with page.get("/api/events", token) as answer:
                assert answer.status == 429
                assert words in (await answer.json())["error"]["what"]


async def test_view_when_it_cannot_go_on_ends_and_says_so(
    page: Page, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(_: object) -> None:
        raise MemoryError

    async with page.events(cluster.token) as events:
        await events.until(lambda state: state["gangs"] is not None)
    with monkeypatch.context() as patched:
        patched.setattr("covey.ui.viewer_watches.Reflector.run", run)
        async with page.get("/api/state?namespace=default", cluster.token) as answer:
            assert answer.status == 503, "the token is as good as before"
            assert "could not go on" in (await answer.json())["error"]["what"]
    assert (await page.state(cluster.token, "?namespace=default"))["denied"] == []


def test_page_is_served_with_the_viewers_token_alone(
    rights: Rights, create: Create, namespace: str, signed_in: str
) -> None:
    create(namespace, "llm")
    viewer = rights.viewer(namespace)
    token = rights.token(namespace, viewer)

    def ask(token: str | None) -> Any:
        return _ask(f"{signed_in}/api/state", token)

    assert ask(None) == 401
    state = ask(token)
    assert (state["nodes"], state["gangs"], state["pods"]) == ({}, {}, {}), "the kubeconfig's user may read all of it"
    rights.allow(namespace, namespace, viewer)
    eventually(lambda: list(ask(token)["gangs"]) == [f"{namespace}/llm"], 120, "its own")


def test_server_runs_in_a_pod_without_a_token(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in its Deployment: the address from the environment, the authority from the ConfigMap, and nothing else."""
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "ca.crt").write_bytes(cluster.files.authority.read_bytes())
    host, _, port = cluster.server.removeprefix("https://").partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr("covey.kube.connection.SERVICE_ACCOUNT", account)

    async def look() -> str:
        server = await load_server()
        assert "BearerToken" not in server.configuration.api_key
        async with Client(bearer(server, cluster.token), user_agent="tests") as client:
            return await client.newest(PODS)

    assert int(asyncio.run(look())) > 0


def _ask(url: str, token: str | None) -> Any:
    """The JSON of a 200, or the status; None where nobody answers."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
