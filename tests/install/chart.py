"""The chart, rendered and installed by the real Helm, and the kustomize overlays, rendered by the real kubectl."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from localcluster.binaries import ensure, ensure_tool
from localcluster.programs import ROOT

Object = dict[str, Any]
CHART = ROOT / "helm" / "covey"
NAMESPACE = "covey-system"
#: What a cluster has that rendering alone cannot know.
SERVED = "scheduling.covey.dev/v1alpha1/ClusterTopology"
#: The C parser where PyYAML was built with it: the CRDs take the other one seconds.
_LOADER: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class HelmError(Exception):
    """Helm refused; the message is its own."""


@dataclass(frozen=True)
class Helm:
    """Helm with a home of its own, for one cluster or none."""

    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run a command and return what it prints.

        Raises:
            HelmError: when it fails.
        """
        home = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        given = ["--values=-"] if values is not None else []
        done = subprocess.run(
            [str(ensure_tool("helm")), *arguments, *given],
            env=os.environ | home | ({"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else {}),
            input=json.dumps(values or {}),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise HelmError(done.stderr.strip())
        assert "level=" not in done.stderr, done.stderr  # nor does it wonder about anything
        return done.stdout

    def render(
        self, values: Mapping[str, Any] | None = None, *flags: str, version: str = "1.37.1", chart: Path = CHART
    ) -> list[Object]:
        """The objects of ``helm template``; more flags win."""
        command = ("template", "covey", str(chart), f"--namespace={NAMESPACE}", f"--kube-version={version}", *flags)
        return parse(self.run(*command, values=values or {}))

    def install(self, values: Mapping[str, Any] | None = None, *, chart: Path = CHART) -> str:
        """Install the chart or upgrade to it, and wait until it is ready."""
        flags = (f"--namespace={NAMESPACE}", "--create-namespace", "--wait", "--timeout=120s")
        return self.run("upgrade", "--install", "covey", str(chart), *flags, values=values or {})

    def revision(self) -> str:
        """The number of the release's newest revision."""
        history = json.loads(self.run("history", "covey", f"--namespace={NAMESPACE}", "--output=json"))
        return str(max(entry["revision"] for entry in history))


def kustomized(overlay: str) -> list[Object]:
    """The objects of ``kubectl kustomize``."""
    command = [str(ensure()["kubectl"]), "kustomize", str(ROOT / "manifests" / "overlays" / overlay)]
    return parse(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def parse(text: str) -> list[Object]:
    """The objects of a YAML stream."""
    return [each for each in yaml.load_all(text, _LOADER) if each]


def stream(objects: Iterable[Object]) -> str:
    """The objects as a YAML stream; each is written as JSON, which is YAML too and takes a moment."""
    return "\n---\n".join(map(json.dumps, objects))


def find(objects: list[Object], kind: str, name: str) -> Object:
    """The one object of that kind and name."""
    (found,) = (each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name)
    return found
