"""Guards of the official client: one for each case in which it takes a kubeconfig otherwise than kubectl does.

Each says what kubectl does, and links the line of the client (release 37.0.2) that does something else. They work on
the entries of a kubeconfig before the client reads them; when credentials are renewed is in ``renewal``.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from urllib.request import getproxies_environment

from yarl import URL

from covey.kube.errors import ConfigurationError
from covey.kube.official_client import KubeConfigMerger

#: A cluster, a user or a context of a kubeconfig.
Entry = dict[str, Any]

#: The ways in which a user can say who that is, in kubectl's order.
_CREDENTIALS: Final = (("tokenFile",), ("token",), ("exec",), ("username", "password"), ("auth-provider",))
_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def existing_files() -> list[Path]:
    """The files of ``$KUBECONFIG``, else ``~/.kube/config``, as far as they exist at the time of the call.

    The client looks once, when it is imported, and goes on without a file where it finds none:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L38

    Raises:
        ConfigurationError: ``$KUBECONFIG`` names none that does.
    """
    named = os.environ.get("KUBECONFIG", "")
    # Unlike Path.expanduser this leaves the path alone for a user without a home, as in a container.
    usual = os.path.expanduser("~/.kube/config")  # noqa: PTH111
    files = [Path(name) for name in named.split(os.pathsep) if name] or [Path(usual)]
    existing = [file for file in files if file.is_file()]
    if named and not existing:
        raise ConfigurationError(f"$KUBECONFIG names no file that exists: {named}")
    return existing


class Merger(KubeConfigMerger):
    """Several files, of which the first that names a current context counts.

    The client takes the last, an empty one included, and says nothing of a file that is no kubeconfig but the error of
    Python that it ran into:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L547
    """

    def __init__(self, files: Sequence[Path]) -> None:
        # The client would pass over what is not there.
        if missing := [str(file) for file in files if not file.exists()]:
            raise ConfigurationError(f"{', '.join(missing)}: no such file")
        super().__init__(os.pathsep.join(map(str, files)))  # type: ignore[no-untyped-call]

    def load_config(self, path: str) -> None:
        """Take one more file in.

        Raises:
            ConfigurationError: it cannot be read, or is no kubeconfig.
        """
        first = self.config.value.get("current-context") if self.config is not None else None
        try:
            super().load_config(path)  # type: ignore[no-untyped-call]
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}") from error
        except Exception as error:
            raise ConfigurationError(f"{path} is no kubeconfig: {error}") from error
        if first:
            self.config.value["current-context"] = first


def without_nulls(entry: Entry) -> Entry:
    """Drop what is null or an empty text: it means that nothing is said, as in Go.

    The client takes an empty ``client-key-data`` for the key and does not look at ``client-key``:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L101
    """
    return {key: value for key, value in entry.items() if value is not None and value != ""}


def anchor_paths(entry: Entry, folder: Path) -> Entry:
    """Make paths absolute: they are meant from the file that they are written in.

    The client looks for a user's certificate next to the file of the cluster, and for a plugin in the working
    directory:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L395
    """
    anchored = entry | {key: str(folder / entry[key]) for key in _PATHS if key in entry}
    command = anchored.get("exec", {}).get("command", "")
    if os.sep in command:
        anchored["exec"] = {**anchored["exec"], "command": str(folder / command)}
    return anchored


def first_credential(user: Entry) -> Entry:
    """Keep one of a user's credentials, as kubectl does: a ``tokenFile`` before a ``token`` before a plugin.

    The client asks OIDC and plugins first, and takes the token before its file:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L215
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L362
    """
    taken = next((names for names in _CREDENTIALS if all(name in user for name in names)), ())
    others = {name for names in _CREDENTIALS for name in names if name not in taken}
    return {key: value for key, value in user.items() if key not in others}


def refuse_removed_providers(user: Entry) -> None:
    """Refuse any ``auth-provider`` but OIDC: Kubernetes 1.26 has removed the others.

    The client runs gcloud for ``gcp``, and for any other name goes on as nobody:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L211

    Raises:
        ConfigurationError: it is another.
    """
    name = user.get("auth-provider", {}).get("name", "")
    if "auth-provider" in user and name != "oidc":
        raise ConfigurationError(f"auth-provider {name} was removed from Kubernetes 1.26: use an exec plugin")


def resolve_server(cluster: Entry, name: str) -> Entry:
    """Check the server's address, and find its proxy, if need be that of the environment.

    The client goes on to ``localhost`` without a server, fails at the first request with ``socks5:``, and leaves the
    environment to aiohttp, which then reads ``~/.netrc`` in a thread for each request:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L409
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/client/rest.py#L148

    Raises:
        ConfigurationError: there is no address, or the proxy is of another sort.
    """
    server = cluster.get("server", "")
    if not server.startswith(("https://", "http://")):
        raise ConfigurationError(f"cluster {name} has no server; an address like https://host:6443")
    proxy = cluster.get("proxy-url") or environment_proxy(server)
    if proxy and not proxy.startswith(("http://", "https://")):
        raise ConfigurationError(f"proxy-url {proxy} is not supported; http and https are")
    return {**cluster, "proxy-url": proxy} if proxy else cluster


def environment_proxy(server: str) -> str | None:
    """The proxy that ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY`` name for a server, as Go reads them.

    Unlike Python, Go never asks a proxy for this machine, and knows ranges of addresses in ``NO_PROXY``.
    """
    url, proxies = URL(server), getproxies_environment()
    proxy, host = proxies.get(url.scheme), url.host or ""
    bypassed = [part.strip() for part in proxies.get("no", "").split(",") if part.strip()]
    if not proxy or host == "localhost" or any(_bypasses(part, host) for part in ["127.0.0.0/8", "::1", *bypassed]):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _bypasses(part: str, host: str) -> bool:
    """Tell whether a part of ``NO_PROXY`` means a host: all, an address, a range, or a domain with what is below it."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(part, strict=False)
    except (TypeError, ValueError):
        return part == "*" or f".{host}".endswith(f".{part.removeprefix('.')}")


def impersonation_headers(user: Entry) -> tuple[tuple[str, str], ...]:
    """The headers of ``as`` and its companions (client-go's transport.ImpersonationConfig).

    The client does not know these keys, and asks with the rights of the user who impersonates:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L194
    """
    named = [("Impersonate-User", user.get("as")), ("Impersonate-Uid", user.get("as-uid"))]
    groups = [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    extra = [
        (f"Impersonate-Extra-{quote(key, safe='')}", value)
        for key, values in (user.get("as-user-extra") or {}).items()
        for value in values
    ]
    return (*((name, value) for name, value in named if value), *groups, *extra)


def take_inline_certificate(user: Entry) -> tuple[Entry, dict[str, bytes]]:
    """Take ``client-certificate-data`` and ``client-key-data`` out of a user; the rest, and what these say.

    The client writes them below the system's folder for temporary files and leaves them there until the process ends:
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L55
    """
    inline = {part: f"{part}-data" for part in ("client-certificate", "client-key") if f"{part}-data" in user}
    contents = {part: base64.b64decode(user[key], validate=True) for part, key in inline.items()}
    return {key: value for key, value in user.items() if key not in inline.values()}, contents


@contextmanager
def private_files(contents: Mapping[str, bytes]) -> Iterator[dict[str, str]]:
    """Files with these contents that nobody else can read, for as long as OpenSSL reads them; by name."""
    if not contents:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder, name) for name in contents}
        for name, path in paths.items():
            path.touch(mode=0o600)
            path.write_bytes(contents[name])
        yield {name: str(path) for name, path in paths.items()}
