"""Remarks of a conversion on what does not carry over, and the refusal to convert at all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remark:
    """One field of the source that the result does not say, or says differently: where, what, and what to do."""

    path: str
    what: str
    instead: str = ""


class ConversionError(Exception):
    """The document cannot be converted, or only into something that means something else.

    Args:
        path: the field of the source.
        what: what is wrong with it, as the rest of a sentence that begins with the path.
        instead: what to do about it.
    """

    def __init__(self, path: str, what: str, instead: str) -> None:
        super().__init__(f"{path}: {what}; {instead}")
        self.path = path
        self.what = what
        self.instead = instead
