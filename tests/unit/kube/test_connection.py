import asyncio
import base64
import ssl
import stat
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from covey.kube.credentials import ExecPlugin, Fixed, Oidc, TokenFile
from covey.kube.kubeconfig import Plugin
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from covey.kube.connection import Connection, load
from covey.kube.errors import ConfigurationError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def config(name: str = "dev", user: Mapping[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}:1/", **cluster}}],
        "users": [{"name": name, "user": dict(user or {"token": "secret"})}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "team"}}],
    }


def write(path: Path, content: Mapping[str, Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(content)))
    return str(path)


async def header(connection: Connection) -> str | None:
    return await connection.credentials.header()


async def test_a_file(tmp_path: Path) -> None:
    connection = load(write(tmp_path / "config", config()))
    assert (connection.server, connection.namespace, connection.tls) == ("http://dev:1", "team", None)
    assert await header(connection) == "Bearer secret"


def test_a_context_by_name(tmp_path: Path) -> None:
    both, other = config("dev"), config("prod")
    for part in ("clusters", "users", "contexts"):
        both[part] += other[part]
    path = write(tmp_path / "config", both)
    assert load(path).server == "http://dev:1"
    assert load(path, "prod").server == "http://prod:1"
    with pytest.raises(ConfigurationError, match="elsewhere"):
        load(path, "elsewhere")


def test_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(Path("~/.kube/config").expanduser(), config("home"))
    assert load().server == "http://home:1"
    first, second = write(tmp_path / "1", config("first")), write(tmp_path / "2", config("second"))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{first}:{second}")
    assert load().server == "http://first:1"
    assert load(context="second").server == "http://second:1"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(ConfigurationError, match="names no file that exists"):
        load()


def test_nothing_at_all() -> None:
    with pytest.raises(ConfigurationError):
        load()


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", "clusters: 3", yaml.safe_dump({**config(), "current-context": None}), yaml.safe_dump({"a": 1})],
)
def test_a_file_that_is_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=str(path)):
        load(str(path))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="missing"):
        load(str(tmp_path / "missing"))


async def test_kinds_of_users(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    users: list[tuple[dict[str, Any], str | None]] = [
        ({"tokenFile": "token", "token": "older"}, "Bearer from a file"),
        ({"username": "me", "password": "pass"}, "Basic " + base64.b64encode(b"me:pass").decode()),
        ({"client-certificate-data": "", "token": None}, None),
    ]
    for user, expected in users:
        assert await header(load(write(tmp_path / "config", config(user=user)))) == expected
    with pytest.raises(ConfigurationError, match="auth-provider"):
        load(write(tmp_path / "config", config(user={"auth-provider": {"name": "gcp"}})))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "covey")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=2))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    files[0].write_bytes(builder.sign(key, SHA256()).public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def test_certificates(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    crt, key = certificate
    encoded = {
        "client-certificate-data": base64.b64encode(crt.read_bytes()).decode(),
        "client-key-data": base64.b64encode(key.read_bytes()).decode(),
    }
    authority: dict[str, Any] = {"certificate-authority": "tls.crt", "server": "https://dev:1"}
    for user in (encoded, {"client-certificate": "tls.crt", "client-key": "tls.key"}):
        tls = load(write(tmp_path / "config", config(user=user, **authority))).tls
        assert tls is not None
        assert tls.verify_mode == ssl.CERT_REQUIRED
        assert len(tls.get_ca_certs()) == 1
    blind: dict[str, Any] = {"insecure-skip-tls-verify": True, "server": "https://dev:1"}
    insecure = load(write(tmp_path / "config", config(**blind)))
    assert insecure.tls is not None
    assert insecure.tls.verify_mode == ssl.CERT_NONE
    crt.write_text("broken")
    with pytest.raises(ConfigurationError, match="config"):
        load(write(tmp_path / "config", config(**authority)))


async def test_the_service_account_of_a_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]
) -> None:
    (tmp_path / "token").write_text("mounted")
    (tmp_path / "namespace").write_text("covey-system")
    (tmp_path / "ca.crt").write_bytes(certificate[0].read_bytes())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr("covey.kube.connection.SERVICE_ACCOUNT", tmp_path)
    connection = load()
    assert (connection.server, connection.namespace) == ("https://[fd00::1]:443", "covey-system")
    assert await header(connection) == "Bearer mounted"


