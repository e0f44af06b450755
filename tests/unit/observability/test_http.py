import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import unused_port

from covey.observability.http import parse_address, serve_health


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8080", (None, 8080)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses(text: str, expected: tuple[str | None, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["8080", "host", "host:", "host:port", "::1:80", ":65536", ":-1", "http://x:80"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        parse_address(text)


async def test_probes_and_metrics() -> None:
    ready = False

    def readyz() -> tuple[bool, str]:
        return ready, "synced" if ready else "waiting for pods"

    async with (
        serve_health("127.0.0.1:0", "127.0.0.1:0", lambda: (True, "ok"), readyz) as served,
        ClientSession() as session,
    ):
        async with session.get(f"{served.health_url}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with session.get(f"{served.health_url}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "waiting for pods\n")
        ready = True
        async with session.get(f"{served.health_url}/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "synced\n")
        async with session.get(f"{served.metrics_url}/metrics") as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "covey_build_info" in await answer.text()
        async with session.get(f"{served.metrics_url}/healthz") as answer:
            assert answer.status == 404


async def test_endpoints_can_be_switched_off() -> None:
    async with serve_health("0", "", lambda: (True, ""), lambda: (True, "")) as served:
        assert (served.metrics_url, served.health_url) == (None, None)


async def test_all_interfaces() -> None:
    port = unused_port()
    async with (
        serve_health("0", f":{port}", lambda: (True, ""), lambda: (True, "")) as served,
        ClientSession() as session,
    ):
        assert served.health_url == f"http://127.0.0.1:{port}"
        async with session.get(f"{served.health_url}/healthz") as answer:
            assert answer.status == 200


async def test_an_address_in_use_frees_the_other() -> None:
    async with serve_health("0", "127.0.0.1:0", lambda: (True, ""), lambda: (True, "")) as served:
        assert served.health_url
        port = served.health_url.rpartition(":")[2]
        free = unused_port()
        with pytest.raises(OSError, match="address already in use"):
            async with serve_health(f"127.0.0.1:{free}", f"127.0.0.1:{port}", lambda: (True, ""), lambda: (True, "")):
                pass
        async with serve_health(f"127.0.0.1:{free}", "0", lambda: (True, ""), lambda: (True, "")) as again:
            assert again.metrics_url == f"http://127.0.0.1:{free}"
