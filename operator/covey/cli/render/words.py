"""Small phrases that every form of output shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from covey.picture.names import path_order
from covey.placement.model import Path
from covey.planning.report import AddedReport, DomainReport, InstanceReport, TopologyReport, WorkloadReport

GOOD: Final = "green"
BAD: Final = "red"
DIM: Final = "bright_black"
#: So many added nodes are named; more are counted.
_NAMED: Final = 8


def verdict_style(verdict: str) -> str:
    """The colour of a verdict."""
    return {"Admitted": GOOD, "Infeasible": BAD}.get(verdict, "yellow")


def topology_words(topology: TopologyReport) -> str:
    """The chosen topology in a line: its name and levels, broad to narrow."""
    levels = " > ".join(level.name for level in topology.levels)
    return f"topology {topology.name}: {levels}" if topology.name else "no topology"


def domains(placement: Sequence[DomainReport], known: Sequence[DomainReport] = ()) -> str:
    """``block b1, rack r2``; hosts are said by the node's name anyway, and what is ``known`` is not said again."""
    above = {each.level for each in known}
    return ", ".join(named(each.level, each.domain) for each in placement if each.level not in {*above, "host"})


def named(level: str, domain: str | None) -> str:
    """A domain with its level, which is left out where the domain's own name begins with it (``rack-7``)."""
    return str(domain) if str(domain).startswith(level) else f"{level} {domain}"


def finest(instances: Sequence[InstanceReport], known: Sequence[DomainReport]) -> str:
    """Where the replicas of a role lie beyond what is ``known`` of the unit: their finest domains, in natural order."""
    found: dict[Path, str] = {}
    for instance in instances:
        shown = [each for each in instance.placement if each.level != "host" and each not in known]
        if shown:
            found[shown[-1].path] = named(shown[-1].level, shown[-1].domain)
    return ", ".join(dict.fromkeys(found[path] for path in sorted(found, key=path_order)))


def headline(workload: WorkloadReport) -> str:
    """The outcome for a workload, in a few words."""
    admitted = sum(unit.admitted for unit in workload.units)
    many = f", {admitted} of {len(workload.units)} units" if len(workload.units) > 1 else ""
    return f"{workload.verdict}{many}"


def added(report: AddedReport) -> str:
    """The outcome for the nodes of one ``--add-nodes``."""
    where = f" in the new {report.level} {report.domain}" if report.level else ""
    copies = f"{len(report.nodes):,} copies of {report.template}{where}"
    if not report.used:
        return f"none of {copies} is used"
    more = f" and {len(report.used) - _NAMED:,} more" if len(report.used) > _NAMED else ""
    return f"{len(report.used):,} of {copies} used: {', '.join(report.used[:_NAMED])}{more}"
