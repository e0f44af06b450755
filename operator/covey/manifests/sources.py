"""Sources of manifests, as kubectl takes them: files, directories, standard input.

Errors of manifests: where, what is wrong, what to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final


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


#: What is read in a directory; a file that is named itself may be called anything.
EXTENSIONS: Final = (".json", ".yaml", ".yml")
STDIN: Final = "-"


def files_of(path: str, *, recursive: bool = False) -> list[str]:
    """The files that a path names: itself, or what a directory has of YAML and JSON, in order of their names.

    Args:
        path: a file, a directory, or ``-``.
        recursive: look into directories in directories too; links to directories are not followed.

    Raises:
        InputError: a directory cannot be read, or has no such file.
    """
    if path == STDIN or not Path(path).is_dir():
        return [path]
    manifests = list(_files_below(path, recursive=recursive))
    if not manifests:
        more = "" if recursive else ", or use -R for those in it"
        known = ", ".join(EXTENSIONS)
        raise InputError(ManifestPath(path), f"is a directory without a {known} file", f"give one that has some{more}")
    return manifests


def _files_below(path: str, *, recursive: bool) -> Iterator[str]:
    for folder, inner, names in os.walk(path, onerror=_unreadable):
        inner[:] = sorted(inner) if recursive else []
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(EXTENSIONS))  # noqa: PTH118 - `./` stays as typed


def _unreadable(error: OSError) -> None:
    reason = (error.strerror or str(error)).lower()
    raise InputError(ManifestPath(str(error.filename)), f"cannot be read: {reason}", "check the path") from None
