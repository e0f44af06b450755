"""Judgement of a spec: whether it is accepted, and which spec is kept up while it is not.

Checks that CEL cannot do are made here: fields that are not built yet, levels that the topology does not have. The
backend of a resource, and its dialect, are chosen once, recorded, and kept while anything of it is there.

Whatever is wrong with a new spec holds the new spec. What was accepted last is repaired meanwhile: pods are replaced,
released pods are deleted, units are counted. Nothing here does I/O.

========================================================  ============================================================
the new spec                                              what is kept up
========================================================  ============================================================
is in order                                               the new spec; on a backend whose groups cannot be changed,
                                                          with the levels of a topology that they were made for
asks for rolled fields whose rollout was given up         the new spec with the rolled fields before (``failed``)
cannot be read, asks for what is not supported, names     the last accepted one, where anything of it is there; else
levels that do not exist, has a refused template          nothing is created, replaced or deleted
has a backend that the cluster cannot do any more         nothing is created, replaced or deleted
says ``suspend: true``, whatever else                     nothing: what runs is given up
========================================================  ============================================================

The topology of units that run is not chosen anew: the spec that is judged is judged by the levels that these mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec, UnitTopology
from covey.api.model import ObjectMeta
from covey.api.roles import InPlace, RoleTopology
from covey.api.rules import in_circles
from covey.api.unsupported import unkept_constraints, unsupported_fields
from covey.backends import Backend, Cluster, choose, find, newest
from covey.compile.group_hierarchy import levels_named
from covey.compile.groups import Levels
from covey.compile.revision import Revision
from covey.model import podstate
from covey.operator.model.accepted import Accepted, Content, Resolved, with_rolled
from covey.operator.model.compute_domains import find_missing
from covey.operator.model.kept_topology import describe_change, is_topology_kept
from covey.operator.model.objects import Inference
from covey.operator.model.observed import Observed
from covey.operator.model.problem import Problem
from covey.placement.cluster import presets
from covey.placement.model import Topology


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
        lost = why or f"this release of Covey has no backend {_backend_text(recorded)}"
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


def _backend_text(recorded: Resolved) -> str:
    return f"{recorded.backend} {recorded.dialect}".strip()


def find_unsupported(
    spec: DisaggregatedInferenceSpec, last: DisaggregatedInferenceSpec | None = None
) -> Problem | None:
    """Report fields that are not honoured, and roles that wait for each other.

    Args:
        spec: what is wanted.
        last: the spec that was accepted last: constraints of it that nobody keeps are a condition (``status``), no
            refusal, since releases before this one accepted them.
    """
    accepted = unkept_constraints(last) if last is not None else []
    unkept = (sentence for sentence in unkept_constraints(spec) if sentence not in accepted)
    if unsupported := [*unsupported_fields(spec), *unkept]:
        return Problem(names.REASON_UNSUPPORTED, "; ".join(unsupported))
    if circle := in_circles(spec):
        roles = ", ".join(circle)
        return Problem(names.REASON_INVALID, f"dependsOn: {roles} depend on each other in a circle: break it")
    return None


def _find_late_correction(
    spec: DisaggregatedInferenceSpec, last: DisaggregatedInferenceSpec | None, observed: Observed
) -> Problem | None:
    """Report what was changed in the moment between the first pods and the status that tells of them (``IMMUTABLE_WITH_UNITS``)."""
    if last is None or next(observed.every_pod(), None) is None:
        return None
    changed = {
        "priorityClassName": (last.priority_class_name, spec.priority_class_name),
        "topology.name": (last.topology.name, spec.topology.name),
    }
    kept = [
        f"spec.{field} stays {before or 'unset'}" for field, (before, wanted) in changed.items() if before != wanted
    ]
    if not kept:
        return None
    remedy = "set it back, or suspend the resource until its pods are gone"
    return Problem(names.REASON_INVALID, f"{'; '.join(kept)}: pods were made with it before it was changed; {remedy}")


@dataclass(frozen=True, slots=True)
class KeptTopology:
    """The topology of units that run; ``name`` is None where their roots do not tell it (yet)."""

    name: str | None = None


def find_kept_topology(inference: str, observed: Observed) -> KeptTopology | None:
    """The topology that running units of Covey's own backend keep, as their roots tell; None where none runs."""
    units = {
        slot.unit
        for slot, pods in observed.pods.items()
        if any(podstate.is_admitted(pod) and not podstate.is_dead(pod) for pod in pods)
    }
    roots = [root for _, root in observed.find_roots(inference, sorted(units))]
    return KeptTopology(next(filter(None, (root.status.topology for root in roots)), None)) if roots else None


