"""Free loopback ports that stay free.

A port that the kernel hands out for port 0 lies in the range it also uses for outgoing connections, so it may be
taken while the server that owns it restarts.  These lie below that range, in blocks: a process holds the first port of a
block, bound, for as long as it lives, and the others are left to it by all that ask here.
"""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

HOST = "127.0.0.1"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 12_000
_BLOCK = 64
_left: list[int] = []


def free_port() -> int:
    """A loopback port nobody listens on, never the same twice, in no two processes at a time.

    A program that is not started from here may still take it before its server does: whoever starts one retries with
    another port.

    Raises:
        OSError: when none is free.
    """
    while True:
        if not _left:
            _left.extend(_take_block())
        port = _left.pop()
        if probe := _bind(port):
            probe.close()
            return port


def address(port: int) -> str:
    """``host:port`` as flags want it."""
    return f"{HOST}:{port}"


def _take_block() -> range:
    for first in _firsts():
        if sign := _bind(first):
            sign.detach()
            return range(first + 1, first + _BLOCK)
    raise OSError("no free port found on the loopback interface")


def _firsts() -> Iterator[int]:
    highest = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    blocks = range(_LOWEST, (highest if highest > _LOWEST + 1000 else 60_000) - _BLOCK, _BLOCK)
    yield from random.SystemRandom().sample(blocks, len(blocks))


def _bind(port: int) -> socket.socket | None:
    """A socket bound to a port; None where another one is.

    Two sockets with the address option may share a port that nobody listens on, so the one that is a sign lacks it.
    """
    probe = socket.socket()
    if (port - _LOWEST) % _BLOCK:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((HOST, port))
    except OSError:
        probe.close()
        return None
    return probe
