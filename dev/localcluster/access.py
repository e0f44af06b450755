"""Who may talk to the API server: the static tokens it starts with, and the kubeconfig files that carry a token."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

#: Name in kubeconfig files of the cluster, the user and the context.
NAME = "covey-local"


def _token() -> str:
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Tokens:
    """A token for the person who owns the cluster, and one for kube-scheduler, which has only its own rights."""

    admin: str = field(default_factory=_token)
    scheduler: str = field(default_factory=_token)

    def write(self, path: Path) -> None:
        """Write the file that ``--token-auth-file`` reads."""
        path.write_text(f'{self.admin},admin,1,"system:masters"\n{self.scheduler},system:kube-scheduler,2\n')
        path.chmod(0o600)


def write_kubeconfig(path: Path, *, server: str, token: str, authority: Path, namespace: str = "default") -> Path:
    """Write a kubeconfig file with one context, and return its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "clusters": [{"name": NAME, "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def write_service_account_key(path: Path) -> None:
    """Make the key that signs service account tokens, unless it is there."""
    if path.exists():
        return
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
