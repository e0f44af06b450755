"""All layouts of a tiny case, tried one by one: the judge of the solver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product

from oracle import facts
from oracle.case import Case
from oracle.checker import Score, score, violations


def layouts(case: Case, *, surplus: bool) -> Iterator[Mapping[str, str]]:
    """Every valid placement of the minimum and (with ``surplus``) any number of further replicas."""
    must = facts.compulsory(case.gang)
    open_replicas = [(role, replica) for role in case.gang.roles for replica in role.replicas if not replica.placed]
    needed = [replica for role, replica in open_replicas if (role.name, replica.replica) in must]
    others = [replica for role, replica in open_replicas if (role.name, replica.replica) not in must]
    for number in range(len(others) + 1 if surplus else 1):
        for extra in combinations(others, number):
            pods = [pod for replica in (*needed, *extra) for pod in replica.pods if pod.node is None]
            choices = [[name for name in case.node if facts.room(case, name, case.body(pod))] for pod in pods]
            for nodes in product(*choices):
                layout = {pod.key: node for pod, node in zip(pods, nodes, strict=True)}
                if not violations(case, layout, "surplus" if surplus else "minimum"):
                    yield layout


def feasible(case: Case) -> bool:
    return next(layouts(case, surplus=False), None) is not None


def best(case: Case) -> Score | None:
    """The best score of minimum and surplus together; None when the minimum has no place."""
    return max((score(case, case.placed(layout)) for layout in layouts(case, surplus=True)), default=None)
