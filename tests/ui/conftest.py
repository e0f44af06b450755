"""Fixtures of the tests of ``covey ui``: a real browser, the real server, a real control plane with 36 nodes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.client import ApiException
from playwright.sync_api import Browser

from builders.files import Object, inference
from cluster.conftest import cluster, pytest_runtest_makereport
from cluster.namespaces import empty_namespace, make_namespace
from localcluster import Cluster, Nodes, eventually
from localcluster.programs import scheduler_config
from screens import chromium
from screens.chromium import PATIENCE
from screens.serving import Served
from ui.screen import Screen

Open = Callable[..., Screen]
NODES = Nodes(blocks=2, racks=3, nodes=6)
_INFERENCES = "/apis/inference.covey.dev/v1alpha1/namespaces/{}/disaggregatedinferences"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's chromium."""
    with chromium.browser() as started:
        yield started


@pytest.fixture(scope="session")
def floor(cluster: Cluster) -> Cluster:
    """The control plane with Covey's processes and 2 blocks x 3 racks x 6 nodes x 8 GPUs."""
    cluster.add_nodes(NODES)
    cluster.start_covey("operator")
    cluster.start_scheduler(scheduler_config(cluster.start_covey("scheduler")))
    return cluster


@pytest.fixture(scope="session")
def in_cluster(floor: Cluster) -> str:
    """Where ``covey ui --sign-in`` serves the page, as in its Deployment."""
    return f"{Served(floor, 'covey-ui-sign-in', floor.kubeconfig, ['--sign-in']).origin}/"


@pytest.fixture(scope="session")
def served(floor: Cluster) -> Served:
    """``covey ui`` of the administrator."""
    return Served(floor, "covey-ui", floor.kubeconfig)


@pytest.fixture
def open_page(browser: Browser, served: Served) -> Iterator[Open]:
    """``open_page(served, **context) -> Screen``; at the end no page may have misbehaved."""
    opened: list[Screen] = []

    def visit(of: Served = served, *, url: str = "", **context: Any) -> Screen:
        screen = Screen(*chromium.visit(browser, url or of.link(), **context))
        opened.append(screen)
        return screen

    yield visit
    for screen in opened:
        screen.page.context.close()
    assert [fault for screen in opened for fault in screen.watch.faults] == []


@pytest.fixture
def screen(open_page: Open) -> Screen:
    """The administrator's page."""
    return open_page().live()


@pytest.fixture
def team(floor: Cluster) -> Iterator[str]:
    """A new namespace, emptied when the test ends: the next one finds the floor free."""
    name = make_namespace(floor, "team")
    yield name
    leave_namespace(floor, name)


def leave_namespace(floor: Cluster, name: str) -> None:
    """Empty a namespace until nothing is left in it that a page shows."""
    empty_namespace(floor, name)
    eventually(lambda: not floor.api("GET", _INFERENCES.format(name))["items"], PATIENCE, f"nothing is left in {name}")


@pytest.fixture
def create(floor: Cluster, team: str) -> Callable[..., str]:
    """``create("llm", *roles, **spec) -> "namespace/llm"``."""

    def post(name: str, *roles: Object, **spec: Any) -> str:
        floor.api("POST", _INFERENCES.format(team), inference(name, *roles, **spec))
        return f"{team}/{name}"

    return post


@pytest.fixture
def delete(floor: Cluster) -> Callable[[str], None]:
    """``delete("namespace/llm")``."""

    def remove(key: str) -> None:
        namespace, _, name = key.partition("/")
        try:
            floor.api("DELETE", f"{_INFERENCES.format(namespace)}/{name}")
        except ApiException as error:
            if error.status != 404:
                raise

    return remove


__all__ = ["cluster", "pytest_runtest_makereport"]
