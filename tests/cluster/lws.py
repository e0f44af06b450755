"""LeaderWorkerSet's own controller, as it is installed: its kinds, its rights, and its webhooks with certificates of the test's."""

from __future__ import annotations

import base64
import json
import socket
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.client import ApiException

from authority import Authority
from builders.manifests import Object
from localcluster import Cluster, Process, eventually
from localcluster.binaries import LEADER_WORKER_SETS, ensure_files
from localcluster.ports import HOST, address, free_port
from localcluster.probe import answers

LWS: Final = "leaderworkerset.sigs.k8s.io"
_SETS: Final = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets"
_SYSTEM: Final = "lws-system"
_NAME: Final = "lws-controller-manager"


def path_of(namespace: str, name: str = "") -> str:
    """Path of the LeaderWorkerSets of a namespace, or of one."""
    path = _SETS.format(namespace)
    return f"{path}/{name}" if name else path


def start_controller(cluster: Cluster) -> Process:
    """Start the controller, and return once its webhooks answer.

    Raises:
        BuildError: when it is missing and cannot be built.
        ProcessError: when it does not come up.
    """
    program, crds, rights, webhooks = ensure_files(LEADER_WORKER_SETS)
    cluster.install_crds(crds)
    account = cluster.service_account_kubeconfig(_SYSTEM, _NAME)
    cluster.apply(_rights(rights))
    authority = Authority()
    certificates = cluster.directory / "lws-certificates"
    certificates.mkdir()
    for name, content in zip(("tls.crt", "tls.key"), authority.issue("lws", days=1), strict=True):
        (certificates / name).write_bytes(content)
    ports: list[int] = []

    def build() -> Process:
        ports[:] = free_port(), free_port()
        file = cluster.directory / "lws.yaml"
        file.write_text(json.dumps(_configuration(certificates, *ports)))
        return Process(
            "lws",
            [str(program), f"--config={file}"],
            directory=cluster.directory,
            ready=lambda: answers(f"http://{address(ports[0])}/readyz") and _listens(ports[1]),
            environment={"KUBECONFIG": str(account)},
        )

    process = cluster.launch(build)[0]
    cluster.apply(_webhooks(webhooks, f"https://{address(ports[1])}", authority))
    eventually(lambda: _is_in_force(cluster), 60, "the webhooks are in force")
    return process


def _configuration(certificates: Path, health: int, webhooks: int) -> Object:
    return {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": address(health)},
        "webhook": {"host": HOST, "port": webhooks, "certDir": str(certificates)},
    }


def _rights(file: Path) -> list[Object]:
    """Its own rights, for its account."""
    [role] = yaml.safe_load_all(file.read_text())
    role["metadata"]["name"] = _NAME
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _NAME}
    return [
        role,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _NAME},
            "roleRef": reference,
            "subjects": [{"kind": "ServiceAccount", "namespace": _SYSTEM, "name": _NAME}],
        },
    ]


def _webhooks(file: Path, url: str, authority: Authority) -> list[Object]:
    """Its own webhooks, of pods of LeaderWorkerSets only, as its kustomization has it."""
    found: list[Object] = list(yaml.safe_load_all(file.read_text()))
    for each in found:
        each["metadata"]["name"] = f"lws-{each['metadata']['name']}"
        for webhook in each["webhooks"]:
            service = webhook["clientConfig"].pop("service")
            bundle = base64.b64encode(authority.pem).decode()
            webhook["clientConfig"] = {"url": url + service["path"], "caBundle": bundle}
            if webhook["rules"][0]["resources"] == ["pods"]:
                webhook["objectSelector"] = {"matchExpressions": [{"key": f"{LWS}/name", "operator": "Exists"}]}
    return found


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=2).close()
    except OSError:
        return False
    return True


def _is_in_force(cluster: Cluster) -> bool:
    """Both kinds of webhooks judge LeaderWorkerSets: one gives what is left out, the other refuses what cannot be."""
    spec: dict[str, Any] = {"containers": [{"name": "a", "image": "a"}]}
    template = {"size": 2, "workerTemplate": {"spec": spec}}
    body: Object = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "probe"},
    }
    body |= {"spec": {"replicas": 1, "leaderWorkerTemplate": template}}
    try:
        made = cluster.api("POST", f"{path_of('default')}?dryRun=All", body)
        if made["spec"]["rolloutStrategy"].get("rollingUpdateConfiguration") is None:
            return False
        template["size"] = 0
        cluster.api("POST", f"{path_of('default')}?dryRun=All", body)
    except ApiException as error:
        return template["size"] == 0 and "vleaderworkerset.kb.io" in str(error)
    return False
