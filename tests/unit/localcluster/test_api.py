"""Requests, watches and waiting: messages of refusals, and what is left behind when a server goes away."""

import socket
import ssl
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kubernetes.client import ApiClient, Configuration
from urllib3.exceptions import HTTPError

from authority import Authority, Mounted
from localcluster import request
from localcluster.watch import WatchStream


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        yield listening


@pytest.fixture
def client(server: socket.socket) -> Iterator[ApiClient]:
    host, port = server.getsockname()
    with ApiClient(Configuration(f"http://{host}:{port}", retries=False, proxy="")) as made:
        yield made


def reset(server: socket.socket) -> None:
    """Take a connection and reset it, as a process does that is killed."""
    accepted, _ = server.accept()
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    accepted.close()


def test_a_watch_that_is_cut_off_before_it_begins_leaves_no_connection(
    server: socket.socket, client: ApiClient
) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(reset, server)
        # A connection that is left open is a ResourceWarning, which fails the test.
        with pytest.raises(HTTPError):
            WatchStream(client, "/api/v1/pods", "1")


def close_and_answer(server: socket.socket, files: Mounted) -> None:
    """Close a connection before TLS has begun on it, as an idle one may be at the moment of a request; answer on the next."""
    first, _ = server.accept()
    with first:
        first.recv(65536)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.directory / "tls.key")
    second, _ = server.accept()
    with context.wrap_socket(second, server_side=True) as secured:
        secured.recv(65536)
        secured.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\n{"items": []}')


def test_a_connection_that_the_server_closes_meanwhile_is_made_anew(server: socket.socket, tmp_path: Path) -> None:
    host, port = server.getsockname()
    files = Mounted(tmp_path / "tls", Authority(), "server")
    configuration = Configuration(f"https://{host}:{port}", retries=False, proxy="")
    configuration.ssl_ca_cert = str(files.directory / "ca.crt")
    with ApiClient(configuration) as client, ThreadPoolExecutor(1) as pool:
        served = pool.submit(close_and_answer, server, files)
        assert request(client, "GET", "/api/v1/pods", timeout=10) == {"items": []}
        served.result()
