"""The CRDs of the Prometheus operator, of cert-manager, of KEDA and of InferencePools, from their modules, pinned by go.sum."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from localcluster.binaries import TOOLS, find_go

#: By module, the folder and how the names of the files end, without their suffix.
Wanted = Mapping[str, tuple[str, tuple[str, ...]]]
#: What the chart can make.
OF_THE_CHART: Final[Wanted] = {
    "github.com/prometheus-operator/prometheus-operator": (
        "example/prometheus-operator-crd",
        ("podmonitors", "servicemonitors", "prometheusrules"),
    ),
    "github.com/cert-manager/cert-manager": ("deploy/crds", ("_certificates", "_issuers")),
}
INFERENCE_POOLS: Final[Wanted] = {
    "sigs.k8s.io/gateway-api-inference-extension": ("config/crd/bases", ("_inferencepools",))
}
KEDA: Final[Wanted] = {"github.com/kedacore/keda/v2": ("config/crd/bases", ("_scaledobjects",))}


def foreign_crds(wanted: Wanted = OF_THE_CHART) -> list[Path]:
    """The files of these kinds."""
    modules = TOOLS[0].folder.parent / "crds"
    done = subprocess.run(
        [find_go([modules]), "mod", "download", "-json", *wanted],
        cwd=modules,
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
        folder, kinds = wanted[module["Path"]]
        found += [path for path in Path(module["Dir"], folder).glob("*.yaml") if path.stem.endswith(kinds)]
    assert len(found) == sum(len(kinds) for _, kinds in wanted.values()), found
    return found
