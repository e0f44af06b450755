"""Free loopback ports that stay free.

A port that the kernel hands out for port 0 lies in the range it also uses for outgoing connections, so it may be
taken while the server that owns it restarts.  These lie below that range.
"""

import random
import socket
from pathlib import Path

HOST = "127.0.0.1"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 12_000
_given: set[int] = set()


def free_port() -> int:
    """A loopback port nobody listens on, never the same twice in one process.

    Another process may still take it before its server does: whoever starts one retries with another port.
    """
    for port in _candidates():
        if port not in _given and _bindable(port):
            _given.add(port)
            return port
    raise OSError("no free port found on the loopback interface")


def address(port: int) -> str:
    """``host:port`` as flags want it."""
    return f"{HOST}:{port}"


def _candidates() -> list[int]:
    highest = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    ports = range(_LOWEST, highest) if highest > _LOWEST + 1000 else range(_LOWEST, 60_000)
    return random.SystemRandom().sample(ports, 500)


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
