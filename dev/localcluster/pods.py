"""Runs the containers of Covey's own pods as processes, as a kubelet would with a container engine.

kwok says of every bound pod that it runs; of the pods that Covey's Deployments make, this makes it true. So what a user
installs with Helm or kustomize is what runs: its command lines, environment, configuration files and service accounts.
Three things are not a container's own here and are put in place of it: addresses (each port of a pod becomes a free one
on loopback), files of ConfigMaps and Secrets (below the cluster's directory), and the way to the API server (a
kubeconfig of the pod's service account).

``python -m localcluster.pods DIRECTORY [IMAGE=PATH ...]`` does so until SIGTERM. A container whose image ends with one of these runs the
code below that path, as that of another release; any other the tree's own. The processes' addresses stand in
``pods/<pod>/addresses.json``: container port → address. The file is there as long as they run, a moment longer than the pod:
kwok, unlike a kubelet, lets a pod go before its processes have ended.
"""

from __future__ import annotations

import base64
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.client import ApiClient, ApiException
from urllib3.exceptions import HTTPError

from localcluster import access, binaries
from localcluster.api import connect, request, sentence_of
from localcluster.ports import address, free_port
from localcluster.process import Process
from localcluster.programs import ENVIRONMENT

Pod = Mapping[str, Any]

PODS: Final = "/api/v1/pods?labelSelector=app.kubernetes.io/name%3Dcovey"
#: The file in a pod's folder.
ADDRESSES: Final = "addresses.json"
#: Seconds between two looks, and before a container that has ended starts again.
_INTERVAL: Final = 0.5
_RESTART: Final = 1.0
_ADDRESS: Final = re.compile(r"(?<![\w.])(?:127\.0\.0\.1|0\.0\.0\.0)?:(\d+)")


@dataclass
class _Running:
    """The processes of one pod, and the file with their addresses."""

    processes: list[Process]
    addresses: Path
    ended: dict[str, float] = field(default_factory=dict)


