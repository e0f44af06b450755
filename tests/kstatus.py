"""What Flux and Helm make of an object's status: the library that they look with, asked for each object."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from typing import NamedTuple

from api_manifests import Object
from localcluster.binaries import ensure_tool


class Judged(NamedTuple):
    """A status of kstatus (``InProgress``, ``Current``, ``Failed``, ``Terminating``), and the sentence with it."""

    status: str
    message: str


def judge(objects: Iterable[Object]) -> list[Judged]:
    """Ask about some objects, in order."""
    said = subprocess.run(
        [ensure_tool("kstatus", report=False)],
        input="\n".join(map(json.dumps, objects)),
        capture_output=True,
        text=True,
        check=True,
    )
    return [Judged(each["status"], each["message"]) for each in map(json.loads, said.stdout.splitlines())]
