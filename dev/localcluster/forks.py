"""Covey's processes as forks of one that has imported them, for tests, which start hundreds: each costs a second less.

What they are installed as, and what a demonstration or a benchmark runs, are programs of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

#: What both processes import.
_MODULES: Final = ["covey.cli.commands.processes", "covey.operator.process.main", "covey.scheduler.main"]
_CONTEXT: Final = multiprocessing.get_context("forkserver")
#: Of Linux' prctl(2).
_PR_SET_PDEATHSIG: Final = 1


class Fork:
    """The part of ``subprocess.Popen`` that ``Process`` needs.

    Args:
        arguments: of ``covey``.
        log: takes what it prints.
        environment: all of its variables.
    """

    def __init__(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        _CONTEXT.set_forkserver_preload(_MODULES)
        self._process = _CONTEXT.Process(target=_run, args=(arguments, log, environment), daemon=True)
        self._lock = threading.Lock()
        self._process.start()
        self.pid: int = self._process.pid or 0

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        with self._lock:
            return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: when it still runs after so many seconds.
        """
        wait([self._process.sentinel], timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal unless it has ended, which the process that it is a fork of may be the first to know."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _run(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    """Do what ``python -m covey`` does, in a session of its own; it ends with the owner of the cluster."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    with log.open("ab") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["covey", *arguments]

    from covey.cli.main import main  # noqa: PLC0415 - the owner of the cluster imports this module, too

    main()
