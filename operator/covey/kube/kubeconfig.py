"""kubeconfig files, read and merged as kubectl does.

Of several files in ``$KUBECONFIG`` the first that names a cluster, a user, a context or a current context is the one
that counts; files that do not exist are passed over. A relative path is meant from the file that it is written in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from covey.kube.errors import ConfigurationError


class Cluster(msgspec.Struct, rename="kebab"):
    """Where an API server is, and how to trust it."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[dict[str, Any]] | None = None


class Variable(msgspec.Struct):
    """A variable of a plugin's environment."""

    name: str
    value: str


class Plugin(msgspec.Struct, rename="camel"):
    """A program that prints credentials (``client.authentication.k8s.io``)."""

    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: str | None = None


class Provider(msgspec.Struct):
    """What is left of ``auth-provider``: OIDC."""

    name: str = ""
    config: dict[str, str] | None = None


class User(msgspec.Struct, rename="kebab"):
    """As whom to speak."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    exec: Plugin | None = None
    auth_provider: Provider | None = None
    as_: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class Context(msgspec.Struct):
    """A cluster, a user and a namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: Context


class _File(msgspec.Struct, rename="kebab"):
    current_context: str | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """One context with all that it names, and the files that its cluster and its user are written in."""

    name: str
    context: Context
    cluster: Cluster
    cluster_file: Path
    user: User
    user_file: Path

    @property
    def cluster_home(self) -> Path:
        """The folder that the cluster's paths are meant from."""
        return self.cluster_file.parent

    @property
    def user_home(self) -> Path:
        """The folder that the user's paths are meant from."""
        return self.user_file.parent


def default_files() -> list[Path]:
    """The files of ``$KUBECONFIG``, else ``~/.kube/config``, as far as they exist.

    Raises:
        ConfigurationError: ``$KUBECONFIG`` names none that does.
    """
    named = os.environ.get("KUBECONFIG", "")
    # Unlike Path.expanduser this leaves the path alone for a user without a home, as in a container.
    usual = os.path.expanduser("~/.kube/config")  # noqa: PTH111
    files = [Path(name) for name in named.split(os.pathsep) if name] or [Path(usual)]
    found = [file for file in files if file.is_file()]
    if named and not found:
        raise ConfigurationError(f"$KUBECONFIG names no file that exists: {named}")
    return found


def choose(files: Iterable[Path], context: str | None = None) -> Chosen:
    """The context of a name, or the current one, in these files taken together.

    Raises:
        ConfigurationError: a file cannot be read, or what is asked for is not there.
    """
    contents = [(file, _read(file)) for file in files]
    names = ", ".join(str(file) for file, _ in contents)
    wanted = context or next((content.current_context for _, content in contents if content.current_context), None)
    if wanted is None:
        raise ConfigurationError(f"{names}: no current context; name one, or run kubectl config use-context")
    contexts = {each.name: each.context for _, content in reversed(contents) for each in content.contexts or ()}
    if wanted not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise ConfigurationError(f"{names}: there is no context {wanted}; there is {known}")
    chosen = contexts[wanted]
    clusters = {
        each.name: (file, each.cluster) for file, content in reversed(contents) for each in content.clusters or ()
    }
    users = {each.name: (file, each.user) for file, content in reversed(contents) for each in content.users or ()}
    if chosen.cluster not in clusters:
        raise ConfigurationError(f"{names}: context {wanted} names cluster {chosen.cluster}, which is not there")
    if chosen.user and chosen.user not in users:
        raise ConfigurationError(f"{names}: context {wanted} names user {chosen.user}, who is not there")
    cluster_file, cluster = clusters[chosen.cluster]
    user_file, user = users.get(chosen.user, (cluster_file, None))
    return Chosen(wanted, chosen, cluster, cluster_file, user or User(), user_file)


def find_user(file: Path, name: str) -> User:
    """A user as a file has it now; without anything when the file does not name it any more.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    return next((each.user for each in _read(file).users or () if each.name == name and each.user), User())


def _read(file: Path) -> _File:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        return msgspec.convert(_without_nulls(content if content is not None else {}), _File)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        said = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{file}: {said}") from error


def _without_nulls(content: Any) -> Any:
    """Null and an empty text mean that nothing is said, as in Go."""
    if isinstance(content, dict):
        return {key: _without_nulls(value) for key, value in content.items() if value is not None and value != ""}
    return [_without_nulls(value) for value in content] if isinstance(content, list) else content
