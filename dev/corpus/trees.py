"""Copies of the tree, in which edits are made and judged."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from corpus.edits import PRODUCT, Edit, add_probes, make_edit
from corpus.probe import DIRECTORY, ENTERED, FAILED, SECONDS

ROOT: Final = Path(__file__).resolve().parents[2]
#: Exit statuses of pytest with which it has judged: all passed, some failed, or a file could not be imported.
_JUDGED: Final = {0, 1, 2}


@dataclass(frozen=True, slots=True)
class Session:
    """A run of tests, as the plugin ``recorder`` has recorded it."""

    failed: Sequence[str]
    """Node IDs of tests, and of files that could not be imported, in the order in which they failed."""
    seconds: Mapping[str, float]
    """By test, without its parameters."""
    entered: Mapping[str, Collection[str]]
    """By place, the tests without parameters that met a probe there, or their files."""


class Tree:
    """A copy of what git knows of this tree, and of what is new in it, in a temporary directory."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="covey-corpus-")
        self.root = Path(self._directory.name, "tree")
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (ROOT / name).exists():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        (self.root / ".venv").symlink_to(ROOT / ".venv")

    def close(self) -> None:
        """Remove it."""
        self._directory.cleanup()

    def has_test(self, test: str) -> bool:
        """Tell whether a test is still there under its name."""
        path, *names = test.split("::")
        file = self.root / path
        text = file.read_text() if file.is_file() else ""
        # unittest's name of a test that hypothesis makes of a state machine stands nowhere.
        return bool(text) and all(re.search(rf"\b{re.escape(name)}\b", text) for name in names if name != "runTest")

    def run(self, tests: Sequence[str], *options: str) -> Session:
        """Run tests in the tree as it is.

        Raises:
            RuntimeError: pytest has not judged them.
        """
        with tempfile.TemporaryDirectory(prefix="covey-corpus-") as records:
            arguments = Path(records, "arguments")
            arguments.write_text("\n".join([*options, *tests]))
            paths = os.pathsep.join(str(self.root / name) for name in ("operator", "dev", "tests"))
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "corpus.recorder", f"@{arguments}"],
                cwd=self.root,
                env=environment | {"PYTHONPATH": paths, DIRECTORY: records},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode not in _JUDGED or not Path(records, SECONDS).exists():
                raise RuntimeError(f"pytest ended with status {done.returncode}:\n{done.stdout[-2000:]}")
            entered = defaultdict(set)
            for line in _read_lines(records, ENTERED):
                place, _, test = line.partition("\t")
                if test:
                    entered[place].add(test)
            seconds = json.loads(Path(records, SECONDS).read_text())
            return Session(_read_lines(records, FAILED), seconds, entered)

    def record(self, edits: Iterable[Edit], tests: Sequence[str], *options: str) -> Session:
        """Run tests to see which enter what edits change."""
        names: dict[str, set[str]] = defaultdict(set)
        for place in {place for edit in edits for place in edit.places}:
            module, _, name = place.partition(":")
            names[module].add(name)
        files = {module: self.root / PRODUCT / module for module in names}
        probed = {
            file: add_probes(file.read_text(), names[module], partial(_make_probe, module))
            for module, file in files.items()
        }
        with self._change(probed):
            return self.run(tests, "--continue-on-collection-errors", *options)

    def find_failure(self, edit: Edit, tests: Sequence[str], deselected: Iterable[str] = ()) -> str | None:
        """Find the first of these tests that fails with an edit; None: all pass.

        Raises:
            AnchorError: the edit does not apply.
        """
        with self._change(make_edit(edit, self.root)):
            session = self.run(tests, "-n0", "--exitfirst", *(f"--deselect={test}" for test in deselected))
        return session.failed[0] if session.failed else None

    @contextmanager
    def _change(self, texts: Mapping[Path, str]) -> Iterator[None]:
        """Change files for a while."""
        before = {path: path.read_text() for path in texts}
        try:
            _write(texts)
            yield
        finally:
            _write(before)


def _write(texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        path.write_text(text)
        # Bytecode is taken for that of another text of the same length that was written in the same second.
        with suppress(FileNotFoundError):
            Path(importlib.util.cache_from_source(str(path))).unlink()


def _make_probe(module: str, name: str) -> str:
    place = f"{module}:{name}" if name else module
    return f"from corpus.probe import enter as _enter; _enter({place!r})"


def _read_lines(directory: str, name: str) -> list[str]:
    path = Path(directory, name)
    return path.read_text().splitlines() if path.exists() else []
