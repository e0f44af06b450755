"""Containers of pods as processes of this machine: the kubelet's part for programs that look for each other.

Pods are read from the API server, their environment is written into the command, and the command runs as a process. Names
lead to the pods that the EndpointSlices name. The programs are stand-ins (``tests/stand_in.py``).
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import kubelet
import stand_in
from builders.manifests import Object
from cluster.published import Published
from cluster.workbench import name_of
from kubelet import environment_of
from localcluster import eventually


class Containers:
    """Runs the first containers of pods, as a context manager.

    Args:
        directory: where their programs and their homes lie.
        published: what the cluster's DNS knows.
        paths: directories of the image, and what stands for them.
        programs: more stand-ins.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        published: Published,
        paths: Mapping[str, str] | None = None,
        programs: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._published = published
        self._paths = paths or {}
        self._programs = programs or {}
        self._running: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        stand_in.install(self._directory, self._programs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running.values():
            process.kill()
            process.communicate()

    def start(self, pods: Sequence[Object]) -> None:
        """Start all pods, the leaders last. Each has an address of its own, which no other test on this machine has."""
        network = f"127.{1 + os.getpid() % 250}.{1 + os.getpid() // 250 % 250}"
        ips = {pod["status"]["podIP"]: f"{network}.{number}" for number, pod in enumerate(pods, 1)}
        assert len(ips) == len(pods)
        hosts = {name: ips[ip] for name, ip in self._known(pods).items()}
        (self._directory / "hosts.json").write_text(json.dumps(hosts))
        for pod in sorted(pods, key=lambda pod: pod["spec"]["hostname"], reverse=True):
            self._start(pod, ips[pod["status"]["podIP"]])

    def said(self, pods: Sequence[Object]) -> dict[str, Object]:
        """What each pod's program has said last, by host name. Ends when all of them have ended."""
        found = {}
        for pod in pods:
            process = self._running[name_of(pod)]
            output, errors = process.communicate(timeout=2 * stand_in.PATIENCE)
            assert process.returncode == 0, f"{name_of(pod)}: {output} {errors}"
            said = next(json.loads(line) for line in output.splitlines() if line.startswith("{"))
            found[said["name"]] = said
        return found

    def _known(self, pods: Sequence[Object]) -> dict[str, str]:
        """Every pod's address, and the pod IP that DNS answers for it."""
        addresses = {
            f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}.{pod['metadata']['namespace']}" for pod in pods
        }
        told = {environment_of(pod)["LWS_LEADER_ADDRESS"] for pod in pods}
        assert told <= addresses

        def known() -> dict[str, str]:
            found = {address: self._published.resolve(address) for address in addresses}
            assert all(len(ips) == 1 for ips in found.values()), str(found)
            return {address: ip for address, [ip] in found.items()}

        return eventually(known, 60, "the addresses are known")

    def _start(self, pod: Object, ip: str) -> None:
        home = self._directory / pod["spec"]["hostname"]
        home.mkdir()
        own = {
            "HOSTNAME": pod["spec"]["hostname"],
            "PATH": f"{self._directory / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{self._directory}:{pathlib.Path(stand_in.__file__).parent}",
            "STAND_IN_HOME": str(home),
            "STAND_IN_HOSTS": str(self._directory / "hosts.json"),
            "STAND_IN_IP": ip,
        }
        command = kubelet.command_of(pod)
        for path, stands in self._paths.items():
            command = [part.replace(path, stands) for part in command]
        self._running[name_of(pod)] = subprocess.Popen(
            command,
            env={**environment_of(pod), **own},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
