"""Who may talk to the API server: the static tokens it starts with, and the kubeconfig files that carry a token."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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


def kube_scheduler_rights(namespace: str, account: str) -> list[dict[str, Any]]:
    """What a dedicated kube-scheduler needs that runs as a service account.

    These are Kubernetes' own rules for its scheduler, and the lease that the configuration printed by
    ``covey scheduler`` names, which those rules do not cover.
    """
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    rules = [leases | {"verbs": ["create"]}]
    rules.append(leases | {"resourceNames": ["covey-scheduler"], "verbs": ["get", "update", "patch"]})

    def binding(kind: str, name: str, role: str, role_kind: str, where: str | None = None) -> dict[str, Any]:
        return {
            "apiVersion": f"{group}/v1",
            "kind": kind,
            "metadata": {"name": name} | ({"namespace": where} if where else {}),
            "roleRef": {"apiGroup": group, "kind": role_kind, "name": role},
            "subjects": [subject],
        }

    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": account, "namespace": namespace}}
    return [
        role | {"rules": rules},
        binding("RoleBinding", account, account, "Role", namespace),
        binding("RoleBinding", account, "extension-apiserver-authentication-reader", "Role", "kube-system"),
        binding("ClusterRoleBinding", account, "system:kube-scheduler", "ClusterRole"),
        binding("ClusterRoleBinding", f"{account}-volumes", "system:volume-scheduler", "ClusterRole"),
    ]