def resolve_topology(
    spec: DisaggregatedInferenceSpec,
    topologies: Sequence[core.ClusterTopology],
    recorded: Resolved | None = None,
    kept: KeptTopology | None = None,
    detected: Topology | None = None,
) -> tuple[str | None, Levels | None, Problem | None]:
    """Return the topology in use, its levels with their keys, and the problem with levels that the spec names.

    None for the first two when there is no ClusterTopology to choose: the scheduler process then detects a preset from
    the labels of the nodes, and any level that some preset knows is let pass here.

    Args:
        spec: what is wanted.
        topologies: those of the cluster.
        recorded: what was chosen before; it is chosen again as long as it exists, whatever is marked now.
        kept: the topology of units that run; while some do, nothing is chosen for them anew unless the spec names it.
        detected: the preset that the labels of nodes show now, for what is said of a level that no preset has.
    """
    if not spec.topology.name and recorded is not None and kept is not None:
        return _keep_topology(spec, topologies, recorded, kept, detected)
    if not topologies and not spec.topology.name:
        return None, None, _find_unknown_to_all(spec, detected)
    defaults = [
        item.metadata.name
        for item in topologies
        if item.metadata.annotation(names.ANNOTATION_DEFAULT_TOPOLOGY) == "true"
    ]
    before = recorded.topology if recorded is not None else None
    there = before if any(item.metadata.name == before for item in topologies) else None
    try:
        chosen = presets.choose(
            spec.topology.name or there, [presets.topology_of(item) for item in topologies], defaults, nodes=()
        )
    except LookupError as error:
        return None, None, Problem(names.REASON_INVALID_TOPOLOGY, str(error), retry=True)
    return chosen.name, _levels_of(chosen), _find_bad_level(spec, chosen)


def _keep_topology(
    spec: DisaggregatedInferenceSpec,
    topologies: Sequence[core.ClusterTopology],
    recorded: Resolved,
    kept: KeptTopology,
    detected: Topology | None,
) -> tuple[str | None, Levels | None, Problem | None]:
    known = {item.metadata.name: presets.topology_of(item) for item in topologies}
    names_in_order = filter(None, (recorded.topology, kept.name))
    topology = next(filter(None, (presets.find(name, known) for name in names_in_order)), None)
    if topology is None and recorded.topology is None:
        return None, None, _find_unknown_to_all(spec, detected)
    if topology is None:
        return recorded.topology, recorded.levels, _find_loss(spec, recorded.topology)
    problem = _find_bad_level(spec, topology, " (which its running units keep)")
    if recorded.topology is None:
        return None, None, problem
    return topology.name, _levels_of(topology), problem


def _find_loss(spec: DisaggregatedInferenceSpec, name: str | None) -> Problem | None:
    """Report a topology that is gone, where a level of it is named: nobody knows what that means any more."""
    if not levels_named(spec):
        return None
    remedy = "create it again, or suspend the resource and resume it, which places it anew"
    message = f"topology {name}, with which units of it were placed, is gone: {remedy}"
    return Problem(names.REASON_INVALID_TOPOLOGY, message, retry=True)


def _levels_of(topology: Topology) -> Levels:
    return {level.name: tuple(level.keys) for level in topology.levels}


def _find_unknown_to_all(spec: DisaggregatedInferenceSpec, detected: Topology | None) -> Problem | None:
    known = tuple(dict.fromkeys(level.name for preset in presets.PRESETS for level in preset.levels))
    problem = _unknown(spec, known, "any topology that Covey can detect")
    if problem is None or detected is None:
        return problem
    return _unknown(
        spec, tuple(level.name for level in detected.levels), f"topology {detected.name}, which the nodes' labels show"
    )


def _find_bad_level(spec: DisaggregatedInferenceSpec, topology: Topology, remark: str = "") -> Problem | None:
    known = tuple(level.name for level in topology.levels)
    return _unknown(spec, known, f"topology {topology.name}{remark}") or _find_inverted_level(spec, known)


def _unknown(spec: DisaggregatedInferenceSpec, known: Sequence[str], where: str) -> Problem | None:
    missing = [level for level in levels_named(spec) if level not in known]
    if not missing:
        return None
    message = f"level {', '.join(missing)} is not in {where}: use one of {', '.join(known)}"
    return Problem(names.REASON_INVALID_TOPOLOGY, message, retry=True)


