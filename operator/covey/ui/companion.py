"""The UI beside the operator: a process of its own, so that no viewer takes time or memory from reconciling.

It gets the API server's address and authority, and nobody's identity: it could not read with the operator's rights if it
wanted to use them by mistake. It runs with less priority and bounded memory, is started again when it ends, and ends with
the operator.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from covey.observability.logging import get_logger

_log = get_logger(__name__)

#: Seconds before it is started again, doubled each time up to the second.
_FIRST_DELAY: Final = 1.0
_LONGEST_DELAY: Final = 60.0
#: Seconds that it has run by then count as success.
_STEADY: Final = 60.0
#: Seconds that it is given at the end.
_GRACE: Final = 3.0
_NICE: Final = 10


def command(arguments: Sequence[str]) -> tuple[str, ...]:
    """This program with other arguments."""
    return (sys.executable, "-m", "covey", *arguments)


def be_modest(megabytes: int) -> None:
    """Let others go first, and have no more data than that; more is a MemoryError here."""
    os.nice(_NICE)
    size = megabytes << 20
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


async def keep_running(arguments: Sequence[str]) -> None:
    """Run this program with these arguments for as long as the task lives.

    Args:
        arguments: of the command line.
    """
    delay, loop = _FIRST_DELAY, asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            status: int | str = await _run(arguments)
        except OSError as error:
            status = str(error)
        if loop.time() - began > _STEADY:
            delay = _FIRST_DELAY
        _log.warning("the UI has ended and is started again", status=status, delay=delay)
        await asyncio.sleep(delay)
        delay = min(2 * delay, _LONGEST_DELAY)


async def _run(arguments: Sequence[str]) -> int:
    # With --attached it ends when its standard input does, however the operator ends.
    process = await asyncio.create_subprocess_exec(*command(arguments), stdin=asyncio.subprocess.PIPE)
    _log.info("the UI has been started", pid=process.pid)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _GRACE)
            if process.returncode is None:
                process.kill()
                await process.wait()
