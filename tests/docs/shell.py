"""One bash for one page: it keeps its directory and its variables from command to command, as a reader's does."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

#: `export A=… B=…`: the reader copies these lines from what was printed before.
_COPIED = re.compile(r"^export(?: \w+=…)+(?: +#.*)?$")
_EXPORT = re.compile(r"^ *(export [^\n]*?)(?:  +#.*)?$", re.MULTILINE)
_OF_MAKE = frozenset({"ARGS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"})
#: Nothing that a page runs takes longer, nor Helm to give up waiting (300 s).
SECONDS = 330.0


@dataclass(frozen=True)
class Done:
    """What a command has printed, both streams in order, and what it exited with."""

    printed: str
    status: int


class ShellError(Exception):
    """A command did not end, or the shell did."""


class Shell:
    """A context manager; at its end nothing runs any more that it started.

    Args:
        place: the working directory.
        environment: of the shell, beside this program's.
    """

    def __init__(self, place: Path, environment: Mapping[str, str]) -> None:
        self._place = place
        # What a `make` that runs the tests was given is not for the one that a reader calls.
        own = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
        self._environment = own | dict(environment)
        self._files = Path(environment["HOME"])
        self._printed = ""

    def __enter__(self) -> Self:
        # Where tests run in the background of a script, Ctrl-C is ignored, by everything that they start, too.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self._place,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        # The virtual environment is there, and what runs the tests decides when it is made anew.
        self.run('make() { command make --old-file=.venv/.ready --no-print-directory "$@"; }; export -f make')
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.close()
        self._bash.stdout.close()

    def run(self, command: str) -> Done:
        """Run a command to its end.

        Raises:
            ShellError: it does not end.
        """
        if _COPIED.match(command):
            command = "\n".join(_EXPORT.findall(self._printed))
        mark = uuid.uuid4().hex
        script = self._files / "command"
        script.write_text(command + "\n")
        text = self._exchange(f'. "{script}" </dev/null 2>&1; echo "{mark} $?"', re.compile(rf"{mark} (\d+)\n"))
        printed, _, status = text.rpartition(f"{mark} ")
        self._printed = printed or self._printed
        return Done(printed, int(status))

    def begin(self, command: str) -> Endless:
        """Begin a command that ends only when it is interrupted."""
        script = self._files / f"endless-{uuid.uuid4().hex}"
        script.write_text(command + "\n")
        printed = script.with_suffix(".printed")
        printed.touch()
        done = self.run(f'set -m; bash "{script}" >"{printed}" 2>&1 </dev/null & echo "pid $!"; set +m')
        found = re.search(r"pid (\d+)", done.printed)
        assert found is not None, done.printed
        return Endless(int(found[1]), printed)

    def variable(self, name: str) -> str:
        """What a variable of the shell holds."""
        return self.run(f'echo "${name}"').printed.strip()

    def _exchange(self, line: str, end: re.Pattern[str]) -> str:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{line}\n".encode())
        self._bash.stdin.flush()
        stream = self._bash.stdout.fileno()
        found = b""
        deadline = time.monotonic() + SECONDS
        while not end.search(found.decode(errors="replace")):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                raise ShellError(f"not done after {SECONDS:.0f} s; it has printed:\n{found.decode(errors='replace')}")
            if not (read := os.read(stream, 65536)):
                raise ShellError(f"the shell has ended; it has printed:\n{found.decode(errors='replace')}")
            found += read
        return found.decode(errors="replace")


@dataclass(frozen=True)
class Endless:
    """A command that runs until it is interrupted."""

    pid: int
    file: Path

    @property
    def printed(self) -> str:
        """What it has printed so far."""
        return self.file.read_text(errors="replace")

    def interrupt(self) -> None:
        """Do as Ctrl-C does."""
        os.killpg(self.pid, signal.SIGINT)