def _find_inverted_level(spec: DisaggregatedInferenceSpec, levels: Sequence[str]) -> Problem | None:
    """Report a preferred level that is coarser than the required one: it can never matter."""
    scopes: list[tuple[str, UnitTopology | RoleTopology]] = [("spec.topology", spec.topology)]
    scopes += [(f"spec.roles[{role.name}].topology", role.topology) for role in spec.roles]
    for path, topology in scopes:
        required, preferred = topology.required, topology.preferred
        if required and preferred and levels.index(preferred) < levels.index(required):
            message = f"{path}: preferred level {preferred} is coarser than the required {required}"
            return Problem(names.REASON_INVALID_TOPOLOGY, message, retry=True)
    return None


@dataclass(frozen=True, slots=True)
class StoredSpec:
    """A stored resource as this release reads it; ``inference`` is None when it cannot be read."""

    stored: Inference
    inference: DisaggregatedInference | None
    problem: Problem | None
    resolved: Resolved | None = None
    backend: Backend | None = None
    #: The backend cannot be had: its objects cannot even be seen.
    is_blind: bool = False
    #: Why groups keep levels that the ClusterTopology of today does not have so; empty where they do not.
    kept_levels: str = ""

    @property
    def is_suspended(self) -> bool:
        """Tell whether the stored spec says ``suspend: true``, however unreadable the rest is."""
        return self.stored.spec.get("suspend") is True


@dataclass(frozen=True, slots=True)
class AcceptedSpec:
    """The spec that is kept up, and the problem of the newest one.

    ``inference`` has the spec that is kept up, by ``backend``, None where there is no such one. ``accepted`` is None
    where there is none: then nothing is done. ``wanted`` is what the newest readable spec asks for, and ``failed`` that
    its rolled fields were given up. ``problem`` is the new spec's. ``unproven``: the API server has not been asked
    about the templates yet. ``kept_levels`` says how the topology that the groups were made for differs from today's;
    empty where it does not.
    """

    inference: DisaggregatedInference
    accepted: Accepted | None
    wanted: Revision
    backend: Backend | None = None
    failed: bool = False
    problem: Problem | None = None
    unproven: bool = False
    kept_levels: str = ""

    @property
    def is_kept_up(self) -> bool:
        """Tell whether there is a spec to work by."""
        return self.accepted is not None

    @property
    def levels(self) -> Levels | None:
        """Levels of the topology in use; None when it is not known."""
        return self.accepted.resolved.levels if self.accepted is not None else None


def read_spec(
    stored: Inference, topologies: Sequence[core.ClusterTopology], cluster: Cluster, observed: Observed
) -> StoredSpec:
    """Read a resource, and find what is wrong with its spec."""
    if stored.unreadable:
        return StoredSpec(
            stored, None, Problem(names.REASON_INVALID, f"{stored.unreadable}; nothing of it is taken up")
        )
    try:
        inference = read_inference(stored)
    except ValidationError as error:
        return StoredSpec(stored, None, Problem(names.REASON_INVALID, _sentence(error)))
    spec, last = inference.spec, _last(observed)
    recorded, last_spec = (last.resolved, last.spec) if last is not None else (None, None)
    running = find_kept_topology(stored.metadata.name, observed)
    topology, levels, bad_levels = resolve_topology(spec, topologies, recorded, running, cluster.detected)
    backend, missing = resolve_backend(spec, recorded, cluster, is_there=_is_there(observed))
    if backend is None:
        return StoredSpec(stored, inference, find_unsupported(spec, last_spec) or missing, is_blind=True)
    missing = missing or (find_missing(cluster) if spec.interconnect else None)
    kept = ""
    if last is not None and _is_there(observed) and backend.has_fixed_levels and is_topology_kept(spec, last):
        kept = describe_change(last.resolved, topology, levels)
    if kept and recorded is not None:
        topology, levels, bad_levels = recorded.topology, recorded.levels, None
    resolved = Resolved(
        backend.name,
        recorded.scheduler_name if recorded else spec.effective_scheduler_name,
        topology,
        levels,
        backend.dialect,
    )
    problem = (
        find_unsupported(spec, last_spec)
        or _find_late_correction(spec, last_spec, observed)
        or missing
        or bad_levels
        or find_refused(backend, spec, levels, cluster)
    )
    return StoredSpec(stored, inference, problem, resolved, backend, is_blind=missing is not None, kept_levels=kept)


