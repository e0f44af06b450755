"""Random rounds of many gangs, each required in one rack: every answer is held against the checker and the solver."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from covey.placement.model import Gang, Plan, Verdict
from oracle import build, cpsat
from oracle.case import Case
from oracle.checker import check, fill_of
from oracle.draws import Draw, Seeded
from oracle.judge import exact
from oracle.written import node, shape
from rounds import Outcome, plan_round


@dataclass(frozen=True)
class Fleet:
    """Gangs of one cluster; the case has its nodes, and none of the gangs."""

    case: Case
    gangs: tuple[Gang, ...]


def fleet(seed: int) -> Fleet:
    """The fleet of a seed: unlike racks, gangs of one or two roles, and about as many as fit."""
    draw = Seeded(random.Random(seed))
    nodes = tuple(
        node(f"r{rack}-n{number}", {build.BLOCKS: f"b{rack % 2}", build.RACKS: f"r{rack}"}, gpus=draw.pick((4, 8, 8)))
        for rack in range(draw.integer(2, 4))
        for number in range(draw.integer(1, 3))
    )
    gangs = tuple(_gang(draw, number) for number in range(draw.integer(2, 6)))
    return Fleet(build.case(nodes, ()), gangs)


def _gang(draw: Draw, number: int) -> Gang:
    roles = []
    for place in range(draw.integer(1, 2)):
        size, desired = draw.pick((1, 1, 2)), draw.integer(1, 3)
        name, minimum = f"g{number}-{place}", draw.integer(1, desired)
        roles.append(
            build.role(name, size=size, minimum=minimum, desired=desired, wants=shape(draw.pick((1, 2, 4, 8))))
        )
    level = draw.pick(("rack", "rack", "rack", "block"))
    return Gang(
        "default", f"g{number}", 0, tuple(roles), "floor", required=level, created=str(number), uid=f"g{number}"
    )


def judge_fleet(found: Fleet) -> tuple[Counter[str], list[str]]:
    """Plan a round; returns how many gangs are whole, have their minimum and are refused, and everything that is wrong."""
    outcomes = plan_round(found.gangs, found.case.inventory())
    kinds = Counter[str]()
    for outcome in outcomes:
        wanted = sum(len(replica.pods) for role in outcome.gang.roles for replica in role.replicas)
        if isinstance(outcome.minimum, Plan):
            kinds["whole" if len(outcome.assignments) == wanted else "minimum"] += 1
        else:
            kinds["refused"] += 1
    return kinds, [*_complaints(found, outcomes)]


def _complaints(found: Fleet, outcomes: list[Outcome]) -> Iterator[str]:
    """Go through the round once more, minimum after minimum and then surplus after surplus, each beside what there is."""
    now, after = found.case, dict[str, Case]()
    for outcome in outcomes:
        gang = found.gangs[outcome.number]
        case = replace(now, gang=gang)
        if isinstance(outcome.minimum, Plan):
            yield from (f"{gang.name}, minimum: {text}" for text in check(case, outcome.minimum, "minimum"))
            after[gang.name] = now = case.after(outcome.minimum.assignments)
        elif outcome.minimum.verdict is Verdict.UNKNOWN or cpsat.solve(case, surplus=False).feasible:
            yield f"{gang.name}: {outcome.minimum.verdict} beside the minimums before it, and the solver has a place"
    for outcome in sorted(outcomes, key=lambda outcome: outcome.gang.order):
        if not isinstance(outcome.surplus, Plan):
            continue
        gang = after[outcome.gang.name].gang
        case = replace(now, gang=gang)
        yield from (f"{gang.name}, surplus: {text}" for text in check(case, outcome.surplus, "surplus"))
        now = case.after(outcome.surplus.assignments)
        best = cpsat.solve(case).score
        admitted = tuple(sum(replica.placed for replica in role.replicas) for role in now.gang.roles)
        if best is not None and exact(case) and fill_of(case, admitted) < best.fill:
            yield f"{gang.name}: admitted {admitted}, there fit {best.admitted}"
