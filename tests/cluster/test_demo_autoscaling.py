"""``make demo-autoscaling``, with a control plane and a Karpenter of its own."""

from __future__ import annotations

import pytest

import demo_autoscaling


@pytest.mark.slow
def test_load_brings_replicas_and_nodes_and_takes_them_away(capsys: pytest.CaptureFixture[str]) -> None:
    figures = demo_autoscaling.run()
    said = capsys.readouterr().out
    minimum, busy, quiet, end = figures.nodes
    assert (quiet, end) == (2, 0), said
    # Between a bind and the end of its buffer Karpenter may look, and make as many nodes too many: they have gone again.
    assert 2 <= minimum <= 4, said
    assert 5 <= busy <= 8, said
    assert busy <= figures.made <= 10, said
