"""Judgement of a spec: whether it is accepted, and which spec is kept up while it is not.

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

Levels of a topology that groups were made for, kept while the owner asks for nothing else.

Native groups have the label keys of their levels in fields that the API server lets nobody change. Were the keys read
again in each pass, an edit of one ClusterTopology would take down every unit of the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.api.meta import ObjectMeta
from covey.api.roles import InPlace
from covey.backends import Backend, Cluster, find
from covey.compile.groups import Levels
from covey.compile.revision import Revision
from covey.operator.accept.validate import find_refused, find_unsupported, resolve_backend, resolve_topology
from covey.operator.model.accepted import Accepted, Content, Resolved, with_rolled
from covey.operator.model.objects import Inference
from covey.operator.model.observed import Observed
from covey.operator.model.problem import Problem


def is_topology_kept(spec: DisaggregatedInferenceSpec, last: Accepted) -> bool:
    """Tell whether the owner asks for the same places as when the groups were made."""
    return _placement(spec) == _placement(last.spec)


def describe_change(recorded: Resolved, topology: str | None, levels: Levels | None) -> str:
    """Describe how a topology differs from the recorded one; empty where it does not, or no keys were recorded."""
    before = recorded.levels
    if recorded.topology is None or not before or not any(before.values()):
        return ""
    if levels is None:
        return f"topology {recorded.topology} cannot be chosen any more"
    if topology != recorded.topology:
        return f"topology {topology} would be chosen instead of {recorded.topology}"
    changed = [name for name in (*before, *levels) if before.get(name) != levels.get(name)]
    if changed:
        return f"topology {topology} has changed in level {', '.join(dict.fromkeys(changed))}"
    return "" if list(before) == list(levels) else f"topology {topology} has its levels in another order"


def _placement(spec: DisaggregatedInferenceSpec) -> object:
    return spec.topology, {role.name: role.topology for role in spec.roles}, spec.proximity


@dataclass(frozen=True, slots=True)
class Case:
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
class Verdict:
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


def read_case(
    stored: Inference, topologies: Sequence[core.ClusterTopology], cluster: Cluster, observed: Observed
) -> Case:
    """Read a resource, and find what is wrong with its spec."""
    if stored.unreadable:
        return Case(stored, None, Problem(names.REASON_INVALID, f"{stored.unreadable}; nothing of it is taken up"))
    try:
        inference = read_inference(stored)
    except ValidationError as error:
        return Case(stored, None, Problem(names.REASON_INVALID, _sentence(error)))
    spec, last = inference.spec, _last(observed)
    recorded = last.resolved if last is not None else None
    topology, levels, bad_levels = resolve_topology(spec, topologies, recorded.topology if recorded else None)
    backend, missing = resolve_backend(spec, recorded, cluster, is_there=_is_there(observed))
    if backend is None:
        return Case(stored, inference, find_unsupported(spec) or missing, is_blind=True)
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
    problem = find_unsupported(spec) or missing or bad_levels or find_refused(backend, spec, levels, cluster)
    return Case(stored, inference, problem, resolved, backend, is_blind=missing is not None, kept_levels=kept)


def judge(case: Case, observed: Observed, bad_template: Problem | None = None) -> Verdict | None:
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
        return Verdict(kept, None if case.is_blind else last, newest, backend, problem=problem)
    wanted = _revision_of(inference, observed)
    if inference is None or wanted is None:
        return None
    return Verdict(inference, None, wanted, case.backend, problem=problem)


def _revision_of(inference: DisaggregatedInference | None, observed: Observed) -> Revision | None:
    return _revision_asked_for(inference.spec, _readable_revisions(observed)) if inference is not None else None


def _revision_asked_for(spec: DisaggregatedInferenceSpec, known: Sequence[Revision]) -> Revision:
    """The revision that a spec asks for; roles whose images are changed in place keep their addresses."""
    in_place = [role.name for role in spec.roles if role.update and role.update.in_place is InPlace.IF_POSSIBLE]
    return Revision.of(spec).known_as(known, stays=in_place)


def _accept(inference: DisaggregatedInference, content: Content, resolved: Resolved, observed: Observed) -> Verdict:
    spec, known = inference.spec, _readable_revisions(observed)
    wanted = _revision_asked_for(spec, known)
    unproven = not (spec.suspend or any(each.is_same(wanted) for each in known) or _runs(wanted, observed))
    former = revision_before(wanted, observed) if _has_failed(wanted, observed) else None
    accepted = Accepted(spec, content, resolved, wanted)
    if former is not None:
        content = with_rolled(content, former)
        accepted = Accepted(DisaggregatedInferenceSpec.model_validate(content), content, resolved, former)
    effective = inference.model_copy(update={"spec": accepted.effective})
    return Verdict(effective, accepted, wanted, failed=former is not None, unproven=unproven)


def _has_failed(wanted: Revision, observed: Observed) -> bool:
    return any(each.failed and each.record and each.record.revision.is_same(wanted) for each in observed.revisions)


def revision_before(wanted: Revision, observed: Observed) -> Revision | None:
    """The revision to go back to: of another content, not failed, and the newest that was once complete.

    Where none is known to have been, as in records of earlier releases, it is the newest.
    """
    newest_first = sorted(observed.revisions, key=lambda stored: (stored.completed, stored.number), reverse=True)
    for stored in newest_first:
        found = stored.record.revision if stored.record is not None and not stored.failed else None
        if found is not None and found.roles.keys() == wanted.roles.keys() and not found.is_same(wanted):
            return found
    return None


def _runs(wanted: Revision, observed: Observed) -> bool:
    """Tell whether every role of it has pods, whatever has become of the record: the API server accepted them."""
    told = {
        (pod.metadata.label(names.LABEL_ROLE), pod.metadata.label(names.LABEL_REVISION)) for pod in observed.every_pod()
    }
    return all((name, role.hash) in told for name, role in wanted.roles.items())


def _readable_revisions(observed: Observed) -> list[Revision]:
    """The revisions that can be read, the newest first."""
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
