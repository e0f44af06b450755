"""A control plane whose pods have addresses on loopback, for routers that go there by themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cluster.conftest import (
    Covey,
    covey,
    namespace,
    nodes,
    pytest_runtest_makereport,
    pytest_runtest_setup,
    shared_covey,
)
from cluster.serving import serving
from localcluster import Cluster
from routers.programs import READY

__all__ = [
    "Covey",
    "covey",
    "namespace",
    "nodes",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
    "serving",
    "shared_covey",
]


@pytest.fixture(autouse=True, scope="session")
def installed() -> None:
    """Skip all of it where the package index has no routers for this machine."""
    if not READY.exists():
        pytest.skip("no routers here: `make test-routers` installs them where they can be had")


@pytest.fixture(scope="session")
def cluster(installed: None) -> Iterator[Cluster]:  # noqa: ARG001 - no cluster without them
    """A control plane; kwok gives pods addresses that no other test on this machine has."""
    network = f"127.{1 + os.getpid() % 250}.{1 + os.getpid() // 250 % 250}"
    with Cluster(flags={"kwok": [f"--cidr={network}.1/24"]}) as running:
        running.install_rbac()
        running.install_account_policies()
        yield running
