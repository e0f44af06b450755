"""Puts a case to the planner and says everything that is wrong with its answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from covey.placement.planner import plan_minimum, plan_surplus

from covey.placement.model import Plan, Refusal, Verdict
from oracle import cpsat, facts
from oracle.case import Case
from oracle.checker import Score, check, score

#: Up to here the planner promises an answer.
EXACT_SHAPES = 3


@dataclass
class Judgement:
    """``complaints`` is empty when all is well; the rest says what kind of case it was."""

    verdict: Verdict
    #: What the solver says; None when it does not know.
    feasible: bool | None
    #: The solver knows the best score.
    proven: bool = False
    complaints: list[str] = field(default_factory=list)
    planned: Score | None = None
    best: Score | None = None


def judge(case: Case) -> Judgement:
    """Plan the minimum, then the surplus on top of it, and hold both against checker and solver."""
    answer = plan_minimum(case.gang, case.inventory())
    known = cpsat.solve(case)
    found = Judgement(answer.verdict, known.feasible, proven=known.score is not None, best=known.score)
    if isinstance(answer, Refusal):
        found.complaints += _refused(case, answer, known)
        return found
    if known.feasible is False:
        found.complaints.append("admitted what the solver finds infeasible")
    found.complaints += [f"minimum: {text}" for text in check(case, answer, "minimum")]
    if not found.complaints:
        _grow(case, case.after(answer.assignments), known, found)
    return found


def _grow(before: Case, case: Case, known: cpsat.Best, found: Judgement) -> None:
    growth: Plan = plan_surplus(case.gang, case.inventory())
    found.complaints += [f"surplus: {text}" for text in check(case, growth, "surplus")]
    if found.complaints or known.score is None:
        return
    found.planned = score(before, case.after(growth.assignments))
    if found.planned > known.score:
        found.complaints.append(f"better than the solver's best: {found.planned} > {known.score}")
    elif exact(before) and found.planned.preferred < known.score.preferred:
        found.complaints.append(f"preferred {found.planned.preferred}, best is {known.score.preferred}")
    elif exact(before) and found.planned.fill < known.score.fill:
        there = cpsat.solve(case).score
        whose = "the surplus" if there is not None and there.fill > found.planned.fill else "the minimum's places"
        found.complaints.append(f"{whose}: admitted {found.planned.admitted}, best is {known.score.admitted}")


def exact(case: Case) -> bool:
    """The planner promises the best answer."""
    return len(facts.shapes_of(case.gang)) <= EXACT_SHAPES


def _refused(case: Case, answer: Refusal, known: cpsat.Best) -> Iterator[str]:
    if answer.verdict is Verdict.INFEASIBLE and known.feasible:
        yield "false Infeasible"
    if answer.verdict is Verdict.UNKNOWN and exact(case):
        yield f"Unknown with at most {EXACT_SHAPES} shapes (feasible: {known.feasible})"
    yield from refusal_complaints(case, answer)


def refusal_complaints(case: Case, answer: Refusal) -> Iterator[str]:
    """What a person would find wrong with the reasons."""
    if not answer.reasons or not answer.message.strip():
        yield "no reason is given"
    roles = {role.name: role for role in case.gang.roles}
    paths = [facts.path_of(case.topology, node) for node in case.nodes]
    for reason in answer.reasons:
        if reason.scope not in {"unit", "replica"}:
            yield f"scope {reason.scope}"
        if reason.role not in roles and reason.scope != "unit":
            yield f"a reason names role {reason.role!r}"
        if not any(path[: len(reason.best_domain)] == reason.best_domain for path in paths) and reason.best_domain:
            yield f"best domain {reason.best_domain} does not exist"
        if reason.role in roles and reason.required != roles[reason.role].minimum:
            yield f"{reason.role} requires {roles[reason.role].minimum}, the reason says {reason.required}"
        if reason.scope == "replica" and reason.satisfied >= reason.required and answer.verdict is Verdict.INFEASIBLE:
            yield f"{reason.role}: {reason.satisfied} of {reason.required} is no reason"
        if sum(entry.nodes for entry in reason.excluded) > len(case.nodes):
            yield f"more nodes are excluded than there are: {reason.excluded}"
