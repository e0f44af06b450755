"""The files of ``examples/``, by what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from localcluster.programs import ROOT

EXAMPLES: Final = ROOT / "examples"
Object = dict[str, Any]


def documents(file: Path) -> list[Object]:
    """The objects of a file."""
    return [each for each in yaml.safe_load_all(file.read_text()) if each]


def of_kind(file: Path, kind: str) -> list[Object]:
    """The objects of one kind in a file."""
    return [each for each in documents(file) if each.get("kind") == kind]


def named(file: Path) -> str:
    """A file's path below ``examples``."""
    return str(file.relative_to(EXAMPLES))


def pods_of(spec: Object) -> int:
    """How many pods a resource has when all of it runs."""
    unit = sum(role.get("replicas", 1) * role.get("size", 1) for role in spec["roles"])
    return int(unit * spec.get("replicas", 1))


#: All manifests; those of ``nodes`` are what other files are planned on.
MANIFESTS: Final = sorted(file for file in EXAMPLES.rglob("*.yaml") if file.parent.name != "nodes")
#: Those with a resource of ours.
INFERENCES: Final = [file for file in MANIFESTS if of_kind(file, "DisaggregatedInference")]
