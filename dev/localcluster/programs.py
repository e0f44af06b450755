"""Covey's own two processes, as programs of a local cluster."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from localcluster.ports import address, free_port
from localcluster.probe import answers
from localcluster.process import Process

ROOT = Path(__file__).resolve().parent.parent.parent
Program = Literal["operator", "scheduler"]
#: The tree's own package, whatever is installed.
ENVIRONMENT: Mapping[str, str] = {"PYTHONPATH": str(ROOT / "operator")}


def builder(
    program: Program, directory: Path, kubeconfig: Path, name: str, arguments: Sequence[str]
) -> Callable[[], Process]:
    """What makes the process, on new free ports at each call."""

    def build() -> Process:
        metrics, health = address(free_port()), address(free_port())
        flags = [
            f"--kubeconfig={kubeconfig}",
            f"--metrics-bind-address={metrics}",
            f"--health-probe-bind-address={health}",
            "--leader-elect=false",
        ]
        urls = {"metrics_url": f"http://{metrics}/metrics", "health_url": f"http://{health}"}
        if program == "scheduler":
            extender = address(free_port())
            flags.append(f"--bind-address={extender}")
            urls["url"] = f"http://{extender}"
        return Process(
            name,
            [sys.executable, "-m", "covey", program, *flags, *arguments],
            directory=directory,
            ready=lambda: answers(f"http://{health}/readyz"),
            environment=ENVIRONMENT,
            urls=urls,
        )

    return build


def scheduler_config(scheduler: Process, *, leader_elect: bool = False) -> str:
    """The KubeSchedulerConfiguration that Covey prints for a running scheduler process.

    Raises:
        RuntimeError: when it cannot be printed.
    """
    command = [sys.executable, "-m", "covey", "scheduler", "--print-scheduler-config"]
    bind_address = scheduler.url.removeprefix("http://")
    done = subprocess.run(
        [*command, f"--bind-address={bind_address}"],
        env=scheduler.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"covey scheduler --print-scheduler-config failed: {done.stderr}")
    config: dict[str, Any] = yaml.safe_load(done.stdout)
    config.setdefault("leaderElection", {})["leaderElect"] = leader_elect
    return str(yaml.safe_dump(config, sort_keys=False))
