"""Requirements of a dialect that a cluster does not meet, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from covey.backends.seam import Cluster, FieldProbe
from covey.kube.resources import Resource


def missing_kinds(cluster: Cluster, kinds: Sequence[Resource], release: str) -> str | None:
    """Return a sentence about kinds that the cluster does not serve; None when it serves all of them."""
    missing = [kind for kind in kinds if kind in cluster.unserved]
    if not missing:
        return None
    plurals = ", ".join(kind.plural for kind in missing)
    return (
        f"the cluster does not serve {plurals} of {missing[0].api_version} (Kubernetes {release}): start kube-apiserver "
        f"with --runtime-config={missing[0].api_version}=true and --feature-gates=GenericWorkload=true"
    )


def missing_field(cluster: Cluster, probe: FieldProbe, field: str, gate: str) -> str | None:
    """Return a sentence about a field that would be lost, or could not be tried; None when it is kept."""
    if probe.name in cluster.kept:
        return None
    why = cluster.unprobed.get(probe.name)
    if why is not None:
        return f"whether the API server keeps {field} could not be tried: {why}"
    return f"the API server drops {field}: turn on the feature gate {gate} in kube-apiserver and kube-scheduler"
