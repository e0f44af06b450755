"""A pasted manifest planned on what its viewer can see: as ``covey plan --cluster``, by the same code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from covey.api.inference import MOST_PODS
from covey.manifests.documents import read_pasted
from covey.manifests.errors import InputError, ManifestPath
from covey.planning.drawing import floor_of, marks_of
from covey.planning.facts import ClusterFacts
from covey.planning.request import sort_manifests, with_manifests, workloads_of
from covey.planning.run import Planned, plan_all
from covey.ui import contract

#: Stands for a file in what is said of the manifest.
NAME = "manifest"


def plan(
    manifest: str, namespace: str, facts: ClusterFacts, denied: Sequence[contract.Denied], clock: Callable[[], float]
) -> contract.PlanAnswer:
    """The answer to a manifest.

    Args:
        manifest: YAML or JSON.
        namespace: of objects that name none.
        facts: the cluster, as the viewer sees it.
        denied: what is missing in them.
        clock: seconds, for ``elapsedMs``.

    Raises:
        InputError: the manifest cannot be planned.
    """
    documents = read_pasted(manifest, NAME)
    manifests = sort_manifests(documents, None, namespace, facts.topologies, where=ManifestPath(NAME), source=NAME)
    pods = sum(inference.spec.pods for _, inference, _ in manifests.inferences)
    if pods > MOST_PODS:
        raise InputError(ManifestPath(NAME), f"has {pods:,} pods in all", f"plan at most {MOST_PODS:,} at once")
    facts = with_manifests(facts, manifests)
    workloads, warnings = workloads_of(manifests, facts)
    denials = tuple(denial.message for denial in denied)
    facts = replace(facts, warnings=(*facts.warnings, *warnings, *denials))
    planned = plan_all(workloads, facts, clock)
    report = planned.report
    return contract.PlanAnswer(report.status, report, tuple(planned.notes), _floor(planned), tuple(denied))


def problems_of(error: InputError) -> tuple[contract.ErrorDetail, ...]:
    """The problems of a manifest."""
    return tuple(contract.ErrorDetail(problem.what, problem.remedy, str(problem.place)) for problem in error.problems)


def _floor(planned: Planned) -> contract.PlanPicture:
    floor = floor_of(planned)
    pods = [
        contract.FloorPod(spot.workload, spot.unit, spot.role, spot.replica, spot.index, spot.node, run.cells)
        for run in floor.runs
        for spot in (run.spot,)
    ]
    marks = [(path, mark) for path, mark in marks_of(planned.report).items() if path]
    return contract.PlanPicture(floor.resource, floor.scale, floor.owners, tuple(pods), tuple(marks))
