"""The programs of a control plane on loopback and their life, from a free port to a clean end."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from localcluster import access, binaries, cleanup, components, guard
from localcluster.client import ApiClient, ApiError
from localcluster.components import Files, Gates
from localcluster.ports import address, free_port
from localcluster.probe import answers
from localcluster.process import PortTakenError, Process

_PORT_ATTEMPTS = 5


class ControlPlane:
    """Starts and stops the programs; ``Cluster`` adds what is done with them.

    Attributes:
        directory: Where everything lies.
        files: The files in it.
        processes: Every program by its name.
        client: Requests as administrator.
    """

    directory: Path
    files: Files
    client: ApiClient

    def __init__(
        self,
        directory: Path | None,
        *,
        gates: Gates | None,
        kwok: bool,
        max_inflight: int | None,
        scheduler_config: str | None,
        keep: bool | None,
    ) -> None:
        self._given_directory = directory
        self._gates = gates or Gates()
        self._kwok = kwok
        self._max_inflight = max_inflight
        self._first_scheduler_config = scheduler_config
        # A directory that somebody else made is not ours to remove.
        self._keep = (directory is not None or bool(os.environ.get("KEEP"))) if keep is None else keep
        self._tokens = access.Tokens()
        self._guard: subprocess.Popen[bytes] | None = None
        self.processes: dict[str, Process] = {}

    def start(self) -> None:
        """Start everything and wait until it works.

        Raises:
            BuildError: when the programs are missing and cannot be built.
            ProcessError: when one of them does not come up.
        """
        self._binaries = binaries.ensure()
        self.directory = self._make_directory()
        self.files = Files(self.directory)
        self._guard = guard.start(self.directory, keep=self._keep)
        try:
            self._start_control_plane()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all processes in order, and remove the directory unless it is kept; does nothing once detached."""
        if self._guard is None:
            return
        late = [self.processes[name] for name in cleanup.LAST if name in self.processes]
        early = [process for process in self.processes.values() if process not in late]
        for process in early:
            process.terminate()
        for process in [*early, *late]:
            process.stop()
        if hasattr(self, "client"):
            self.client.close()
        guard.clean(self._guard)
        self._guard = None

    def detach(self) -> None:
        """Let everything outlive this program; ``cleanup.stop(directory)`` ends it."""
        if self._guard is not None:
            guard.dismiss(self._guard)
            self._guard = None
            self.client.close()

    def start_scheduler(self, config: str = "", *, kubeconfig: Path | None = None) -> Process:
        """Start kube-scheduler, or start it again, with a KubeSchedulerConfiguration.

        Args:
            config: YAML text. How to reach the API server is added to it, and leader election is off unless the
                text asks for it.
            kubeconfig: Whose rights it has; ``system:kube-scheduler``'s by default.
        """
        if "kube-scheduler" in self.processes:
            self.processes["kube-scheduler"].stop()
        self._write_scheduler_config(config, kubeconfig or self.files.scheduler)
        return self.launch(self._kube_scheduler)[0]

    def launch(self, *builds: Callable[[], Process]) -> list[Process]:
        """Start programs at the same time and wait for all; one whose port was taken is built and started anew.

        Args:
            builds: Each makes a process that has not been started, with free ports.
        """
        started = [(build, self._begin(build)) for build in builds]
        return [self._settle(build, process) for build, process in started]

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

    def _prepare(self) -> None:
        """What has to be on the API server before the controllers start."""

    def _make_directory(self) -> Path:
        directory = self._given_directory or Path(tempfile.mkdtemp(prefix="covey-"))
        for name in ("logs", "run"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        return directory.resolve()

    def _start_control_plane(self) -> None:
        access.write_service_account_key(self.files.service_account_key)
        self._tokens.write(self.files.tokens)
        [etcd] = self.launch(self._etcd)
        self._etcd_port = int(etcd.url.rpartition(":")[2])
        [apiserver] = self.launch(self._kube_apiserver)
        self._open(apiserver.url)
        self._prepare()
        builds = [self._kube_controller_manager]
        if self._kwok:
            builds.append(self._kwok_process)
        if self._first_scheduler_config is not None:
            self._write_scheduler_config(self._first_scheduler_config, self.files.scheduler)
            builds.append(self._kube_scheduler)
        self.launch(*builds)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.wait_for(lambda: self.exists(account), "the first service account")

    def exists(self, path: str) -> bool:
        """Whether there is an object at a path."""
        try:
            self.client.request("GET", path)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    def _open(self, server: str) -> None:
        """Write the kubeconfig files, which need the certificate that kube-apiserver has made."""
        tokens, authority = self._tokens, self.files.authority
        access.write_kubeconfig(self.files.admin, server=server, token=tokens.admin, authority=authority)
        access.write_kubeconfig(self.files.scheduler, server=server, token=tokens.scheduler, authority=authority)
        self.client = ApiClient(server, tokens.admin, authority)

    def _write_scheduler_config(self, text: str, kubeconfig: Path) -> None:
        given: dict[str, Any] = yaml.safe_load(text) or {}
        config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"} | given
        config.setdefault("leaderElection", {"leaderElect": False})
        connection = {"qps": 1000, "burst": 2000} | config.get("clientConnection", {})
        config["clientConnection"] = connection | {"kubeconfig": str(kubeconfig)}
        self.files.scheduler_config.write_text(yaml.safe_dump(config, sort_keys=False))

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
        return self._process(
            "etcd",
            components.etcd(self._binaries, self.files, port, free_port()),
            url,
            lambda: answers(f"{url}/health"),
        )

    def _kube_apiserver(self) -> Process:
        port = free_port()
        url = f"https://{address(port)}"
        command = components.kube_apiserver(
            self._binaries,
            self.files,
            port,
            self._etcd_port,
            self._gates,
            max_inflight=self._max_inflight,
            node_lifecycle=self._kwok,
        )
        return self._process("kube-apiserver", command, url, lambda: answers(f"{url}/readyz", self._tokens.admin))

    def _kube_controller_manager(self) -> Process:
        port = free_port()
        url = f"https://{address(port)}"
        command = components.kube_controller_manager(
            self._binaries, self.files, port, self._gates, node_lifecycle=self._kwok
        )
        return self._process("kube-controller-manager", command, url, lambda: answers(f"{url}/healthz"))

    def _kube_scheduler(self) -> Process:
        port = free_port()
        url = f"https://{address(port)}"
        command = components.kube_scheduler(self._binaries, self.files, port, self._gates)
        return self._process("kube-scheduler", command, url, lambda: answers(f"{url}/readyz"))

    def _kwok_process(self) -> Process:
        port = free_port()
        url = f"http://{address(port)}"
        command = components.kwok(self._binaries, self.files, port)
        return self._process("kwok", command, url, lambda: answers(f"{url}/healthz"))

    def _process(self, name: str, command: Sequence[str], url: str, ready: Callable[[], bool]) -> Process:
        urls: Mapping[str, str] = {"url": url, "metrics_url": f"{url}/metrics", "health_url": url}
        return Process(name, command, directory=self.directory, ready=ready, urls=urls)
