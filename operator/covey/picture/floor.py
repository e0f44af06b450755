"""The floor of a cluster as nested boxes of nodes, with every replica's devices in their places.

A pure model that the terminal's picture and the page share. One cell stands for one device (or for a share of a node,
where nothing but CPU is asked); a run of cells belongs to one pod of a workload that is shown, or to other pods.
What has nothing to do with the workloads is only counted, so that 5,000 nodes are still one page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

from covey.picture.short_names import path_order
from covey.placement.cluster.resources import measure
from covey.placement.model import Path, Topology, natural

#: More cells than this on one node are drawn to a scale.
MOST_CELLS = 16
#: So many nodes at most are drawn one by one whether they matter or not.
SMALL_FLOOR = 48
_CPU = "cpu"


class DomainMark(StrEnum):
    """Mark that a verdict gives to a domain that it names."""

    CHOSEN = "chosen"
    NEAREST = "nearest"


@dataclass(frozen=True, slots=True)
class DeviceOwner:
    """Owner of devices: a role of a unit of a workload. ``ink`` numbers the colours, ``letter`` does without."""

    workload: str
    role: str
    ink: int
    letter: str


@dataclass(frozen=True, slots=True)
class Spot:
    """One pod on its node, with what it requests (resource name → amount as the planner counts it)."""

    workload: str
    unit: int
    role: str
    replica: int
    index: int
    pod: str
    node: str
    requests: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CellRun:
    """Neighbouring cells of one pod; none for a pod that asks for no device."""

    spot: Spot
    owner: DeviceOwner
    cells: int
    #: ``P0``, or ``P1.0`` where there are several units: the letter, unit and replica.
    tag: str


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """Facts about one node before anything is drawn on it: capacity and other pods' use of every resource."""

    name: str
    path: Path
    capacity: Mapping[str, int]
    used: Mapping[str, int]
    #: Why nothing may be placed here now (``cordoned``, ``not ready``), if so.
    closed: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeBox:
    """A node: ``cells`` in all, ``others`` taken by other pods, the rest in ``runs`` or free."""

    name: str
    cells: int
    others: int
    runs: tuple[CellRun, ...]
    closed: str | None

    @property
    def ours(self) -> int:
        """Cells of the workloads shown."""
        return sum(run.cells for run in self.runs)

    @property
    def free(self) -> int:
        """Cells that nobody has, closed or not."""
        return max(0, self.cells - self.others - self.ours)


@dataclass(frozen=True, slots=True)
class Box:
    """A domain: nested domains or, at the last level, nodes. ``focus``: it takes part, draw it whole.

    ``mark``: what the verdict says of it, if it names it.
    """

    level: str
    name: str
    path: Path
    boxes: tuple[Box, ...]
    nodes: tuple[NodeBox, ...]
    focus: bool
    mark: DomainMark | None = None

    @property
    def title(self) -> str:
        """The name with its level, which is left out where the name begins with it (``rack-7``)."""
        return self.name if self.name.startswith(self.level) else f"{self.level} {self.name}"

    def all_nodes(self) -> tuple[NodeBox, ...]:
        """Every node below, in order."""
        return self.nodes + tuple(node for box in self.boxes for node in box.all_nodes())

    @property
    def cells(self) -> int:
        """All cells below."""
        return sum(node.cells for node in self.nodes) + sum(box.cells for box in self.boxes)

    @property
    def free(self) -> int:
        """Free cells below, those of closed nodes left out: nobody can have them."""
        return sum(node.free for node in self.nodes if not node.closed) + sum(box.free for box in self.boxes)

    @property
    def ours(self) -> int:
        """Cells of the workloads shown, below."""
        return sum(node.ours for node in self.nodes) + sum(box.ours for box in self.boxes)


@dataclass(frozen=True, slots=True)
class Floor:
    """The whole picture. ``scale``: how much of ``resource`` one cell stands for."""

    title: str
    subtitle: str
    resource: str
    scale: int
    boxes: tuple[Box, ...]
    owners: tuple[DeviceOwner, ...]

    @property
    def device(self) -> str:
        """A word for what a cell is, such as ``GPU``."""
        return device_word(self.resource)

    @property
    def runs(self) -> tuple[CellRun, ...]:
        """Everything placed, in order of the floor."""
        return tuple(run for box in self.boxes for node in box.all_nodes() for run in node.runs)


def device_word(resource: str) -> str:
    """``nvidia.com/gpu`` → ``GPU``; ``cpu`` → ``CPU``; a MIG slice keeps its own name."""
    word = resource.rpartition("/")[2]
    return word.upper() if word in ("gpu", "tpu", _CPU) else word


def main_resource(wanted: Iterable[Mapping[str, int]], grounds: Iterable[NodeUsage]) -> str:
    """The resource that a picture counts: what the pods ask for, else what the nodes offer (``resources.measure``)."""
    asked = Counter[str]()
    for amounts in wanted:
        asked.update(amounts)
    return measure(asked, ((ground.labels, ground.capacity) for ground in grounds))


