"""Head-room of each role, from files: replicas that could have places once all that is planned has its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from covey.admission.headroom import Answer, Site, most_feasible
from covey.admission.reservation import Reservations, confine
from covey.placement.model import Gang
from covey.planning.report import Shape
from covey.planning.run import Planned
from covey.planning.trees import Workload


class RoleReport(Shape, frozen=True):
    """One role: replicas that are wanted, that have places, and that could have some (None where nobody knows)."""

    name: str
    replicas: int
    admitted: int
    max_feasible: int | None


class HeadroomReport(Shape, frozen=True):
    """One resource. ``observed_at`` and ``asked`` are empty where no cluster was asked."""

    namespace: str
    name: str
    roles: tuple[RoleReport, ...]
    message: str = ""
    observed_at: str = ""
    asked: str = ""


def headroom_of(planned: Planned) -> Iterator[HeadroomReport]:
    """The head-room of each workload.

    Args:
        planned: what was planned; its inventory is as it was afterwards.
    """
    reserved: Reservations[str] = Reservations()
    for number, each in enumerate(planned.kept):
        reserved.keep(str(number), each)
    for workload, gangs in zip(planned.workloads, planned.gangs, strict=True):
        sites = [
            Site(confine(gang, reserved, surplus=True)[0], lacks=bool(unit.absent))
            for unit, gang in zip(workload.units, gangs, strict=True)
        ]
        yield _report(workload, gangs, [_ask(name, workload, sites, planned) for name in _roles(gangs)])


def _ask(role: str, workload: Workload, sites: Sequence[Site], planned: Planned) -> Answer:
    return most_feasible(role, sites, planned.inventory, is_shared=role in workload.summed)


def _roles(gangs: Sequence[Gang]) -> list[str]:
    return list(dict.fromkeys(role.name for gang in gangs for role in gang.roles))


def _report(workload: Workload, gangs: Sequence[Gang], answers: Sequence[Answer]) -> HeadroomReport:
    rows = []
    for answer in answers:
        found = [role for gang in gangs for role in gang.roles if role.name == answer.role]
        admitted = sum(replica.placed for role in found for replica in role.replicas)
        rows.append(RoleReport(answer.role, sum(role.desired for role in found), admitted, answer.replicas))
    return HeadroomReport(workload.namespace, workload.name, tuple(rows), describe_remarks(answers))


def describe_remarks(answers: Sequence[Answer]) -> str:
    """Describe what there is to say in addition to the numbers."""
    texts = [f"{each.role}: {each.message}" for each in answers if each.message]
    texts += [f"{each.role}: there may be room for more" for each in answers if each.is_floor]
    return "; ".join(texts)
