"""A real Kubernetes cluster on loopback with simulated nodes, and Covey's processes in it.

``with Cluster() as cluster:`` gives a working one in seconds.  Whatever happens to the program that owns it, all
processes are stopped in order, and the temporary directory is removed unless ``keep`` (or ``KEEP=1``) says otherwise.

A cluster of each kind, and what places its pods::

    with Cluster(kubernetes="1.30") as cluster:                                     # or 1.35, 1.36; 1.37 without it
        cluster.start_all(Nodes(racks=2, nodes=3))                                  # Covey's extender
    with Cluster(kubernetes="1.36", gates=native_groups("1.36")) as cluster:        # or 1.35, 1.37
        cluster.start_covey("operator")
        cluster.start_scheduler()                                                   # kube-scheduler, stock
    with Cluster(volcano=True) as cluster:                                          # its CRDs are there from the start
        cluster.start_covey("operator")
        cluster.start_volcano()                                                     # vc-scheduler, queues open
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubernetes.client import ApiClient, ApiException

from localcluster import access, programs
from localcluster.api import connect, request, status_of
from localcluster.background import concurrently
from localcluster.binaries import KUBERNETES, VOLCANO_CRDS
from localcluster.components import FAKE_NODE, Gates
from localcluster.controlplane import ControlPlane
from localcluster.nodes import Nodes
from localcluster.process import Process
from localcluster.programs import ROOT, Program
from localcluster.waiting import eventually
from localcluster.watch import Recording

NAMESPACE = "covey-system"
#: The profiles that tests have Covey serve, and how the policy of its scheduler process names its own alone.
PROFILES = ("covey-scheduler", "default-scheduler", "nobody")
_SERVED = "schedulerName in [''covey-scheduler'']"


class Cluster(ControlPlane):
    """One cluster, a context manager.

    Args:
        directory: Where everything lies; by default a temporary one, which is removed at the end.
        kubernetes: The release of API server, controllers and kube-scheduler: ``1.37``, ``1.36``, ``1.35`` or ``1.30``.
        volcano: With Volcano's CRDs, for ``start_volcano``.
        gates: Feature gates of all components; ``native_groups(kubernetes)`` for Kubernetes' own groups.
        kwok: Simulate the kubelets. Without it nodes stay as they are written and bound pods never run.
        max_inflight: Limit of concurrent requests of each kind in the API server.
        scheduler_config: KubeSchedulerConfiguration to start kube-scheduler with; ``""`` is the stock one, None
            does not start it.
        crds: Files or directories with custom resource definitions, applied before the controllers start: the
            garbage collector looks for new kinds only every 30 s.
        flags: More flags of a program, by its name.
        keep: Leave the directory behind; by default when ``KEEP`` is set or ``directory`` is given.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        kubernetes: str = KUBERNETES,
        volcano: bool = False,
        gates: Gates | None = None,
        kwok: bool = True,
        max_inflight: int | None = None,
        scheduler_config: str | None = None,
        crds: Sequence[Path] = (ROOT / "crds",),
        flags: Mapping[str, Sequence[str]] | None = None,
        keep: bool | None = None,
    ) -> None:
        super().__init__(
            directory,
            kubernetes=kubernetes,
            volcano=volcano,
            gates=gates,
            kwok=kwok,
            max_inflight=max_inflight,
            scheduler_config=scheduler_config,
            flags=flags,
            keep=keep,
        )
        self._crds = tuple(crds)
        self._has_rbac = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _prepare(self) -> None:
        crds = (*self._crds, *([self._binaries[VOLCANO_CRDS]] if self._volcano else []))
        if crds:
            self.install_crds(*crds)

    # Access

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self.processes["kube-apiserver"].url

    @property
    def token(self) -> str:
        """The administrator's token."""
        return self._tokens.admin

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.files.admin

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002 - named as in subprocess
        check: bool = True,
    ) -> str:
        """Run kubectl as administrator and return what it prints.

        Args:
            arguments: Its arguments.
            input: What it reads, with ``-f -``.
            check: Raise when it fails; else its output and its errors are returned together.

        Raises:
            RuntimeError: when kubectl fails; the message is its own.
        """
        command = [str(self._binaries["kubectl"]), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=input, capture_output=True, text=True, check=False)
        if done.returncode and check:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout if check else done.stdout + done.stderr

    def binary(self, program: str) -> Path:
        """Where a program of the control plane lies, such as ``kubectl``."""
        return self._binaries[program]

    def apply(self, manifest: str | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> str:
        """Apply YAML text, an object or several objects with ``kubectl apply --server-side``."""
        if not isinstance(manifest, str):
            # JSON is YAML, and PyYAML takes a second to write a CRD.
            manifest = "\n---\n".join(map(json.dumps, [manifest] if isinstance(manifest, Mapping) else manifest))
        return self.kubectl("apply", "--server-side", "-f", "-", input=manifest)

    def api(self, method: str, path: str, body: Any = None, *, patch: str | None = None) -> Any:
        """Make one request as administrator; see ``api.request``."""
        return request(self.client, method, path, body, patch=patch)

    def delete(self, path: str) -> None:
        """Delete an object, or all of a list, unless there is no such object or kind."""
        try:
            self.api("DELETE", path)
        except ApiException as error:
            if error.status != 404:
                raise

    def record(self, path: str) -> Recording:
        """Record every change below a list's path, from now until the recording is closed; a context manager."""
        return Recording(self.client, path)

    def service_account_token(self, namespace: str, name: str) -> str:
        """A token of a service account, which is made when it is missing, and so is its namespace."""
        self.ensure("/api/v1/namespaces", {"metadata": {"name": namespace}})
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.ensure(accounts, {"metadata": {"name": name}})
        # A detached cluster may be kept for long, and nothing renews the tokens of its processes.
        asked = {"spec": {"expirationSeconds": 365 * 24 * 3600}}
        return str(self.api("POST", f"{accounts}/{name}/token", asked)["status"]["token"])

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig file of a service account, with only the rights that it has been given."""
        token = self.service_account_token(namespace, name)
        path = self.directory / f"{namespace}.{name}.kubeconfig"
        return access.write_kubeconfig(path, server=self.server, token=token, authority=self.files.authority)

    def service_account_client(self, namespace: str, name: str) -> ApiClient:
        """A client of a service account; a context manager."""
        return connect(self.service_account_kubeconfig(namespace, name))

    def ensure(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object in the list at ``path`` unless one of that name is there."""
        try:
            self.api("POST", path, body)
        except ApiException as error:
            if status_of(error)["reason"] != "AlreadyExists":
                raise

    def install_crds(self, *paths: Path) -> None:
        """Apply custom resource definitions (``crds/`` by default) and wait until they are served."""
        if not self._apply_files(paths or (ROOT / "crds",)):
            return
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        eventually(lambda: all(map(_established, self.api("GET", path)["items"])), describe="all CRDs are served")

    def install_rbac(self, *paths: Path) -> None:
        """Apply Covey's own rules (``manifests/base/rbac`` by default); its namespace is made first."""
        self.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self._apply_files(paths or (ROOT / "manifests" / "base" / "rbac",))
        self._has_rbac = True

    def install_account_policies(self) -> None:
        """Apply what bounds Covey's own accounts, as every installation has it: nothing that they need is refused.

        Some tests have Covey serve other profiles too, which an installation of mode Existing names in the policy.
        """
        text = (ROOT / "manifests" / "base" / "account-policies.yaml").read_text()
        served = ", ".join(f"''{name}''" for name in PROFILES)
        assert _SERVED in text
        self.apply(text.replace(_SERVED, f"schedulerName in [{served}]"))

    def account_denials(self) -> list[str]:
        """The API server's counters of requests that these policies have refused."""
        lines = self.kubectl("get", "--raw", "/metrics").splitlines()
        counters = [line for line in lines if line.startswith("apiserver_validating_admission_policy_check_total{")]
        return [line for line in counters if 'policy="covey-account-' in line and 'action="allow"' not in line]

    def _apply_files(self, paths: Iterable[Path]) -> bool:
        files = [file for path in paths for file in (sorted(path.glob("*.yaml")) if path.is_dir() else [path])]
        files = [file for file in files if file.name != "kustomization.yaml"]
        if files:
            self.kubectl("apply", "--server-side", *(f"--filename={file}" for file in files))
        return bool(files)

    # Nodes

    def add_nodes(self, nodes: Nodes) -> list[str]:
        """Create nodes, which are ready from the start, and return their names."""
        concurrently(lambda node: self.api("POST", "/api/v1/nodes", node), nodes.manifests())
        return nodes.names

    def delete_nodes(self, names: Iterable[str] | None = None) -> None:
        """Delete nodes; all of them when none are named."""
        if names is None:
            self.api("DELETE", "/api/v1/nodes")
        else:
            concurrently(lambda name: self.delete(f"/api/v1/nodes/{name}"), names)

    def fail_node(self, name: str) -> None:
        """Let a node die: its heartbeats end and it is not ready, as if its kubelet had gone."""
        annotation = {"metadata": {"annotations": {FAKE_NODE[0]: None}}}
        self.api("PATCH", f"/api/v1/nodes/{name}", annotation)
        lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "The node failed."}
        self.api("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [lost]}}, patch="strategic")

    # Covey

    def start_covey(self, program: Program, *arguments: str, name: str = "", wait: bool = True) -> Process:
        """Start ``covey operator`` or ``covey scheduler`` under its own service account, on free ports.

        Args:
            program: Which of the two.
            arguments: More flags; they win over those given here, of which ``--leader-elect=false`` is one, so that
                the successor of a killed process need not wait for a lease to expire.
            name: Of the process, for a second replica; ``covey-operator`` or ``covey-scheduler`` by default.
            wait: Wait until it is ready.
        """
        build = self._covey(program, arguments, name)
        return self.launch(build)[0] if wait else self._begin(build)

    def start_all(self, nodes: Nodes | None = None, *arguments: str, leader_elect: bool = False) -> None:
        """Start both processes of Covey, and kube-scheduler with the configuration that Covey prints for it.

        Args:
            nodes: Nodes to add first.
            arguments: More flags of both processes.
            leader_elect: Elect leaders as in production, which makes every restart after a crash slower.
                kube-scheduler then runs as a service account, too.
        """
        if nodes is not None:
            self.add_nodes(nodes)
        flags = (f"--leader-elect={str(leader_elect).lower()}", *arguments)
        _, scheduler = self.launch(self._covey("operator", flags), self._covey("scheduler", flags))
        kubeconfig = self.kube_scheduler_kubeconfig() if leader_elect else None
        self.start_scheduler(programs.scheduler_config(scheduler, leader_elect=leader_elect), kubeconfig=kubeconfig)

    def kube_scheduler_kubeconfig(self) -> Path:
        """A kubeconfig file for a dedicated kube-scheduler, which shares a pod with Covey and so its account."""
        return self.service_account_kubeconfig(NAMESPACE, "covey-scheduler")

    def run_pods(self, releases: Mapping[str, Path] | None = None) -> Process:
        """Let the pods of Covey's Deployments, which Helm or kustomize make, really run; see ``pods``.

        Args:
            releases: Where the code of other releases lies, by the end of their images' names.
        """
        others = [f"{image}={path}" for image, path in (releases or {}).items()]
        command = [sys.executable, "-m", "localcluster.pods", str(self.directory), *others]
        environment = {"PYTHONPATH": f"{ROOT / 'dev'}:{ROOT / 'operator'}"}
        make = partial(Process, directory=self.directory, ready=lambda: True, environment=environment)
        return self.launch(lambda: make("covey-pods", command))[0]

    def stop_all(self) -> None:
        """Stop and forget what ``start_all`` and ``start_covey`` have started, and kube-scheduler."""
        self.forget(*(name for name in self.processes if name.startswith(("covey-", "kube-scheduler"))))

    def _covey(self, program: Program, arguments: Sequence[str], name: str = "") -> Callable[[], Process]:
        if not self._has_rbac:
            self.install_rbac()
        account = f"covey-{program}"
        kubeconfig = self.service_account_kubeconfig(NAMESPACE, account)
        return programs.builder(program, self.directory, kubeconfig, name or account, arguments)


def _established(definition: Mapping[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)
