"""Addresses of endpoints, as flags give them."""

from __future__ import annotations

from typing import Final

#: Addresses that switch an endpoint off, as controller-runtime's flags do.
_OFF: Final = frozenset({"", "0"})
#: Hosts that only this machine, or this pod, can reach.
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def parse_address(text: str) -> tuple[str | None, int]:
    """Host (None: all interfaces) and port of ``:8080``, ``127.0.0.1:0`` or ``[::1]:8080``.

    Raises:
        ValueError: anything else.
    """
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isdecimal() or int(port) > 0xFFFF or (":" in bare and bare == host):
        raise ValueError(f"{text!r} is no address: expected HOST:PORT or :PORT")
    return bare or None, int(port)


def is_off(address: str) -> bool:
    """Tell whether an address switches its endpoint off."""
    return address in _OFF


def is_loopback(address: str) -> bool:
    """Tell whether an address is reached from this machine alone.

    Raises:
        ValueError: it is none.
    """
    return parse_address(address)[0] in _LOOPBACK
