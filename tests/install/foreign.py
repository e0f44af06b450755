"""The CRDs of the Prometheus operator and of cert-manager, from their own modules, pinned by go.sum."""

import json
import os
import subprocess
from pathlib import Path

from localcluster.binaries import TOOLS

_WANTED = {
    "github.com/prometheus-operator/prometheus-operator": (
        "example/prometheus-operator-crd",
        ("podmonitors", "servicemonitors", "prometheusrules"),
    ),
    "github.com/cert-manager/cert-manager": ("deploy/crds", ("_certificates", "_issuers")),
}


def foreign_crds() -> list[Path]:
    """Their files, of the kinds that the chart can make."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", *_WANTED],
        cwd=TOOLS[0].folder.parent / "crds",
        env=os.environ | {"GOFLAGS": "-mod=readonly", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"go mod download: {done.stdout}{done.stderr}"
    decoder, text, found = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        module, end = decoder.raw_decode(text)
        text = text[end:].strip()
        folder, kinds = _WANTED[module["Path"]]
        found += [path for path in Path(module["Dir"], folder).glob("*.yaml") if path.stem.endswith(kinds)]
    assert len(found) == sum(len(kinds) for _, kinds in _WANTED.values()), found
    return found
