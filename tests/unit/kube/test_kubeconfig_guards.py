"""The cases in which the official client does otherwise than kubectl with the same kubeconfig."""

import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from authority import Authority
from covey.kube.connection import load
from covey.kube.errors import ConfigurationError
from covey.kube.kubeconfig_guards import private_files
from unit.kube.kubeconfigs import certificate, clean_environment, config, write

__all__ = ["certificate", "clean_environment"]  # fixtures


async def test_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "home" / ".kube" / "config", config("home"))
    assert (await load()).server == "http://home:1"
    first, second = write(tmp_path / "1", config("first")), write(tmp_path / "2", config("second"))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{first}:{second}")
    assert (await load()).server == "http://first:1"
    assert (await load(context="second")).server == "http://second:1"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(ConfigurationError, match="names no file that exists"):
        await load()


async def test_files_are_merged_as_kubectl_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters in one file, users in another, as many teams hand them out; who names a thing first is right."""
    whole = config("dev", user={"token": "mine"})
    names = {"current-context": "dev", "contexts": whole["contexts"]}
    write(tmp_path / "own" / "config", {**names, "users": [{"name": "dev", "user": {"tokenFile": "token"}}]})
    write(
        tmp_path / "team" / "config", {"clusters": whole["clusters"], "users": whole["users"], "current-context": "x"}
    )
    (tmp_path / "own" / "token").write_text("beside my file")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'own' / 'config'}:{tmp_path / 'team' / 'config'}")
    connection = await load()
    assert connection.server == "http://dev:1"
    assert await connection.authorization() == "Bearer beside my file"


@pytest.mark.parametrize(
    ("part", "message"),
    [("clusters", "names cluster dev, which is not there"), ("users", "names user dev, who is not there")],
)
async def test_a_context_of_what_is_not_there(tmp_path: Path, part: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await load(write(tmp_path / "config", {**config(), part: None}))


async def test_impersonation(tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane", "as-groups": ["dev", "ops"], "as-user-extra": {"example.com/team": ["a"]}}
    assert (await load(write(tmp_path / "config", config(user=user)))).headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.com%2Fteam", "a"),
    )


@pytest.mark.parametrize("first", [{}, {"current-context": None}, {"current-context": ""}])
async def test_the_first_file_that_names_a_current_context_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Mapping[str, Any]
) -> None:
    files = [write(tmp_path / "0", first), *(write(tmp_path / name, config(name)) for name in ("second", "third"))]
    monkeypatch.setenv("KUBECONFIG", ":".join(files))
    assert (await load()).server == "http://second:1"


async def test_nothing_is_said_by_null_or_an_empty_text(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    assert certificate[1].exists()
    user = {
        "client-certificate": "tls.crt",
        "client-certificate-data": "",
        "client-key": "tls.key",
        "client-key-data": None,
        "exec": None,
    }
    cluster: dict[str, Any] = {
        "server": "https://dev:1",
        "certificate-authority-data": "",
        "tls-server-name": None,
        "proxy-url": "",
        "insecure-skip-tls-verify": None,
    }
    configuration = (await load(write(tmp_path / "config", config(user=user, **cluster)))).configuration
    assert configuration.cert_file == str(certificate[0])
    assert (configuration.proxy, configuration.tls_server_name, configuration.verify_ssl) == (None, None, True)


async def test_paths_are_meant_from_the_file_that_they_are_written_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]
) -> None:
    """A user's certificate is beside the user's file, though the cluster is in another folder."""
    whole = config(server="https://dev:1", **{"certificate-authority": "ca.crt"})
    users = [{"name": "dev", "user": {"client-certificate": "tls.crt", "client-key": "tls.key"}}]
    mine = write(tmp_path / "config", {**whole, "clusters": None, "users": users})
    team = write(tmp_path / "team" / "config", {"clusters": whole["clusters"]})
    (tmp_path / "team" / "ca.crt").write_bytes(Authority().pem)
    monkeypatch.setenv("KUBECONFIG", f"{mine}:{team}")
    monkeypatch.chdir(tmp_path.parent)
    configuration = (await load()).configuration
    assert configuration.cert_file == str(certificate[0])
    assert configuration.ssl_ca_cert == str(tmp_path / "team" / "ca.crt")


def test_keys_are_for_nobody_elses_eyes() -> None:
    with private_files({"key": b"secret"}) as files:
        file = Path(files["key"])
        assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"secret", 0o600)
    assert not file.parent.exists()


def test_a_user_without_a_home_can_import_the_client() -> None:
    code = (
        "import os, pwd\n"
        "os.environ.pop('HOME', None)\n"
        "pwd.getpwuid = {}.__getitem__\n"
        "import covey.kube.connection\n"
        "assert 'HOME' not in os.environ"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=False, env={**os.environ, "PYTHONPATH": "operator"}
        ).returncode
        == 0
    )


@pytest.mark.parametrize(
    ("server", "bypassed", "expected"),
    [
        ("https://api.example.com", "", "http://proxy:3128"),
        ("http://api.example.com", "", None),
        ("https://api.example.com", "other.com, example.com", None),
        ("https://api.example.com", ".example.com", None),
        ("https://api.example.com", "le.com,10.0.0.0/8", "http://proxy:3128"),
        ("https://10.96.0.1:443", "10.0.0.0/8", None),
        ("https://10.96.0.1:443", "10.96.0.1", None),
        ("https://[fd00::1]:443", "10.0.0.0/8", "http://proxy:3128"),
        ("https://[fd00::1]:443", "*", None),
        ("https://127.0.0.1:6443", "", None),
        ("https://localhost:6443", "", None),
    ],
)
async def test_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, bypassed: str, expected: str | None
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", bypassed)
    assert (await load(write(tmp_path / "config", config(server=server)))).configuration.proxy == expected


async def test_the_proxy_of_a_kubeconfig_comes_before_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy")
    named = await load(write(tmp_path / "config", config(server="https://dev:1", **{"proxy-url": "https://other"})))
    assert named.configuration.proxy == "https://other"
    with pytest.raises(ConfigurationError, match="socks5://proxy is not supported"):
        await load(write(tmp_path / "config", config(server="https://dev:1")))


async def test_a_plugin_beside_a_kubeconfig_that_is_named_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = "client.authentication.k8s.io/v1"
    (tmp_path / "plugin").write_text(f'#!/bin/sh\necho \'{{"apiVersion": "{version}", "status": {{"token": "t"}}}}\'\n')
    (tmp_path / "plugin").chmod(0o700)
    write(tmp_path / "config", config(user={"exec": {"command": "./plugin", "apiVersion": version}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "config")
    assert await (await load()).authorization() == "Bearer t"


@pytest.mark.parametrize(
    "changed",
    [
        {"clusters": ["dev"]},
        {"clusters": [{"name": None}, {"name": "dev"}]},
        {"clusters": [{"name": "dev", "cluster": "https://dev:1"}]},
        {"users": [{"name": "dev", "user": {"exec": "plugin"}}]},
        {"users": [{"name": "dev", "user": {"exec": {"command": None}}}]},
        {"users": [{"name": "dev", "user": {"username": 1, "password": 2}}]},
        {"users": [{"name": "dev", "user": {"client-certificate-data": "%", "client-key-data": "%"}}]},
        {"contexts": [{"name": "dev", "context": ["cluster"]}]},
        {"contexts": {"dev": {}}},
    ],
    ids=str,
)
async def test_a_file_that_may_hold_anything(tmp_path: Path, changed: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=str(tmp_path)):
        await load(write(tmp_path / "config", {**config(), **changed}))
