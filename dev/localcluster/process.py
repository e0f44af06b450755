"""One program of the cluster: start, stop, kill, pause, and wait until it works.

Each program runs in a session of its own, so that Ctrl-C at a terminal reaches only the program that owns the
cluster, which then stops the others in the right order.  Its pid stands in a file, from which ``cleanup`` stops what
a dead owner has left.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from localcluster.forks import Fork

STOP_SECONDS = 10.0
_TAIL_LINES = 30


class ProcessError(Exception):
    """A program ended or did not become ready in time; the message has the end of its log."""


class PortTakenError(ProcessError):
    """A program could not listen because somebody else took its port: start it again with another one."""


class Process:
    """A program that can be started again after it has ended, with the same command and ports.

    Args:
        name: Names the log and pid files and the process in messages.
        command: Program and arguments.
        directory: The cluster's directory; ``logs`` and ``run`` below it are used.
        ready: Tells whether the program works; asked about every 50 ms while waiting.
        before: Called before each start.
        environment: Added to the environment of this process.
        urls: Where the program serves: ``url``, ``metrics_url`` and ``health_url``.
        start_seconds: How long the program may take to become ready.
        fork: Whether ``python -m covey``, which the command begins with, is a fork; see ``forks``.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        directory: Path,
        ready: Callable[[], bool],
        before: Callable[[], None] = lambda: None,
        environment: Mapping[str, str] | None = None,
        urls: Mapping[str, str] | None = None,
        start_seconds: float = 90.0,
        fork: bool = False,
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log = directory / "logs" / f"{name}.log"
        self._pid_file = directory / "run" / f"{name}.pid"
        self._ready = ready
        self._before = before
        self._environment = dict(environment or {})
        self._urls = dict(urls or {})
        self._start_seconds = start_seconds
        self._fork = fork
        self._popen: subprocess.Popen[bytes] | Fork | None = None
        self._log_start = 0

    def __repr__(self) -> str:
        return f"<Process {self.name} {f'pid {self.pid}' if self.alive else 'not running'}>"

    @property
    def url(self) -> str:
        """Base address of what the program serves."""
        return self._urls["url"]

    @property
    def metrics_url(self) -> str:
        """Address of its Prometheus metrics."""
        return self._urls["metrics_url"]

    @property
    def health_url(self) -> str:
        """Base address of ``/healthz`` and ``/readyz``."""
        return self._urls["health_url"]

    @property
    def environment(self) -> dict[str, str]:
        """All environment variables of the program."""
        return os.environ | self._environment

    @property
    def pid(self) -> int:
        """Process id of the running program.

        Raises:
            ProcessError: when it does not run.
        """
        if self._popen is None or not self.alive:
            raise ProcessError(f"{self.name} does not run")
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether the program runs (a paused one does)."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        """Exit status of the last run, negative for a signal; None while it runs or before the first start."""
        return self._popen.poll() if self._popen is not None else None

    @property
    def ready(self) -> bool:
        """Whether the program works now."""
        return self.alive and self._ready()

    def start(self, *, wait: bool = True) -> None:
        """Start the program, and wait until it is ready unless told not to.

        Raises:
            ProcessError: when it runs already, ends, or is not ready in time.
        """
        if self.alive:
            raise ProcessError(f"{self.name} runs already, pid {self.pid}")
        self._before()
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._popen = Fork(self.command[3:], self.log, self.environment) if self._fork else self._executed()
        self._pid_file.write_text(str(self._popen.pid))
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the program is ready.

        Raises:
            PortTakenError: when it ended because its port was taken.
            ProcessError: when it ended otherwise or the time (seconds) is over.
        """
        deadline = time.monotonic() + (timeout or self._start_seconds)
        while time.monotonic() < deadline:
            if not self.alive:
                raise self._ended()
            if self._ready():
                return
            time.sleep(0.05)
        raise ProcessError(f"{self.name} was not ready in {timeout or self._start_seconds:g} s; {self._log_end()}")

    def wait(self, timeout: float = STOP_SECONDS) -> int:
        """Wait until the program has ended by itself, and return its exit status.

        Raises:
            ProcessError: when it still runs after ``timeout`` seconds, or was never started.
        """
        if self._popen is None:
            raise ProcessError(f"{self.name} was never started")
        try:
            status = self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"{self.name} still runs after {timeout:g} s; {self._log_end()}") from None
        self._pid_file.unlink(missing_ok=True)
        return status

    def terminate(self) -> None:
        """Ask the program to end (SIGTERM), without waiting; a paused one is resumed so that it can."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def stop(self, timeout: float = STOP_SECONDS) -> int | None:
        """Ask the program to end and wait for it; kill it after ``timeout`` seconds. Returns its exit status."""
        if self._popen is None:
            return None
        self.terminate()
        try:
            return self.wait(timeout)
        except ProcessError:
            return self.kill()

    def kill(self) -> int | None:
        """End the program at once (SIGKILL) and wait until it is gone."""
        if self._popen is None:
            return None
        self._signal(signal.SIGKILL)
        return self.wait()

    def restart(self, *, kill: bool = False, wait: bool = True) -> None:
        """Stop (or kill) the program and start it again."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start(wait=wait)

    def pause(self) -> None:
        """Freeze the program (SIGSTOP): its connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused program go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def log_text(self, *, last_run: bool = True) -> str:
        """What the program has logged, since its last start or in all runs."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(self._log_start if last_run else 0)
            return log.read().decode(errors="replace")

    def _executed(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal; one that comes after the end of the program is lost, as it should be."""
        if self._popen is not None:
            self._popen.send_signal(number)

    def _ended(self) -> ProcessError:
        taken = "address already in use" in self.log_text().lower()
        kind = PortTakenError if taken else ProcessError
        return kind(f"{self.name} ended with status {self.returncode} before it was ready; {self._log_end()}")

    def _log_end(self) -> str:
        lines = self.log_text().splitlines()[-_TAIL_LINES:]
        return "\n".join([f"the end of {self.log}:", *lines])
