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
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import kubelet
from builders.manifests import Object
from cluster.containers import Containers
from cluster.published import Published
from cluster.serving import AddNodes, Serving, replicas, serves, serving, workers
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


@pytest.fixture
def containers(serving: Serving, tmp_path: pathlib.Path) -> Iterator[Containers]:
    image = "/vllm-workspace/examples/online_serving"
    with Containers(tmp_path, Published(serving), {image: str(tmp_path / "bin")}) as found:
        if script := os.environ.get("COVEY_VLLM_SCRIPT"):
            shutil.copy(script, tmp_path / "bin" / "multi-node-serving.sh")
        yield found


def with_command(role: Object, command: Sequence[str], leader: Sequence[str] | None = None) -> Object:
    """The role with these commands; the leader's goes into a template of its own."""
    if leader is not None:
        role["leaderTemplate"] = json.loads(json.dumps(role["template"]))
        role["leaderTemplate"]["spec"]["containers"][0]["command"] = list(leader)
    role["template"]["spec"]["containers"][0]["command"] = list(command)
    return role


def run(serving: Serving, containers: Containers, role: Object) -> list[Object]:
    """Create a role of two replicas, run its pods, and check that each replica has become one group."""
    serving.create(role)
    count = role["replicas"] * role["size"]
    serving.await_bound(count)
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    pods = serving.pods()
    containers.start(pods)
    groups = {name: said["members"] for name, said in containers.said(pods).items()}
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
    serving: Serving, containers: Containers, nodes: AddNodes, subdomain: str
) -> None:
    nodes(blocks=1, racks=2, nodes=3)
    role = with_command(workers("decode", replicas=2, size=3, network={"subdomain": subdomain}), SGLANG)
    own: list[dict[str, Any]] = [{"name": "MASTER", "value": "tcp://$(LWS_LEADER_ADDRESS):5000/$(UNKNOWN)/$$(HOME)"}]
    role["template"]["spec"]["containers"][0]["env"] = own
    pods = run(serving, containers, role)
    for pod in pods:
        told = environment_of(pod)
        # A variable of the user's may use those that come first.
        assert told["MASTER"] == f"tcp://{told['LWS_LEADER_ADDRESS']}:5000/$(UNKNOWN)/$(HOME)"
        assert list(told)[:3] == ["LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"]


def test_vllm_on_ray_as_leaderworkerset_documents_it(serving: Serving, containers: Containers, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=2, nodes=3)
    role = workers("decode", replicas=2, size=3)
    run(serving, containers, with_command(role, ["sh", "-c", VLLM_WORKER], ["sh", "-c", VLLM_LEADER]))


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
def test_the_containers_expansion(text: str, expanded: str) -> None:
    assert kubelet.expand(text, {"VAR_A": "A", "VAR_B": "B"}) == expanded
