"""``make demo-rollout``, with a control plane of its own."""

from __future__ import annotations

import pytest

import demo_rollout


@pytest.mark.slow
def test_no_request_is_lost_or_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    figures = demo_rollout.run()
    said = capsys.readouterr().out
    assert (figures.lost, figures.mixed) == (0, 0), said
    assert figures.requests > 100
    assert figures.kept == 6, "decode was restarted though only prefill changed"
    for revisions in ("prefill 1, decode 1 x", "prefill 2, decode 2 x", "prefill 3, decode 2 x"):
        assert revisions in said
