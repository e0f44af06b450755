"""Clean up after an owner that could not.

Its standard input is a pipe that the owner holds open.  When the owner ends, however it ends, the pipe closes, and
what the owner has not stopped itself is stopped here.  (A parent-death signal would be bound to the thread that
started a program, and could keep no order.)
"""

import os
import subprocess
import sys
from pathlib import Path

from localcluster import cleanup

_DISMISSED = b"dismissed"


def start(directory: Path, *, keep: bool) -> subprocess.Popen[bytes]:
    """Start a guard for a directory; it works when its ``stdin`` is closed."""
    program = "from localcluster import guard; guard.main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, str(directory), *(["--keep"] if keep else [])],
        stdin=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
        start_new_session=True,
    )


def clean(guard: subprocess.Popen[bytes]) -> None:
    """Let a guard clean up, and wait until it has."""
    guard.communicate()


def dismiss(guard: subprocess.Popen[bytes]) -> None:
    """End a guard without cleaning up."""
    guard.communicate(_DISMISSED)


def main() -> None:
    """Wait for the end of standard input, then clean up."""
    if sys.stdin.buffer.read() != _DISMISSED:
        cleanup.stop(Path(sys.argv[1]), keep="--keep" in sys.argv[2:])
