"""Edits, reversals, scales, deaths at any moment: the promises hold at every step, and it ends when left alone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from covey.rollout import RolloutBudget, Stage, next_step
from unit.rollout.acting import Role, Unit, least

NAMES = ("prefill", "decode", "router")
budgets = st.builds(RolloutBudget, surge=st.integers(0, 3), unavailable=st.one_of(st.none(), st.integers(0, 3))).map(
    lambda found: replace(found, unavailable=1) if not found.surge and not found.unavailable else found
)


@st.composite
def roles(draw: st.DrawFn) -> Role:
    wanted = draw(st.integers(1, 6))
    return Role.serving(wanted, draw(st.integers(0, wanted)), draw(budgets), in_place=draw(st.booleans()))


@st.composite
def units(draw: st.DrawFn) -> Unit:
    found = {name: draw(roles()) for name in NAMES[: draw(st.integers(1, 3))]}
    assume(any(role.minimum for role in found.values()))
    return Unit(found)


events = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "edit",
                "edit all",
                "scale",
                "die",
                "sicken",
                "doubt",
                "place",
                "ready",
                "gone",
                "thrive",
                "stay",
                "starve",
                "partition",
                "minimum",
                "budget",
                "leave",
                "leave",
                "leave in time",
                "return",
                "yield",
                "plan",
                "plan",
                "plan",
            ]
        ),
        st.integers(0, 60),
    ),
    max_size=40,
)


def happen(unit: Unit, kind: str, number: int) -> None:
    name = list(unit.roles)[number % len(unit.roles)]
    role = unit.roles[name]
    everything = unit.all(Stage.WAITING, Stage.STARTING, Stage.DOUBTFUL, Stage.SERVING)
    one = [everything[number % len(everything)]] if everything else []
    match kind:
        case "edit":
            unit.edit("abcd"[number % 4], name)
        case "edit all":
            unit.edit("abcd"[number % 4])
        case "scale":
            role.wanted = number % 7
            role.minimum = min(role.minimum, role.wanted)
        case "minimum":
            role.minimum = number % (role.wanted + 1)
        case "budget":
            role.budget = replace(
                RolloutBudget(number % 3, number % 2 + (number % 3 == 0)), partition=role.budget.partition
            )
        case "partition":
            role.budget = replace(role.budget, partition=number % 3)
        case "die":
            unit.set(Stage.WAITING, one)
        case "sicken":
            unit.set(Stage.STARTING, one)
        case "doubt":
            unit.set(Stage.DOUBTFUL, [each for each in one if each in unit.all(Stage.SERVING)])
        case "place":
            unit.set(Stage.STARTING, [each for each in one if each in unit.all(Stage.WAITING)])
        case "ready":
            unit.set(Stage.SERVING, [each for each in one if each not in unit.all(Stage.WAITING)])
        case "gone":
            unit.gone()
        case "thrive":
            unit.thrive()
        case "stay":
            unit.stays = bool(number % 2)
        case "leave":
            for each in one:
                unit.leave(*each)
        case "leave in time":
            for each in one:
                unit.leave(*each, patient=True)
        case "return":
            for each in one:
                unit.leave(*each, leaving=False)
        case "yield":
            role.yields = bool(number % 2)
        case "starve":
            clear(unit, name, number)
        case _:
            plan(unit)


def clear(unit: Unit, name: str, number: int) -> None:
    """Somebody has proven that some old replicas of a role may go, whichever."""
    old = sorted(unit.state.roles[name].old)
    unit.cleared = {**unit.cleared, name: frozenset(n for n in old if number % (n + 2) == 0)}


def plan(unit: Unit) -> None:
    """One pass, and all that it promises."""
    before = {name: role.seen() for name, role in unit.roles.items()}
    alive = {name: role.state.alive for name, role in unit.roles.items()}
    serving = {name: role.ready for name, role in unit.roles.items()}
    changing = [name for name, role in unit.roles.items() if role.state.outdated]
    leaving = [name for name, role in unit.roles.items() if role.state.leaving]
    yields = {name for name in leaving if unit.cleared.get(name) and unit.roles[name].yields}
    short = {
        name: sum(each.stage is Stage.SERVING for n, each in alive[name].items() if n in unit.cleared.get(name, ()))
        for name in unit.roles
    }
    fresh = all(each.fresh for found in alive.values() for each in found.values())
    state = unit.state
    planned = unit.step()
    for name, role in unit.roles.items():
        layout = planned.roles[name]
        # 1. No more is given up than may be missing, and never the last one of the gang that could stay.
        if name not in yields:
            floor = least(role, makes_room=bool(unit.cleared.get(name)))
            if role.budget.unavailable is None and unit.cleared.get(name):
                floor = min(floor, max(serving[name] - short[name], role.minimum))
            assert role.ready >= min(serving[name], floor), name
        if role.minimum and role.wanted + role.budget.surge > 1 and not unit.cleared.get(name):
            assert role.ready >= min(serving[name], 1)
        # What leaves goes below the minimum only where that is allowed.
        if name in leaving and name not in changing and name not in yields:
            assert role.ready >= min(serving[name], role.minimum)
            # Who is patient does not go without a successor, but where it is cleared, or its owner lets replicas be missing.
            urgent = sum(
                each.stage is Stage.SERVING and each.leaving and not each.patient for each in alive[name].values()
            )
            if role.budget.unavailable is None and any(each.patient and each.leaving for each in alive[name].values()):
                assert role.ready >= min(serving[name] - urgent - short[name], role.wanted)
        # 2. No more than the ceiling is made.
        assert len(layout) <= max(role.wanted + role.budget.surge, len(alive[name]))
        # 3. All that is wanted is there, of one revision or another.
        assert len(layout) >= role.wanted
        # 4. Nobody is turned into something else, and nobody who was told to go is called back.
        for number in layout.keys() & before[name].keys():
            assert before[name][number].stage is not Stage.GOING
            former = before[name][number]
            assert fresh or former.updatable or layout[number].hash == former.revision.hash
        # 5. A role that does not change keeps what serves, and what will serve again where it was.
        if name not in changing and name not in leaving:
            coming = sum(each.updating for each in before[name].values())
            assert role.wanted <= len(layout) <= role.wanted + coming
    # 6. No half revisions.
    moving = [name for name in changing if unit.roles[name].wanted]
    pairs = [
        name
        for name in moving
        if unit.roles[name].wanted + (0 if unit.cleared.get(name) else unit.roles[name].budget.surge) > 1
    ]
    if pairs == moving and not unit.stays and not fresh and not leaving:
        old = {any(each.hash != unit.roles[name].target for each in planned.roles[name].values()) for name in moving}
        assert len(old) <= 1, "half of the old revision is left"
        came = [
            {n for n, each in planned.roles[name].items() if each.hash == unit.roles[name].target} for name in moving
        ]
        arrived = [bool(each) for each in came]
        assert all(arrived) or not any(new - set(before[name]) for name, new in zip(moving, came, strict=True)), (
            "half of the new revision is made"
        )
        turned = {
            name
            for name, new in zip(moving, came, strict=True)
            if any(n in before[name] and before[name][n].revision.hash != unit.roles[name].target for n in new)
        }
        if turned:
            placed = {
                name
                for name in moving
                if any(
                    each.stage > Stage.WAITING
                    for each in alive[name].values()
                    if each.revision.hash == unit.roles[name].target
                )
            }
            assert turned | placed == set(moving), "half of the new revision has its nodes"
    # 7. Planned again before anything has happened, it is the same. A role that only leaves once its rollout is over, or
    # is only rolled once nothing leaves, takes another step or two.
    is_clear, unit.cleared = not unit.cleared, {}
    for _ in range(3 if leaving and is_clear else 0):
        unit.step()
    assert not is_clear or next_step(unit.state).roles == (unit.step() if leaving else planned).roles, (state, planned)


@given(units(), events)
def test_every_promise_holds_whatever_happens(unit: Unit, happened: list[tuple[str, int]]) -> None:
    for kind, number in happened:
        happen(unit, kind, number)
    # Left alone, it ends.
    unit.stays, unit.cleared = False, {}
    for role in unit.roles.values():
        role.budget = replace(role.budget, partition=0)
        if not role.budget.surge:
            # What leaves a role at its minimum stays where no more than that may exist.
            role.minimum = min(role.minimum, max(0, role.wanted - 1))
    for _ in range(60):
        plan(unit)
        unit.thrive()
        if unit.is_rolled:
            break
    assert unit.is_rolled, unit.shape()
    plan(unit)
    assert unit.is_rolled


@given(units(), events, st.integers(1, 3))
def test_without_room_for_a_surge_it_ends_all_the_same(unit: Unit, happened: list[tuple[str, int]], pause: int) -> None:
    """The cluster has room for what is wanted and for nothing more; every role may be one short of what is wanted."""
    for kind, number in happened:
        happen(unit, kind, number)
    unit.stays, unit.cleared = False, {}
    for role in unit.roles.values():
        role.budget = RolloutBudget(role.budget.surge, None if role.budget.surge else 1)
        role.wanted = max(role.wanted, 2)
        role.minimum = min(role.minimum, role.wanted - 1)
        # Nobody is patient for ever.
        role.replicas = {n: replace(each, patient=False) for n, each in role.replicas.items()}
    for turn in range(400):
        # Who waits is heard of only now and then.
        if turn % pause == 0:
            unit.clear()
        plan(unit)
        unit.gone()
        for name, role in unit.roles.items():
            placed = [n for n, each in role.replicas.items() if each.stage > Stage.WAITING]
            waiting = [n for n, each in sorted(role.replicas.items()) if each.stage is Stage.WAITING]
            room = max(0, role.wanted - len(placed))
            unit.set(Stage.SERVING, [(name, n) for n in (*placed, *waiting[:room])])
        if unit.is_rolled:
            return
    raise AssertionError(unit.shape())


@given(units(), st.data())
def test_a_reversal_is_one_step_back_at_most(unit: Unit, data: st.DataObject) -> None:
    """Whatever still serves of the first revision is kept, and no third one appears."""
    unit.edit("b")
    for _ in range(data.draw(st.integers(1, 6))):
        plan(unit)
        unit.thrive()
    plan(unit)
    unit.edit("a")
    kept = {name: set(role.state.new) for name, role in unit.roles.items()}
    for _ in range(40):
        plan(unit)
        for name, role in unit.roles.items():
            assert kept[name] <= role.state.new.keys()
            assert {each.revision.hash for each in role.replicas.values()} <= {"a", "b"}
        unit.thrive()
    assert unit.is_rolled