def scale_of(resource: str, capacities: Iterable[Mapping[str, int]]) -> int:
    """Compute how much of a resource one cell stands for, so that no node has too many cells."""
    largest = max((capacity.get(resource, 0) for capacity in capacities), default=0)
    most = MOST_CELLS if resource != _CPU else MOST_CELLS // 2
    return max(1, -(-largest // most))


def build_floor(
    topology: Topology,
    grounds: Sequence[NodeUsage],
    spots: Sequence[Spot],
    *,
    title: str,
    wanted: Iterable[Mapping[str, int]] = (),
    roles: Iterable[tuple[str, str]] = (),
    marks: Mapping[Path, DomainMark] | None = None,
) -> Floor:
    """Lay the floor out.

    Args:
        topology: its levels give the nesting; levels that separate nothing are named in the subtitle instead.
        grounds: every node.
        spots: every pod that is shown in colour; other pods' use stands in the grounds.
        title: what the picture is of.
        wanted: requests of the workloads' pods, to know the resource that matters, even when nothing is placed.
        roles: (workload, role) pairs in the order of the legend; those of the spots are added.
        marks: domains that the verdicts name, by path; the nearest ones are drawn whole although nothing is placed
            there.
    """
    resource = main_resource(wanted, grounds)
    scale = scale_of(resource, (ground.capacity for ground in grounds))
    owners = owners_of([*roles, *((spot.workload, spot.role) for spot in spots)])
    several = len({(spot.workload, spot.unit) for spot in spots}) > len({spot.workload for spot in spots})
    runs: dict[str, list[CellRun]] = {}
    for spot in sorted(spots, key=lambda spot: (spot.workload, spot.unit, spot.role, spot.replica, spot.index)):
        owner = owners[spot.workload, spot.role]
        amount = spot.requests.get(resource, 0)
        tag = f"{owner.letter}{spot.unit}.{spot.replica}" if several else f"{owner.letter}{spot.replica}"
        runs.setdefault(spot.node, []).append(CellRun(spot, owner, -(-amount // scale), tag))
    nodes = [
        (ground.path, _node(ground, resource, scale, runs.get(ground.name, ())))
        for ground in sorted(grounds, key=lambda ground: (path_order(ground.path), natural(ground.name)))
    ]
    levels, constant = levels_of(topology, [path for path, _ in nodes])
    named = {path: mark for path, mark in (marks or {}).items() if path}
    boxes = _nest(levels, nodes, _DomainFilter(len(nodes) <= SMALL_FLOOR, named)) if nodes else ()
    subtitle = " · ".join([f"topology {topology.name}", *constant, f"{len(nodes)} nodes"])
    return Floor(title, subtitle, resource, scale, boxes, tuple(owners.values()))


def owners_of(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], DeviceOwner]:
    """A colour and a letter for each (workload, role), in this order."""
    owners: dict[tuple[str, str], DeviceOwner] = {}
    letters: set[str] = set()
    for workload, role in pairs:
        if (workload, role) in owners:
            continue
        spare = [*role.upper(), *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
        letter = next((char for char in spare if char.isalpha() and char not in letters), "?")
        letters.add(letter)
        owners[workload, role] = DeviceOwner(workload, role, len(owners), letter)
    return owners


def _node(ground: NodeUsage, resource: str, scale: int, runs: Iterable[CellRun]) -> NodeBox:
    cells = -(-ground.capacity.get(resource, 0) // scale)
    others = min(cells, -(-ground.used.get(resource, 0) // scale))
    return NodeBox(ground.name, cells, others, tuple(runs), ground.closed)


def levels_of(topology: Topology, paths: Sequence[Path]) -> tuple[list[tuple[int, str]], list[str]]:
    """The depths worth a box, and words for the levels that all nodes share.

    A level is left out where no node has it, where it is the same for all (as long as a finer one is left to draw),
    and where every node is alone in its domain, as hosts are.
    """
    shown: list[tuple[int, str]] = []
    constant: list[str] = []
    for depth, level in enumerate(topology.levels):
        domains = {path[: depth + 1] for path in paths if len(path) > depth and path[depth] is not None}
        if not domains or len(domains) == len(paths) > 1:
            continue
        if len(domains) == 1 and not shown:
            constant.append(f"{level.name} {next(iter(domains))[-1]}")
            continue
        shown.append((depth, level.name))
    return shown, constant


def _nest(
    levels: Sequence[tuple[int, str]], nodes: Sequence[tuple[Path, NodeBox]], judge: _DomainFilter
) -> tuple[Box, ...]:
    """Boxes of the first level, the rest of the levels inside; ``nodes`` are ordered by path."""
    if not levels:
        names = tuple(node for _, node in nodes)
        return (Box("", "all nodes", (), (), names, judge((), names)),)
    (depth, level), finer = levels[0], levels[1:]
    boxes = []
    for path, group in groupby(nodes, key=lambda entry: entry[0][: depth + 1]):
        members = list(group)
        below = tuple(node for _, node in members)
        inner = _nest(finer, members, judge) if finer else ()
        name = (path[-1] if len(path) > depth else None) or f"no {level}"
        mark = judge.mark(path, leaf=not finer)
        boxes.append(Box(level, name, path, inner, () if finer else below, judge(path, below), mark))
    return tuple(boxes)


@dataclass(frozen=True, slots=True)
class _DomainFilter:
    """Says whether a domain is drawn whole: something of ours lies in it, or a refusal names it."""

    everything: bool
    named: Mapping[Path, DomainMark]

    def __call__(self, path: Path, nodes: Sequence[NodeBox]) -> bool:
        if self.everything or any(node.runs for node in nodes):
            return True
        near = (
            other for other, mark in self.named.items() if mark is DomainMark.NEAREST
        )  # in a chosen one lies something
        return any(path == other[: len(path)] or other == path[: len(other)] for other in near)

    def mark(self, path: Path, *, leaf: bool) -> DomainMark | None:
        """The mark of a domain; on a box that holds no others also that of a domain in it, such as a host."""
        if path in self.named or not leaf:
            return self.named.get(path)
        return next((mark for other, mark in self.named.items() if other[: len(path)] == path), None)
