"""Manifests and small clusters for the command line's tests, and a way to run it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from builders.pods import pod_body
from covey.cli.main import covey as command

GPU = "nvidia.com/gpu"
EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = json.loads((EXAMPLES.parent / "docs/reference/plan.schema.json").read_text())
Object = dict[str, Any]


def covey(*arguments: object, stdin: str | None = None, env: Mapping[str, str | None] | None = None) -> Result:
    """Run the command in this process, without a terminal."""
    return CliRunner().invoke(command, [str(each) for each in arguments], input=stdin, env=env)


def conforms(document: Any, schema: Any) -> None:
    """See that a document is as a JSON schema says."""
    import jsonschema  # noqa: PLC0415 - it compiles grammars for seconds, in every process that only lists the tests

    jsonschema.validate(document, schema)


def plan(*arguments: object, stdin: str | None = None) -> Any:
    """The JSON answer of `covey plan`, which is as its schema says."""
    result = covey("plan", *arguments, "-o", "json", stdin=stdin)
    assert result.stdout, result.stderr
    answer = json.loads(result.stdout)
    conforms(answer, SCHEMA)
    return answer


def node(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}},
    }


def cluster(*racks: int, blocks: int = 1, gpus: int = 8) -> list[Object]:
    """Nodes of some racks in each block, with the labels of the Kueue preset; rack names come again in each block."""
    return [
        node(
            f"n{block}-{rack}-{number}",
            gpus,
            {"cloud.provider.com/topology-block": f"b{block}", "cloud.provider.com/topology-rack": f"r{rack}"},
        )
        for block in range(blocks)
        for rack, count in enumerate(racks)
        for number in range(count)
    ]


def pod_spec(gpus: int = 8, **more: Any) -> Object:
    devices = {GPU: str(gpus)}
    resources = {"requests": devices, "limits": devices}  # a real API server wants both for devices
    return {"containers": [{"name": "engine", "image": "e", "resources": resources}], **more}


def role(name: str, replicas: int = 1, minimum: int = 1, size: int = 1, gpus: int = 8, **more: Any) -> Object:
    return {
        "name": name,
        "replicas": replicas,
        "minReplicas": minimum,
        "size": size,
        "template": {"spec": pod_spec(gpus)},
        **more,
    }


def inference(name: str, *roles: Object, namespace: str | None = None, **spec: Any) -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": metadata,
        "spec": {**spec, "roles": list(roles)},
    }


def queue(name: str, nominal: int, *, team: str | None = None, **more: Any) -> Object:
    """A Queue of devices for the namespaces of a team; for all where none is named."""
    amounts = {key: more.pop(key) for key in ("borrow", "lend") if key in more}
    flavors = [{"resources": [{"name": GPU, "nominal": nominal, **amounts}]}]
    selector = {"matchLabels": {"team": team}} if team else {}
    spec = {"namespaces": {"selector": selector}, "flavors": flavors, **more}
    return {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def namespace(name: str, **labels: str) -> Object:
    """A Namespace with some labels."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def pod(name: str, node_name: str | None = None, gpus: int = 8, labels: Mapping[str, str] | None = None) -> Object:
    """A pod of so many devices that runs in the namespace default."""
    running = {"phase": "Running"}
    return pod_body(name, namespace="default", labels=labels, node=node_name, spec=pod_spec(gpus), status=running)


def member(workload: str, role_name: str, replica: int, index: int, node_name: str | None, unit: int = 0) -> Object:
    """A pod as the operator has created it."""
    labels = {"inference": workload, "unit": unit, "role": role_name, "replica": replica, "index": index}
    name = f"{workload}-{unit}-{role_name}-{replica}-{index}-abc123"
    return pod(name, node_name, labels={f"covey.dev/{key}": str(value) for key, value in labels.items()})


def write(path: Path, documents: Iterable[Object]) -> Path:
    """A file with a List, as kubectl prints it."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)}))
    return path


def workload(answer: Any, name: str) -> Any:
    (found,) = [each for each in answer["workloads"] if each["name"] == name]
    return found


def roles_of(found: Any, unit: int = 0) -> dict[str, Any]:
    return {each["name"]: each for each in found["units"][unit]["roles"]}


def admitted(found: Any, unit: int = 0) -> dict[str, int]:
    return {name: each["admitted"] for name, each in roles_of(found, unit).items()}
