"""SGLang's own router, by its example: what it knows it keeps until the pod is deleted, so hiding a revision does not help it."""

from __future__ import annotations

import pytest

from cluster.serving import AddNodes, Serving
from localcluster import eventually
from routers.programs import Example
from routers.rollouts import is_ready, serve
from routers.traffic import Traffic

pytestmark = pytest.mark.usefixtures("covey")

SGLANG = Example("engines/sglang.yaml")


def test_an_engine_whose_labels_have_gone_keeps_its_requests(serving: Serving, nodes: AddNodes) -> None:
    """sglang#26842. Once this fails, the router can be told of revisions, and what the how-tos say of it is too little."""
    nodes(racks=5, nodes=2, resources={"rdma/ib": "8"})
    with serve(serving, SGLANG, rollout={"routing": "Exclusive"}) as rollouts:
        router = SGLANG.start(serving)
        eventually(is_ready(router), 60, "the router has engines")
        with Traffic(lambda: router.url) as traffic:
            rollouts.await_answers(traffic, ("1", "1"))
            rollouts.change("2", "2")
        print(f"{traffic.statuses.total()} requests: {traffic.lost} failed, {rollouts.engines.mixed} mixed")
        assert rollouts.engines.mixed > 0
