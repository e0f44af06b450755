"""What Flux, Helm and Argo CD make of an object's status: the library that the first two look with, the third's Lua."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

from builders.manifests import Object
from localcluster.binaries import ensure_tool
from localcluster.programs import ROOT


class Judged(NamedTuple):
    """A status, and the sentence with it."""

    status: str
    message: str


def judge(objects: Iterable[Object]) -> list[Judged]:
    """What kstatus says of some objects, in order: InProgress, Current, Failed, Terminating."""
    return _ask(objects)


def judge_by_argo(objects: Iterable[Object]) -> list[Judged]:
    """What Argo CD says with the health check that we give: Progressing, Healthy, Degraded, Suspended."""
    return _ask(objects, str(ROOT / "examples" / "argocd" / "health.lua"))


def _ask(objects: Iterable[Object], *script: str) -> list[Judged]:
    said = subprocess.run(
        [ensure_tool("kstatus", report=False), *script],
        input="\n".join(map(json.dumps, objects)),
        capture_output=True,
        text=True,
        check=True,
    )
    return [Judged(each["status"], each["message"]) for each in map(json.loads, said.stdout.splitlines())]
