"""A namespace that is deleted while a deployment serves in it."""

from __future__ import annotations

import pytest

from cluster.conftest import Covey
from cluster.namespaces import make_namespace
from cluster.serving import AddNodes, Serving, serving, workers
from localcluster import eventually

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")
ROLES = (workers("prefill"), workers("decode"))


@pytest.mark.parametrize("is_up", [True, False])
def test_all_of_it_ends_and_its_nodes_are_free(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey, *, is_up: bool
) -> None:
    """The operator is not needed for it either: nothing of Covey has a finalizer."""
    cluster = serving.cluster
    nodes(nodes=2)
    doomed = Serving(cluster, make_namespace(cluster))
    doomed.create(*ROLES)
    doomed.await_ready(2)
    if not is_up:
        covey_to_kill.operator.stop()
    cluster.api("DELETE", f"/api/v1/namespaces/{doomed.namespace}")

    def is_gone() -> bool:
        listed = cluster.api("GET", "/api/v1/namespaces")["items"]
        return doomed.namespace not in {each["metadata"]["name"] for each in listed}

    eventually(is_gone, 60, f"{doomed.namespace} is gone")
    if not is_up:
        covey_to_kill.operator.start()
    serving.create(*ROLES)
    serving.await_ready(2)
