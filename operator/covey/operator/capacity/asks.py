"""Requests to an autoscaler for units that have no place, as Kubernetes objects. Pure, and without a memory.

All that is known of a request stands on objects: its name says what is asked, its conditions what was answered, and its
PodTemplate how it ended, when nodes came, and since when it is not wanted. In each pass every request that is stored
takes its next step, by the first line that holds:

=====================================  ===============================================================================
its unit has places or is gone, or     it goes, with its PodTemplate
wants other pods
its own clock has run out, whoever     the PodTemplate says so, then the request goes. Where no node came the same is
wants it (``answers``)                 asked for again after a while, all parts of a unit together; where nodes came and
                                       did not help, never
it is refused, and another domain may  the same, and that domain is asked for: one choice of a unit at a time. The last
come                                   one names none, and stays
another part of its unit is refused    it goes, for its nodes would stand empty; its PodTemplate stays
its unit does not want it now: quota,  it goes after ``afterSeconds`` of that, but not while nodes are on their way. How
or others give way to it               requests have ended is kept
nobody has decided on its unit         it stays: a scheduler process that starts anew must not take it back
its unit wants it                      it stays or is made. A ProvisioningRequest for replicas beyond the minimum stands
                                       until the last of its pods has a place: one for the rest would bring nodes twice.
                                       A CapacityBuffer asks for as many beside what runs, so it is replaced
=====================================  ===============================================================================

Nodes that come one by one are kept by the scheduler process (``status.claim``), which is told on the root.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import chain
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.annotations import NodesAsked
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.backends import Owned
from covey.backends.extender_only import can_reserve
from covey.compile import Owner
from covey.compile.groups import Levels
from covey.compile.identity import group_name
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_TEMPLATES, Resource
from covey.model import podstate
from covey.operator.capacity.answers import OPEN, REFUSED
from covey.operator.capacity.parts import PodSet, WaitingUnit, find_choices, find_surplus
from covey.operator.capacity.requests import NodeRequest, read_requests
from covey.operator.feature import Changes, Feature, PlanInput
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions, Annotate, DeleteObject, Object
from covey.operator.model.capacity import ASK_KINDS, AutoscalerSettings, CapacityAnswer
from covey.operator.model.claimed import read_claim
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark, soonest
from covey.operator.objects.drift import add_digest

#: Requests that a message names, and the characters of an autoscaler's answer that it repeats.
_NAMED: Final = 3
_LONGEST: Final = 1000
#: Parts for which something is made in one pass: what comes of them brings the next.
_AT_ONCE: Final = 50
#: States of a choice: it stands, nothing of it has ended, it is due once more, it is refused or not due yet.
_STANDS, _UNTRIED, _DUE, _OVER = range(4)
#: Reasons of a unit that is not admitted while nobody has decided anew: what was asked for it stays.
_UNDECIDED: Final = frozenset({names.REASON_WAITING, names.REASON_BELOW_MINIMUM, names.REASON_UNKNOWN})


class _Fate(Enum):
    """What its unit makes of a request that is stored; one that no unit knows is withdrawn."""

    WANTED = auto()
    UNDECIDED = auto()
    UNWANTED = auto()
    #: There are no nodes for it, and another choice.
    REFUSED = auto()
    #: To another choice, or because another part of its unit is refused.
    YIELDS = auto()


@dataclass(frozen=True, slots=True)
class _Demand:
    """What a unit wants: one of ``choices``, best first, which are made one by one.

    None of them where it cannot be said for which pods it would be. ``root``: the UID of its root. ``again``: seconds
    until time alone changes it.
    """

    unit: int
    root: str
    fate: _Fate
    choices: Iterable[tuple[PodSet, ...]] | None = None
    again: float | None = None


@dataclass(frozen=True, slots=True)
class _Ask:
    """A request, which may not be there yet, and the part of a unit for which it is, where that is known."""

    unit: int
    request: NodeRequest
    part: PodSet | None = None

    @property
    def domain(self) -> str:
        """The domain that it asks for by name, if any."""
        return self.part.domain if self.part is not None else ""

    def describe(self, kind: Resource) -> str:
        """Describe it in the condition."""
        request, ended = self.request, self.request.ended
        subject = str(self.part) if self.part is not None else f"pods of unit {self.unit}"
        if request.reply is not None and request.owned is not None:
            since = f"{subject} ({kind.kind} {request.name}) since {request.owned.metadata.creation_timestamp}"
            conditions = request.owned.status.conditions or ()
            why = next((condition.message for condition in conditions if condition.status == "False"), "")
            return f"{since}: {why[:_LONGEST]}" if why and request.answer in REFUSED else since
        if ended is None or ended.again is None:
            return f"{subject}; to ask again, delete PodTemplate {request.name}"
        return (
            f"{subject}; asked again after {core.rfc3339(ended.again)}, or once PodTemplate {request.name} is deleted"
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked for a unit, and what is stored of its other choices."""

    demand: _Demand
    asks: Sequence[_Ask] = ()
    others: Sequence[_Ask] = ()


