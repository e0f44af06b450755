"""Probes of the routers, as the examples have them."""

from __future__ import annotations

import pytest

from cluster.serving import Serving
from localcluster.probe import answers
from routers.programs import Example


@pytest.mark.parametrize("file", ["routers/smg.yaml", "engines/sglang.yaml"])
def test_a_router_without_engines_lives_and_is_not_ready(serving: Serving, file: str) -> None:
    router = Example(file).start(serving)
    assert answers(f"{router.url}/health")
    assert not answers(router.health_url)
