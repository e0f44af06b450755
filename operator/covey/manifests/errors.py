"""Errors of manifests: where, what is wrong, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ManifestPath:
    """A place in manifests: a file (``-`` for standard input), a document in it (from 1), a field path in that."""

    file: str
    document: int | None = None
    field: str = ""

    def at(self, field: str) -> ManifestPath:
        """The same document, at a field below this one."""
        joint = "." if self.field and field and not field.startswith("[") else ""
        return ManifestPath(self.file, self.document, f"{self.field}{joint}{field}")

    def __str__(self) -> str:
        parts = ["standard input" if self.file == "-" else self.file]
        if self.document is not None:
            parts.append(f"document {self.document}")
        if self.field:
            parts.append(self.field)
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """One thing that is wrong: where, what, and what to do."""

    place: ManifestPath | str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.place}: {self.what}"
        return f"{text}; {self.remedy}" if self.remedy else text


class InputError(Exception):
    """Bad input: ``place`` says where, ``what`` what is wrong, ``remedy`` what to do; its text has a line for each problem."""

    def __init__(self, place: ManifestPath | str, what: str, remedy: str = "", *more: ManifestProblem) -> None:
        self.problems = (ManifestProblem(place, what, remedy), *more)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def of(cls, problems: Sequence[ManifestProblem]) -> InputError:
        """Several things at once, a line for each: nobody likes to find them one by one."""
        first, *more = problems
        return cls(first.place, first.what, first.remedy, *more)