class NodeRequests(Feature):
    """Requests to an autoscaler, for units that have no place."""

    HONOURS = frozenset({"requests for nodes"})

    @classmethod
    def applies(cls, given: PlanInput) -> bool:
        """Tell whether an autoscaler can be asked, or a root still says that one was."""
        owned, asked = given.observed.objects.values(), names.ANNOTATION_CAPACITY_ASKED
        return (given.backend is not None and can_reserve(given.backend.name)) and (
            given.observed.capacity is not None or any(root.metadata.annotation(asked) is not None for root in owned)
        )

    def outcome(self, changes: Changes) -> Outcome:
        """The requests to make, to end and to withdraw, and what there is to say of them."""
        given, inference, observed = self.given, self.given.inference, self.given.observed
        levels, capacity, now = given.levels or {}, observed.capacity, observed.now
        roots = {
            root.metadata.uid: root for _, root in observed.find_roots(given.owner.name, changes.intent.layout.units)
        }
        if capacity is None:
            return Outcome(Actions(annotate=tuple(_note_roots({}, roots.values()))))
        # 1. What is stored, and what of it has ended by its own clock.
        claims = {
            uid: claim
            for uid, root in roots.items()
            if (claim := root.status.claim) is not None and claim.nodes and claim.purpose == names.PURPOSE_CAPACITY
        }
        requests = read_requests(claims, capacity, observed)
        # 2. What each unit wants, and of the ways to ask for it one.
        demands = [*_find_demands(inference, levels, capacity, changes.intent, observed, requests)]
        wants = any(demand.fate is _Fate.WANTED and demand.choices for demand in demands)
        obstacle = _find_obstacle(given.spec, levels, capacity) if wants else None
        if obstacle is not None:
            demands = [_Demand(demand.unit, demand.root, _Fate.UNDECIDED) for demand in demands]
        units = [_choose(demand, requests, given.owner.name, capacity, now) for demand in demands]
        # 3. The next step of each request, and what is to be made.
        fates = dict(chain.from_iterable(_find_fates(unit, now) for unit in units))
        steps = [
            step for request in requests.values() for step in _step(request, fates.get(request.name), capacity, now)
        ]
        missing = [*chain.from_iterable(_find_missing(unit, now) for unit in units)][:_AT_ONCE]
        # 4. What there is to say of it, on the roots and in the condition.
        notes = {unit.demand.root: _describe_open(unit, roots.get(unit.demand.root), capacity) for unit in units}
        remarks = [*_describe(units, capacity.kind, claims)]
        if obstacle is not None:
            notes, remarks = {}, [obstacle]
        delays = chain.from_iterable(request.find_delays(capacity, now) for request in requests.values())
        return Outcome(
            Actions(
                annotate=(*(step for step in steps if isinstance(step, Annotate)), *_note_roots(notes, roots.values())),
                ask=tuple(filter(None, _bodies(missing, given.owner, capacity))),
                delete_objects=(
                    *(step for step in steps if isinstance(step, DeleteObject)),
                    *_find_foreign(capacity, observed),
                ),
            ),
            tuple(remarks),
            soonest(
                delay for delay in (*(demand.again for demand in demands), *delays) if delay is not None and delay > 0
            ),
        )


