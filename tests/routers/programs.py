"""Resources and routers of the examples: engines without their router, and the router as a process on this machine.

The router runs by the very command and rights of its example. Its image is what cannot be had here: the programs come from
the Python package index (``make test-routers``), where they are the same.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from builders.manifests import Object
from cluster.serving import Serving
from examples.files import EXAMPLES, of_kind
from localcluster.ports import HOST, free_port
from localcluster.probe import answers
from localcluster.process import Process
from localcluster.programs import ROOT

HOME: Final = ROOT / ".venv" / "routers"
#: Is there once all of them are installed.
READY: Final = HOME / ".ready"
#: What the image of SMG begins with, by its Dockerfile; the others name their program themselves.
_ENTRYPOINTS: Final = {"smg": ("python3", "-m", "smg.launch_router")}
_LISTEN: Final = re.compile(r"--(host|port)([= ])(?:0\.0\.0\.0|8000)")
#: A label in the selectors of all of them.
_ANCHOR: Final = "covey.dev/index=0"


@dataclass(frozen=True)
class Example:
    """One of the files: a resource whose role ``router`` is the router."""

    file: str

    @property
    def inference(self) -> Object:
        """The resource."""
        [found] = of_kind(EXAMPLES / self.file, "DisaggregatedInference")
        return found

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.inference["metadata"]["name"])

    @property
    def port(self) -> int:
        """Where its engines listen."""
        [port] = {
            port["containerPort"]
            for role in self._engines()
            for port in _leader(role)["spec"]["containers"][0]["ports"]
            if port["name"] == "http"
        }
        return int(port)

    def resource(self, prefill: str, decode: str, **spec: Any) -> Object:
        """The resource without its router, with images that say the revisions, and a few seconds to drain."""
        found = self.inference
        roles = [role | {"drainSeconds": 12} for role in self._engines()]
        for role, image in zip(roles, (prefill, decode), strict=True):
            for template in ("template", "leaderTemplate"):
                if template in role:
                    role[template]["spec"]["containers"][0]["image"] = image
        found["spec"] = found["spec"] | spec | {"roles": roles}
        return found

    def size(self) -> int:
        """Pods of all engines."""
        return sum(role["replicas"] * role.get("size", 1) for role in self._engines())

    def container(self) -> Object:
        """The container of the router."""
        [role] = [each for each in self.inference["spec"]["roles"] if each["name"] == "router"]
        [container] = role["template"]["spec"]["containers"]
        return dict(container)

    def command(self) -> list[str]:
        """The router's command line."""
        container = self.container()
        return [*container.get("command", _ENTRYPOINTS.get(self.name, ())), *container["args"]]

    def start(self, serving: Serving, *more: str, name: str = "router", without: Sequence[str] = ()) -> Process:
        """Start the router with the rights of its account.

        Args:
            serving: where its engines are.
            more: labels that its selectors get, too.
            name: of the process.
            without: labels that its selectors lose.
        """
        for kind in ("ServiceAccount", "Role", "RoleBinding"):
            for found in of_kind(EXAMPLES / self.file, kind):
                serving.cluster.kubectl("apply", "-n", serving.namespace, "-f", "-", input=json.dumps(found))
        account = self._account()
        kubeconfig = serving.cluster.service_account_kubeconfig(serving.namespace, account)

        def build() -> Process:
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            return Process(
                f"{name}-{serving.namespace}",
                self._local(serving.namespace, port, more, without),
                directory=serving.cluster.directory,
                ready=lambda: answers(f"{url}/health"),
                environment=_environment(serving.namespace, kubeconfig),
                urls={"url": url, "health_url": f"{url}{self._probe()}"},
            )

        [process] = serving.cluster.launch(build)
        return process

    def _local(self, namespace: str, port: int, more: Sequence[str], without: Sequence[str]) -> list[str]:
        """The command line with this machine's addresses, and other labels in its selectors."""
        command = _select(self.command(), more, without)
        moved = [
            _LISTEN.sub(lambda found: f"--{found[1]}{found[2]}{HOST if found[1] == 'host' else port}", each)
            for each in command
        ]
        # Its own port of metrics is the same for all routers.
        metrics = f"--prometheus-port={free_port()}"
        moved = [*moved[:-1], f"{moved[-1].rstrip()} {metrics}"] if moved[0] == "bash" else [*moved, metrics]
        return [each.replace("$(NAMESPACE)", namespace) for each in moved]

    def _probe(self) -> str:
        return str(self.container()["readinessProbe"]["httpGet"]["path"])

    def _account(self) -> str:
        [role] = [each for each in self.inference["spec"]["roles"] if each["name"] == "router"]
        return str(role["template"]["spec"]["serviceAccountName"])

    def _engines(self) -> list[Object]:
        return [copy.deepcopy(each) for each in self.inference["spec"]["roles"] if each["name"] != "router"]


def parse(module: str, arguments: Sequence[str]) -> Object:
    """Parse a command line as the program itself does."""
    program = (
        f"import dataclasses, json, sys; from {module}.launch_router import parse_router_args;"
        " print(json.dumps(dataclasses.asdict(parse_router_args(sys.argv[1:])), default=str))"
    )
    done = subprocess.run(
        [HOME / "bin" / "python", "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _select(command: Sequence[str], more: Sequence[str], without: Sequence[str]) -> list[str]:
    found = []
    for each in command:
        if each == _ANCHOR:
            found += [each, *more]
        elif each not in without:
            text = each.replace(_ANCHOR, " ".join([_ANCHOR, *more]))
            for label in without:
                text = text.replace(f" {label}", "")
            found.append(text)
    return found


def _leader(role: Object) -> Object:
    return dict(role.get("leaderTemplate", role["template"]))


def _environment(namespace: str, kubeconfig: Path) -> dict[str, str]:
    return {
        "KUBECONFIG": str(kubeconfig),
        # They ask for the tokenizer of a model that they hear of. Nobody listens there.
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{HOME / 'bin'}:{os.environ['PATH']}",
        "POD_NAMESPACE": namespace,
        "COVEY_UNIT": "0",
    }
