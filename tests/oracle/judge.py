"""Puts a case to the planner and says everything that is wrong with its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from covey.api import core
from covey.placement.model import Path, Plan, Reason, Refusal, Verdict
from covey.placement.planner import plan_surplus
from oracle import cpsat, facts
from oracle.case import Case
from oracle.certificate import Certificate, plan_with_certificate
from oracle.checker import Score, check, score
from oracle.instances import Size, seeded

#: So many domains of a certificate, and vectors of each, are put to the solver.
BOUNDS_TRIED = 3
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
    #: Wrong verdicts, invalid or untruthful plans, less than the best.
    complaints: list[str] = field(default_factory=list)
    #: Refusals whose reasons or proof do not hold.
    untold: list[str] = field(default_factory=list)
    planned: Score | None = None
    best: Score | None = None


def judge(case: Case) -> Judgement:
    """Plan the minimum, then the surplus on top of it, and hold both against checker and solver."""
    answer, certificate = plan_with_certificate(case.gang, case.inventory())
    known = cpsat.solve(case)
    found = Judgement(answer.verdict, known.feasible, proven=known.score is not None, best=known.score)
    if isinstance(answer, Refusal):
        found.complaints += _refused(case, answer, known)
        found.untold += refusal_complaints(case, answer)
        found.untold += certificate_complaints(case, answer, certificate)
        return found
    if known.feasible is False:
        found.complaints.append("admitted what the solver finds infeasible")
    found.complaints += [f"minimum: {text}" for text in check(case, answer, "minimum")]
    if not found.complaints:
        _grow(case, case.after(answer.assignments), known, found)
    return found


def judge_seeds(size: Size, seeds: Iterable[int]) -> dict[int, Judgement]:
    """The judgements of random cases, by seed."""
    return {seed: judge(seeded(seed, size)) for seed in seeds}


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
        if there is not None and there.fill > found.planned.fill:
            found.complaints.append(f"the surplus: admitted {found.planned.admitted}, there fit {there.admitted}")
        elif before.gang.spread is None or before.gang.spread.required:
            best = known.score.admitted
            found.complaints.append(f"the minimum's places: admitted {found.planned.admitted}, best is {best}")
        # else: where a preferred spread ranks among the objectives is not settled; it may cost surplus


def exact(case: Case) -> bool:
    """The planner promises the best answer."""
    return len(facts.kinds_of(case)) <= EXACT_SHAPES


def _refused(case: Case, answer: Refusal, known: cpsat.Best) -> Iterator[str]:
    if answer.verdict is Verdict.INFEASIBLE and known.feasible:
        yield "false Infeasible"
    if answer.verdict is Verdict.UNKNOWN and exact(case):
        yield f"Unknown with at most {EXACT_SHAPES} shapes (feasible: {known.feasible})"


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
        if reason.role in roles and reason.satisfied and not _fits_alone(case, reason):
            yield f"{reason.role}: {reason.satisfied} replicas do not fit in {reason.best_domain} even alone"
        if sum(entry.nodes for entry in reason.excluded) > len(case.nodes):
            yield f"more nodes are excluded than there are: {reason.excluded}"


def _fits_alone(case: Case, reason: Reason) -> bool:
    """As many replicas as the reason calls satisfied have a place in its best domain, if nothing else is placed."""
    inside = _confined(case, reason.best_domain)
    roles = tuple(replace(role, minimum=reason.satisfied) for role in case.gang.roles if role.name == reason.role)
    gang = replace(case.gang, roles=roles, proximity=())
    return cpsat.solve(replace(case, gang=gang, nodes=inside), surplus=False).feasible is not False


def _confined(case: Case, path: Path) -> tuple[core.Node, ...]:
    """The nodes, those outside a domain cordoned: nothing may go there, but who is there still keeps others off."""
    shut = core.NodeSpec(unschedulable=True)
    return tuple(
        node if facts.path_of(case.topology, node)[: len(path)] == path else core.Node(node.metadata, shut, node.status)
        for node in case.nodes
    )


def certificate_complaints(case: Case, answer: Refusal, certificate: Certificate) -> Iterator[str]:
    """What is wrong with the proof: a bound that is none, one that is not the least, or a domain left out."""
    if answer.verdict is not Verdict.INFEASIBLE:
        return
    gang, depth = case.gang, case.topology.depth(case.gang.required) if case.gang.required else -1
    minimum = Counter(name for name, _ in facts.compulsory(gang))
    wanted = {name for name, number in minimum.items() if number}
    for bound in certificate:
        lets_in = any(
            all(n >= minimum[name] for name, n in zip(bound.roles, most, strict=True)) for most in bound.maximal
        )
        if lets_in and wanted == set(bound.roles):
            yield f"{bound} lets the minimum in"
    if not _plain(case) or _lacks_level(case, answer):
        return
    domains = {facts.path_of(case.topology, node)[: depth + 1] for node in case.nodes}
    left_out = {path for path in domains if not path or path[-1] is not None} - {bound.path for bound in certificate}
    for path in sorted(left_out, key=repr):
        yield f"the certificate leaves out {path}"
    for bound in certificate[:BOUNDS_TRIED]:
        for most in bound.maximal[:BOUNDS_TRIED]:
            if _fits(case, bound.path, dict(zip(bound.roles, most, strict=True))) is False:
                yield f"{bound.path} does not hold {most} of {bound.roles}"
            for name, n in zip(bound.roles, most, strict=True):
                more = dict(zip(bound.roles, most, strict=True)) | {name: n + 1}
                if n < minimum[name] and _fits(case, bound.path, more):
                    yield f"{bound.path} holds {more}, more than the certificate's {most}"


def _lacks_level(case: Case, answer: Refusal) -> bool:
    """A reason names a level that no node carries: that is proof enough."""
    depths = [case.topology.depth(reason.level) for reason in answer.reasons if reason.level and not reason.best_domain]
    paths = [facts.path_of(case.topology, node) for node in case.nodes]
    return any(all(path[depth] is None for path in paths) for depth in depths)


def _plain(case: Case) -> bool:
    """Nothing is placed yet, and every rule is about capacity and levels: counts say it all."""
    gang = case.gang
    return (
        not any(pod.node for pod in facts.pods_of(gang.roles))
        and not gang.proximity
        and gang.spread is None
        and all(role.follow_unit and not role.missing for role in gang.roles)
        and not any(replica.together for role in gang.roles for replica in role.replicas)
    )


def _fits(case: Case, path: Path, counts: Mapping[str, int]) -> bool | None:
    """Whether so many replicas of each role have a place in the domain; None when the solver does not know."""
    inside = _confined(case, path)
    roles = tuple(replace(role, minimum=counts.get(role.name, 0)) for role in case.gang.roles)
    found = replace(case, gang=replace(case.gang, roles=roles), nodes=inside)
    return cpsat.solve(found, surplus=False).feasible
