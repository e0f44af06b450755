"""Wiring that the operator, the scheduler process and the page share: signals, identity, clients, memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

import uvloop

from covey import __version__
from covey.kube.client import Client
from covey.kube.connection import Connection
from covey.kube.transport import Transport

#: A bound for connections of watches: each is one connection, and a watch that waits for one is deaf.
UNBOUNDED: Final = 0


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a process to its end; return its exit status."""
    # The loop must get its turn while a large resource is planned in a thread.
    sys.setswitchinterval(0.001)
    return uvloop.run(main)


def is_own() -> bool:
    """Tell whether this is the loop of the process's main thread, which alone may set what holds for the whole process."""
    return threading.current_thread() is threading.main_thread()


def take_signals(stop: asyncio.Event) -> None:
    """Set the event at SIGTERM and SIGINT, where the process is its own (``is_own``)."""
    if not is_own():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def make_identity() -> str:
    """Return the name under which this process holds a lease, another one after each start."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


@contextlib.asynccontextmanager
async def open_clients(
    connection: Connection, component: str, manager: str, *bounds: int, transport: Callable[..., Transport] = Transport
) -> AsyncIterator[tuple[Client, ...]]:
    """Open clients whose requests do not wait for each other.

    Args:
        connection: to the API server.
        component: the name in the user agent.
        manager: the field manager of what they write.
        bounds: connections of each.
        transport: makes what carries the requests of each.
    """
    agent = f"{component}/{__version__}"
    async with contextlib.AsyncExitStack() as stack:
        yield tuple(
            [
                await stack.enter_async_context(
                    Client(connection, user_agent=agent, field_manager=manager, connections=bound, transport=transport)
                )
                for bound in bounds
            ]
        )


def settle_memory(first: int, second: int, third: int) -> None:
    """Keep the garbage collector from walking what the first lists brought, and walk at these thresholds from now on.

    Nothing where the process is not its own (``is_own``).
    """
    if not is_own():
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(first, second, third)
