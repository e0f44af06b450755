"""SMG, by its example, in front of engines whose revisions change."""

from __future__ import annotations

import pytest

from cluster.serving import AddNodes, Serving
from localcluster import eventually
from routers.gateway import Gateway
from routers.programs import Example
from routers.rollouts import image_of, is_ready, serve
from routers.traffic import Traffic

pytestmark = pytest.mark.usefixtures("covey")

SMG = Example("routers/smg.yaml")
OLD, NEW = (image_of("1"), image_of("1")), (image_of("2"), image_of("2"))


@pytest.mark.parametrize("images", [("2", "1"), ("2", "2")], ids=["prefill changes", "both change"])
def test_one_revision_at_a_time(serving: Serving, nodes: AddNodes, images: tuple[str, str]) -> None:
    """Nothing is mixed, and nothing fails at an engine. The router refuses what comes before it has taken the new ones up."""
    nodes(nodes=3)
    with serve(serving, SMG, rollout={"routing": "Exclusive"}) as rollouts:
        router = SMG.start(serving)
        eventually(is_ready(router), 60, "the router has engines")
        with Traffic(lambda: router.url) as traffic:
            rollouts.await_answers(traffic, ("1", "1"))
            rollouts.change(*images)
            rollouts.await_answers(traffic, images)
        prefill, decode = map(image_of, images)
        assert set(rollouts.engines.pairs) == {OLD, (prefill, decode)}, traffic.words
        assert rollouts.engines.orphans == 0
        assert set(traffic.statuses) <= {200, 503}, traffic.words
        assert all("no_available_workers" in words for words in traffic.words)
        print(f"{traffic.statuses.total()} requests: {traffic.lost} refused, 0 mixed")


def test_a_router_for_each_pairing(serving: Serving, nodes: AddNodes) -> None:
    """Neither lost nor mixed, whichever roles change: the next router takes up its first pair before the former ones go."""
    nodes(nodes=3)
    with serve(serving, SMG) as rollouts, Gateway(rollouts) as gateway:
        [pairing] = rollouts.pairings()
        gateway.add(pairing)
        with Traffic(gateway.choose) as traffic:
            rollouts.await_answers(traffic, ("1", "1"))
            for images in (("2", "2"), ("3", "2")):
                gateway.add(rollouts.begin(*images))
                rollouts.change(*images)
                rollouts.await_answers(traffic, images)
        assert (traffic.lost, rollouts.engines.mixed, rollouts.engines.orphans) == (0, 0, 0), traffic.words
        assert set(rollouts.engines.pairs) == {OLD, NEW, (image_of("3"), image_of("2"))}
        print(f"{traffic.statuses.total()} requests: 0 lost, 0 mixed")


def test_a_router_that_takes_any_engine_mixes(serving: Serving, nodes: AddNodes) -> None:
    """Without either. An engine that cannot read a cache counts as one that fails, so that no circuit is left closed."""
    nodes(nodes=3)
    with serve(serving, SMG) as rollouts:
        router = SMG.start(serving)
        eventually(is_ready(router), 60, "the router has engines")
        with Traffic(lambda: router.url) as traffic:
            rollouts.await_answers(traffic, ("1", "1"))
            rollouts.change("2", "2")
        print(f"{traffic.statuses.total()} requests: {traffic.lost} failed, {rollouts.engines.mixed} mixed")
        assert rollouts.engines.mixed > 0
