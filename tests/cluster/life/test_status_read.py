"""Helm waits for the status of a resource; ``tests/stories/test_status_read.py`` has what it and others read there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from builders.manifests import Object
from cluster.serving import AddNodes, Serving, serving, workers
from cluster.workbench import name_of
from kstatus import Judged, judge
from localcluster.binaries import ensure_tool

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")
KIND = "DisaggregatedInference"


def pair(image: str = "1", **fields: object) -> list[Object]:
    """A replica of two pods and one of one; the image says the revision."""
    found = [workers("prefill", size=2), workers("decode")]
    for each in found:
        each["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{image}"
        each.update(fields)
    return found


def judged(serving: Serving, name: str = "llm") -> Judged:
    (found,) = judge([serving.get(KIND, name)])
    return found


Helm = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def helm(serving: Serving, tmp_path: Path) -> Helm:
    """``helm("install", seconds, *roles, **spec)``: a chart with one resource, and Helm waits until it is as it should be."""

    def run(verb: str, seconds: int, *roles: Object, **spec: object) -> subprocess.CompletedProcess[str]:
        body = {
            "apiVersion": "inference.covey.dev/v1alpha1",
            "kind": KIND,
            "metadata": {"name": "llm"},
            "spec": {"roles": list(roles), **spec},
        }
        (tmp_path / "templates").mkdir(exist_ok=True)
        text = yaml.safe_dump(body).replace(
            "{{", '{{ "{{" }}'
        )  # the start command's own braces are no template of Helm's
        (tmp_path / "templates" / "llm.yaml").write_text(text)
        (tmp_path / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "llm", "version": "1.0.0"}))
        access = ("--kubeconfig", str(serving.cluster.kubeconfig), "--namespace", serving.namespace)
        command = [ensure_tool("helm"), verb, "llm", str(tmp_path), "--wait", f"--timeout={seconds}s", *access]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    return run


def test_helm_waits_for_what_is_in_progress(serving: Serving, nodes: AddNodes, helm: Helm) -> None:
    found = helm("install", 20, *pair())
    assert found.returncode != 0
    assert "llm not ready. status: InProgress" in found.stderr, found.stderr
    nodes(blocks=1, racks=1, nodes=6)
    found = helm("upgrade", 120, *pair())
    assert found.returncode == 0, found.stderr
    assert [name_of(pod) for pod in serving.pods()], "it runs"
    assert judged(serving).status == "Current"
    found = helm("upgrade", 120, *pair(), spread={"level": "nonsense"})
    assert found.returncode != 0
    assert "Failed" in found.stderr, found.stderr
