"""Structure of a gang's demand, reduced to what capacity depends on.

Roles disappear here: replicas with the same pods, the same level and the same groups are one *class*, whatever role
they belong to. Pods of one shape are one *stream*. A *group* is a set of classes that must share one domain of a
level (a unit's domain, a proximity rule). Two gangs with equal structures share all that was ever computed for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from covey.placement.model import Shape


@dataclass(frozen=True, slots=True)
class Stream:
    """Pods of one shape. ``follows`` tells apart pods that a unit's spread rule concerns from those it does not."""

    shape: Shape
    cap: int
    follows: bool = True


@dataclass(frozen=True, slots=True)
class ReplicaClass:
    """Replicas that are interchangeable for capacity.

    ``pods`` counts the pods of each stream in one replica, but for those in ``parts``: classes with levels of their
    own, narrower than this one's, and how many of each are inside (they are ``inner``). A replica does not straddle
    domains of ``depth``; at the structure's scope it may lie anywhere in the scope's domain. ``levels`` are all depths
    that its nodes must carry. ``groups`` are indices into the structure's; ``wide`` tells apart members of groups that
    a whole candidate meets or not. ``cap`` is how many replicas are of interest.
    """

    pods: tuple[int, ...]
    depth: int
    levels: frozenset[int]
    groups: frozenset[int]
    wide: frozenset[int]
    cap: int
    parts: tuple[tuple[int, int], ...] = ()
    inner: bool = False


@dataclass(frozen=True, slots=True)
class Structure:
    """All that capacity tables depend on.

    ``scope`` is the depth of the candidate domains (-1: the whole cluster is the one candidate); ``bottom`` the finest
    depth that matters, below which only nodes are looked at. ``groups`` holds the depth of each group.
    """

    topology: str
    scope: int
    bottom: int
    streams: tuple[Stream, ...]
    classes: tuple[ReplicaClass, ...]
    groups: tuple[int, ...] = ()

    def dimensions(self, depth: int) -> tuple[int, ...]:
        """Return what is counted in a domain of a depth, as seen from above: streams 0, 1 …, then classes.

        A class is counted in whole replicas from its own depth upwards, one that is inside others until all of them
        are; streams are counted as long as some class above still needs single pods. The dimension with the largest
        cap comes last, where it costs least.
        """
        count = len(self.streams)
        if depth > self.bottom:
            streams, whole = list(range(count)), []
        elif depth > self.scope:
            loose = [c for c in self.classes if c.depth < depth]
            streams = [i for i in range(count) if any(c.pods[i] for c in loose)]
            needed = {part for c in loose for part, _ in c.parts}
            whole = [count + i for i, c in enumerate(self.classes) if c.depth >= depth and (not c.inner or i in needed)]
        else:
            streams, whole = [], [count + i for i, c in enumerate(self.classes) if not c.inner]
        return tuple(sorted(streams + whole, key=lambda dimension: (self.cap(dimension), dimension)))

    def cap(self, dimension: int) -> int:
        """Return the number up to which a dimension is counted; more is of no interest."""
        streams = len(self.streams)
        return self.streams[dimension].cap if dimension < streams else self.classes[dimension - streams].cap
