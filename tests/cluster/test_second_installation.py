"""Covey is installed once in a cluster: the processes of a second installation, elsewhere, do not start beside the first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from kubernetes.client import ApiException

from localcluster import Cluster, eventually
from localcluster.programs import Program

LEASES = {"operator": "covey-operator", "scheduler": "covey-planner"}


@pytest.fixture(params=LEASES)
def program(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Program]:
    """One of the two, whose lease is free before and after."""
    lease = f"/apis/coordination.k8s.io/v1/namespaces/covey-system/leases/{LEASES[request.param]}"
    with contextlib.suppress(ApiException):
        cluster.api("DELETE", lease)
    try:
        cluster.start_covey(request.param, "--leader-elect=true")
        eventually(lambda: cluster.api("GET", lease)["spec"]["holderIdentity"])
        yield request.param
    finally:
        cluster.stop_all()
        with contextlib.suppress(ApiException):
            cluster.api("DELETE", lease)


def test_a_process_beside_another_installation_ends_and_says_why(cluster: Cluster, program: Program) -> None:
    flags = ("--leader-elect=true", "--leader-elect-namespace=team-b")
    second = cluster.start_covey(program, *flags, name=f"covey-{program}-b", wait=False)
    assert second.wait(timeout=60) == 1
    text = second.log_text()
    assert f"lease {LEASES[program]} in namespace covey-system is renewed by" in text
    assert "uninstall one of the two installations" in text
    assert "Traceback" not in text
    assert cluster.processes[f"covey-{program}"].alive
