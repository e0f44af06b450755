"""Names of nodes and domains in pictures: in natural order, and short only as far as they can still be told apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from covey.placement.model import NaturalOrder, Path, natural


def path_order(path: Path) -> tuple[tuple[bool, NaturalOrder], ...]:
    """A sort key of domain paths, by :func:`natural` order at each level, nodes without a level last."""
    return tuple((value is None, natural(value or "")) for value in path)


def short_names(names: Iterable[str], width: int) -> Mapping[str, str]:
    """Each name as it is drawn: no two alike, ``…`` where something was left out.

    Of names longer than ``width`` the domain that all of them share goes first (``.compute.internal``), then their
    beginning, since the end mostly tells nodes apart; wider than ``width`` where that would make two of them one.
    """
    whole = list(dict.fromkeys(names))
    longest = max(map(len, whole), default=0)
    if longest <= width:
        return {name: name for name in whole}
    domain = _domain(whole)
    stems = {name: f"{name[: len(name) - len(domain)]}…" if domain else name for name in whole}
    for wide in range(width, longest):
        drawn = {name: _end(stem, wide) for name, stem in stems.items()}
        if len(set(drawn.values())) == len(whole):
            return drawn
    return {name: name for name in whole}


def _domain(names: Iterable[str]) -> str:
    """The longest ending from a dot on that all names share, short of a whole name."""
    endings = [{name[place:] for place, char in enumerate(name) if char == "." and place} for name in names]
    return max(set.intersection(*endings), key=len, default="")


def _end(name: str, width: int) -> str:
    return name if len(name) <= width else f"…{name[len(name) - width + 1 :]}"
