"""The backend of a resource, and its dialect: chosen once, recorded, and kept while anything of it is there."""

from __future__ import annotations

from dataclasses import replace

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.backends import Backend, Cluster, choose, find, newest
from covey.compile.membership import Levels
from covey.operator.snapshot.accepted import Resolved
from covey.operator.terms.problem import Problem


def resolve_backend(
    spec: DisaggregatedInferenceSpec, recorded: Resolved | None, cluster: Cluster, *, is_there: bool
) -> tuple[Backend | None, Problem | None]:
    """Return the backend, None where there is none to work with, and the problem that stands in its way.

    Args:
        spec: what is wanted.
        recorded: what was chosen before.
        cluster: what the cluster has; what it lacks may come later, which is noticed.
        is_there: there are pods or groups of the resource.
    """
    name = recorded.backend if recorded is not None else spec.effective_backend
    former = find(recorded.backend, recorded.dialect) if recorded is not None else None
    # 1. The operator was started without it: nobody has asked the cluster about it.
    if name not in cluster.enabled:
        remedy = "add it to its --backends (value backends of the chart)"
        return former or newest(name), Problem(
            names.REASON_UNSUPPORTED, f"the operator runs without backend {name}: {remedy}"
        )
    # 2. What was chosen before, and still can be had. A field that nobody can be asked about now was kept then.
    why = former.absent(_with_unprobed(cluster) if is_there else cluster) if former is not None else None
    if former is not None and why is None:
        return former, None
    # 3. It cannot be had any more: what runs is left alone.
    if recorded is not None and is_there:
        lost = why or f"this release of Covey has no backend {_described(recorded)}"
        remedy = "what runs is left alone; set spec.suspend to true and then to false to have it made anew"
        return former, Problem(names.REASON_UNSUPPORTED, f"{lost}; {remedy}")
    # 4. Nothing runs: the newest that the cluster can do. It stays, so what decides which one it is has to be answered.
    chosen, hoped = choose(name, cluster), choose(name, _with_unprobed(cluster))
    if hoped is not None and hoped is not chosen:
        return hoped, Problem(names.REASON_UNSUPPORTED, hoped.absent(cluster) or "", retry=True)
    if chosen is None:
        latest = newest(name)
        why = latest.absent(cluster) if latest is not None else f"this release of Covey has no backend {name}"
        return latest, Problem(names.REASON_UNSUPPORTED, why or "")
    return chosen, None


def _with_unprobed(cluster: Cluster) -> Cluster:
    """The cluster as if it kept the fields about which probes have no answer."""
    return replace(cluster, kept=cluster.kept | cluster.unprobed.keys(), unprobed={})


def find_refused(
    backend: Backend, spec: DisaggregatedInferenceSpec, levels: Levels | None, cluster: Cluster
) -> Problem | None:
    """Report the parts of a spec that a backend cannot carry; ``retry`` where only a probe has no answer."""
    refused = backend.refusals(spec, levels, cluster)
    if not refused:
        return None
    may_pass = not backend.refusals(spec, levels, _with_unprobed(cluster))
    return Problem(names.REASON_UNSUPPORTED, "; ".join(refused), retry=may_pass)


def _described(recorded: Resolved) -> str:
    return f"{recorded.backend} {recorded.dialect}".strip()
