"""A unit that is moved as a whole: where it is confined to, nothing else fits, and a node there is to be empty.

So is one that serves and whose groups cannot be changed in place (``remake``). Another unit is built elsewhere next to
it, and takes its place when it serves as much: of each role as many replicas as the first one has Ready, less those
that ``maxUnavailable`` lets be missing, or its minimum where the rest of it finds no room for a while. One at a time:
for so long the resource takes the room of one unit more. Everything follows from what is observed: when the node may be
used again, or room is found next to what runs, the other unit is surplus and goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.model import Mode
from covey.compile import Scale
from covey.operator.intent import Move
from covey.operator.model.observed import Observed
from covey.operator.replicas.progress import States
from covey.operator.replicas.scale_down import choose_units
from covey.rollout import RoleState, Stage, UnitState
from covey.rollout.model import serving
from covey.rollout.window import floor


def find_move(
    spec: DisaggregatedInferenceSpec,
    scale: Scale,
    units: Mapping[int, UnitState],
    observed: Observed,
    states: States,
    remade: int | None = None,
) -> Move | None:
    """The unit that has to be moved as a whole now; None where there is none.

    Args:
        spec: what is kept up.
        scale: how many units, and of what, there shall be.
        units: those that were chosen, as they are.
        observed: the snapshot.
        states: how far each replica has come.
        remade: a unit that is to be recreated.
    """
    stuck = (number for number, state in sorted(units.items()) if _is_stuck(state))
    unit = next(stuck, None) if _is_confined(spec) else None
    if unit is None and remade is not None and remade in units and not _is_rolled(units[remade]):
        unit = remade
    if unit is None:
        return None
    more = choose_units(replace(scale, units=scale.units + 1), observed, states)
    to = next(number for number in more if number not in units)
    return Move(unit, to, is_remake=unit == remade)


def takes_over(old: UnitState, new: UnitState, is_given_up: Callable[[str, int], bool]) -> bool:
    """Tell whether a unit serves as much as the one whose place it takes, or has as much as it will get.

    Args:
        old: the unit that is to go.
        new: the other one.
        is_given_up: whether a replica of the other one (role and number) is not to be waited for any longer.
    """
    return all(_carries(old.roles[name], role, partial(is_given_up, name)) for name, role in new.roles.items())


def _carries(old: RoleState, new: RoleState, is_given_up: Callable[[int], bool]) -> bool:
    ready = serving(new.alive)
    if ready < new.minimum or ready >= min(floor(new), serving(old.alive)):
        return ready >= new.minimum
    rest = [n for n, each in new.alive.items() if each.stage is not Stage.SERVING]
    return len(new.alive) >= new.wanted and all(map(is_given_up, rest))


def _is_confined(spec: DisaggregatedInferenceSpec) -> bool:
    """Tell whether the place of what runs decides where a successor has to lie."""
    return spec.topology.required is not None or any(rule.mode is Mode.REQUIRED for rule in spec.proximity)


def _is_stuck(unit: UnitState) -> bool:
    """Tell whether a unit is at its minimum, without room for a successor. A unit that is rolled moves by that."""
    return not _is_rolled(unit) and any(map(_is_held, unit.roles.values()))


def _is_rolled(unit: UnitState) -> bool:
    return any(role.outdated for role in unit.roles.values())


def _is_held(role: RoleState) -> bool:
    serve = sum(each.stage is Stage.SERVING for each in role.alive.values())
    waits = any(each.stage is Stage.WAITING for each in role.new.values())
    return bool(role.leaving) and waits and role.starved and not role.yields and serve <= role.minimum
