"""``covey ui`` as a process, beside a control plane."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from localcluster import Cluster, Process, eventually
from localcluster.ports import free_port
from localcluster.probe import answers
from localcluster.programs import ENVIRONMENT
from screens.chromium import PATIENCE

_LINK = re.compile(r"http://\S+#code=\S+")


class Served:
    """A running ``covey ui``."""

    def __init__(self, cluster: Cluster, name: str, kubeconfig: Path, arguments: Sequence[str] = ()) -> None:
        port = free_port()
        self.origin = f"http://127.0.0.1:{port}"
        command = [
            sys.executable,
            "-m",
            "covey",
            "ui",
            f"--kubeconfig={kubeconfig}",
            f"--bind-address=127.0.0.1:{port}",
            "--no-browser",
            *arguments,
        ]
        self.process = Process(
            name,
            command,
            directory=cluster.directory,
            ready=lambda: answers(f"{self.origin}/"),
            environment=ENVIRONMENT,
        )
        self.process.start()
        cluster.processes[name] = self.process

    def link(self) -> str:
        """The newest link that it has printed: each opens the page once."""
        found: list[str] = eventually(lambda: _LINK.findall(self.process.log_text()), PATIENCE, "a link is printed")
        return found[-1]
