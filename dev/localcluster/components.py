"""The command line of each program of the control plane. Only flags that matter here are given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from localcluster.binaries import KUBERNETES, WHOLE_1_38, Binaries
from localcluster.ports import HOST, address

#: Nodes with this annotation are simulated; one that loses it is like a machine that died.
FAKE_NODE = ("kwok.x-k8s.io/node", "fake")
#: Controllers that do what nobody here reads: the Endpoints beside EndpointSlices.
_UNUSED = ("-endpoints-controller", "-endpointslice-mirroring-controller")


@dataclass(frozen=True)
class Gates:
    """Feature gates of all components, and API versions to serve that are off by default."""

    features: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Sequence[str] = ()


def _alpha(*features: str, serve: Sequence[str]) -> Gates:
    versions = tuple(f"scheduling.k8s.io/{version}" for version in serve)
    return Gates(dict.fromkeys(features, True), versions)


_NATIVE_GROUPS: Mapping[str, Gates] = {
    # Where only kube-scheduler is of 1.38 (``binaries.WHOLE_1_38``), the API server has v1alpha3 as in 1.37.
    "1.38": _alpha(
        "GenericWorkload",
        "TopologyAwareWorkloadScheduling",
        "CompositePodGroup",
        serve=("v1beta1", *(() if WHOLE_1_38 else ("v1alpha3",))),
    ),
    "1.37": _alpha(
        "GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup", serve=("v1beta1", "v1alpha3")
    ),
    "1.36": _alpha(
        "GenericWorkload",
        "GangScheduling",
        "TopologyAwareWorkloadScheduling",
        "WorkloadAwarePreemption",
        serve=("v1alpha2",),
    ),
    "1.35": _alpha("GenericWorkload", "GangScheduling", serve=("v1alpha1",)),
}


def native_groups(kubernetes: str) -> Gates:
    """What turns on Kubernetes' own groups in a release; all are off by default, and before 1.35 there are none."""
    return _NATIVE_GROUPS.get(kubernetes, Gates())


#: Kubernetes' own hierarchical groups, in the release that is the default.
NATIVE_GROUPS = native_groups(KUBERNETES)


@dataclass(frozen=True)
class Files:
    """Where the files of one cluster lie."""

    directory: Path

    @property
    def authority(self) -> Path:
        """The API server's certificate and the authority that signed it; kube-apiserver makes it."""
        return self.directory / "certificates" / "apiserver.crt"

    @property
    def service_account_key(self) -> Path:
        """Signs service account tokens."""
        return self.directory / "service-account.key"

    @property
    def tokens(self) -> Path:
        """Static tokens of the API server."""
        return self.directory / "tokens.csv"

    @property
    def admin(self) -> Path:
        """Kubeconfig of the administrator."""
        return self.directory / "kubeconfig"

    @property
    def scheduler(self) -> Path:
        """Kubeconfig of ``system:kube-scheduler``."""
        return self.directory / "scheduler.kubeconfig"


def etcd(binaries: Binaries, files: Files, port: int, peer_port: int) -> list[str]:
    """Storage; nothing of it needs to outlive the machine."""
    client, peer = f"http://{address(port)}", f"http://{address(peer_port)}"
    return [
        str(binaries["etcd"]),
        f"--data-dir={files.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        # Its default of 100 ms writes most pages many times over.
        "--backend-batch-interval=1s",
        "--log-level=warn",
    ]


def kube_apiserver(
    binaries: Binaries,
    files: Files,
    port: int,
    etcd_port: int,
    gates: Gates,
    *,
    max_inflight: int | None,
) -> list[str]:
    """The API server, with RBAC."""
    limits = [f"--max-requests-inflight={max_inflight}", f"--max-mutating-requests-inflight={max_inflight}"]
    versions = ",".join(f"{version}=true" for version in gates.runtime_config)
    return [
        str(binaries["kube-apiserver"]),
        f"--etcd-servers=http://{address(etcd_port)}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={port}",
        f"--cert-dir={files.authority.parent}",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--authorization-mode=Node,RBAC",
        f"--token-auth-file={files.tokens}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={files.service_account_key}",
        f"--service-account-signing-key-file={files.service_account_key}",
        *(limits if max_inflight else []),
        # It taints every new node until the node life cycle controller has seen it ready: a second, and four requests.
        "--disable-admission-plugins=TaintNodesByCondition",
        *_feature_gates(gates),
        *([f"--runtime-config={versions}"] if versions else []),
    ]


