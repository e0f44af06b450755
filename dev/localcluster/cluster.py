"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok.

``with Cluster() as cluster:`` gives a working one in seconds.  Whatever happens to the program that owns it, all
processes are stopped in order, and the temporary directory is removed unless ``keep`` (or ``KEEP=1``) says otherwise.
"""

import json
import os
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from localcluster import access, binaries, cleanup, components, guard
from localcluster.client import ApiClient, ApiError, concurrently
from localcluster.components import Files, Gates
from localcluster.nodes import Nodes
from localcluster.ports import address, free_port
from localcluster.process import PortTakenError, Process

ROOT = Path(__file__).resolve().parent.parent.parent
_PORT_ATTEMPTS = 5
#: kcm and kube-scheduler serve certificates that they signed themselves, on loopback, for probes only.
_UNVERIFIED = ssl._create_unverified_context()  # noqa: SLF001 - the public way takes three lines to say the same


class Cluster:
    """One control plane, a context manager.

    Args:
        directory: Where everything lies; a temporary one by default.
        gates: Feature gates of all components; ``NATIVE_GROUPS`` for Kubernetes' own groups.
        kwok: Simulate the kubelets. Without it nodes stay as they are written, and bound pods never run.
        max_inflight: Limit of concurrent requests of each kind in the API server.
        scheduler_config: KubeSchedulerConfiguration to start kube-scheduler with; ``""`` is the stock one, None
            does not start it.
        crds: Files or directories with custom resource definitions, applied before the controllers start: the
            garbage collector looks for new kinds only every 30 s.
        keep: Leave the directory behind; by default when ``KEEP`` is set.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        gates: Gates | None = None,
        kwok: bool = True,
        max_inflight: int | None = None,
        scheduler_config: str | None = None,
        crds: Sequence[Path] = (ROOT / "crds",),
        keep: bool | None = None,
    ) -> None:
        self._given_directory = directory
        self._gates = gates or Gates()
        self._kwok = kwok
        self._max_inflight = max_inflight
        self._first_scheduler_config = scheduler_config
        self._crds = tuple(crds)
        self._keep = bool(os.environ.get("KEEP")) if keep is None else keep
        self._tokens = access.Tokens()
        self._guard: subprocess.Popen[bytes] | None = None
        self.processes: dict[str, Process] = {}

    # The life of a cluster

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, *, detach: bool = False) -> None:
        """Start everything and wait until it works; with ``detach`` it outlives this program.

        Raises:
            BuildError: when the programs are missing and cannot be built.
            ProcessError: when one of them does not come up.
        """
        self._binaries = binaries.ensure()
        self.directory = self._make_directory()
        self.files = Files(self.directory)
        if not detach:
            self._guard = guard.start(self.directory, keep=self._keep)
        try:
            self._start_control_plane()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all processes in order and remove the directory unless it is kept."""
        late = [self.processes[name] for name in cleanup.LAST if name in self.processes]
        early = [process for process in self.processes.values() if process not in late]
        for process in early:
            process.terminate()
        for process in [*early, *late]:
            process.stop()
        if hasattr(self, "client"):
            self.client.close()
        if self._guard is not None and self._guard.stdin is not None:
            # It removes the directory, and stops what the lines above do not know of.
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None

    def _make_directory(self) -> Path:
        directory = self._given_directory or Path(tempfile.mkdtemp(prefix="covey-"))
        for name in ("logs", "run"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        return directory.resolve()

    def _start_control_plane(self) -> None:
        access.write_service_account_key(self.files.service_account_key)
        self._tokens.write(self.files.tokens)
        [etcd] = self._launch(self._etcd)
        self._etcd_port = int(etcd.url.rpartition(":")[2])
        self._launch(self._kube_apiserver)
        if self._crds:
            self.install_crds(*self._crds)
        builds = [self._kube_controller_manager]
        if self._kwok:
            builds.append(self._kwok_process)
        if self._first_scheduler_config is not None:
            self._write_scheduler_config(self._first_scheduler_config, self.files.scheduler)
            builds.append(self._kube_scheduler)
        self._launch(*builds)
        self.wait_for(lambda: self._exists("/api/v1/namespaces/default/serviceaccounts/default"), "the default account")

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

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl as administrator and return what it prints.

        Args:
            arguments: Its arguments.
            stdin: What it reads, with ``-f -``.
            check: Raise when it fails; else its output and errors are returned together.

        Raises:
            RuntimeError: when kubectl fails; the message is its own.
        """
        command = [str(self._binaries["kubectl"]), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode and check:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout if check else done.stdout + done.stderr

    def apply(self, manifest: str | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> str:
        """Apply YAML text, an object or several objects with ``kubectl apply --server-side``."""
        if not isinstance(manifest, str):
            manifest = yaml.safe_dump_all([manifest] if isinstance(manifest, Mapping) else manifest)
        return self.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)

    def api(self, method: str, path: str, body: Any = None, *, patch: str | None = None) -> Any:
        """Make one request as administrator; see ``ApiClient.request``."""
        return self.client.request(method, path, body, patch=patch)

    def wait_for(self, done: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
        """Wait until something is so.

        Raises:
            TimeoutError: when it is not so after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout:g} s for {what}")
            time.sleep(0.05)

    def install_crds(self, *paths: Path) -> None:
        """Apply custom resource definitions and wait until they are served."""
        files = _manifests(paths or (ROOT / "crds",))
        if not files:
            return
        self.kubectl("apply", "--server-side", *(f"--filename={file}" for file in files))
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        self.wait_for(lambda: all(map(_established, self.api("GET", path)["items"])), "the CRDs to be served")

    # Nodes

    def add_nodes(self, nodes: Nodes, *, wait: bool = True) -> list[str]:
        """Create nodes, wait until they are ready, and return their names."""
        concurrently(lambda node: self.api("POST", "/api/v1/nodes", node), nodes.manifests())
        names = nodes.names
        if wait and (self._kwok or nodes.ready):
            missing = set(names)
            self.wait_for(
                lambda: missing <= self._ready_nodes(), f"{len(names)} nodes to be ready", 60 + len(names) / 20
            )
        return names

    def delete_nodes(self, names: Iterable[str] | None = None) -> None:
        """Delete nodes; all of them when none are named."""
        if names is None:
            self.api("DELETE", "/api/v1/nodes")
            return
        concurrently(self._delete_node, names)

    def _delete_node(self, name: str) -> None:
        try:
            self.api("DELETE", f"/api/v1/nodes/{name}")
        except ApiError as error:
            if error.code != 404:
                raise

    def _ready_nodes(self) -> set[str]:
        nodes = self.api("GET", "/api/v1/nodes?resourceVersion=0")["items"]
        return {node["metadata"]["name"] for node in nodes if _node_ready(node)}

    # Processes

    def start_scheduler(self, config: str = "") -> Process:
        """Start kube-scheduler, or start it again, with a KubeSchedulerConfiguration as YAML text.

        How to reach the API server is added to it; leader election is off unless the text asks for it.
        """
        if "kube-scheduler" in self.processes:
            self.processes["kube-scheduler"].stop()
        self._write_scheduler_config(config, self.files.scheduler)
        [process] = self._launch(self._kube_scheduler)
        return process

    def _write_scheduler_config(self, text: str, kubeconfig: Path) -> None:
        config: dict[str, Any] = yaml.safe_load(text) or {}
        config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"} | config
        config.setdefault("leaderElection", {"leaderElect": False})
        config["clientConnection"] = {"qps": 1000, "burst": 2000} | config.get("clientConnection", {})
        config["clientConnection"]["kubeconfig"] = str(kubeconfig)
        self.files.scheduler_config.write_text(yaml.safe_dump(config, sort_keys=False))

    def _launch(self, *builds: Callable[[], Process]) -> list[Process]:
        """Start programs at the same time and wait for all; one whose port was taken is built and started anew."""
        started = [(build, self._begin(build)) for build in builds]
        return [self._settle(build, process) for build, process in started]

    def _settle(self, build: Callable[[], Process], process: Process) -> Process:
        for _ in range(_PORT_ATTEMPTS):
            try:
                process.wait_ready()
            except PortTakenError:
                process = self._begin(build)
            else:
                return process
        process.wait_ready()
        return process

    def _begin(self, build: Callable[[], Process]) -> Process:
        process = build()
        self.processes[process.name] = process
        process.start(wait=False)
        return process

    def _etcd(self) -> Process:
        port = free_port()
        url = f"http://{address(port)}"
        command = components.etcd(self._binaries, self.files, port, free_port())
        return self._process("etcd", command, lambda: _answers(f"{url}/health"), url=url)

    def _kube_apiserver(self) -> Process:
        port = free_port()
        url = f"https://{address(port)}"
        command = components.kube_apiserver(
            self._binaries, self.files, port, self._etcd_port, self._gates, self._max_inflight
        )
        return self._process("kube-apiserver", command, lambda: self._apiserver_ready(url), url=url)

    def _apiserver_ready(self, url: str) -> bool:
        if not self.files.authority.exists():
            return False
        if not _answers(f"{url}/readyz", self.token):
            return False
        if not self.files.admin.exists():
            authority = self.files.authority
            access.write_kubeconfig(self.files.admin, server=url, token=self._tokens.admin, authority=authority)
            access.write_kubeconfig(self.files.scheduler, server=url, token=self._tokens.scheduler, authority=authority)
            self.client = ApiClient(url, self.token, authority)
        return True

    def _kube_controller_manager(self) -> Process:
        port = free_port()
        url = f"https://{address(port)}"
        command = components.kube_controller_manager(
            self._binaries, self.files, port, self._gates, node_lifecycle=self._kwok
        )
        return self._process("kube-controller-manager", command, lambda: _answers(f"{url}/healthz"), url=url)

    def _kube_scheduler(self) -> Process:
        port = free_port()
        url = f"https://{address(port)}"
        command = components.kube_scheduler(self._binaries, self.files, port, self._gates)
        return self._process("kube-scheduler", command, lambda: _answers(f"{url}/readyz"), url=url)

    def _kwok_process(self) -> Process:
        port = free_port()
        url = f"http://{address(port)}"
        command = components.kwok(self._binaries, self.files, port)
        return self._process("kwok", command, lambda: _answers(f"{url}/healthz"), url=url)

    def _process(self, name: str, command: Sequence[str], ready: Callable[[], bool], *, url: str) -> Process:
        return Process(
            name, command, directory=self.directory, ready=ready, urls={"url": url, "metrics_url": f"{url}/metrics"}
        )

    def _exists(self, path: str) -> bool:
        try:
            self.api("GET", path)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True


def _answers(url: str, token: str = "") -> bool:
    """Whether a GET succeeds."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=2, context=_UNVERIFIED) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _manifests(paths: Iterable[Path]) -> list[Path]:
    """The YAML files among paths and directories."""
    return [file for path in paths for file in (sorted(path.glob("*.yaml")) if path.is_dir() else [path])]


def _established(definition: Mapping[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions", [])
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def _node_ready(node: Mapping[str, Any]) -> bool:
    """Ready, and no longer tainted as not ready, which the controller-manager takes off a little later."""
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    taints = node["spec"].get("taints", [])
    return ready and not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)
