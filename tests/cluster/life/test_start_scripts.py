"""Start scripts as they are published for LeaderWorkerSet run with what Covey puts into their containers.

Commands and arguments are those of LeaderWorkerSet's documentation (``docs/examples/sglang/lws.yaml``,
``docs/examples/vllm/GPU/lws.yaml``). The kubelet's part is done here: pods are read from the API server, their environment
is written into the command, and the command runs as a process. Names lead to the pods that the EndpointSlices name. The
engines themselves are stand-ins (``tests/stand_in.py``); ``COVEY_VLLM_SCRIPT`` names a copy of vLLM's own
``multi-node-serving.sh`` to be run in place of the stand-in of that name.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import kubelet
import stand_in
from api_manifests import Object
from cluster.published import Published
from cluster.serving import AddNodes, Serving, replicas, serves, serving, workers
from cluster.workbench import name_of
from kubelet import environment_of
from localcluster import eventually

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

SGLANG = [
    *("python3", "-m", "sglang.launch_server", "--model-path", "meta-llama/Meta-Llama-3.1-8B-Instruct", "--tp", "2"),
    *("--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000", "--nnodes", "$(LWS_GROUP_SIZE)"),
    *("--node-rank", "$(LWS_WORKER_INDEX)", "--trust-remote-code"),
]
SERVING = "bash /vllm-workspace/examples/online_serving/multi-node-serving.sh"
VLLM_LEADER = (
    f"{SERVING} leader --ray_cluster_size=$(LWS_GROUP_SIZE); python3 -m vllm.entrypoints.openai.api_server --port 8080 "
    "--model meta-llama/Llama-3.1-405B-Instruct --tensor-parallel-size 8 --pipeline_parallel_size 2"
)
VLLM_WORKER = f"{SERVING} worker --ray_address=$(LWS_LEADER_ADDRESS)"


@dataclass
class Kubelets:
    """Runs the containers of pods as processes of this machine."""

    directory: pathlib.Path
    published: Published
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def install(self) -> None:
        stand_in.install(self.directory)
        if script := os.environ.get("COVEY_VLLM_SCRIPT"):
            shutil.copy(script, self.directory / "bin" / "multi-node-serving.sh")

    def start(self, pods: Sequence[Object]) -> None:
        """Start all pods, the leaders last. Each has an address of its own."""
        ips = {pod["status"]["podIP"]: f"127.0.7.{number}" for number, pod in enumerate(pods, 1)}
        assert len(ips) == len(pods)
        hosts = {name: ips[ip] for name, ip in self._known(pods).items()}
        (self.directory / "hosts.json").write_text(json.dumps(hosts))
        for pod in sorted(pods, key=lambda pod: pod["spec"]["hostname"], reverse=True):
            self._start(pod, ips[pod["status"]["podIP"]])

    def _known(self, pods: Sequence[Object]) -> dict[str, str]:
        """Addresses that pods are told, and the pod IP that DNS answers for each."""
        told = {environment_of(pod)["LWS_LEADER_ADDRESS"] for pod in pods}

        def known() -> dict[str, str]:
            found = {address: self.published.resolve(address) for address in told}
            assert all(len(ips) == 1 for ips in found.values()), str(found)
            return {address: ip for address, [ip] in found.items()}

        return eventually(known, 60, "the addresses are known")

    def _start(self, pod: Object, ip: str) -> None:
        home = self.directory / pod["spec"]["hostname"]
        home.mkdir()
        own = {
            "HOSTNAME": pod["spec"]["hostname"],
            "PATH": f"{self.directory / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{self.directory}:{pathlib.Path(stand_in.__file__).parent}",
            "STAND_IN_HOME": str(home),
            "STAND_IN_HOSTS": str(self.directory / "hosts.json"),
            "STAND_IN_IP": ip,
        }
        image = "/vllm-workspace/examples/online_serving"
        command = [part.replace(image, str(self.directory / "bin")) for part in kubelet.command_of(pod)]
        self.running[name_of(pod)] = subprocess.Popen(
            command,
            env={**environment_of(pod), **own},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def groups(self, pods: Sequence[Object]) -> dict[str, dict[str, str]]:
        """What each pod has found its group to be: host names by rank. Ends when all of them have ended."""
        found = {}
        for pod in pods:
            output, errors = self.running[name_of(pod)].communicate(timeout=2 * stand_in.PATIENCE)
            assert self.running[name_of(pod)].returncode == 0, f"{name_of(pod)}: {output} {errors}"
            said = next(json.loads(line) for line in output.splitlines() if line.startswith("{"))
            found[said["name"]] = said["members"]
        return found

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.communicate()


@pytest.fixture
def kubelets(serving: Serving, tmp_path: pathlib.Path) -> Iterator[Kubelets]:
    found = Kubelets(tmp_path, Published(serving))
    found.install()
    yield found
    found.end()


def with_command(role: Object, command: Sequence[str], leader: Sequence[str] | None = None) -> Object:
    """The role with these commands; the leader's goes into a template of its own."""
    if leader is not None:
        role["leaderTemplate"] = json.loads(json.dumps(role["template"]))
        role["leaderTemplate"]["spec"]["containers"][0]["command"] = list(leader)
    role["template"]["spec"]["containers"][0]["command"] = list(command)
    return role


