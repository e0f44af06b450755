"""Covey's scheduler process behind Services, and the configuration of the user's kube-scheduler that calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from authority import Authority, Mounted
from localcluster import Cluster, Process
from localcluster.programs import scheduler_config

#: The names of the Services, which nothing resolves beside a local control plane.
HOST: Final = "covey-scheduler-extender.covey-system.svc"
GUARD: Final = "covey-scheduler-guard.covey-system.svc"
CALLER: Final = "covey-kube-scheduler"


class Attachment:
    """Certificates of both sides, and a process that is started with them.

    Args:
        cluster: runs the process.
        directory: takes the files.
        caller: the name in kube-scheduler's certificate.
        flags: more flags of ``covey scheduler``.
    """

    def __init__(self, cluster: Cluster, directory: Path, *flags: str, caller: str = CALLER) -> None:
        self._cluster = cluster
        self.authority = Authority()
        self.server = Mounted(directory / "server", self.authority, "extender")
        self.caller = Mounted(directory / "caller", self.authority, caller)
        self._flags = flags
        self.process = self.start()

    def start(self, *more: str) -> Process:
        """Start the process, again at its address if it ran before."""
        return self._cluster.start_covey("scheduler", *self._flags, *service_flags(self.server), *more)

    def start_again(self) -> Process:
        """Start a process at the address that kube-scheduler was given."""
        self.process = self.start(f"--bind-address={self.process.url.removeprefix('http://')}")
        return self.process

    def printed(self) -> str:
        """The configuration as Covey prints it."""
        return scheduler_config(
            self.process,
            "--endpoint-mode=service",
            f"--kube-scheduler-ca-file={self.caller.authority}",
            f"--kube-scheduler-cert-file={self.caller.certificate}",
            f"--kube-scheduler-key-file={self.caller.key}",
        )

    def local(self) -> dict[str, Any]:
        """The same, with the address of the process in place of the Services' names."""
        local: dict[str, Any] = yaml.safe_load(self.printed().replace(HOST, "127.0.0.1").replace(GUARD, "127.0.0.1"))
        return local

    def beside_stock(self) -> str:
        """A configuration with the stock profile, to which Covey's profile and entries were added."""
        local = self.local()
        profiles = [{"schedulerName": "default-scheduler"}, *local["profiles"]]
        return str(yaml.safe_dump({"profiles": profiles, "extenders": local["extenders"]}))


def service_flags(server: Mounted) -> list[str]:
    """Flags of a process behind Services."""
    return [
        "--endpoint-mode=service",
        f"--tls-cert-file={server.certificate}",
        f"--tls-private-key-file={server.key}",
        f"--client-ca-file={server.authority}",
        "--client-name=covey-kube-scheduler,kube-scheduler",
    ]
