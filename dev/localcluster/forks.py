"""Covey's processes as forks of one that has imported them, for tests, which start hundreds: each costs a second less.

What they are installed as, and what a demonstration or a benchmark runs, are programs of their own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

from covey_fork import run_covey

#: What both processes import.
_MODULES: Final = ["covey.cli.commands.processes", "covey.operator.process.main", "covey.scheduler.main"]
_CONTEXT: Final = multiprocessing.get_context("forkserver")


class Fork:
    """The part of ``subprocess.Popen`` that ``Process`` needs.

    Args:
        arguments: of ``covey``.
        log: takes what it prints.
        environment: all of its variables.
    """

    def __init__(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        _CONTEXT.set_forkserver_preload(_MODULES)
        self._process = _CONTEXT.Process(target=run_covey, args=(arguments, log, environment), daemon=True)
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
