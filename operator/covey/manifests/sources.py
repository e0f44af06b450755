"""Sources of manifests, as kubectl takes them: files, directories, standard input."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from covey.manifests.errors import InputError, ManifestPath

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
