"""Covey's own two processes, as programs of a local cluster."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from localcluster.ports import address, free_port
from localcluster.probe import answers
from localcluster.process import Process

ROOT = Path(__file__).resolve().parent.parent.parent
Program = Literal["operator", "scheduler"]
#: The tree's own package, whatever is installed.
ENVIRONMENT: Mapping[str, str] = {"PYTHONPATH": str(ROOT / "operator")}
#: Stands for the port of any process in the configuration that is printed once.
_SOME_PORT = 1
#: Whether they are forks of one process that has imported them; for tests.
fork = False


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
            fork=fork,
        )

    return build


def scheduler_config(scheduler: Process, *arguments: str, leader_elect: bool = False) -> str:
    """The KubeSchedulerConfiguration that Covey prints for a running scheduler process.

    Args:
        scheduler: the process; its address is filled in.
        arguments: more flags that it was started with.
        leader_elect: whether kube-scheduler takes a lease.

    Raises:
        RuntimeError: when it cannot be printed.
    """
    text = _printed_config(*arguments).replace(f":{_SOME_PORT}/", f":{urlsplit(scheduler.url).port}/")
    config: dict[str, Any] = yaml.safe_load(text)
    config.setdefault("leaderElection", {})["leaderElect"] = leader_elect
    return str(yaml.safe_dump(config, sort_keys=False))


@functools.cache
def _printed_config(*arguments: str) -> str:
    command = [sys.executable, "-m", "covey", "scheduler", "--print-scheduler-config"]
    done = subprocess.run(
        [*command, f"--bind-address={address(_SOME_PORT)}", *arguments],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"covey scheduler --print-scheduler-config failed: {done.stderr}")
    return done.stdout
