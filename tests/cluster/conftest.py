"""Fixtures of the tests on a real control plane.

One control plane serves all tests of a process; every test has its own namespace and its own nodes.  Where a
program can neither be found nor built, these tests fail with the reason: they are never skipped.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.namespaces import empty_namespace, make_namespace
from localcluster import Cluster, Nodes, Process, ProcessError
from localcluster.programs import scheduler_config

AddNodes = Callable[..., list[str]]
Kubectl = Callable[..., str]
#: The cluster whose processes are running for ``covey``, by the file of the tests that had them last.
_SHARED: dict[Path, Cluster] = {}


@dataclass(frozen=True)
class Covey:
    """The running processes; all of them can be killed, stopped and started again."""

    operator: Process
    scheduler: Process
    kube_scheduler: Process


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A control plane with kwok, Covey's CRDs, its RBAC rules and the policies for its accounts; no scheduler runs yet."""
    with Cluster() as running:
        running.install_rbac()
        running.install_account_policies()
        yield running
        # Who is refused tries again or goes on, so that no test need have failed for it.
        assert not running.account_denials()


@pytest.fixture
def kubectl(cluster: Cluster) -> Kubectl:
    """``kubectl(*arguments, input=None, check=True) -> str``."""
    return cluster.kubectl


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[AddNodes]:
    """``nodes(blocks=2, racks=3, …) -> names``: adds ready nodes, see ``Nodes``; they go when the test ends.

    Names of nodes, blocks and racks begin with a prefix of the test's own unless one is given.
    """
    names: list[str] = []

    def add(**description: Any) -> list[str]:
        wanted = Nodes(**{"prefix": f"{_unique()}-", **description})
        names.extend(wanted.names)  # before any is there: those of a call that fails go too
        return cluster.add_nodes(wanted)

    yield add
    cluster.delete_nodes(names)


@pytest.fixture
def namespace(cluster: Cluster, nodes: AddNodes) -> Iterator[str]:
    """The name of a new namespace with its default service account; emptied before the test's nodes go."""
    assert nodes  # asked for only so that this fixture ends first
    name = make_namespace(cluster)
    yield name
    empty_namespace(cluster, name)


@pytest.fixture(scope="module")
def scheduler(cluster: Cluster) -> Iterator[Process]:
    """The scheduler process and a kube-scheduler with the configuration that it prints; no operator."""
    try:
        process = cluster.start_covey("scheduler")
        cluster.start_scheduler(scheduler_config(process))
        yield process
    finally:
        cluster.forget("kube-scheduler", "covey-scheduler")


@pytest.fixture(scope="module")
def shared_covey(cluster: Cluster, request: pytest.FixtureRequest) -> Covey:
    """The processes of ``covey``, started unless they run. Modules may have a ``covey`` of their own, but not this."""
    if cluster not in _SHARED.values():
        _stop_shared()
        try:
            cluster.start_all()
        except BaseException:
            # The one that did start would meddle with the tests of other modules.
            cluster.stop_all()
            raise
    _SHARED.clear()
    _SHARED[request.path] = cluster
    return _processes(cluster)


@pytest.fixture(scope="module")
def covey(shared_covey: Covey) -> Covey:
    """Operator, scheduler process and kube-scheduler, shared by the tests of many modules, which leave them running."""
    return shared_covey


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Stop the processes that are shared before the tests of a module that has others, or none."""
    if "shared_covey" not in getattr(item, "fixturenames", ()) and item.path not in _SHARED:
        _stop_shared()


@pytest.fixture
def covey_to_kill(cluster: Cluster, covey: Covey) -> Iterator[Covey]:
    """The same processes for a test that ends, pauses or adds to them: they are put right after it."""
    before = set(cluster.processes)
    yield covey
    cluster.forget(*(set(cluster.processes) - before))
    for process in (covey.operator, covey.scheduler, covey.kube_scheduler):
        with contextlib.suppress(ProcessError):
            process.resume()
        if not process.alive:
            process.start(wait=False)
    for process in (covey.operator, covey.scheduler, covey.kube_scheduler):
        process.wait_ready()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the end of the processes' logs with a test that failed."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        for name, process in cluster.processes.items():
            if name.startswith("covey-"):
                report.sections.append((f"end of {process.log}", "\n".join(process.log_text().splitlines()[-60:])))
    return report


def _stop_shared() -> None:
    while _SHARED:
        _SHARED.popitem()[1].stop_all()


def _processes(cluster: Cluster) -> Covey:
    started = cluster.processes
    return Covey(started["covey-operator"], started["covey-scheduler"], started["kube-scheduler"])


def _unique() -> str:
    return uuid.uuid4().hex[:6]
