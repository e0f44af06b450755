"""The first function of a fork that becomes a process of Covey.

It is no part of ``localcluster``, which each fork would import with it, in as much processor time as it takes to serve.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

#: Of Linux' prctl(2).
_PR_SET_PDEATHSIG: Final = 1


def run_covey(arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    """Do what ``python -m covey`` does, in a session of its own; it ends with the owner of the cluster.

    Args:
        arguments: of ``covey``.
        log: takes what it prints.
        environment: all of its variables.
    """
    # A collection of garbage would walk, and so copy, all that is shared with the process that was forked.
    gc.freeze()
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
