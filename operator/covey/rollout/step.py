"""The next step of a unit: replicas that stay, that go (from nodes that are to be empty, too), and that are new.

``window`` says how many; here it is said which. Whatever is counted as serving is given up last, and never more of it
than the window allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice, repeat

from covey.compile.revision import RoleRevision
from covey.rollout.in_place import choose_in_place, expected_back
from covey.rollout.model import RoleState, RolloutReplica, Stage, UnitState, UnitStep, serving
from covey.rollout.window import Window, floor, windows

Replicas = Mapping[int, RoleRevision]
#: Whether a revision (by hash) is whole, and its age.
Rank = Callable[[str], tuple[bool, int]]


def next_step(unit: UnitState) -> UnitStep:
    """The next layout of a unit; the same again when nothing is to change."""
    # 1. Nothing of it has ever run: there is nothing to go easy on.
    if not unit.stays and is_fresh(unit):
        # What waits takes the new template where it is.
        layouts = {n: _fill(_best(state.alive, state.wanted), state.wanted, state) for n, state in unit.roles.items()}
        return UnitStep({name: _of(layouts[name], state.target) for name, state in unit.roles.items()})
    changing = {name: state for name, state in unit.roles.items() if state.outdated}
    window_of = None if unit.is_held else windows(changing)
    # 2. No other revision is to be brought in, or may be: sizes, and successors of what leaves.
    if not window_of:
        return UnitStep({name: _stay(state) for name, state in unit.roles.items()})
    # 3. Changing roles by their windows, the others by their size.
    arrives = all(window.new or not changing[name].wanted for name, window in window_of.items())
    halves = _halves(changing, unit.ranks)
    kept = {
        name: _kept_replicas(changing[name], window, _rank(name, halves, unit.ranks))
        for name, window in window_of.items()
    }
    turned = choose_in_place({n: (changing[n], window, kept[n].every) for n, window in window_of.items()})
    steps = {name: _stay(state) for name, state in unit.roles.items() if name not in window_of}
    steps |= {n: _roll(changing[n], window, kept[n], turned[n], arrives=arrives) for n, window in window_of.items()}
    first = {name: state for name, state in changing.items() if not turned.get(name)}
    return UnitStep({name: steps[name] for name in unit.roles}, _together(first, steps))


def is_fresh(unit: UnitState) -> bool:
    """No replica of it has ever had its nodes."""
    return all(replica.fresh for state in unit.roles.values() for replica in state.alive.values())


def _stay(state: RoleState) -> Replicas:
    """Keep as many as are wanted, each of the revision that it has; new ones of the one that serves most.

    Between two revisions the surge stays as well.
    """
    if state.leaving:
        return _evacuate(state)
    alive = state.alive
    kept = _choose(alive, state.wanted + (state.budget.surge if state.wanted else 0))
    if not state.outdated.keys() & kept or not state.updated.keys() & kept:
        kept = _choose({n: alive[n] for n in kept}, state.wanted)
    more = set(_fill(kept, state.wanted, state)) - set(kept)
    return _sort_replicas({n: alive[n].revision for n in kept} | _of(more, _prevailing(state)))


def _evacuate(state: RoleState) -> Replicas:
    """Each replica that leaves is succeeded by one of its own revision, as in a rollout of this role alone."""
    alike = _alike(state)
    windows_of = windows({"": alike})
    assert windows_of is not None, "no partition holds it"
    kept = _kept_replicas(alike, windows_of[""], lambda _: (True, 0))
    numbers = _roll(alike, windows_of[""], kept, (), arrives=True)
    alive, orphans = state.alive, list(_successions(state, alike))
    new = (number for number in numbers if number not in alive)
    revisions = dict(zip(new, chain(orphans, repeat(_prevailing(state))), strict=False))
    return {n: alive[n].revision if n in alive else revisions[n] for n in numbers}


def _alike(state: RoleState) -> RoleState:
    """The role as if all were of the target; what leaves alone is to be replaced, and never below the minimum.

    A rollout may go below where ``maxUnavailable`` asks for it. Who drains a node has not asked this resource.
    """
    replicas = {n: replace(replica, revision=state.target, updatable=False) for n, replica in state.replicas.items()}
    budget = replace(state.budget, partition=0)
    alike = replace(state, replicas=replicas, budget=budget)
    if state.yields and alike.makes_room:
        return replace(alike, minimum=0)
    if budget.unavailable is not None:
        missing = min(budget.unavailable, max(0, state.wanted - state.minimum))
        return replace(alike, budget=replace(budget, unavailable=missing))
    return alike


def _successions(state: RoleState, alike: RoleState) -> Iterator[RoleRevision]:
    """The revisions of those that leave and have no successor yet, in the order in which they go."""
    leaving = sorted(state.leaving, key=lambda n: (alike.replicas[n].stage, alike.replicas[n].standing, -n))
    succeeded = max(0, len(state.alive) - state.wanted)
    yield from (state.alive[n].revision for n in leaving[succeeded:])


@dataclass(frozen=True, slots=True)
class _Kept:
    """Replicas that stay as they are: old ones, new ones, and those of either that the floor still needs."""

    old: Sequence[int]
    new: Sequence[int]
    rescued: Sequence[int]

    @property
    def every(self) -> Sequence[int]:
        return (*self.old, *self.new, *self.rescued)


def _kept_replicas(state: RoleState, window: Window, rank: Rank) -> _Kept:
    old, new = _survivors(state, window.old, rank), _choose(state.new, window.new)
    return _Kept(old, new, _rescue(state, [*old, *new]))


def _roll(state: RoleState, window: Window, kept: _Kept, turned: Sequence[int], *, arrives: bool) -> Replicas:
    alive = state.alive
    new = kept.new
    if turned:
        # They stand in for those that still wait for room.
        placed = [n for n in new if alive[n].stage > Stage.WAITING]
        new = [*placed, *(n for n in new if n not in placed)][: max(len(placed), window.new - len(turned))]
    layout = {n: alive[n].revision for n in (*kept.old, *new, *kept.rescued)} | _of(turned, state.target)
    missing = max(0, window.new - len(new) - len(turned))
    created = set(_fill(layout, len(layout) + missing, state)) - layout.keys()
    layout |= _of(created, state.target)
    # Scaling goes on whatever holds the window: what is missing then is of a revision that is there in all roles.
    lacking = set(_fill(layout, state.wanted, state)) - layout.keys()
    return _sort_replicas(layout | _of(lacking, state.target if arrives else _prevailing(state)))


def _rescue(state: RoleState, kept: Collection[int]) -> list[int]:
    """Serving replicas that the floor still needs: a partition that was raised would take them."""
    alive = state.alive
    must = min(serving(alive), floor(state))
    lacking = must - serving({n: alive[n] for n in kept})
    left = [n for n, replica in alive.items() if replica.stage is Stage.SERVING and n not in kept]
    return sorted(left, key=lambda n: (n not in state.new, n))[: max(0, lacking)]


def _survivors(state: RoleState, number: int, rank: Rank) -> list[int]:
    """The old replicas that stay."""
    going = islice(_in_order_of_loss(state, rank), max(0, len(state.old) - number))
    return sorted(state.old.keys() - set(going))


def _in_order_of_loss(state: RoleState, rank: Rank) -> Iterator[int]:
    """The old replicas in the order in which they go.

    First goes what is cleared, then what does not serve, then what leaves, the patient last. Of several old revisions one
    that lacks roles goes first, then one that has more replicas, so that each keeps one as long as possible, then the
    newest; of one revision the highest number.
    """
    left, cleared = dict(state.old), state.cleared if state.makes_room else frozenset()
    sizes = Counter(replica.revision.hash for replica in left.values())

    def loss(number: int) -> tuple[object, ...]:
        replica = left[number]
        whole, age = rank(replica.revision.hash)
        return (
            number not in cleared,
            replica.stage,
            not replica.leaving,
            replica.patient,
            whole,
            -sizes[replica.revision.hash],
            -age,
            replica.standing,
            -number,
        )

    while left:
        victim = min(left, key=loss)
        sizes[left.pop(victim).revision.hash] -= 1
        yield victim


def order_of_loss(unit: UnitState, role: str) -> list[int]:
    """The old replicas of a role in the order in which they would go if nothing but their worth decided."""
    changing = {name: state for name, state in unit.roles.items() if state.outdated}
    halves = _halves(changing, unit.ranks) if role in changing else ()
    return list(_in_order_of_loss(unit.roles[role], _rank(role, halves, unit.ranks)))


def _rank(role: str, halves: Collection[tuple[str, str]], ages: Mapping[tuple[str, str], int]) -> Rank:
    """A sort key: whether a revision of this role is there in all changing roles, and its age."""
    return lambda revision: ((role, revision) not in halves, ages.get((role, revision), 0))


def _halves(changing: Mapping[str, RoleState], ages: Mapping[tuple[str, str], int]) -> Collection[tuple[str, str]]:
    """Old revisions of roles (by role and hash) whose counterpart of the same age is gone in another changing role."""
    there = {
        name: {(ages.get((name, replica.revision.hash), 0), replica.revision.hash) for replica in state.old.values()}
        for name, state in changing.items()
    }
    shared = set.intersection(*({age for age, _ in revisions} for revisions in there.values()))
    return {(name, revision) for name, revisions in there.items() for age, revision in revisions if age not in shared}


def _best(replicas: Mapping[int, RolloutReplica], number: int) -> list[int]:
    """The replicas that are worth most; of equal ones those of lower number."""
    return sorted(replicas, key=lambda n: ([-replicas[n].stage, *(-share for share in replicas[n].standing)], n))[
        :number
    ]


def _choose(replicas: Mapping[int, RolloutReplica], number: int) -> list[int]:
    """The best ones, and those being updated in place that will be among them."""
    coming = expected_back(replicas, number)
    return [*coming, *_best({n: replica for n, replica in replicas.items() if n not in coming}, number)]


def _fill(kept: Iterable[int], number: int, state: RoleState) -> list[int]:
    """These numbers and as many free ones as make up ``number``: those that have objects already, then the lowest.

    The number of a replica that is going is not free before its pods are gone; in a rollout not before its objects are,
    since they are of the other revision.
    """
    numbers = list(kept)
    taken = {*numbers, *state.replicas}
    spare = [n for n in sorted(state.spare) if n not in taken]
    free = chain(() if state.outdated else spare, (n for n in count() if n not in taken and n not in spare))
    return [*numbers, *islice(free, max(0, number - len(numbers)))]


def _prevailing(state: RoleState) -> RoleRevision:
    """The revision of which most replicas serve, else of which there are most; the target where there are none."""
    alive = state.alive.values()
    serve, there = Counter[str](), Counter[str]()
    for replica in alive:
        there[replica.revision.hash] += 1
        serve[replica.revision.hash] += replica.stage is Stage.SERVING
    if not there:
        return state.target
    chosen = max(
        there, key=lambda revision: (serve[revision], there[revision], revision == state.target.hash, revision)
    )
    return next(replica.revision for replica in alive if replica.revision.hash == chosen)


def _together(changing: Mapping[str, RoleState], steps: Mapping[str, Replicas]) -> frozenset[tuple[str, int]]:
    """The first new replica of each changing role that has none placed yet."""
    firsts: set[tuple[str, int]] = set()
    for name, state in changing.items():
        new = state.updated
        if any(replica.stage > Stage.WAITING for replica in new.values()):
            continue
        first = next((n for n, revision in steps[name].items() if revision.hash == state.target.hash), None)
        if first is not None:
            firsts.add((name, first))
    return frozenset(firsts) if len(firsts) > 1 else frozenset()


def _of(numbers: Iterable[int], revision: RoleRevision) -> dict[int, RoleRevision]:
    return dict.fromkeys(sorted(numbers), revision)


def _sort_replicas(replicas: Mapping[int, RoleRevision]) -> Replicas:
    return dict(sorted(replicas.items()))
