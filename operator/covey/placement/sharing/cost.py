"""Prices of using a domain or a node: the later aims in order, packed so that comparing prices compares aims.

A price is a list of counts, the more important first: the unit's domain where it has no room beside what others in it
lack, domains used (coarse before fine, hosts not counted), wholly free domains and then wholly free hosts broken into,
and how much is left free of each scarce resource where something is put. Adding prices adds counts, and a count has as
many bits as its sum can need; so machine words do, mostly one, and as many as it takes for a deep tree, a large cluster,
or many pods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Final

from covey.placement.capacity.engine import Engine
from covey.placement.capacity.tables import Structure
from covey.placement.cluster.domains import DomainNode, NodeState
from covey.placement.cluster.resources import CPU, is_extended
from covey.placement.model import Path

#: Bits of a word; the next one up marks what is no way at all (`cover_dp.NO_WAY`).
_WORD: Final = 60

Place = DomainNode | NodeState

_NOTHING: Final[Mapping[str, int]] = {}
#: Words, the more important first.
Price = tuple[int, ...]


class Packing:
    """Counts in words: compared word by word they compare in order, and added they add up."""

    def __init__(self, most: Sequence[int]) -> None:
        """``most``: the largest sum of each count that may have to be compared."""
        #: Word and shift of each count, and how many of its lowest bits are left out: none unless it fills a word.
        self.places: list[tuple[int, int, int]] = []
        left, word = 0, -1
        for bound in most:
            bits = bound.bit_length()
            coarse = max(0, bits - _WORD)
            bits -= coarse
            if word < 0 or bits > left:
                left, word = _WORD, word + 1
            left -= bits
            self.places.append((word, left, coarse))
        self.words = max(word + 1, 1)
        self.zero: Price = (0,) * self.words

    def pack(self, counts: Sequence[int]) -> Price:
        """The price that these counts make."""
        words = [0] * self.words
        for (word, shift, coarse), count in zip(self.places, counts, strict=True):
            words[word] += count >> coarse << shift
        return tuple(words)


class Prices:
    """Prices of one layout. ``used`` domains, which the gang lies in already, cost nothing more."""

    def __init__(self, engine: Engine, used: Collection[Path], counted: range) -> None:
        structure, root = engine.structure, engine.tree.root
        self.used = frozenset(used)
        self._scarce = _scarce(structure, root)
        pods = sum(stream.cap for stream in structure.streams) + len(structure.groups)
        self._depths = _telling(engine, counted)
        self._finest = counted[-1] if counted else None
        number = [min(pods, engine.tree.counts[depth]) for depth in self._depths]
        free = self.free(root)
        self._domains = Packing([1, *number, *number, pods, *free])
        self._nodes = Packing([pods, *free])
        self._whole_node = self._nodes.pack([1, *(0,) * len(free)])
        self._cut = self._domains.places[len(number)] if number else None
        #: Prices are comparable only when they are packed alike.
        self.packing = (self._scarce, tuple(self._depths), tuple(self._domains.places))
        self.words = self._domains.words
        self.node_words = self._nodes.words
        self.zero = self._domains.zero
        #: What does not change from domain to domain: by depth, and whether it is wholly free, and crowded.
        self._known: dict[tuple[int, bool, bool], Price] = {}
        self.one_host = self.hosts(1)

    def free(self, place: Place, beside: Mapping[str, int] = _NOTHING) -> tuple[int, ...]:
        """Return what is free of the gang's scarce resources (its extended ones, else cpu), the scarcest first.

        ``beside``: amounts that are to be left over.
        """
        return tuple([max(0, place.free.get(name, 0) - beside.get(name, 0)) for name in self._scarce])

    def domain(self, domain: DomainNode, beside: Mapping[str, int] = _NOTHING, *, crowded: bool = False) -> Price:
        """The price of putting anything into a domain.

        Args:
            domain: the domain.
            beside: amounts that are to be left over there.
            crowded: whether the gang would not leave them.
        """
        if domain.path in self.used:
            return self.zero
        key = (domain.depth, domain.broken == 0, crowded)
        price = self._known.get(key)
        if price is None:
            here = [int(depth == domain.depth) for depth in self._depths]
            broken = here if domain.broken == 0 else [0] * len(here)
            price = self._known[key] = self._domains.pack([int(crowded), *here, *broken, 0, *(0,) * len(self._scarce)])
        # Tightness is that of the finest domains alone.
        free = self.free(domain, beside)
        return self._with_free(price, self._domains, free) if domain.depth == self._finest else price

    def hosts(self, number: int) -> Price:
        """Return the price of breaking into that many wholly free hosts."""
        depths = len(self._depths)
        return self._domains.pack([0, *(0,) * depths * 2, number, *(0,) * len(self._scarce)])

    def node(self, node: NodeState) -> Price:
        """The price of putting anything onto a node, among nodes."""
        price = self._whole_node if node.in_use == 0 else self._nodes.zero
        return self._with_free(price, self._nodes, self.free(node))

    def _with_free(self, price: Price, packing: Packing, free: Sequence[int]) -> Price:
        """A price with what is free in a place; those counts are a packing's last."""
        words = list(price)
        for amount, (word, shift, coarse) in zip(free, packing.places[-len(free) :], strict=True):
            words[word] += amount >> coarse << shift
        return tuple(words)

    def split(self, price: Price) -> tuple[Price, Price]:
        """The part of a price that counts domains used, and the rest."""
        if self._cut is None:
            return (), price
        word, shift, _ = self._cut
        return (*price[:word], price[word] >> shift), (price[word] & (1 << shift) - 1, *price[word + 1 :])


def _scarce(structure: Structure, root: DomainNode) -> tuple[str, ...]:
    """The resources in which tightness is measured, one after another: what the gang asks most of, of all that is free.

    They are compared in order and never added up: a GPU, a share of a network card and a byte have no common measure.
    """
    asked: dict[str, int] = {}
    for stream in structure.streams:
        for name, amount in stream.shape.requests:
            asked[name] = asked.get(name, 0) + amount * stream.cap
    extended = set(filter(is_extended, asked)) or {CPU}
    return tuple(
        sorted(extended, key=lambda name: (-Fraction(asked.get(name, 0), max(root.free.get(name, 0), 1)), name))
    )


def _telling(engine: Engine, counted: range) -> list[int]:
    """Return the depths whose domains are worth counting: not those of which every domain above has exactly one."""
    counts = engine.tree.counts
    return [depth for depth in counted if counts[depth] != (counts[depth - 1] if depth else 1)]
