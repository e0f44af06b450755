"""One revision at a time, for routers that know no pairing (``rollout.routing: Exclusive``).

Of the roles that serve only pods of one pairing, over all units, have the value of ``covey.dev/endpoint`` that selectors
ask for; others that live have another. The newest pairing takes over once each role that differs has as many replicas
Ready in it as in the one that serves; before that only where that one is not whole without what goes. It is given up
only for one that is whole and has at least two more of some role Ready, so that one replica that comes and goes switches
nothing. Compared is what is Ready, never what is asked for: a unit that waits for nodes asks for nothing.

A write changes one pod. Where one role differs, new pods are shown before old ones are hidden, since either pairs with
the other role. Where several do, no order of writes is without both a mixed pair and a moment without any: from prefill
and decode of one revision, a single write leads to a mixed pair or to a role with nobody. Nothing is ever mixed here: all
but one old leader of each role are hidden first, and one new leader of each is shown before the others, so that the
moment is as long as about four writes, however many replicas there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile import Layout, Slot
from covey.compile.network import ADDRESSED, HIDDEN
from covey.compile.revision import Revision
from covey.model import podstate
from covey.operator.model.actions import Actions, Relabel
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.replicas.progress import States
from covey.operator.routing.pairing import (
    Member,
    Pairing,
    Pairings,
    Part,
    find_unexplained_pairings,
    members_of,
    recorded_pairings,
)

REASON_AWAITING: Final = "AwaitingMinimum"
REASON_NO_NODES: Final = "NoNodesForBoth"


@dataclass(frozen=True, slots=True)
class PairingCandidate:
    """A pod of a role that serves, not on its way out.

    ``shown``: routers take it when it is Ready. ``ready``: it leads its replica, and is.
    """

    role: str
    revision: str
    shown: bool
    ready: bool
    pod: core.Pod


def choose_shown(members: Collection[Member], shown: Collection[Part], pairings: Pairings, newest: str) -> str:
    """Choose the pairing that takes the requests.

    Args:
        members: replicas of the roles that serve, of all units.
        shown: revisions of roles of which some Ready pod takes requests.
        pairings: those that are known, the newest first.
        newest: the one that is rolled out.
    """
    ready = Counter(member.part for member in members if member.ready and member.stays)
    there = ready.keys()
    serving = [name for name, parts in pairings.items() if name != newest and parts.items() <= set(shown)]
    if pairings[newest].items() <= there:
        # One that has the requests passes them on to as many; the newest, once it has them, may lack one.
        rivals, spare = (serving[:1], 0) if serving else ([name for name in pairings if name != newest], 1)
        whole = (name for name in rivals if pairings[name].items() <= there)
        more = (name for name in whole if not _has_as_many(pairings[newest], pairings[name], ready, spare))
        return next(more, newest)
    # One that is whole before one that is not, and what has the requests before what has not.
    return max(pairings, key=lambda name: [len(pairings[name].items() & parts) for parts in (there, set(shown))])


def _has_as_many(new: Mapping[str, str], old: Mapping[str, str], ready: Mapping[Part, int], spare: int) -> bool:
    return all(
        ready[role, revision] + spare >= ready[role, old[role]]
        for role, revision in new.items()
        if old[role] != revision
    )


#: A pod, and whether it is to take requests.
Change = tuple[PairingCandidate, bool]


def order_turns(
    candidates: Sequence[PairingCandidate], wanted: Mapping[str, str], pairings: Pairings
) -> tuple[tuple[Change, ...], ...]:
    """Order the pods whose label changes in turns, such that no two revisions that are no pairing are shown.

    Args:
        candidates: all pods of the roles that serve.
        wanted: the revision of each role that takes the requests.
        pairings: those that are known.
    """
    wrong = [each for each in candidates if each.shown and each.revision != wanted[each.role]]
    show = [(each, True) for each in candidates if not each.shown and each.revision == wanted[each.role]]
    stale = {(each.role, each.revision) for each in wrong}
    served = {each.role for each in candidates if each.shown and each.ready}
    right = {each.role for each in candidates if each.shown and each.ready and each.revision == wanted[each.role]}
    known = list(pairings.values())
    turns: tuple[list[Change], ...]
    if len({role for role, _ in stale}) <= 1 and all({**wanted, role: old} in known for role, old in stale):
        turns = (show, [(each, False) for each in wrong])
    elif right == wanted.keys():
        turns = ([(each, False) for each in wrong], show)
    else:
        # Nobody of one role takes requests while the others change.
        first = min(wanted.keys() - right, key=lambda role: (role in served, role))
        kept = {each.role: each for each in wrong if each.ready and each.role not in right and served == wanted.keys()}
        early = [each for each in candidates if each.shown and each.role == first and each.revision == wanted[first]]
        others = [(each, False) for role, each in kept.items() if role != first]
        one = {each.role: (each, True) for each, _ in reversed(show) if each.ready}
        turns = (
            [(each, False) for each in (*early, *wrong) if each not in kept.values()],
            [(kept[first], False)] if first in kept else [],
            [*others, *(each for role, each in one.items() if role != first)],
            [one[first]] if first in one else [],
            [*((each, True) for each in early), *(each for each in show if each not in one.values())],
        )
    return tuple(tuple(turn) for turn in turns if turn)


@dataclass(frozen=True)
class Exclusive(Pairing):
    """Pairings, and the one that takes the requests: ``parts`` has the revision of each role in it."""

    layout: Layout = field(default_factory=lambda: Layout({}))
    parts: Mapping[str, str] = field(default_factory=dict)
    turns: Sequence[Sequence[Change]] = ()

    @property
    def roles(self) -> Collection[str]:
        """Roles of which it is decided here who takes requests."""
        return self.parts.keys()

    def add_to(self, born: Collection[Slot]) -> dict[Slot, dict[str, str]]:
        """Add the labels that pods have at birth: none takes requests while another revision still does."""
        found = super().add_to(born)
        for slot in born:
            revision = self.layout.revision_of(slot) if slot.role in self.parts else None
            if revision is not None:
                shown = not self.turns and revision.hash == self.parts[slot.role]
                found.setdefault(slot, {})[names.LABEL_ENDPOINT] = ADDRESSED if shown else HIDDEN
        return found

    def relabel(self, observed: Observed) -> Outcome:
        """Relabel pods that run: the pairings first, then who takes requests."""
        found = super().relabel(observed)
        turns = (tuple(_change(*each) for each in turn) for turn in self.turns)
        return replace(found, actions=Actions(pair=(*found.actions.pair, *turns)))


def _change(candidate: PairingCandidate, shown: bool) -> Relabel:  # noqa: FBT001 - the other half of a pair
    return Relabel(candidate.pod, {names.LABEL_ENDPOINT: ADDRESSED if shown else HIDDEN})


def find_exclusive(
    pairing: Pairing,
    spec: DisaggregatedInferenceSpec,
    in_force: Revision,
    layout: Layout,
    observed: Observed,
    states: States,
) -> Exclusive:
    """Find the pods that take requests, of the roles that serve.

    Args:
        pairing: of every replica.
        spec: what is kept up.
        in_force: the revision that is rolled out.
        layout: the replicas that there shall be.
        observed: the snapshot.
        states: how far each replica has come.
    """
    roles = [role.name for role in spec.roles if role.capability is not None]
    units = {*layout.units, *states}
    by_unit = [
        [
            member
            for role in roles
            for member in members_of(unit, role, layout.units.get(unit, {}).get(role, {}), observed, states)
        ]
        for unit in sorted(units)
    ]
    members = [*chain(*by_unit)]
    candidates = tuple(_candidates(roles, observed))
    pairings = recorded_pairings(roles, in_force, observed)
    pairings = {**pairings, **find_unexplained_pairings(members, pairings)}
    # A role of which there is nobody, and shall be nobody, makes none whole.
    present = {each.role for each in members}
    pairings = {name: {role: parts[role] for role in roles if role in present} for name, parts in pairings.items()}
    newest = in_force.pairing(roles)
    shown = {(each.role, each.revision) for each in candidates if each.shown and each.ready}
    chosen = choose_shown(members, shown, pairings, newest)
    parts = pairings[chosen]
    turns = order_turns(candidates, parts, pairings)
    # A unit that serves nothing asks for nothing.
    count = sum(any(member.ready for member in unit) for unit in by_unit)
    least = {role.name: max(role.min_replicas, 1) * count for role in spec.roles}
    remarks = tuple(_remarks(members, pairings, chosen, newest, least))
    return Exclusive(pairing.places, pairing.late, remarks, layout, parts, turns)


def _candidates(roles: Collection[str], observed: Observed) -> Iterator[PairingCandidate]:
    for slot, pod in observed.current.items():
        if slot.role in roles and not (podstate.is_draining(pod) or podstate.is_dead(pod)):
            revision, label = map(pod.metadata.label, (names.LABEL_REVISION, names.LABEL_ENDPOINT))
            ready = slot.index == 0 and podstate.is_ready(pod)
            yield PairingCandidate(slot.role, revision or "", label == ADDRESSED, ready, pod)


def _remarks(
    members: Collection[Member], pairings: Pairings, chosen: str, newest: str, least: Mapping[str, int]
) -> Iterator[Remark]:
    """Tell who takes the requests while not all replicas are of one revision."""
    new, ready = pairings[newest], Counter(member.part for member in members if member.ready)
    if all(member.revision == new[member.role] for member in members):
        return
    if chosen != newest:
        others = {part: (part[0], pairings[chosen][part[0]]) for part in new.items()}
        count = ", ".join(f"{ready[part]} of {ready[old]} {part[0]}" for part, old in others.items() if part != old)
        message = f"pairing {chosen} takes all requests until {newest} has as many replicas Ready: it has {count}"
        yield Remark(names.ROUTING_HELD, REASON_AWAITING, message)
    elif any(ready[part] < least[part[0]] for part in new.items()):
        count = ", ".join(f"{ready[part]} of {least[part[0]]} {part[0]}" for part in new.items())
        more = "there was no capacity for both: raise maxSurge, or free nodes"
        yield Remark(names.ROUTING_HELD, REASON_NO_NODES, f"pairing {newest} has taken over with {count} Ready; {more}")
