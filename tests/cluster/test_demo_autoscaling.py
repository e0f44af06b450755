"""``make demo-autoscaling``, with a control plane and a Karpenter of its own."""

from __future__ import annotations

import pytest

import demo_autoscaling


@pytest.mark.slow
def test_load_brings_replicas_and_nodes_and_takes_them_away(capsys: pytest.CaptureFixture[str]) -> None:
    figures = demo_autoscaling.run()
    said = capsys.readouterr().out
    assert figures.nodes == (2, 5, 2, 0), said
    assert figures.made == 5, said
