"""Surplus that units still lack in the domain to which a required level pins them.

It is looked at where domains are ranked, so that a gang goes where all that it asks for fits beside it; never where
they are judged: it takes nothing from a minimum and refuses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable
from fractions import Fraction

from covey.placement.cluster.domains import DomainNode, NodeState
from covey.placement.cluster.shape import exclusive, sum_requests
from covey.placement.model import Path, Shape


class Outstanding:
    """The pods that units lack, by unit and by domain."""

    def __init__(self) -> None:
        self._units: dict[Hashable, tuple[str, Path, Counter[Shape]]] = {}
        #: By topology and domain: the pods that units lack that are pinned to it, or to a domain inside it.
        self._pods: dict[tuple[str, Path], Counter[Shape]] = {}
        #: How many units are pinned to exactly this domain.
        self._pins: Counter[tuple[str, Path]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._units)

    def note(self, unit: Hashable, topology: str, path: Path, pods: Counter[Shape]) -> None:
        """Note what a unit lacks now, instead of what was noted of it before.

        Args:
            unit: names the unit.
            topology: of the level that it requires.
            path: the domain that it is pinned to.
            pods: without a node, by shape.
        """
        if self._units.get(unit) == (topology, path, pods):
            return
        self.forget(unit)
        self._units[unit] = (topology, path, pods)
        self._pins[topology, path] += 1
        for end in range(1, len(path) + 1):
            self._pods.setdefault((topology, path[:end]), Counter()).update(pods)

    def forget(self, unit: Hashable) -> None:
        """Note that a unit lacks nothing, or that nothing can come of it now; unknown ones are ignored."""
        topology, path, pods = self._units.pop(unit, ("", (), Counter[Shape]()))
        for end in range(1, len(path) + 1):
            left = self._pods.pop((topology, path[:end])) - pods
            if left:
                self._pods[topology, path[:end]] = left
        self._pins -= Counter([(topology, path)])

    def requests(self, topology: str, domain: DomainNode) -> Counter[str]:
        """Return what the outstanding pods of a domain ask for, in integers."""
        return sum_requests(self._pods.get((topology, domain.path), Counter()))

    def leaves_room(self, topology: str, domain: DomainNode, pods: Counter[Shape], closed: Container[str]) -> bool:
        """Tell whether pods fit into a domain beside what is outstanding there, and in each broader one that pins units.

        They are counted node by node, those that ask for the largest part of the domain first; finer levels are not
        looked at.

        Args:
            topology: whose domain it is.
            domain: the domain.
            pods: those to be placed, by shape.
            closed: names of nodes that they must not use.
        """
        pinning = [
            ancestor for ancestor in domain.ancestors() if ancestor is domain or (topology, ancestor.path) in self._pins
        ]
        return all(
            _hold(ancestor, pods, self._pods.get((topology, ancestor.path), Counter()), closed)
            for ancestor in pinning
            if ancestor.path
        )


def _hold(domain: DomainNode, pods: Counter[Shape], others: Counter[Shape], closed: Container[str]) -> bool:
    """Tell whether a domain holds pods, and others that may use its closed nodes as well."""
    wanted = pods + others
    if any(amount > domain.free.get(name, 0) for name, amount in sum_requests(wanted).items()):
        return False

    def demand(shape: Shape) -> Fraction:
        return max(
            (Fraction(amount, max(domain.free.get(name, 0), 1)) for name, amount in shape.requests), default=Fraction()
        )

    order = sorted(wanted, key=demand, reverse=True)
    left = _fill((node for name, node in domain.nodes.items() if name in closed), Counter(others), order)
    left = _fill((node for name, node in domain.nodes.items() if name not in closed), pods + left, order)
    return not left


def _fill(nodes: Iterable[NodeState], pods: Counter[Shape], order: Iterable[Shape]) -> Counter[Shape]:
    """Return the pods for which some nodes have no room."""
    shapes = [shape for shape in order if pods[shape]]
    for node in nodes:
        if not shapes:
            break
        free = dict(node.free)
        for shape in shapes:
            count = min([pods[shape], *(free.get(name, 0) // amount for name, amount in shape.requests if amount > 0)])
            if count <= 0 or node.static_cause(shape) is not None or node.conflict(shape) is not None:
                continue
            count = 1 if exclusive(shape) else count
            pods[shape] -= count
            for name, amount in shape.requests:
                free[name] = free.get(name, 0) - amount * count
        shapes = [shape for shape in shapes if pods[shape]]
    return +pods
