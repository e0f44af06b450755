"""Stop the programs of a cluster in the order that lets each of them end cleanly.

An API server whose etcd has left hangs for minutes and keeps its port, so etcd goes last.  Works from the pid files in
the cluster's directory, so it also stops what a dead owner left behind.
"""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from localcluster.process import STOP_SECONDS

#: Stopped one after the other, after everything else.
LAST = ("kube-apiserver", "etcd")


def stop(directory: Path, *, keep: bool = False) -> None:
    """Stop what runs in a cluster's directory, and remove the directory unless it is kept."""
    files = {path.stem: path for path in (directory / "run").glob("*.pid")}
    _stop_all(path for name, path in files.items() if name not in LAST)
    for name in LAST:
        if name in files:
            _stop_all([files[name]])
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)


def _stop_all(files: Iterable[Path]) -> None:
    pids = {path: pid for path in files if (pid := _running(path)) is not None}
    for pid in pids.values():
        _signal(pid, signal.SIGTERM)
        _signal(pid, signal.SIGCONT)
    deadline = time.monotonic() + STOP_SECONDS
    for path, pid in pids.items():
        if not _gone(pid, deadline):
            _signal(pid, signal.SIGKILL)
            _gone(pid, time.monotonic() + STOP_SECONDS)
        path.unlink(missing_ok=True)


def _gone(pid: int, deadline: float) -> bool:
    """Wait for the end of a process that need not be a child of this one."""
    while _exists(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _running(path: Path) -> int | None:
    """The process that a pid file names, if it still is the one: every program has the directory in its arguments."""
    try:
        pid = int(path.read_text())
    except (OSError, ValueError):
        return None
    if not _exists(pid):
        return None
    arguments = Path(f"/proc/{pid}/cmdline")
    with contextlib.suppress(OSError):
        if str(path.parent.parent).encode() not in arguments.read_bytes():
            return None
    return pid


def _exists(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False  # it has ended, and somebody else's process may have got its number
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
