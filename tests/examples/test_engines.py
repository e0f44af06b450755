"""The start scripts of ``examples/engines`` run with the environment of their own pods, and each replica becomes one engine.

The engines are stand-ins that know the flags which the engines' documentation has (``tests/stand_in_engines.py``).
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import yaml

import stand_in_engines
from cluster.containers import Containers
from cluster.published import Published
from cluster.serving import Serving, replicas
from cluster.workbench import label, name_of
from examples.conftest import Apply, await_ready
from examples.files import EXAMPLES, Object, of_kind
from localcluster import eventually

ENGINES = sorted((EXAMPLES / "engines").glob("*.yaml"))
GPUS = 8


@pytest.fixture
def containers(serving: Serving, tmp_path: pathlib.Path) -> Iterator[Containers]:
    with Containers(tmp_path, Published(serving), programs=stand_in_engines.PROGRAMS) as found:
        yield found


@pytest.mark.usefixtures("racks")
@pytest.mark.parametrize("file", ENGINES, ids=lambda file: file.stem)
def test_every_replica_becomes_one_engine(
    apply: Apply, serving: Serving, containers: Containers, file: pathlib.Path
) -> None:
    apply(file)
    await_ready(serving)
    pods = serving.pods()
    containers.start(pods)
    said = containers.said(pods)
    [inference] = of_kind(file, "DisaggregatedInference")
    roles = {role["name"]: role for role in inference["spec"]["roles"]}
    found = replicas(pods)
    assert len(found) == sum(role["replicas"] for role in roles.values())
    for (_, _, role, _), members in found.items():
        assert len(members) == roles[role].get("size", 1)
        if role == "router":
            [router] = members
            check_router(serving, file, said[router["spec"]["hostname"]])
        else:
            check_group(role, {label(pod, "index"): said[pod["spec"]["hostname"]] for pod in members})


def check_group(role: str, said: dict[str, Object]) -> None:
    """All members know the same group, of which each has the rank of its index, and whose world has all GPUs."""
    names = {index: each["name"] for index, each in said.items()}
    for index, each in said.items():
        assert set(each["members"].values()) == set(names.values())
        assert each["members"]["0"] == names["0"], "rank 0 is the leader"
        assert each.get("rank", int(index)) == int(index)
        assert each.get("gpus", GPUS * len(said)) == GPUS * len(said)
        assert each.get("mode", role) == role
        assert each.get("config", f"/etc/engine/{role}.yaml") == f"/etc/engine/{role}.yaml"
    assert "gpus" in said["0"]
    assert len({each["leader"] for each in said.values() if "leader" in each}) <= 1


def check_router(serving: Serving, file: pathlib.Path, said: Object) -> None:
    """What the router is told leads to the leaders of each role, and to nobody else."""
    for role in ("prefill", "decode"):
        leaders = {name_of(pod) for pod in serving.pods(role=role, index=0)}
        assert leaders
        # Slices are written after the pods are Ready.
        eventually(
            lambda role=role, leaders=leaders: told_pods(serving, file, said, role) == leaders,
            60,
            f"the router is led to the leaders of {role}",
        )


def told_pods(serving: Serving, file: pathlib.Path, said: Object, role: str) -> set[str]:
    match file.stem:
        case "vllm":
            [url] = said[role]
            service, _, rest = url.removeprefix("http://").partition(".")
            assert rest == f"{serving.namespace}:8000"
            return Published(serving).pods(service)
        case "sglang":
            assert said["namespace"] == serving.namespace
            found = serving.kubectl("get", "pods", "--selector", ",".join(said[role]), "--output", "name")
            return {line.removeprefix("pod/") for line in found.split()}
        case _:
            [configuration] = of_kind(file, "ConfigMap")
            router = yaml.safe_load(configuration["data"][pathlib.Path(said["config"]).name])
            [url] = router[{"prefill": "context_servers", "decode": "generation_servers"}[role]]["urls"]
            return Published(serving).pods(url.removesuffix(":8000"))
