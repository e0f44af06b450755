"""Small phrases that every form of output shares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from covey.cli.planning.report import DomainReport, InstanceReport, TopologyReport, UnitReport, WorkloadReport

GOOD: Final = "green"
BAD: Final = "red"
DIM: Final = "bright_black"


def verdict_style(verdict: str) -> str:
    """The colour of a verdict."""
    return {"Admitted": GOOD, "Infeasible": BAD}.get(verdict, "yellow")


def topology_words(topology: TopologyReport) -> str:
    """The chosen topology in a line: its name and levels, broad to narrow."""
    levels = " › ".join(level.name for level in topology.levels)
    return f"topology {topology.name}: {levels}" if topology.name else "no topology"


def domains(placement: Sequence[DomainReport], skip: Iterable[str] = ("host",)) -> str:
    """``block b1, rack r2``; hosts are said by the node's name anyway."""
    hidden = set(skip)
    return ", ".join(f"{each.level} {each.domain}" for each in placement if each.level not in hidden)


def finest(instances: Sequence[InstanceReport]) -> str:
    """Where the replicas of a role lie: the domains of the finest level that each of them shares."""
    found: dict[str, dict[str, None]] = {}
    for instance in instances:
        shown = [each for each in instance.placement if each.level != "host"] or list(instance.placement)
        if shown:
            found.setdefault(shown[-1].level, {})[str(shown[-1].domain)] = None
    return "; ".join(f"{level} {', '.join(names)}" for level, names in found.items())


def counts(unit: UnitReport) -> str:
    """``prefill 4/4 decode 2/2``."""
    return " ".join(f"{role.name} {role.admitted}/{role.replicas}" for role in unit.roles)


def headline(workload: WorkloadReport) -> str:
    """What became of it, in a few words."""
    admitted = sum(unit.admitted for unit in workload.units)
    many = f", {admitted} of {len(workload.units)} units" if len(workload.units) > 1 else ""
    return f"{workload.verdict}{many}"
