"""The programs of ``examples/python`` run, each as its page says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cluster.serving import Serving
from examples.files import EXAMPLES

LIFECYCLE = EXAMPLES / "python" / "lifecycle.py"


def test_no_program_is_forgotten() -> None:
    assert list(EXAMPLES.rglob("*.py")) == [LIFECYCLE]


@pytest.mark.usefixtures("racks", "covey")
def test_a_resource_is_created_watched_scaled_and_deleted(serving: Serving) -> None:
    manifest = EXAMPLES / "autoscaling" / "llama.yaml"
    arguments = [str(manifest), "prefill", "3", "--namespace", serving.namespace]
    with serving.cluster.record(serving.path("DisaggregatedInference")) as recording:
        done = subprocess.run(
            [sys.executable, "-W", "error", str(LIFECYCLE), *arguments],
            env=os.environ | {"KUBECONFIG": str(serving.cluster.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert (done.returncode, done.stderr) == (0, "")
        recording.wait(lambda events: bool(events) and events[-1][0] == "DELETED")
    assert done.stdout.splitlines() == [
        "created",
        "Ready: prefill 2/2 decode 2/2",
        "scaled: prefill 3/3 decode 2/2",
        "deleted",
    ]
    # What it printed has been so.
    roles = [item.get("status", {}).get("roles", []) for _, item in recording.events]
    ready = [{role["name"]: (role["ready"], role["replicas"]) for role in each} for each in roles]
    assert ready.index({"prefill": (2, 2), "decode": (2, 2)}) < ready.index({"prefill": (3, 3), "decode": (2, 2)})