def run(serving: Serving, kubelets: Kubelets, role: Object) -> list[Object]:
    """Create a role of two replicas, run its pods, and check that each replica has become one group."""
    serving.create(role)
    count = role["replicas"] * role["size"]
    serving.await_bound(count)
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    pods = serving.pods()
    kubelets.start(pods)
    groups = kubelets.groups(pods)
    for members in replicas(pods).values():
        ranks = {pod["metadata"]["labels"]["covey.dev/index"]: pod["spec"]["hostname"] for pod in members}
        assert len(ranks) == role["size"]
        for hostname in ranks.values():
            found = groups[hostname]
            assert set(found.values()) == set(ranks.values())
            assert found["0"] == ranks["0"], "rank 0 is the leader"
    return pods


@pytest.mark.parametrize("subdomain", ["Shared", "UniquePerReplica"])
def test_sglang_as_leaderworkerset_documents_it(
    serving: Serving, kubelets: Kubelets, nodes: AddNodes, subdomain: str
) -> None:
    nodes(blocks=1, racks=2, nodes=3)
    role = with_command(workers("decode", replicas=2, size=3, network={"subdomain": subdomain}), SGLANG)
    own: list[dict[str, Any]] = [{"name": "MASTER", "value": "tcp://$(LWS_LEADER_ADDRESS):5000/$(UNKNOWN)/$$(HOME)"}]
    role["template"]["spec"]["containers"][0]["env"] = own
    pods = run(serving, kubelets, role)
    for pod in pods:
        told = environment_of(pod)
        # A variable of the user's may use those that come first.
        assert told["MASTER"] == f"tcp://{told['LWS_LEADER_ADDRESS']}:5000/$(UNKNOWN)/$(HOME)"
        assert list(told)[:3] == ["LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"]


def test_vllm_on_ray_as_leaderworkerset_documents_it(serving: Serving, kubelets: Kubelets, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=2, nodes=3)
    role = workers("decode", replicas=2, size=3)
    run(serving, kubelets, with_command(role, ["sh", "-c", VLLM_WORKER], ["sh", "-c", VLLM_LEADER]))


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        # Of expansion_test.go.
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___", "___B___"),
        ("$(VAR_A)_$(NONE)", "A_$(NONE)"),
        ("$$(VAR_A)_$(VAR_B)", "$(VAR_A)_B"),
        ("f000-$$VAR_A", "f000-$VAR_A"),
        ("foo\\$(VAR_A)bar", "foo\\Abar"),
        ("$$$(VAR_A)", "$A"),
        ("$(VAR_A", "$(VAR_A"),
        ("$VAR_A)", "$VAR_A)"),
        ("bar-)$", "bar-)$"),
        ("$", "$"),
        ("$$", "$"),
    ],
)
def test_the_kubelets_expansion(text: str, expanded: str) -> None:
    assert kubelet.expand(text, {"VAR_A": "A", "VAR_B": "B"}) == expanded
