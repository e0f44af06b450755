"""The Authorization header as time goes on, and plugins that print it."""

import asyncio
import base64
import stat
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from covey.kube.connection import Connection, load
from covey.kube.errors import ConfigurationError
from covey.kube.official_client import Configuration
from covey.kube.renewal import ExecPlugin, Read, Renewal, id_token, token_file
from unit.kube.kubeconfigs import config, write

VERSION = "client.authentication.k8s.io/v1"


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def connect(read: Read, clock: Clock | None = None) -> Connection:
    connection = Connection(Configuration())
    connection.configuration.refresh_api_key_hook = Renewal(read, clock or Clock())
    return connection


async def test_a_token_file_is_read_again_each_minute_and_when_refused(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "token"
    file.write_text("one\n")
    connection = connect(token_file(file), clock)
    assert await connection.authorization() == "Bearer one"
    file.write_text("two")
    clock.time = 59.0
    assert await connection.authorization() == "Bearer one"
    assert await connection.authorization(refused="Bearer one") == "Bearer two"
    file.write_text("three")
    clock.time = 118.0
    assert await connection.authorization() == "Bearer two"
    clock.time = 120.0
    assert await connection.authorization() == "Bearer three"
    file.write_text("four")
    clock.time = 20.0
    assert await connection.authorization() == "Bearer four", "the clock was set back"
    file.unlink()
    with pytest.raises(ConfigurationError, match=f"{file}: No such file"):
        await connection.authorization(refused="Bearer four")
    file.write_text("\n")
    with pytest.raises(ConfigurationError, match=f"{file} is empty"):
        await connection.authorization()


def program(path: Path, script: str, version: str = VERSION, **more: Any) -> dict[str, Any]:
    """A plugin that counts its runs in a file beside it, and prints what the script calls its status."""
    path.write_text(
        f"#!{sys.executable}\nimport json, os, pathlib, sys\n"
        f"runs = pathlib.Path({str(path.with_suffix('.runs'))!r})\n"
        f"n = int(runs.read_text()) + 1 if runs.exists() else 1\nruns.write_text(str(n))\n"
        f"def answer(**status): print(json.dumps({{'apiVersion': {version!r}, 'kind': 'ExecCredential', 'status': status}}))\n"
        f"{script}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"command": str(path), "apiVersion": version, **more}


async def authorization(entry: Mapping[str, Any]) -> str | None:
    return await connect(ExecPlugin(entry).read).authorization()


async def test_an_exec_plugin_runs_when_its_token_expires_or_is_refused(tmp_path: Path) -> None:
    clock = Clock()
    script = "answer(token=f'token-{n}', expirationTimestamp='1970-01-01T01:00:00Z')"
    connection = connect(ExecPlugin(program(tmp_path / "plugin", script)).read, clock)
    assert await connection.authorization() == "Bearer token-1"
    clock.time = 3539.0
    assert await connection.authorization() == "Bearer token-1"
    refused = [connection.authorization(refused="Bearer token-1") for _ in range(5)]
    assert await asyncio.gather(*refused) == ["Bearer token-2"] * 5
    clock.time = 3541.0
    assert await connection.authorization() == "Bearer token-3"


async def test_an_exec_plugin_that_says_a_lot(tmp_path: Path) -> None:
    """More than a pipe holds, on the one that nobody reads first."""
    entry = program(tmp_path / "plugin", "print('x' * 1_000_000, file=sys.stderr)\nanswer(token='t')")
    assert await authorization(entry) == "Bearer t"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("raise SystemExit('log in first')", "ended with 1: log in first"),
        ("print('hello')", "printed no credentials"),
        ("print('[]')", "printed no credentials"),
        ("answer()", "neither a token nor a certificate"),
        ("answer(clientCertificateData='x')", "a certificate without its key"),
        ("answer(token='t', expirationTimestamp='tomorrow')", "printed no credentials: .*tomorrow"),
        (
            "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1beta1', 'status': {'token': 't'}}))",
            "printed client.authentication.k8s.io/v1beta1 and not client.authentication.k8s.io/v1",
        ),
    ],
)
async def test_an_exec_plugin_that_fails_is_an_error_and_nobody_is_asked_as_nobody(
    tmp_path: Path, script: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await authorization(program(tmp_path / "plugin", script))


async def test_an_exec_plugin_of_a_kubeconfig_is_told_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command is meant from the file, as is the authority's."""
    (tmp_path / "ca.crt").write_text("authority")
    script = "answer(token=json.dumps(json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec']['cluster']))"
    entry = {**program(tmp_path / "plugin", script), "command": "./plugin", "provideClusterInfo": True}
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    cluster: dict[str, Any] = {"certificate-authority": "ca.crt", "extensions": [extension]}
    monkeypatch.chdir(tmp_path.parent)
    connection = await load(write(tmp_path / "config", config(user={"exec": entry}, **cluster)))
    told = {
        "server": "http://dev:1/",
        "certificate-authority-data": base64.b64encode(b"authority").decode(),
        "config": {"audience": "x"},
    }
    said = await connection.authorization()
    assert said is not None
    assert yaml.safe_load(said.removeprefix("Bearer ")) == told


def jwt(expires: float, name: str = "") -> str:
    middle = base64.urlsafe_b64encode(f'{{"exp": {expires}, "name": "{name}"}}'.encode()).decode().rstrip("=")
    return f"head.{middle}.signature"


async def test_an_oidc_token_is_read_again_when_it_was_refused(tmp_path: Path) -> None:
    def provided(token: str) -> str:
        provider = {"id-token": token, "refresh-token": "r", "idp-issuer-url": "https://issuer.invalid"}
        user = {"auth-provider": {"name": "oidc", "config": provider}}
        return write(tmp_path / "config", config(user=user))

    far = datetime.now(UTC).timestamp() + 3600
    connection = await load(provided(jwt(far, "one")))
    assert await connection.authorization() == f"Bearer {jwt(far, 'one')}"
    provided(jwt(far, "two"))
    assert await connection.authorization() == f"Bearer {jwt(far, 'one')}"
    assert await connection.authorization(refused=f"Bearer {jwt(far, 'one')}") == f"Bearer {jwt(far, 'two')}"


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", jwt(99.0)])
async def test_an_oidc_token_that_is_none_any_more_is_kubectls_to_renew(token: str) -> None:
    clock = Clock()
    clock.time = 100.0
    with pytest.raises(ConfigurationError, match="any kubectl command renews it"):
        await connect(id_token(lambda: token), clock).authorization()


async def test_an_exec_plugin_that_is_not_there() -> None:
    missing = {"command": "./missing", "apiVersion": VERSION, "installHint": "get it from the shop"}
    with pytest.raises(ConfigurationError, match="missing: No such file or directory; get it from the shop"):
        await authorization(missing)
    with pytest.raises(ConfigurationError, match="v1alpha1 is not supported"):
        ExecPlugin({"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"})
    with pytest.raises(ConfigurationError, match="wants a terminal"):
        ExecPlugin({"command": "x", "apiVersion": VERSION, "interactiveMode": "Always"})
