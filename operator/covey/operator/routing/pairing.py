"""Pairs of prefill and decode that understand each other: labels of pods, and Services of single revisions.

Caches of one revision may mean nothing to another. Pods say of which revision of their *role* they are; which of them
belong together only a combination of revisions says, one of each role that serves. A *pairing* is such a combination,
and whole where each of these roles has a Ready replica of it. Two answers for two kinds of routers:

=============================  ========================================================================================
``covey.dev/pairing``          on each pod of a role that serves, with one value: a router keeps to pods of one value,
                               and passes over a pairing that is not whole
``covey.dev/whole-revision``   on Services, one for each role, also for a role that does not change, while several
                               revisions run side by side. They appear together once every role has a Ready replica,
                               and stay until one has none any more, Ready or not
=============================  ========================================================================================

A replica of a role that does not change could be of several pairings and can say one only. Such replicas are shared out
within their unit, in proportion to the Ready replicas of the roles that do change, each pairing that can be whole having
one at least; where there are too few, the one that has more of the changed roles has them. They are relabelled in an
order that leaves some pairing whole after every single write, and before anything is drained or deleted. Only where two
roles stay as they are and have one Ready replica each, no order does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile import Layout, ReplicaKey, Revision, Slot, Tree, identity_of
from covey.compile.groups import Object
from covey.compile.layout import Replicas
from covey.compile.network import NetworkCompiler
from covey.model import image_update
from covey.operator.model.actions import Actions, Relabel
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.objects.revisions import HISTORY
from covey.operator.replicas.progress import States

#: A revision of a role: the role, and its hash.
Part = tuple[str, str]
#: Pairings, the newest first: the revision of each role by the pairing's name.
Pairings = Mapping[str, Mapping[str, str]]
#: A replica of a unit: its role, and its number.
Which = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Member:
    """One replica of a role that serves: its revision, and the pairing that it carries (None for none).

    ``stays``: it is neither to go nor to become one of another revision.
    """

    role: str
    number: int
    revision: str
    ready: bool
    pairing: str | None
    stays: bool = True

    @property
    def which(self) -> Which:
        """The role, and the number."""
        return self.role, self.number

    @property
    def part(self) -> Part:
        """The role, and its revision."""
        return self.role, self.revision


def choose_pairings(members: Collection[Member], pairings: Pairings) -> dict[Which, str]:
    """Choose a pairing for each replica of a unit that stays, as far as one is known for its revision."""
    staying = sorted((each for each in members if each.stays), key=lambda each: each.which)
    roles = {each.role for each in members}
    parts = {name: {(role, found[role]) for role in roles} for name, found in pairings.items()}
    ready = Counter(each.part for each in staying if each.ready)
    shares = _share_out(parts, ready)
    found: dict[Which, str] = {}
    groups: dict[Part, list[Member]] = {}
    for each in staying:
        groups.setdefault(each.part, []).append(each)
    for part, alike in groups.items():
        of = [name for name, each in parts.items() if part in each]
        if len(of) == 1:
            found |= dict.fromkeys((each.which for each in alike), of[0])
        elif of:
            found |= _divide([each for each in alike if each.ready], shares.get(part, {}))
            others = [each for each in alike if each.which not in found]
            reach = [*shares.get(part, ()), *(n for n in of if all(ready[each] for each in parts[n] - {part}))]
            # Of those in reach, or of all where none is: the one that it has, else the newest.
            choice = reach or of
            found |= {m.which: m.pairing if m.pairing and m.pairing in choice else choice[0] for m in others}
    return found


def _share_out(parts: Mapping[str, set[Part]], ready: Mapping[Part, int]) -> dict[Part, dict[str, int]]:
    """Share Ready replicas of each part out among the pairings that can be whole, the newest first."""
    able = [name for name, each in parts.items() if all(ready.get(part) for part in each)]
    users = Counter(part for name in able for part in parts[name])
    totals = Counter[str]()
    for (role, _), count in ready.items():
        totals[role] += count
    weights = {
        name: min((Fraction(ready[p], totals[p[0]]) for p in parts[name] if users[p] == 1), default=Fraction(0))
        for name in able
    }
    shares: dict[Part, dict[str, int]] = {part: {} for part in users}
    # One without a part of its own has nothing that others could not have.
    for name in sorted(able, key=lambda name: -weights[name]):
        needed = parts[name]
        if all(len(shares[part]) < ready[part] for part in needed) and any(not shares[part] for part in needed):
            for part in needed:
                shares[part][name] = 1
    for part, share in shares.items():
        # The highest averages: more Ready replicas anywhere take none from a pairing that has gained.
        for _ in range(ready[part] - sum(share.values()) if share else 0):
            share[max(share, key=lambda name: weights[name] / (share[name] + 1))] += 1
    return {part: {name: share[name] for name in able if name in share} for part, share in shares.items()}


def _divide(alike: Sequence[Member], share: Mapping[str, int]) -> dict[Which, str]:
    """Divide Ready replicas of one part: the lowest numbers keep the pairing that they have."""
    left, found = dict(share), dict[Which, str]()
    for each in alike:
        if each.pairing is not None and left.get(each.pairing, 0):
            left[each.pairing] -= 1
            found[each.which] = each.pairing
    free = (name for name, count in left.items() for _ in range(count))
    rest = (each for each in alike if each.which not in found)
    return found | {each.which: name for each, name in zip(rest, free, strict=False)}


def find_late(members: Collection[Member], wanted: Mapping[Which, str], pairings: Pairings) -> list[list[Which]]:
    """Find the replicas of a unit that are relabelled after the others, in turns: without them no pairing was whole."""
    roles = {each.role for each in members}
    now: dict[str, dict[str, list[Member]]] = {}
    then: dict[str, dict[str, list[Member]]] = {}
    for each in sorted((each for each in members if each.ready), key=lambda each: each.which):
        now.setdefault(each.pairing or "", {}).setdefault(each.role, []).append(each)
        if each.stays:
            then.setdefault(wanted.get(each.which, each.pairing or ""), {}).setdefault(each.role, []).append(each)
    goals = [name for name in pairings if then.get(name, {}).keys() == roles]
    anchors = [name for name in (*goals, *pairings) if now.get(name, {}).keys() == roles]
    if not (roles and anchors and goals):
        return []

    def moves(each: Member) -> bool:
        return each.stays and wanted.get(each.which, each.pairing) != each.pairing

    pins = {role: min(found, key=moves) for role, found in now[anchors[0]].items()}
    kept = {pin.which for pin in pins.values() if moves(pin)}
    first = [
        role for role, pin in pins.items() if pin.which in kept and {m.which for m in then[goals[0]][role]} <= kept
    ]
    turns = [[pins[role].which] for role in sorted(first)]
    return [turn for turn in (*turns, sorted(kept - {pins[role].which for role in first})) if turn]


@dataclass(frozen=True)
class Pairing:
    """The pairing of each replica, by unit, role and number, and those that are relabelled late, turn by turn."""

    places: Mapping[ReplicaKey, str] = field(default_factory=dict)
    late: Sequence[Collection[ReplicaKey]] = ()
    remarks: tuple[Remark, ...] = ()

    @cached_property
    def _turns(self) -> Mapping[ReplicaKey, int]:
        return {place: turn for turn, places in enumerate(self.late, 1) for place in places}

    @property
    def roles(self) -> Collection[str]:
        """Roles of which it is decided here who takes requests: none, whoever lives does."""
        return ()

    def add_to(self, born: Collection[Slot]) -> dict[Slot, dict[str, str]]:
        """The labels that pods have at birth."""
        return {slot: {names.LABEL_PAIRING: self.places[slot[:3]]} for slot in born if slot[:3] in self.places}

    def relabel(self, observed: Observed) -> Outcome:
        """Relabel pods that run; what is being updated in place has no pairing until it runs its new images."""
        turns: list[list[Relabel]] = [[] for _ in (None, *self.late)]
        for slot, pod in observed.current.items() if self.places else ():
            wanted = self.places.get(slot[:3])
            if (
                wanted is not None
                and pod.metadata.label(names.LABEL_PAIRING) != wanted
                and image_update.is_restarted(pod)
            ):
                turns[self._turns.get(slot[:3], 0)].append(Relabel(pod, {names.LABEL_PAIRING: wanted}))
        return Outcome(Actions(pair=tuple(tuple(turn) for turn in turns if turn)), self.remarks)


def find_pairing(
    spec: DisaggregatedInferenceSpec, in_force: Revision, layout: Layout, observed: Observed, states: States
) -> Pairing:
    """Find the pairing of every replica of the roles that serve.

    Args:
        spec: what is kept up.
        in_force: the revision that is rolled out.
        layout: the replicas that there shall be.
        observed: the snapshot.
        states: how far each replica has come.
    """
    roles = [role.name for role in spec.roles if role.capability is not None]
    wanted = {role: in_force.roles[role].hash for role in roles}
    if not roles or _is_settled(wanted, in_force.pairing(roles), layout, observed):
        return Pairing()
    pairings = recorded_pairings(roles, in_force, observed)
    places: dict[ReplicaKey, str] = {}
    late: list[list[ReplicaKey]] = []
    for unit, laid_out in layout.units.items():
        members = [each for role in roles for each in members_of(unit, role, laid_out.get(role, {}), observed, states)]
        known = {**pairings, **find_unexplained_pairings(members, pairings)}
        chosen = choose_pairings(members, known)
        places |= {(unit, *which): name for which, name in chosen.items()}
        for turn, found in enumerate(find_late(members, chosen, known)):
            late += [[] for _ in range(turn + 1 - len(late))]
            late[turn] += [(unit, *which) for which in found]
    return Pairing(places, late)


def recorded_pairings(roles: Collection[str], in_force: Revision, observed: Observed) -> Pairings:
    """Collect the pairings of these roles that revisions explain, the newest first."""
    found: dict[str, Mapping[str, str]] = {}
    for each in (in_force, *_stored_revisions(observed)):
        if each.roles.keys() >= set(roles):
            found.setdefault(each.pairing(roles), {role: each.roles[role].hash for role in roles})
    return found


def _is_settled(wanted: Mapping[str, str], pairing: str, layout: Layout, observed: Observed) -> bool:
    """Tell whether all that is, and shall be, is of one revision, and says so: as most of the time."""
    laid_out = {(role, revision.hash) for _, role, _, revision in layout.replicas() if role in wanted}
    keys = (names.LABEL_REVISION, names.LABEL_PAIRING)
    pods = ((slot.role, pod.metadata.labels or {}) for slot, pod in observed.current.items() if slot.role in wanted)
    told = {(role, *map(labels.get, keys)) for role, labels in pods}
    return laid_out <= wanted.items() and told <= {(role, revision, pairing) for role, revision in wanted.items()}


def find_unexplained_pairings(members: Collection[Member], pairings: Pairings) -> Pairings:
    """Find pairings that pods of all roles carry and no record explains any more: what serves must not lose it.

    Of many, which somebody must have written, those that the most pods carry; others are left as they are.
    """
    found: dict[str, dict[str, str]] = {}
    for each in members:
        if each.pairing is not None and each.pairing not in pairings:
            found.setdefault(each.pairing, {})[each.role] = each.revision
    roles, counts = {each.role for each in members}, Counter(each.pairing or "" for each in members)
    whole = sorted((name for name, parts in found.items() if parts.keys() == roles), key=lambda name: -counts[name])
    return {name: found[name] for name in whole[:HISTORY]}


def members_of(unit: int, role: str, laid_out: Replicas, observed: Observed, states: States) -> Iterator[Member]:
    """List the replicas of one role of a unit: those that there are, and those that there shall be."""
    there = states.get(unit, {}).get(role, {})
    for number in sorted({*laid_out, *there}):
        wanted = laid_out[number].hash if number in laid_out else ""
        leader, state = observed.current.get(Slot(unit, role, number, 0)), there.get(number)
        labels = (leader.metadata.labels or {}) if leader is not None else {names.LABEL_REVISION: wanted}
        revision, pairing = labels.get(names.LABEL_REVISION, ""), labels.get(names.LABEL_PAIRING)
        ready = leader is not None and state is not None and state.is_ready
        yield Member(role, number, revision, ready, pairing, stays=number in laid_out and wanted == revision)


def with_pairs(
    tree: Tree, spec: DisaggregatedInferenceSpec, in_force: Revision, observed: Observed, states: States
) -> Tree:
    """The tree with the Services of revisions that run side by side.

    Args:
        tree: what is wanted.
        spec: what is kept up.
        in_force: the revision that is rolled out.
        observed: the snapshot.
        states: how far each replica has come.
    """
    laid_out = {(role, revision.hash) for _, role, _, revision in tree.layout.replicas()}
    roles = sorted({role for role, _ in laid_out})
    if len(roles) < 2 or len(laid_out) == len(roles):
        return tree
    ready = {
        (role, revision.hash)
        for unit, role, number, revision in tree.layout.replicas()
        if (state := states.get(unit, {}).get(role, {}).get(number)) is not None
        and state.is_ready
        and state.revision.hash == revision.hash
    }
    network = NetworkCompiler(tree.owner, spec)
    services: list[Object] = []
    for whole, parts in _wholes(in_force, observed, roles).items():
        if not parts.items() <= laid_out:
            continue
        found = [network.of_revision(role, revision, whole) for role, revision in parts.items()]
        if parts.items() <= ready or any(identity_of(body) in observed.objects for body in found):
            services += found
    return replace(tree, published=(*tree.published, *services))


def _wholes(in_force: Revision, observed: Observed, roles: list[str]) -> Mapping[str, Mapping[str, str]]:
    """Revisions of the resource, the newest first: hashes of these roles by hash of the whole.

    Two that differ in other roles only are one, under the newer name.
    """
    found: dict[tuple[str, ...], str] = {}
    for revision in (in_force, *_stored_revisions(observed)):
        if revision.roles.keys() >= set(roles):
            found.setdefault(tuple(revision.roles[role].hash for role in roles), revision.hash)
    return {whole: dict(zip(roles, hashes, strict=True)) for hashes, whole in found.items()}


def _stored_revisions(observed: Observed) -> Iterator[Revision]:
    for stored in sorted(observed.revisions, key=lambda each: each.number, reverse=True):
        if stored.record is not None:
            yield stored.record.revision