def _find_obstacle(spec: DisaggregatedInferenceSpec, levels: Levels, capacity: AutoscalerSettings) -> Remark | None:
    """Find why nobody can be asked."""
    if not capacity.is_served:
        kind = capacity.kind
        missing = f"the cluster does not know {kind.kind} ({kind.api_version}): nobody is asked for nodes"
        return Remark(names.CAPACITY_ASKED, CapacityAnswer.MISSING, missing, holds=False)
    required = (spec.topology.required, *(role.topology.required for role in spec.roles))
    unknown = next((level for level in required if level and level not in levels), None)
    if unknown is None:
        return None
    why = (
        f"nobody knows the node labels of level {unknown}: create a ClusterTopology, or name a preset in spec.topology"
    )
    return Remark(names.CAPACITY_ASKED, CapacityAnswer.UNKNOWN_LEVEL, why, holds=False)


def _find_demands(
    inference: DisaggregatedInference,
    levels: Levels,
    capacity: AutoscalerSettings,
    intent: Intent,
    observed: Observed,
    requests: Mapping[str, NodeRequest],
) -> Iterator[_Demand]:
    spec, scale, admitted = inference.spec, intent.scale(inference.spec), list[WaitingUnit]()
    numbers = [unit for unit in intent.layout.units if unit != intent.arriving]
    for unit in numbers:
        root = observed.objects.get((COMPOSITE_POD_GROUPS.type, group_name(inference.metadata.name, unit)))
        if root is None:
            continue
        waiting = WaitingUnit(unit, root.metadata.uid, intent.layout.units[unit], scale.unit(unit))
        decision = core.condition(root.status.conditions, names.ADMITTED)
        if decision is not None and decision.status == "True" and read_claim(root) is None:
            admitted.append(waiting)
        elif decision is None or decision.reason in _UNDECIDED:
            yield _Demand(unit, waiting.root, _Fate.UNDECIDED)
        elif decision.reason != names.REASON_INFEASIBLE or read_claim(root) is not None:
            # Room that others give is on its way already.
            yield _Demand(unit, waiting.root, _Fate.UNWANTED)
        elif (due := (core.seconds(decision.last_transition_time) or observed.now) + capacity.after) > observed.now:
            yield _Demand(unit, waiting.root, _Fate.UNWANTED, again=due - observed.now)
        else:
            choices = find_choices(waiting, spec, levels, observed)
            yield _Demand(unit, waiting.root, _Fate.UNDECIDED if choices is None else _Fate.WANTED, choices)
    # All minimums come first.
    is_turn = len(admitted) == len(numbers) and intent.progress is None
    for waiting in admitted:
        stored = [request for request in requests.values() if request.root == waiting.root]
        surplus: tuple[PodSet, ...] = ()
        # Who has a queue may wait for its quota.
        if asks := capacity.surplus and not spec.queue and (is_turn or stored):
            surplus = find_surplus(waiting, spec, levels, observed, observed.now - capacity.after)
            surplus = tuple(_join(part, stored, inference.metadata.name, capacity) for part in surplus)
        yield _Demand(
            waiting.unit,
            waiting.root,
            _Fate.WANTED if is_turn else _Fate.UNWANTED,
            [surplus] if surplus else (),
            capacity.after
            if asks and not all(map(podstate.is_admitted, observed.in_unit(waiting.unit).values()))
            else None,
        )


def _join(part: PodSet, stored: Iterable[NodeRequest], inference: str, capacity: AutoscalerSettings) -> PodSet:
    """Count the pods to which the nodes of an open request have come with those that wait for the rest of its nodes.

    Replicas beyond the minimum get their places one by one. A request anew for the others would bring theirs twice.
    """
    for request in stored:
        # Anybody may have written it.
        match request.owned.spec if request.owned is not None and request.answer is CapacityAnswer.COMING else None:
            case {"podSets": [{"count": int(count)}, *_]} if count > part.count:
                whole = replace(part, count=count)
                if whole.name(inference, capacity.asked_in) == request.name:
                    return whole
    return part