async def test_a_user_without_a_home_as_in_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]
) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    await test_the_service_account_of_a_pod(tmp_path, monkeypatch, certificate)


async def test_a_token_file_is_read_again_each_minute_and_when_refused(tmp_path: Path) -> None:
    time = 0.0
    file = tmp_path / "token"
    file.write_text("one\n")
    credentials = TokenFile(file, clock=lambda: time)
    assert await credentials.header() == "Bearer one"
    file.write_text("two")
    time = 59.0
    assert await credentials.header() == "Bearer one"
    assert await credentials.header(refresh=True) == "Bearer two"
    file.write_text("three")
    time = 118.0
    assert await credentials.header() == "Bearer two"
    time = 120.0
    assert await credentials.header() == "Bearer three"
    file.unlink()
    with pytest.raises(ConfigurationError, match="token"):
        await credentials.header(refresh=True)


async def test_fixed_credentials_stay() -> None:
    assert await Fixed("x").header(refresh=True) == "x"
    assert await Fixed().header() is None


def plugin(path: Path, script: str, version: str = "v1") -> Plugin:
    """A program that counts its runs in a file beside it."""
    path.write_text(
        f"#!{sys.executable}\nimport json, os, pathlib\n"
        f"runs = pathlib.Path({str(path.with_suffix('.runs'))!r})\n"
        f"n = int(runs.read_text()) + 1 if runs.exists() else 1\nruns.write_text(str(n))\n{script}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Plugin(str(path), f"client.authentication.k8s.io/{version}")


PRINT = "print(json.dumps({'status': {'token': f'token-{n}', 'expirationTimestamp': '1970-01-01T01:00:00Z'}}))"


async def test_an_exec_plugin_runs_when_its_token_expires_or_is_refused(tmp_path: Path) -> None:
    time = 0.0
    credentials = ExecPlugin(plugin(tmp_path / "plugin", PRINT), wall=lambda: time)
    assert await credentials.header() == "Bearer token-1"
    time = 3539.0
    assert await credentials.header() == "Bearer token-1"
    assert await asyncio.gather(*[credentials.header(refresh=True) for _ in range(5)]) == ["Bearer token-2"] * 5
    time = 3541.0
    assert await credentials.header() == "Bearer token-3"


async def test_an_exec_plugin_is_told_what_is_wanted(tmp_path: Path) -> None:
    script = "print(json.dumps({'status': {'token': json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind']}}))"
    assert await ExecPlugin(plugin(tmp_path / "plugin", script, "v1beta1")).header() == "Bearer ExecCredential"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("raise SystemExit('log in first')", "ended with 1: log in first"),
        ("print('hello')", "printed no credentials"),
        ("print(json.dumps({'status': {}}))", "neither a token nor a certificate"),
    ],
)
async def test_an_exec_plugin_that_fails(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await ExecPlugin(plugin(tmp_path / "plugin", script)).header()


async def test_an_exec_plugin_that_is_not_there(tmp_path: Path) -> None:
    missing = Plugin("./missing", "client.authentication.k8s.io/v1", install_hint="get it from the shop")
    with pytest.raises(ConfigurationError, match="missing: No such file or directory; get it from the shop"):
        await ExecPlugin(missing, tmp_path).header()
    with pytest.raises(ConfigurationError, match="v1alpha1 is not supported"):
        ExecPlugin(Plugin("x", "client.authentication.k8s.io/v1alpha1"))
    with pytest.raises(ConfigurationError, match="wants a terminal"):
        ExecPlugin(Plugin("x", "client.authentication.k8s.io/v1", interactive_mode="Always"))


def test_files_are_merged_as_kubectl_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters in one file, users in another, as many teams hand them out; who names a thing first is right."""
    whole = config("dev", user={"token": "mine"})
    names = {"current-context": "dev", "contexts": whole["contexts"]}
    write(tmp_path / "own" / "config", {**names, "users": [{"name": "dev", "user": {"tokenFile": "token"}}]})
    write(
        tmp_path / "team" / "config", {"clusters": whole["clusters"], "users": whole["users"], "current-context": "x"}
    )
    (tmp_path / "own" / "token").write_text("beside my file")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'own' / 'config'}:{tmp_path / 'team' / 'config'}")
    connection = load()
    assert connection.server == "http://dev:1"
    assert asyncio.run(header(connection)) == "Bearer beside my file"


@pytest.mark.parametrize(
    ("part", "message"),
    [("clusters", "names cluster dev, which is not there"), ("users", "names user dev, who is not there")],
)
def test_a_context_of_what_is_not_there(tmp_path: Path, part: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(write(tmp_path / "config", {**config(), part: None}))


def test_how_to_reach_a_server(tmp_path: Path) -> None:
    reach: dict[str, Any] = {"server": "https://10.0.0.1", "tls-server-name": "api", "proxy-url": "http://proxy:3128"}
    connection = load(write(tmp_path / "config", config(**reach)))
    assert connection.options() == {"proxy": "http://proxy:3128", "server_hostname": "api"}
    with pytest.raises(ConfigurationError, match="socks5://proxy is not supported; http and https are"):
        load(write(tmp_path / "config", config(**{"proxy-url": "socks5://proxy"})))
    with pytest.raises(ConfigurationError, match="cluster dev has no server"):
        load(write(tmp_path / "config", config(server="")))


def test_impersonation(tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane", "as-groups": ["dev", "ops"], "as-user-extra": {"example.com/team": ["a"]}}
    assert load(write(tmp_path / "config", config(user=user))).headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.com%2Fteam", "a"),
    )


def test_a_certificate_without_its_key(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    assert certificate[0].exists()
    alone = config(user={"client-certificate": "tls.crt"}, server="https://dev:1")
    with pytest.raises(ConfigurationError, match="user dev has no client-key"):
        load(write(tmp_path / "config", alone))


async def test_an_exec_plugin_may_give_a_certificate_and_is_told_the_cluster(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    crt, key = certificate
    script = (
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec']['cluster']\n"
        "assert info['server'] == 'https://dev:1' and info['config'] == {'audience': 'x'}, info\n"
        f"status = {{'clientCertificateData': open({str(crt)!r}).read(), 'clientKeyData': open({str(key)!r}).read()}}\n"
        "print(json.dumps({'status': status}))"
    )
    made = plugin(tmp_path / "plugin", script)
    user = {"exec": {"apiVersion": made.api_version, "command": "./plugin", "provideClusterInfo": True}}
    told = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    connection = load(write(tmp_path / "config", config(user=user, server="https://dev:1", extensions=[told])))
    loaded: list[tuple[object, ...]] = []  # a context does not tell what it has
    monkeypatch.setattr("covey.kube.credentials.use_certificate", lambda *given: loaded.append(given))
    assert await header(connection) is None
    assert await header(connection) is None
    assert loaded == [(connection.tls, crt.read_bytes(), key.read_bytes())]


def jwt(expires: float, name: str = "") -> str:
    middle = base64.urlsafe_b64encode(f'{{"exp": {expires}, "name": "{name}"}}'.encode()).decode().rstrip("=")
    return f"head.{middle}.signature"


async def test_an_oidc_token_is_read_again_when_it_has_expired(tmp_path: Path) -> None:
    def provided(token: str) -> dict[str, Any]:
        return config(user={"auth-provider": {"name": "oidc", "config": {"id-token": token, "refresh-token": "r"}}})

    path = tmp_path / "config"
    far = datetime.now(UTC).timestamp() + 3600
    connection = load(write(path, provided(jwt(far, "one"))))
    assert await header(connection) == f"Bearer {jwt(far, 'one')}"
    write(path, provided(jwt(far, "two")))
    assert await header(connection) == f"Bearer {jwt(far, 'one')}"
    assert await connection.credentials.header(refresh=True) == f"Bearer {jwt(far, 'two')}"


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", jwt(99.0)])
async def test_an_oidc_token_that_is_none_any_more(token: str) -> None:
    with pytest.raises(ConfigurationError, match="any kubectl command renews it"):
        await Oidc(lambda: token, wall=lambda: 100.0).header()