def kube_controller_manager(
    binaries: Binaries, files: Files, port: int, gates: Gates, *, node_lifecycle: bool
) -> list[str]:
    """The controllers: garbage collection, service accounts, taints of nodes that are not ready."""
    return [
        str(binaries["kube-controller-manager"]),
        f"--kubeconfig={files.admin}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--cert-dir={files.directory / 'kcm-certificates'}",
        f"--service-account-private-key-file={files.service_account_key}",
        f"--root-ca-file={files.authority}",
        "--leader-elect=false",
        f"--controllers={','.join(('*', *_UNUSED, *(() if node_lifecycle else ('-node-lifecycle-controller',))))}",
        # A node fails when a test says so. kwok 0.8 can stop renewing all leases: its heap of delays never gets past an
        # entry that was pushed twice (pkg/utils/heap). By the default, each node was then lost for a moment every 50 s,
        # and its pods stayed NotReady.
        "--node-monitor-grace-period=24h",
        # Its default of 20 requests a second would make every large test wait for it.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        *_feature_gates(gates),
    ]


def kube_scheduler(binaries: Binaries, files: Files, port: int, gates: Gates, config: Path) -> list[str]:
    """A stock scheduler with the configuration in a file."""
    return [
        str(binaries["kube-scheduler"]),
        f"--config={config}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--cert-dir={files.directory / 'scheduler-certificates'}",
        *_feature_gates(gates),
    ]


def scheduler_health(kubernetes: str) -> str:
    """Where kube-scheduler says that it works; before 1.31 it does not say that it is ready."""
    return "/healthz" if kubernetes == "1.30" else "/readyz"


def scheduler_config(text: str, kubeconfig: Path) -> str:
    """Complete a KubeSchedulerConfiguration with what only the cluster knows."""
    given: dict[str, Any] = yaml.safe_load(text) or {}
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"} | given
    config.setdefault("leaderElection", {"leaderElect": False})
    # Its default of 50 requests a second would make every large test wait for it.
    connection = {"qps": 1000, "burst": 2000} | (config.get("clientConnection") or {})
    config["clientConnection"] = connection | {"kubeconfig": str(kubeconfig)}
    return str(yaml.safe_dump(config, sort_keys=False))


def volcano_scheduler(binaries: Binaries, files: Files, port: int, health_port: int, config: Path) -> list[str]:
    """Volcano's scheduler, without its controllers and webhooks."""
    return [
        str(binaries["vc-scheduler"]),
        f"--kubeconfig={files.admin}",
        f"--scheduler-conf={config}",
        "--leader-elect=false",
        "--csi-storage=false",
        "--cache-dumper=false",
        "--enable-metrics=true",
        f"--listen-address={address(port)}",
        "--enable-healthz=true",
        f"--healthz-address={address(health_port)}",
    ]


def volcano_config() -> str:
    """All that Covey's Volcano backend needs; Volcano's own default has neither binpack nor topology."""
    topology = {"name": "network-topology-aware", "arguments": {"weight": 10}}
    tiers = (("priority", "gang", "conformance"), ("predicates", "nodeorder", "binpack"))
    first, second = ([{"name": name} for name in names] for names in tiers)
    content = {
        "actions": "enqueue, allocate, backfill",
        "tiers": [{"plugins": first}, {"plugins": [*second, topology]}],
    }
    return str(yaml.safe_dump(content, sort_keys=False))


def kwok(binaries: Binaries, files: Files, port: int) -> list[str]:
    """Plays the kubelets: heartbeats of annotated nodes, and pods that run as soon as they are bound."""
    return [
        str(binaries["kwok"]),
        f"--kubeconfig={files.admin}",
        f"--config={binaries.stages}",
        f"--manage-nodes-with-annotation-selector={'='.join(FAKE_NODE)}",
        "--node-lease-duration-seconds=40",
        f"--server-address={address(port)}",
    ]


def _feature_gates(gates: Gates) -> list[str]:
    pairs = ",".join(f"{name}={str(on).lower()}" for name, on in gates.features.items())
    return [f"--feature-gates={pairs}"] if pairs else []
