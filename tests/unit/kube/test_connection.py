"""Where the API server is and as whom Covey speaks: files, contexts, users, and the account of a pod."""

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from authority import Authority
from covey.kube.connection import Connection, bearer, load, load_server
from covey.kube.errors import ConfigurationError
from unit.kube.kubeconfigs import certificate, clean_environment, config, write

__all__ = ["certificate", "clean_environment"]  # fixtures


async def header(connection: Connection) -> str | None:
    return await connection.authorization()


async def test_a_file(tmp_path: Path) -> None:
    connection = await load(write(tmp_path / "config", config()))
    assert (connection.server, connection.namespace, connection.tls) == ("http://dev:1", "team", None)
    assert await header(connection) == "Bearer secret"


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", "clusters: 3", yaml.safe_dump({**config(), "current-context": None}), yaml.safe_dump({"a": 1})],
)
async def test_a_file_that_is_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=str(path)):
        await load(str(path))


async def test_kinds_of_users(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    users: list[tuple[dict[str, Any], str | None]] = [
        ({"tokenFile": "token", "token": "older"}, "Bearer from a file"),
        ({"username": "me", "password": "pass"}, "Basic " + base64.b64encode(b"me:pass").decode()),
        ({"client-certificate-data": "", "token": None}, None),
        ({"token": "mine", "username": "me", "password": "pass", "exec": {"command": "never-run"}}, "Bearer mine"),
    ]
    for user, expected in users:
        assert await header(await load(write(tmp_path / "config", config(user=user)))) == expected
    with pytest.raises(ConfigurationError, match="auth-provider"):
        await load(write(tmp_path / "config", config(user={"auth-provider": {"name": "gcp"}})))


async def test_certificates(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    crt, key = certificate
    encoded = {
        "client-certificate-data": base64.b64encode(crt.read_bytes()).decode(),
        "client-key-data": base64.b64encode(key.read_bytes()).decode(),
    }
    (tmp_path / "ca.crt").write_bytes(Authority().pem)
    authority: dict[str, Any] = {"certificate-authority": "ca.crt", "server": "https://dev:1"}
    for user in (encoded, {"client-certificate": "tls.crt", "client-key": "tls.key"}):
        tls = (await load(write(tmp_path / "config", config(user=user, **authority)))).tls
        assert tls is not None
        assert tls.verify_mode == ssl.CERT_REQUIRED
        assert len(tls.get_ca_certs()) == 1
    blind: dict[str, Any] = {"insecure-skip-tls-verify": True, "server": "https://dev:1"}
    insecure = await load(write(tmp_path / "config", config(**blind)))
    assert insecure.tls is not None
    assert insecure.tls.verify_mode == ssl.CERT_NONE
    (tmp_path / "ca.crt").write_text("broken")
    with pytest.raises(ConfigurationError, match="config"):
        await load(write(tmp_path / "config", config(**authority)))


def mount_account(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "token").write_text("mounted\n")
    (folder / "namespace").write_text("covey-system")
    (folder / "ca.crt").write_bytes(Authority().pem)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr("covey.kube.connection.SERVICE_ACCOUNT", folder)


async def test_the_token_of_a_pod_is_read_again_when_it_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount_account(tmp_path / "account", monkeypatch)
    connection = await load()
    assert await header(connection) == "Bearer mounted"
    (tmp_path / "account" / "token").write_text("rotated\n")
    assert await connection.authorization(refused="Bearer mounted") == "Bearer rotated"


async def test_the_server_alone_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]
) -> None:
    user = {"token": "t", "as": "jane", "client-certificate": certificate[0].name, "client-key": certificate[1].name}
    server = await load_server(write(tmp_path / "config", config(user=user, server="https://dev:1")))
    assert (server.server, server.headers, await header(server)) == ("https://dev:1", (), None)
    assert server.configuration.cert_file is None
    mount_account(tmp_path / "account", monkeypatch)
    server = await load_server()
    assert (server.server, await header(server)) == ("https://[fd00::1]:443", None)
    (tmp_path / "account/token").unlink()
    assert (await load_server()).server == "https://[fd00::1]:443", "its pod has no token"
    assert await header(bearer(server, "mine")) == "Bearer mine"


async def test_a_context_by_name(tmp_path: Path) -> None:
    both, other = config("dev"), config("prod")
    for part in ("clusters", "users", "contexts"):
        both[part] += other[part]
    path = write(tmp_path / "config", both)
    assert (await load(path)).server == "http://dev:1"
    assert (await load(path, "prod")).server == "http://prod:1"
    with pytest.raises(ConfigurationError, match="elsewhere"):
        await load(path, "elsewhere")


async def test_nothing_at_all() -> None:
    with pytest.raises(ConfigurationError):
        await load()


async def test_a_pod_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount_account(tmp_path / "account", monkeypatch)
    (tmp_path / "account" / "token").unlink()
    with pytest.raises(ConfigurationError, match=r"service account .* token file does not exist"):
        await load()
