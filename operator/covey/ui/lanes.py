"""The life of replicas, and plans of pasted manifests, as a viewer may see them.

The life of each replica that there is now, from the times of its pods.

A pasted manifest planned on what its viewer can see: as ``covey plan --cluster``, by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from covey.admission.tree import number
from covey.api import constants as names
from covey.api import core
from covey.api.inference import MOST_PODS
from covey.manifests.documents import read_pasted
from covey.manifests.sources import InputError, Place
from covey.planning.drawing import floor_of, marks_of
from covey.planning.facts import Facts
from covey.planning.request import sort_manifests, with_manifests, workloads_of
from covey.planning.run import Planned, plan_all
from covey.ui import contract
from covey.ui.chronicle import Pod
from covey.ui.facts import small
from covey.watching.branch import State, pod_state

#: Stands for a file in what is said of the manifest.
NAME = "manifest"


def plan(
    manifest: str, namespace: str, facts: Facts, denied: Sequence[contract.Denied], clock: Callable[[], float]
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
    found = sort_manifests(documents, None, namespace, facts.topologies, where=Place(NAME), source=NAME)
    pods = sum(inference.spec.pods for _, inference, _ in found.inferences)
    if pods > MOST_PODS:
        raise InputError(Place(NAME), f"has {pods:,} pods in all", f"plan at most {MOST_PODS:,} at once")
    facts = with_manifests(facts, found)
    workloads, warnings = workloads_of(found, facts)
    told = tuple(each.message for each in denied)
    facts = replace(facts, warnings=(*facts.warnings, *warnings, *told))
    planned = plan_all(workloads, facts, clock)
    report = planned.report
    return contract.PlanAnswer(report.status, report, tuple(planned.notes), _floor(planned), tuple(denied))


def problems_of(error: InputError) -> tuple[contract.Problem, ...]:
    """The problems of a manifest."""
    return tuple(contract.Problem(each.what, each.remedy, str(each.place)) for each in error.problems)


def _floor(planned: Planned) -> contract.Floor:
    floor = floor_of(planned)
    pods = [
        contract.FloorPod(spot.workload, spot.unit, spot.role, spot.replica, spot.index, spot.node, run.cells)
        for run in floor.runs
        for spot in (run.spot,)
    ]
    marks = [(path, mark) for path, mark in marks_of(planned.report).items() if path]
    return contract.Floor(floor.resource, floor.scale, floor.owners, tuple(pods), tuple(marks))


_LABEL_RESTARTS: Final = "covey.dev/restarts"
_ORDER: Final = tuple(State)


def lanes_of(pods: Iterable[Pod]) -> list[contract.Lane]:
    """A lane for each replica, in the order of units, roles and replicas."""
    found: dict[tuple[int, str, int], list[Pod]] = {}
    for pod in pods:
        meta = pod.metadata
        place = (
            small(number(meta.label(names.LABEL_UNIT))),
            meta.label(names.LABEL_ROLE) or "",
            small(number(meta.label(names.LABEL_REPLICA))),
        )
        found.setdefault(place, []).append(pod)
    return [_lane(*place, found[place]) for place in sorted(found)]


def _lane(unit: int, role: str, replica: int, pods: Sequence[Pod]) -> contract.Lane:
    """A replica has come as far as its slowest pod; a pod that goes takes it along."""
    states = [State.FAILED if core.is_terminal(pod) else pod_state(pod)[0] for pod in pods]
    newest = max(pods, key=lambda pod: pod.metadata.creation_timestamp).metadata
    going = [time for pod in pods if (time := _going(pod)) is not None]
    return contract.Lane(
        unit,
        role,
        replica,
        newest.label(names.LABEL_REVISION) or "",
        max(states, key=_ORDER.index).value,
        min(pod.metadata.creation_timestamp for pod in pods),
        _all(pods, _placed_at),
        _all(pods, _bound),
        _all(pods, _ready),
        min(going, default=None),
        small(max(number(pod.metadata.label(_LABEL_RESTARTS)) for pod in pods)),
    )


def _all(pods: Sequence[Pod], time_of: Callable[[Pod], str | None]) -> str | None:
    """When the last of them got there; None while one has not."""
    times = [time_of(pod) for pod in pods]
    found = [time for time in times if time is not None]
    return max(found) if len(found) == len(times) else None


def _placed_at(pod: Pod) -> str | None:
    """The time that was noted with the pin; a pod that is bound had its place by then."""
    if pod.spec.node_name is None and core.pinned_node(pod) is None:
        return None
    return pod.metadata.annotation(names.ANNOTATION_PINNED_AT) or _bound(pod)


def _bound(pod: Pod) -> str | None:
    return _since(pod, "PodScheduled")


def _ready(pod: Pod) -> str | None:
    return _since(pod, "Ready")


def _since(pod: Pod, kind: str) -> str | None:
    found = core.condition(pod.status.conditions, kind)
    return found.last_transition_time if found is not None and found.status == "True" else None


def _going(pod: Pod) -> str | None:
    return pod.metadata.annotation(names.ANNOTATION_DRAINING_SINCE) or pod.metadata.deletion_timestamp
