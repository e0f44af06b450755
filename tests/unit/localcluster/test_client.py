"""The client of the tests: what it leaves behind when a server goes away."""

import http.client
import socket
import struct

import pytest

from localcluster.client import Watch


def test_a_watch_that_is_cut_off_before_it_begins_leaves_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = http.client.HTTPConnection(*server.getsockname(), timeout=30)
        connection.connect()
        accepted, _ = server.accept()
        # Reset, as by a process that is killed.
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        with pytest.raises(OSError, match=r"reset|pipe"):
            Watch(connection, "/api/v1/pods", "1", {})
    assert connection.sock is None
