"""Requests and watches: messages of refusals, and what is left behind when a server goes away."""

import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kubernetes.client import ApiClient, ApiException, Configuration
from urllib3.exceptions import HTTPError

from localcluster import request, sentence_of, status_of
from localcluster.watch import WatchStream


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
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


@pytest.mark.usefixtures("server")
def test_a_server_that_does_not_answer_is_given_up(client: ApiClient) -> None:
    with pytest.raises(HTTPError, match="timed out"):
        request(client, "GET", "/api/v1/pods", timeout=0.1)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (json.dumps({"reason": "Invalid", "message": "spec.x: no", "code": 422}), ("Invalid", "spec.x: no")),
        (json.dumps({"reason": "Invalid"}), ("Invalid", '{"reason": "Invalid"}')),
        ("not found", ("Unprocessable Entity", "not found")),
        ("[]", ("Unprocessable Entity", "[]")),
        (None, ("Unprocessable Entity", "Unprocessable Entity")),
    ],
)
def test_a_refusal_has_a_reason_and_a_message(body: str | None, said: tuple[str, str]) -> None:
    error = ApiException(422, "Unprocessable Entity", body=body)
    status = status_of(error)
    assert (status["reason"], status["message"]) == said
    assert sentence_of(error) == f"422 {said[1]}"