def _choose(
    demand: _Demand, requests: Mapping[str, NodeRequest], inference: str, capacity: AutoscalerSettings, now: float
) -> _Asked:
    """Choose what is asked for: the first choice that is not over; one that is due waits for another one that stands."""
    stored = {name: request for name, request in requests.items() if request.root == demand.root}
    if demand.choices is None:
        return _Asked(demand, [_Ask(demand.unit, request) for request in stored.values()])
    choices: list[list[_Ask]] = []
    states: list[int] = []
    unknown = set(stored)
    for parts in demand.choices:
        named = {part.name(inference, capacity.asked_in): part for part in parts}
        choices.append(
            [_Ask(demand.unit, stored.get(name) or NodeRequest(name, demand.root), named[name]) for name in named]
        )
        states.append(_find_state(choices[-1], now))
        unknown -= named.keys()
        # Of all that is stored it is known by now to which choice it belongs.
        if not unknown and min(states) < _OVER:
            break
    if not choices:
        return _Asked(demand)
    passed = {_OVER, _DUE} if _STANDS in states else {_OVER}
    chosen = next((asks for asks, state in zip(choices, states, strict=True) if state not in passed), choices[-1])
    others = stored.keys() - {ask.request.name for ask in chosen}
    return _Asked(demand, chosen, [ask for asks in choices for ask in asks if ask.request.name in others])


def _find_state(asks: Sequence[_Ask], now: float) -> int:
    # What may lie anywhere is asked for with each choice, and is no reason for another.
    requests = [ask.request for ask in asks if ask.domain] or [ask.request for ask in asks]
    if any(request.is_refused or request.rests(now) for request in requests):
        return _OVER
    if any(request.is_over for request in requests):
        return _DUE
    return _STANDS if any(request.reply is not None for request in requests) else _UNTRIED


def _find_fates(unit: _Asked, now: float) -> Iterator[tuple[str, _Fate]]:
    if unit.demand.fate is not _Fate.WANTED:
        yield from ((ask.request.name, unit.demand.fate) for ask in unit.asks)
        return
    for ask in unit.others:
        yield ask.request.name, _Fate.REFUSED if ask.request.is_refused and ask.domain else _Fate.YIELDS
    lacks = any(
        ask.request.answer in REFUSED and (ask.request.is_refused or ask.request.rests(now)) for ask in unit.asks
    )
    for ask in unit.asks:
        yield ask.request.name, _Fate.YIELDS if lacks and not ask.request.is_refused else _Fate.WANTED


def _step(
    request: NodeRequest, fate: _Fate | None, capacity: AutoscalerSettings, now: float
) -> Iterator[Annotate | DeleteObject]:
    """Find what is to be written of one request that is stored."""
    template, ended, unwanted = request.template, request.ending, None
    # What has ended goes.
    goes, template_goes = request.reply is None or fate is _Fate.YIELDS, False
    if fate is None:
        ended, goes, template_goes = None, True, True
    elif fate is _Fate.REFUSED and ended is None:
        ended = request.end(request.answer, capacity, now)
    elif fate is _Fate.UNWANTED and not request.is_over and request.answer not in capacity.api.coming:
        unwanted = request.unwanted or now
        # Without a PodTemplate nobody would know since when.
        if template is None or now >= unwanted + capacity.after:
            goes, template_goes = True, request.ended is None
    if ended is not None and template is not None:
        # Nothing is deleted before it is written down why.
        goes = template_goes = False
    if goes:
        yield from _delete(capacity.kind.type, request.owned)
    if template_goes:
        yield from _delete(POD_TEMPLATES.type, template)
    elif template is not None:
        notes = {names.ANNOTATION_ASK_UNWANTED: core.rfc3339(unwanted) if unwanted is not None else None}
        notes |= {names.ANNOTATION_ASK_CAME: core.rfc3339(request.came)} if request.came is not None else {}
        notes |= {names.ANNOTATION_ASK_ENDED: ended.dump()} if ended is not None else {}
        new = {key: text for key, text in notes.items() if template.metadata.annotation(key) != text}
        if new:
            yield Annotate(POD_TEMPLATES.type, request.name, template.metadata.uid, new)


def _delete(kind: str, owned: Owned | None) -> Iterator[DeleteObject]:
    if owned is not None and owned.metadata.deletion_timestamp is None:
        yield DeleteObject(kind, owned.metadata.name, owned.metadata.uid)


def _find_foreign(capacity: AutoscalerSettings, observed: Observed) -> Iterator[DeleteObject]:
    """Find what another provider was asked."""
    types = {kind.type for kind in ASK_KINDS} - {kind.type for kind in capacity.kinds}
    for (kind, _), owned in observed.objects.items():
        if kind in types:
            yield from _delete(kind, owned)


