"""The programs of a control plane on loopback and their life, from a free port to a clean end."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kubernetes.client import ApiClient
from urllib3.exceptions import HTTPError

from localcluster import access, binaries, cleanup, components, guard
from localcluster.api import connect, request
from localcluster.components import Files, Gates
from localcluster.ports import address, free_port
from localcluster.probe import answers
from localcluster.process import PortTakenError, Process, ProcessError
from localcluster.waiting import eventually

_PORT_ATTEMPTS = 5


class ControlPlane:
    """Starts and stops the programs; ``Cluster`` adds what is done with them.

    Attributes:
        directory: Where everything lies.
        files: The files in it.
        processes: Every program by its name.
        client: The administrator's.
    """

    directory: Path
    files: Files
    client: ApiClient

    def __init__(
        self,
        directory: Path | None,
        *,
        kubernetes: str,
        volcano: bool,
        gates: Gates | None,
        kwok: bool,
        max_inflight: int | None,
        scheduler_config: str | None,
        flags: Mapping[str, Sequence[str]] | None,
        keep: bool | None,
    ) -> None:
        self._given_directory = directory
        self._kubernetes = kubernetes
        self._volcano = volcano
        self._gates = gates or Gates()
        self._kwok = kwok
        self._max_inflight = max_inflight
        self._first_scheduler_config = scheduler_config
        self._flags = dict(flags or {})
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
        self._binaries = binaries.ensure(self._kubernetes, volcano=self._volcano)
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

    def start_scheduler(
        self, config: str = "", *, kubeconfig: Path | None = None, name: str = "kube-scheduler", wait: bool = True
    ) -> Process:
        """Start kube-scheduler, or start it again, with a KubeSchedulerConfiguration.

        Args:
            config: YAML text. How to reach the API server is added to it, and leader election is off unless the
                text asks for it.
            kubeconfig: Whose rights it has; ``system:kube-scheduler``'s by default.
            name: Of the process, for a second replica.
            wait: Wait until it is ready.
        """
        if name in self.processes:
            self.processes[name].stop()
        build = self._scheduler(config, kubeconfig or self.files.scheduler, name)
        return self.launch(build)[0] if wait else self._begin(build)

    def start_volcano(self, config: str = "") -> Process:
        """Start Volcano's scheduler, or start it again, and open its queues; the cluster was made with ``volcano``.

        Args:
            config: YAML text of its configuration; ``components.volcano_config`` by default.
        """
        self.forget("vc-scheduler")
        file = self.directory / "vc-scheduler.yaml"
        file.write_text(config or components.volcano_config())

        def build() -> Process:
            port, health_port = free_port(), free_port()
            health = f"http://{address(health_port)}"
            command = components.volcano_scheduler(self._binaries, self.files, port, health_port, file)
            return self._process(
                "vc-scheduler", command, f"http://{address(port)}", lambda: answers(f"{health}/healthz")
            )

        [process] = self.launch(build)
        for queue in ("root", "default"):
            self._open_queue(queue)
        return process

    def forget(self, *names: str) -> None:
        """Stop programs and drop them; a name that is not there is passed over."""
        processes = [process for name in names if (process := self.processes.pop(name, None)) is not None]
        for process in processes:
            process.terminate()
        for process in processes:
            process.stop()

    def launch(self, *builds: Callable[[], Process]) -> list[Process]:
        """Start programs at the same time and wait for all; one whose port was taken is built and started anew.

        Args:
            builds: Each makes a process that has not been started, with free ports.
        """
        started = [(build, self._begin(build)) for build in builds]
        return [self._settle(build, process) for build, process in started]

    def _open_queue(self, name: str) -> None:
        """Do what Volcano's controllers do, which do not run here: the scheduler only creates its queues."""
        path = f"/apis/scheduling.volcano.sh/v1beta1/queues/{name}/status"
        is_open = {"status": {"state": "Open"}}
        eventually(lambda: request(self.client, "PATCH", path, is_open), describe=f"the queue {name} is there")

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
            builds.append(self._scheduler(self._first_scheduler_config, self.files.scheduler, "kube-scheduler"))
        self.launch(*builds)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        eventually(lambda: request(self.client, "GET", account), describe="the first service account is there")

    def _open(self, server: str) -> None:
        """Write the kubeconfig files, which need the certificate that kube-apiserver has made."""
        tokens, authority = self._tokens, self.files.authority
        access.write_kubeconfig(self.files.admin, server=server, token=tokens.admin, authority=authority)
        access.write_kubeconfig(self.files.scheduler, server=server, token=tokens.scheduler, authority=authority)
        self.client = connect(self.files.admin)

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
        former = self.processes.get(process.name)
        if former is not None and former.alive:
            raise ProcessError(f"{process.name} runs already: stop it, or give this one another name")
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
        )
        return self._process("kube-apiserver", command, url, lambda: answers(f"{url}/readyz", self._tokens.admin))

    def _kube_controller_manager(self) -> Process:
        port = free_port()
        url = f"https://{address(port)}"
        command = components.kube_controller_manager(
            self._binaries, self.files, port, self._gates, node_lifecycle=self._kwok
        )
        return self._process("kube-controller-manager", command, url, lambda: answers(f"{url}/healthz"))

    def _scheduler(self, config: str, kubeconfig: Path, name: str) -> Callable[[], Process]:
        file = self.directory / f"{name}.yaml"
        file.write_text(components.scheduler_config(config, kubeconfig))

        def build() -> Process:
            port = free_port()
            url = f"https://{address(port)}"
            command = components.kube_scheduler(self._binaries, self.files, port, self._gates, file)
            path = components.scheduler_health(self._kubernetes)
            return self._process(name, command, url, lambda: answers(f"{url}{path}"))

        return build

    def _kwok_process(self) -> Process:
        port = free_port()
        url = f"http://{address(port)}"
        command = components.kwok(self._binaries, self.files, port)
        return self._process("kwok", command, url, lambda: answers(f"{url}/healthz"), self._release_nodes)

    def _release_nodes(self) -> None:
        """Take the nodes' leases away from an earlier kwok; a new one would wait until they expire."""
        with contextlib.suppress(HTTPError):  # without the API server it waits
            request(self.client, "DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")

    def _process(
        self,
        name: str,
        command: Sequence[str],
        url: str,
        ready: Callable[[], bool],
        before: Callable[[], None] = lambda: None,
    ) -> Process:
        urls: Mapping[str, str] = {"url": url, "metrics_url": f"{url}/metrics", "health_url": url}
        command = [*command, *self._flags.get(name, ())]
        return Process(name, command, directory=self.directory, ready=ready, before=before, urls=urls)