class Runner:
    """Keeps a process for each container of each of Covey's pods.

    Args:
        directory: the cluster's.
        client: the administrator's.
        fork: whether Covey's own are forks; see ``forks``.
        releases: where the code of an image lies that is not the tree's own, by the end of its name.
    """

    def __init__(
        self, directory: Path, client: ApiClient, *, fork: bool = False, releases: Mapping[str, str] | None = None
    ) -> None:
        self._directory = directory
        self._client = client
        self._fork = fork
        self._releases = releases or {}
        self._programs = binaries.ensure()
        self._running: dict[str, _Running] = {}

    def run(self, end: threading.Event) -> None:
        """Look again and again until the end, and then stop everything."""
        try:
            while not end.wait(_INTERVAL):
                try:
                    self._sync()
                except (ApiException, HTTPError) as error:  # an object that is not there yet, a busy API server
                    print(sentence_of(error), file=sys.stderr, flush=True)
        finally:
            self._stop_all()

    def _sync(self) -> None:
        """Start what is missing, start again what has ended, stop what nobody wants any more."""
        wanted = {pod["metadata"]["uid"]: pod for pod in request(self._client, "GET", PODS)["items"] if _runs(pod)}
        for uid in self._running.keys() - wanted.keys():
            self._stop(self._running.pop(uid))
        for uid, pod in wanted.items():
            if uid in self._running:
                _revive(self._running[uid])
            else:
                self._running[uid] = self._start(pod)

    def _stop_all(self) -> None:
        for running in self._running.values():
            for process in running.processes:
                process.terminate()
        for running in self._running.values():
            self._stop(running)
        self._running.clear()

    def _start(self, pod: Pod) -> _Running:
        place = self._directory / "pods" / pod["metadata"]["name"]
        place.mkdir(parents=True, exist_ok=True)
        containers = pod["spec"]["containers"]
        ports = {port["containerPort"] for each in containers for port in each.get("ports", ())}
        ports |= {int(found) for each in containers for text in _command(each) for found in _ADDRESS.findall(text)}
        addresses = {str(port): address(free_port()) for port in sorted(ports)}
        files = self._write_volumes(pod, place, addresses)
        kubeconfig = self._kubeconfig(pod, place)
        processes = []
        for container in containers:
            mounts = {each["mountPath"]: str(files[each["name"]]) for each in container.get("volumeMounts", ())}
            command = [_replaced(text, addresses, mounts) for text in _command(container)]
            other = [path for image, path in self._releases.items() if container["image"].endswith(image)]
            code = {"PYTHONPATH": other[0]} if other else {}
            process = Process(
                f"{pod['metadata']['name']}.{container['name']}",
                self._program(container["name"], command, kubeconfig, addresses),
                directory=self._directory,
                ready=lambda: True,
                environment={**ENVIRONMENT, **code, **_environment(container, pod)},
                fork=self._fork and container["name"] == "covey" and not code,
            )
            processes.append(process)
        # A pod that went meanwhile would leave its processes behind for a moment; of the others all start or none.
        request(
            self._client, "GET", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        )
        for process in processes:
            process.start(wait=False)
        written = place / ADDRESSES
        written.write_text(json.dumps(addresses))
        return _Running(processes, written)

    def _program(self, name: str, command: list[str], kubeconfig: Path, addresses: Mapping[str, str]) -> list[str]:
        if name == "covey":
            return [sys.executable, "-m", "covey", *command, f"--kubeconfig={kubeconfig}"]
        config = next(Path(text.partition("=")[2]) for text in command if text.startswith("--config="))
        settings = yaml.safe_load(config.read_text())
        config.write_text(yaml.safe_dump(settings | {"clientConnection": {"kubeconfig": str(kubeconfig)}}))
        host, port = addresses["10259"].rsplit(":", 1)
        kept = [text for text in command[1:] if not text.startswith("--secure-port=")]
        own = [f"--bind-address={host}", f"--secure-port={port}", f"--cert-dir={config.parent}"]
        return [str(self._programs[name]), *kept, *own]

    def _write_volumes(self, pod: Pod, place: Path, addresses: Mapping[str, str]) -> dict[str, Path]:
        """The files of each volume, with the addresses that hold here."""
        found = {}
        base = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
        for volume in pod["spec"].get("volumes", ()):
            folder = found[volume["name"]] = place / volume["name"]
            folder.mkdir(exist_ok=True)
            if "configMap" in volume:
                data = request(self._client, "GET", f"{base}/configmaps/{volume['configMap']['name']}")["data"]
                for name, text in data.items():
                    (folder / name).write_text(_replaced(text, addresses, {}))
            elif "secret" in volume:
                data = request(self._client, "GET", f"{base}/secrets/{volume['secret']['secretName']}")["data"]
                for name, text in data.items():
                    (folder / name).write_bytes(base64.b64decode(text))
        return found

    def _kubeconfig(self, pod: Pod, place: Path) -> Path:
        account = f"{pod['metadata']['namespace']}/serviceaccounts/{pod['spec']['serviceAccountName']}"
        asked = {"spec": {"expirationSeconds": 24 * 3600}}
        token = request(self._client, "POST", f"/api/v1/namespaces/{account}/token", asked)["status"]["token"]
        authority = self._directory / "certificates" / "apiserver.crt"
        return access.write_kubeconfig(
            place / "kubeconfig", server=self._client.configuration.host, token=token, authority=authority
        )

    @staticmethod
    def _stop(running: _Running) -> None:
        for process in running.processes:
            process.terminate()
        for process in running.processes:
            process.stop()
        running.addresses.unlink()


def _runs(pod: Pod) -> bool:
    return "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]


def _revive(running: _Running) -> None:
    now = time.monotonic()
    for process in running.processes:
        if process.alive:
            running.ended.pop(process.name, None)
        elif now - running.ended.setdefault(process.name, now) >= _RESTART:
            process.start(wait=False)


def _command(container: Mapping[str, Any]) -> list[str]:
    return [*container.get("command", ()), *container.get("args", ())]


def _replaced(text: str, addresses: Mapping[str, str], mounts: Mapping[str, str]) -> str:
    """A text with local addresses and paths in place of the container's."""
    for path, place in mounts.items():
        text = text.replace(path, place)
    return _ADDRESS.sub(lambda found: addresses.get(found[1], found[0]), text)


def _environment(container: Mapping[str, Any], pod: Pod) -> dict[str, str]:
    fields = {"metadata.name": pod["metadata"]["name"], "metadata.namespace": pod["metadata"]["namespace"]}
    return {
        each["name"]: each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container.get("env", ())
    }


def main(directory: Path, releases: Mapping[str, str]) -> int:
    """Run until SIGTERM."""
    end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    with connect(directory / "kubeconfig") as client:
        Runner(directory, client, releases=releases).run(end)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), dict(argument.split("=", 1) for argument in sys.argv[2:])))