def _find_missing(unit: _Asked, now: float) -> Iterator[tuple[PodSet, NodeRequest]]:
    """Find what is to be made: all parts of a unit come together, and one choice at a time."""
    lacks = any(ask.request.is_refused or ask.request.rests(now) for ask in unit.asks)
    is_turn = not lacks and all(ask.request.owned is None for ask in unit.others)
    for ask in unit.asks if unit.demand.fate is _Fate.WANTED else ():
        stands = ask.request.owned is not None
        if ask.part is not None and (is_turn or stands) and not (stands and ask.request.template is not None):
            yield ask.part, ask.request


def _bodies(
    missing: Sequence[tuple[PodSet, NodeRequest]], owner: Owner, capacity: AutoscalerSettings
) -> Iterator[tuple[Object, ...]]:
    """Yield what is missing: PodTemplates, and the requests that refer to those that are stored.

    What the API server denies a PodTemplate for may pass; an autoscaler would say of a request without it that it failed.
    """
    metadata = {request.name: owner.metadata(request.name, {names.LABEL_ASK: part.root}) for part, request in missing}
    yield tuple(
        add_digest(
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata[request.name], "template": part.template}
        )
        for part, request in missing
        if request.template is None
    )
    head = {"apiVersion": capacity.kind.api_version, "kind": capacity.kind.kind}
    yield tuple(
        add_digest(
            {
                **head,
                "metadata": metadata[request.name],
                "spec": capacity.api.spec(request.name, part.count, capacity.class_name),
            }
        )
        for part, request in missing
        if request.template is not None
    )


def _note_roots(notes: Mapping[str, str | None], roots: Iterable[Owned]) -> Iterator[Annotate]:
    """Write on roots, by UID, what the scheduler process is to know of requests that are open; nothing on others."""
    for root in roots:
        note = notes.get(root.metadata.uid)
        if root.metadata.annotation(names.ANNOTATION_CAPACITY_ASKED) != note:
            change = {names.ANNOTATION_CAPACITY_ASKED: note}
            yield Annotate(COMPOSITE_POD_GROUPS.type, root.metadata.name, root.metadata.uid, change)


def _describe_open(unit: _Asked, root: Owned | None, capacity: AutoscalerSettings) -> str | None:
    """Describe the nodes that are on their way to a minimum, where all its requests are open.

    Of a domain that is asked for by name nobody has to say that they are: no other node has its labels.
    """
    standing = [ask.request for ask in unit.asks if ask.request.reply is not None and ask.request.answer in OPEN]
    if unit.demand.choices is None:
        # What was said stays while nodes may come.
        return root.metadata.annotation(names.ANNOTATION_CAPACITY_ASKED) if root is not None and standing else None
    parts = [ask.part for ask in unit.asks if ask.part is not None and not ask.part.surplus]
    named = [part for part in parts if part.domain]
    is_coming = any(request.answer in capacity.api.coming for request in standing)
    if not parts or len(standing) < len(parts) or not (named or is_coming):
        return None
    labels = set.intersection(*(set(part.template["spec"].get("nodeSelector", {}).items()) for part in named or parts))
    begun = [core.seconds(request.owned.metadata.creation_timestamp) or 0.0 for request in standing if request.owned]
    return NodesAsked(min(begun), capacity.wait, dict(labels)).dump()


def _describe(units: Sequence[_Asked], kind: Resource, claims: Mapping[str, core.Claim]) -> Iterator[Remark]:
    others = [ask for unit in units for ask in unit.others]
    every = ([ask for unit in units for ask in unit.asks], others)
    asks = next(
        filter(None, ([ask for ask in asks if ask.request.owned or ask.request.is_over] for asks in every)), None
    )
    if asks is None:
        return
    order = list(CapacityAnswer)
    asks.sort(key=lambda ask: order.index(ask.request.answer))
    message = "; ".join(ask.describe(kind) for ask in asks[:_NAMED])
    message += f" and {len(asks) - _NAMED} more" if len(asks) > _NAMED else ""
    refused = list(dict.fromkeys(ask.domain for ask in others if ask.domain))
    message += f"; refused: {', '.join(refused[:_NAMED])}" if refused else ""
    message += f" and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
    roots = dict.fromkeys(ask.request.root for ask in asks[:_NAMED])
    message += "".join(f"; {claims[root].message}" for root in roots if root in claims)
    lives = any(ask.request.reply is not None for ask in asks)
    yield Remark(names.CAPACITY_ASKED, asks[0].request.answer, message, holds=lives)