def validate(case: StoredSpec, observed: Observed, bad_template: Problem | None = None) -> AcceptedSpec | None:
    """Decide which spec is kept up; None when the resource cannot be read and nothing is known of it.

    Args:
        case: the resource.
        observed: the snapshot.
        bad_template: what the API server has against the new spec's pods, once it was asked.
    """
    inference, last = case.inference, _last(observed)
    if inference is not None and case.resolved is not None and (case.problem is None or case.is_suspended):
        verdict = _accept(inference, case.stored.spec, case.resolved, observed)
        verdict = replace(verdict, backend=case.backend, kept_levels=case.kept_levels)
        if case.problem is not None:
            return replace(verdict, problem=case.problem, unproven=False)
        if bad_template is None:
            return verdict
    problem = case.problem or bad_template
    if last is not None and (case.is_suspended or _is_there(observed)):
        spec = last.effective.model_copy(update={"suspend": case.is_suspended})
        kept = DisaggregatedInference(metadata=_metadata(case.stored), spec=spec)
        backend = find(last.resolved.backend, last.resolved.dialect)
        newest = _revision_of(inference, observed) or last.revision
        return AcceptedSpec(kept, None if case.is_blind else last, newest, backend, problem=problem)
    wanted = _revision_of(inference, observed)
    if inference is None or wanted is None:
        return None
    return AcceptedSpec(inference, None, wanted, case.backend, problem=problem)


def _revision_of(inference: DisaggregatedInference | None, observed: Observed) -> Revision | None:
    return find_revision(inference.spec, _readable_revisions(observed)) if inference is not None else None


def find_revision(spec: DisaggregatedInferenceSpec, known: Sequence[Revision]) -> Revision:
    """The revision that a spec asks for, under a hash that is known; ``known`` has the stored ones, the newest first.

    Roles whose images are changed in place keep their addresses.
    """
    in_place = [role.name for role in spec.roles if role.update and role.update.in_place is InPlace.IF_POSSIBLE]
    return Revision.of(spec).known_as(known, stays=in_place)


def _accept(
    inference: DisaggregatedInference, content: Content, resolved: Resolved, observed: Observed
) -> AcceptedSpec:
    spec, known = inference.spec, _readable_revisions(observed)
    wanted = find_revision(spec, known)
    # What claims are made of may have been changed while nothing of it was there.
    proven = any(revision.is_same(wanted) for revision in known) and (_is_there(observed) or not any(wanted.pod_claims))
    unproven = not (spec.suspend or proven or _runs(wanted, observed))
    has_failed = any(
        stored.failed and stored.record and stored.record.revision.is_same(wanted) for stored in observed.revisions
    )
    former = revision_before(wanted, observed) if has_failed else None
    accepted = Accepted(spec, content, resolved, wanted)
    if former is not None:
        content = with_rolled(content, former)
        accepted = Accepted(DisaggregatedInferenceSpec.model_validate(content), content, resolved, former)
    effective = inference.model_copy(update={"spec": accepted.effective})
    return AcceptedSpec(effective, accepted, wanted, failed=former is not None, unproven=unproven)


def revision_before(wanted: Revision, observed: Observed) -> Revision | None:
    """The revision to go back to: of another content, not failed, and the newest that was once complete.

    Where none is known to have been, as in records of earlier releases, it is the newest.
    """
    newest_first = sorted(observed.revisions, key=lambda stored: (stored.completed, stored.number), reverse=True)
    for stored in newest_first:
        revision = stored.record.revision if stored.record is not None and not stored.failed else None
        if revision is not None and revision.roles.keys() == wanted.roles.keys() and not revision.is_same(wanted):
            return revision
    return None


def _runs(wanted: Revision, observed: Observed) -> bool:
    """Tell whether every role of it has pods, whatever has become of the record: the API server accepted them."""
    labelled = {
        (pod.metadata.label(names.LABEL_ROLE), pod.metadata.label(names.LABEL_REVISION)) for pod in observed.every_pod()
    }
    return all((name, role.hash) in labelled for name, role in wanted.roles.items())


def _readable_revisions(observed: Observed) -> list[Revision]:
    newest_first = sorted(observed.revisions, key=lambda stored: stored.number, reverse=True)
    return [stored.record.revision for stored in newest_first if stored.record is not None]


def _last(observed: Observed) -> Accepted | None:
    """The last accepted spec. An older one does not stand in for a newest one that cannot be read."""
    newest = observed.in_force
    return newest.record.accepted if newest is not None and newest.record is not None else None


def _is_there(observed: Observed) -> bool:
    return bool(observed.objects or observed.pods)


def read_inference(stored: Inference) -> DisaggregatedInference:
    """The resource with this release's models.

    Raises:
        ValidationError: it cannot be read.
    """
    return DisaggregatedInference.model_validate({"metadata": _metadata(stored), "spec": stored.spec})


def _metadata(stored: Inference) -> ObjectMeta:
    metadata = stored.metadata
    return ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        generation=metadata.generation,
        annotations=dict(metadata.annotations or {}),
    )


def _sentence(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:5])
