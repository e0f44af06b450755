"""Requests to an autoscaler for units that have no place, as Kubernetes objects. Pure, and without a memory.

A request stands as long as the unit waits for the same pods. All that is known of it stands on objects: its name says
what is asked, its conditions what was answered, and an annotation of its PodTemplate that it has ended without nodes.
One that has ended is not made again for the same pods, unless somebody deletes that PodTemplate.

=============================  =======================================================================================
refused for room               a PodTemplate and a request for each part
admitted, suspended, changed,  both are deleted
or others give way to it
nodes come one by one for      the request stands until the last of its pods has a place: one for the rest would bring
replicas beyond the minimum    nodes twice. A CapacityBuffer asks for as many beside what runs, so it is replaced
no nodes in a domain that      its requests are withdrawn, and the next such domain is asked for; after the last one
may come                       whichever may come, without a name
no nodes for one part          the requests for the other parts of the unit are withdrawn: their nodes would stand empty
nodes come one by one          the scheduler process keeps them for the unit (``status.claim``): it is told, on the root
an answer that brings nothing  after ``waitSeconds`` the request is deleted; its PodTemplate stays, and says so. The time
                               begins anew with each node that is kept
=============================  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.api.annotations import NodesAsked
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.backends import Owned
from covey.compile import Owner, Scale
from covey.compile.groups import Levels
from covey.compile.identity import group_name
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_TEMPLATES, Resource
from covey.operator.capacity.answers import COMING, OPEN, REFUSED, Answer, Reply, read_reply
from covey.operator.capacity.parts import Part, Waiting, find_choices, find_surplus
from covey.operator.model import podstate
from covey.operator.model.actions import Actions, Annotate, DeleteObject, Object, Outcome, Remark, soonest
from covey.operator.model.capacity import ASK_KINDS, Capacity, Provider
from covey.operator.model.claimed import read_claim
from covey.operator.model.observed import Observed
from covey.operator.objects import add_digest
from covey.operator.rolling.layout import Rolling

#: Requests that a message names, and the characters of an autoscaler's answer that it repeats.
_NAMED: Final = 3
_LONGEST: Final = 1000
#: Parts for which something is made in one pass: what comes of them brings the next.
_AT_ONCE: Final = 50
#: Reasons of a unit that is not admitted while nobody has decided anew: what was asked for it stays.
_UNDECIDED: Final = frozenset({names.REASON_WAITING, names.REASON_BELOW_MINIMUM, names.REASON_UNKNOWN})
_BY_TYPE: Final = frozenset(kind.type for kind in ASK_KINDS)


@dataclass(slots=True)
class _Wanted:
    """Parts to ask for, roots of which that cannot be said now (UIDs), and seconds until time alone makes more of them.

    Of each of ``choices`` one is asked for: the first that was not refused. ``kept``: by UID of the root, the claims to
    nodes that have come.
    """

    choices: list[Iterable[tuple[Part, ...]]] = field(default_factory=list)
    kept: dict[str, core.Claim] = field(default_factory=dict)
    unclear: set[str] = field(default_factory=set)
    again: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Ask:
    """A part, and what there is of it. ``reply`` is None before it is asked; ``ended``: how the request has ended."""

    part: Part
    name: str
    template: Owned | None
    request: Owned | None
    reply: Reply | None = None
    ended: Answer | None = None

    @property
    def answer(self) -> Answer:
        """Its answer, the last one where it has ended."""
        return self.ended or (self.reply.answer if self.reply else Answer.ASKED)

    def describe(self, kind: Resource) -> str:
        """Describe it in the condition."""
        if self.request is None:
            return f"{self.part}; to ask again, delete PodTemplate {self.name}"
        told = f"{self.part} ({kind.kind} {self.name}) since {self.request.metadata.creation_timestamp}"
        why = next((each.message for each in self.request.status.conditions or () if each.status == "False"), "")
        return f"{told}: {why[:_LONGEST]}" if why and self.answer in REFUSED else told


def find_asks(
    inference: DisaggregatedInference,
    levels: Levels | None,
    rolling: Rolling,
    observed: Observed,
    before: Mapping[str, Any],
) -> Outcome:
    """Find the requests to make, to end and to withdraw, and what there is to say of them.

    Args:
        inference: the resource, with the spec that is kept up.
        levels: of the topology, where they are known.
        rolling: the units that there shall be.
        observed: the snapshot, with whom to ask.
        before: the status so far: what it says stays as long as nobody has decided anew.
    """
    capacity, metadata = observed.capacity, inference.metadata
    roots = [root for _, root in observed.find_roots(metadata.name, rolling.layout.units)]
    if capacity is None:
        return Outcome(Actions(annotate=tuple(_tell_roots({}, roots))))
    kind, wanted = capacity.kind, _find_wanted(inference, levels or {}, capacity, rolling, observed)
    obstacle = _find_obstacle(inference.spec, levels or {}, capacity) if wanted.choices else None
    if obstacle is not None:
        return Outcome(Actions(annotate=tuple(_tell_roots({}, roots))), (obstacle,))
    asks, passed = list[_Ask](), list[_Ask]()
    for choices in wanted.choices:
        chosen, over = _choose(
            [_read(part, metadata.name, capacity, observed, wanted.kept) for part in parts] for parts in choices
        )
        asks += chosen
        passed += over
    actions = _act(asks, Owner(metadata.namespace, metadata.name, metadata.uid), capacity, observed.now)
    noted, withdrawn = _pass_over(passed, kind)
    useless = tuple(_find_useless({ask.name for ask in (*asks, *passed)}, wanted.unclear, observed))
    told = _tell_roots(
        _describe_open(asks, capacity), [root for root in roots if root.metadata.uid not in wanted.unclear]
    )
    later = (ask.reply.since + capacity.wait - observed.now for ask in asks if ask.reply is not None)
    return Outcome(
        Actions(
            annotate=(*actions.annotate, *noted, *told),
            ask=actions.ask,
            delete_objects=(*actions.delete_objects, *withdrawn, *useless),
        ),
        tuple(_describe(asks, kind, passed, wanted.kept))
        or tuple(_describe(passed, kind))
        or tuple(_repeat(before, wanted.unclear, observed)),
        soonest(each for each in chain(wanted.again, later) if each > 0),
    )


def _find_obstacle(spec: DisaggregatedInferenceSpec, levels: Levels, capacity: Capacity) -> Remark | None:
    """Find why nobody can be asked."""
    if not capacity.is_served:
        kind = capacity.kind
        missing = f"the cluster does not know {kind.kind} ({kind.api_version}): nobody is asked for nodes"
        return Remark(names.CAPACITY_ASKED, Answer.MISSING, missing, holds=False)
    required = (spec.topology.required, *(role.topology.required for role in spec.roles))
    unknown = next((level for level in required if level and level not in levels), None)
    if unknown is None:
        return None
    why = (
        f"nobody knows the node labels of level {unknown}: create a ClusterTopology, or name a preset in spec.topology"
    )
    return Remark(names.CAPACITY_ASKED, Answer.UNKNOWN_LEVEL, why, holds=False)


def _find_wanted(
    inference: DisaggregatedInference, levels: Levels, capacity: Capacity, rolling: Rolling, observed: Observed
) -> _Wanted:
    spec, found = inference.spec, _Wanted()
    scale, admitted = rolling.layout.scale or Scale.of(spec), list[Waiting]()
    numbers = [unit for unit in rolling.layout.units if unit != rolling.arriving]
    for unit in numbers:
        root = observed.objects.get((COMPOSITE_POD_GROUPS.type, group_name(inference.metadata.name, unit)))
        told = core.condition(root.status.conditions, names.ADMITTED) if root is not None else None
        # Room that others give is on its way already.
        if root is None or told is None or read_claim(root) is not None:
            continue
        waiting = Waiting(unit, root.metadata.uid, rolling.layout.units[unit], scale.unit(unit))
        if told.status == "True":
            admitted.append(waiting)
        elif told.reason in _UNDECIDED:
            found.unclear.add(waiting.root)
        elif told.reason == names.REASON_INFEASIBLE:
            due = (core.seconds(told.last_transition_time) or observed.now) + capacity.after - observed.now
            if due > 0:
                found.again.append(due)
                continue
            claim = root.status.claim
            if claim is not None and claim.purpose == names.PURPOSE_CAPACITY and claim.nodes:
                found.kept[waiting.root] = claim
            choices = find_choices(waiting, spec, levels, observed)
            found.unclear |= {waiting.root} if choices is None else set()
            found.choices += [choices] if choices else []
    # Who has a queue may wait for its quota; and all minimums come first.
    if capacity.surplus and len(admitted) == len(numbers) and rolling.progress is None and not spec.queue:
        counts = _find_counts(capacity, observed)
        for waiting in admitted:
            surplus = find_surplus(waiting, spec, levels, observed, observed.now - capacity.after)
            known = counts.get(waiting.root, ())
            surplus = tuple(_join(part, known, inference.metadata.name, capacity, observed) for part in surplus)
            found.choices += [[surplus]] if surplus else []
            if any(not podstate.is_admitted(pod) for pod in observed.in_unit(waiting.unit).values()):
                found.again.append(capacity.after)
    return found


def _find_counts(capacity: Capacity, observed: Observed) -> dict[str, set[int]]:
    """Find for how many pods there are requests that stand while nodes come one by one, by the UID of the root."""
    found: dict[str, set[int]] = {}
    if capacity.provider is Provider.PROVISIONING_REQUEST:
        for (kind, _), request in observed.objects.items():
            # Anybody may have written it.
            match request.spec if kind == capacity.kind.type else None:
                case {"podSets": [{"count": int(count)}, *_]}:
                    found.setdefault(request.metadata.label(names.LABEL_ASK) or "", set()).add(count)
    return found


def _join(part: Part, counts: Iterable[int], inference: str, capacity: Capacity, observed: Observed) -> Part:
    """Count the pods to which the nodes of an open request have come with those that wait for the rest of its nodes.

    Replicas beyond the minimum get their places one by one. A request anew for the others would bring theirs twice.
    """
    for count in sorted(count for count in counts if count > part.count):
        whole = replace(part, count=count)
        if _read(whole, inference, capacity, observed, {}).answer is Answer.COMING:
            return whole
    return part


def _read(part: Part, inference: str, capacity: Capacity, observed: Observed, kept: Mapping[str, core.Claim]) -> _Ask:
    name = part.name(inference, (capacity.kind.kind, capacity.class_name))
    template, request = (observed.objects.get((each.type, name)) for each in capacity.kinds)
    ended = template.metadata.annotation(names.ANNOTATION_ASK_ENDED) if template is not None else None
    if ended is not None:
        known = Answer(ended) if ended in Answer.__members__.values() else Answer.NOTHING_CAME
        return _Ask(part, name, template, request, ended=known)
    reply = read_reply(request, capacity, observed.now) if request is not None else None
    if reply is not None and (claim := kept.get(part.root)) is not None:
        reply = reply.renew(core.seconds(claim.last_progress_time) or 0.0, capacity, observed.now)
    return _Ask(part, name, template, request, reply)


def _choose(choices: Iterable[list[_Ask]]) -> tuple[list[_Ask], list[_Ask]]:
    """Return the asks of the first choice that was not refused, and those of the choices before it.

    The last one names no domain and stays, whatever was answered. None is made before those that were refused have
    gone: a unit has one choice at a time.
    """
    passed: list[_Ask] = []
    for asks in choices:
        # What may lie anywhere is asked for with each choice, and is no reason for another.
        named = [ask for ask in asks if ask.part.domain]
        if not any(ask.ended or ask.answer in REFUSED for ask in named):
            stands = any(ask.request is not None for ask in passed)
            return ([] if stands else asks), passed
        passed += named
    return [], passed


def _pass_over(passed: Iterable[_Ask], kind: Resource) -> tuple[list[Annotate], list[DeleteObject]]:
    """Withdraw what was refused while there is another choice: first it is written down why, on the PodTemplate."""
    noted: list[Annotate] = []
    withdrawn: list[DeleteObject] = []
    for ask in passed:
        if not ask.ended and ask.answer in REFUSED and ask.template is not None:
            told = {names.ANNOTATION_ASK_ENDED: ask.answer.value}
            noted.append(Annotate(POD_TEMPLATES.type, ask.name, ask.template.metadata.uid, told))
        elif ask.request is not None:
            withdrawn += _deletion(kind.type, ask.request)
    return noted, withdrawn


def _act(asks: Sequence[_Ask], owner: Owner, capacity: Capacity, now: float) -> Actions:
    refused = {ask.part.root for ask in asks if ask.answer in REFUSED}
    annotate: list[Annotate] = []
    delete: list[DeleteObject] = []
    make: list[_Ask] = []
    for ask in asks:
        end = ask.reply.end(capacity, now) if ask.reply is not None else None
        if ask.ended or (ask.part.root in refused and ask.answer not in REFUSED):
            delete += _deletion(capacity.kind.type, ask.request)
        elif ask.template is None or ask.request is None:
            make.append(ask)
        elif end is not None:
            # Nothing is deleted before it is written down why.
            told = {names.ANNOTATION_ASK_ENDED: end.value}
            annotate.append(Annotate(POD_TEMPLATES.type, ask.name, ask.template.metadata.uid, told))
    return Actions(
        annotate=tuple(annotate),
        ask=tuple(filter(None, _bodies(make[:_AT_ONCE], owner, capacity))),
        delete_objects=tuple(delete),
    )


def _bodies(asks: Sequence[_Ask], owner: Owner, capacity: Capacity) -> Iterator[tuple[Object, ...]]:
    """Yield what is missing: PodTemplates, and the requests that refer to those that are stored.

    What the API server denies a PodTemplate for may pass; an autoscaler would say of a request without it that it failed.
    """
    metadata = {ask.name: owner.metadata(ask.name, {names.LABEL_ASK: ask.part.root}) for ask in asks}
    yield tuple(
        add_digest(
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata[ask.name], "template": ask.part.template}
        )
        for ask in asks
        if ask.template is None
    )
    head = {"apiVersion": capacity.kind.api_version, "kind": capacity.kind.kind}
    yield tuple(
        add_digest({**head, "metadata": metadata[ask.name], "spec": _request(ask, capacity)})
        for ask in asks
        if ask.request is None and ask.template is not None
    )


def _request(ask: _Ask, capacity: Capacity) -> Object:
    template = {"podTemplateRef": {"name": ask.name}}
    if capacity.provider is Provider.CAPACITY_BUFFER:
        return {**template, "replicas": ask.part.count}
    return {"provisioningClassName": capacity.class_name, "podSets": [{**template, "count": ask.part.count}]}


def _find_useless(wanted: set[str], unclear: set[str], observed: Observed) -> Iterator[DeleteObject]:
    """Find what nobody waits for any more."""
    for (kind, name), owned in observed.objects.items():
        if kind in _BY_TYPE and name not in wanted and owned.metadata.label(names.LABEL_ASK) not in unclear:
            yield from _deletion(kind, owned)


def _deletion(kind: str, owned: Owned | None) -> Iterator[DeleteObject]:
    if owned is not None and owned.metadata.deletion_timestamp is None:
        yield DeleteObject(kind, owned.metadata.name, owned.metadata.uid)


def _tell_roots(told: Mapping[str, str | None], roots: Iterable[Owned]) -> Iterator[Annotate]:
    """Write on roots, by UID, what the scheduler process is to know of requests that are open; nothing on others."""
    for root in roots:
        wanted = told.get(root.metadata.uid)
        if root.metadata.annotation(names.ANNOTATION_CAPACITY_ASKED) != wanted:
            change = {names.ANNOTATION_CAPACITY_ASKED: wanted}
            yield Annotate(COMPOSITE_POD_GROUPS.type, root.metadata.name, root.metadata.uid, change)


def _describe_open(asks: Iterable[_Ask], capacity: Capacity) -> dict[str, str]:
    """Describe the nodes that are on their way to minimums, by the UID of the root, where all its requests are open.

    Of a domain that is asked for by name nobody has to say that they are: no other node has its labels.
    """
    by_root: dict[str, list[_Ask]] = {}
    for ask in asks:
        if not ask.part.surplus:
            by_root.setdefault(ask.part.root, []).append(ask)
    found: dict[str, str] = {}
    for root, own in by_root.items():
        named, answers = [ask for ask in own if ask.part.domain], {ask.answer for ask in own}
        begun = [
            core.seconds(ask.request.metadata.creation_timestamp) or 0.0 for ask in own if ask.request and not ask.ended
        ]
        if len(begun) == len(own) and answers <= OPEN and (named or not answers.isdisjoint(COMING[capacity.provider])):
            selectors = (ask.part.template["spec"].get("nodeSelector", {}).items() for ask in named or own)
            labels = set.intersection(*map(set, selectors))
            found[root] = NodesAsked(min(begun), capacity.wait, dict(labels)).dump()
    return found


def _describe(
    asks: Sequence[_Ask], kind: Resource, passed: Sequence[_Ask] = (), kept: Mapping[str, core.Claim] | None = None
) -> Iterator[Remark]:
    told = [ask for ask in asks if ask.request is not None or ask.ended]
    if not told:
        return
    order = list(Answer)
    told.sort(key=lambda ask: order.index(ask.answer))
    more = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    message = "; ".join(ask.describe(kind) for ask in told[:_NAMED]) + more
    refused = list(dict.fromkeys(ask.part.domain for ask in passed))
    message += f"; refused: {', '.join(refused[:_NAMED])}" if refused else ""
    message += f" and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
    roots = dict.fromkeys(ask.part.root for ask in told[:_NAMED])
    message += "".join(f"; {claim.message}" for root in roots if (claim := (kept or {}).get(root)) is not None)
    lives = any(ask.request is not None and not ask.ended for ask in told)
    yield Remark(names.CAPACITY_ASKED, told[0].answer, message, holds=lives)


def _repeat(before: Mapping[str, Any], unclear: set[str], observed: Observed) -> Iterator[Remark]:
    """Repeat what was said of requests that stand while it cannot be said whether they are wanted."""
    stands = any(
        kind in _BY_TYPE and owned.metadata.label(names.LABEL_ASK) in unclear
        for (kind, _), owned in observed.objects.items()
    )
    for each in before.get("conditions") or () if stands else ():
        if each["type"] == names.CAPACITY_ASKED:
            yield Remark(each["type"], each["reason"], each["message"], holds=each["status"] == "True")
