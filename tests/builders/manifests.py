"""Valid objects of every kind, and ways to break them one field at a time."""

import copy
from collections.abc import Mapping
from typing import Any, Final

from kubernetes.client import ApiException

from engine_commands import SERVE
from localcluster import status_of

Object = dict[str, Any]

#: In place of a value: the field goes.
GONE: Final = object()


def changed(manifest: Object, edits: dict[str, Any]) -> Object:
    """A copy with fields set, added or gone. A path is ``spec.roles.0.size``; missing objects above are made."""
    result = copy.deepcopy(manifest)
    for path, value in edits.items():
        *above, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        node: Any = result
        for step in above:
            node = node[step] if isinstance(step, int) else node.setdefault(step, {})
        if value is GONE:
            del node[last]
        elif isinstance(last, int) and last == len(node):
            node.append(value)
        else:
            node[last] = value
    return result


def template(**spec: Any) -> Object:
    container = {"name": "engine", "image": "registry.test/engine:1", "command": list(SERVE)}
    return {"spec": {"containers": [container], **spec}}


def role(name: str, **fields: Any) -> Object:
    return {"name": name, "template": template(), **fields}


def workers(name: str, *, gpus: int = 8, spec: Mapping[str, Any] | None = None, **fields: Any) -> Object:
    """A role whose pods ask for GPUs and end at once when they are told to."""
    container = {
        "name": "engine",
        "image": "registry.test/engine:1",
        "command": list(SERVE),
        "resources": {"limits": {"nvidia.com/gpu": str(gpus), "cpu": "100m"}},
    }
    made = template(containers=[container], **{"terminationGracePeriodSeconds": 0, **(spec or {})})
    return role(name, **{"template": made, **fields})


def inference(name: str = "llm") -> Object:
    return {
        "apiVersion": "inference.covey.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"roles": [role("prefill", replicas=4, size=2), role("decode", replicas=2, size=4), role("router")]},
    }


_CLUSTER = {"ClusterTopology", "Queue"}


def _scheduling(kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name} if kind in _CLUSTER else {"name": name, "namespace": "default"},
        "spec": spec,
    }


def topology(name: str = "network") -> Object:
    levels = [{"name": level, "keys": [f"example.com/{level}"]} for level in ("zone", "block", "rack")]
    return _scheduling("ClusterTopology", name, {"levels": levels})


def queue(name: str = "search") -> Object:
    amounts = {"name": "nvidia.com/gpu", "nominal": 64, "borrow": 32, "lend": 16}
    return _scheduling("Queue", name, {"cohort": "gpus", "flavors": [{"resources": [amounts]}]})


def composite(name: str = "llm-0") -> Object:
    return _scheduling("CompositePodGroup", name, {"schedulingPolicy": {"gang": {"minGroupCount": 2}}})


def pod_group(name: str = "llm-0-prefill-0") -> Object:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "parentCompositePodGroupName": "llm-0-prefill"}
    return _scheduling("PodGroup", name, spec)


def workload(name: str = "llm") -> Object:
    leaf = {"name": "prefill-replica", "schedulingPolicy": {"gang": {"minCount": 2}}}
    inner = {
        "name": "prefill",
        "schedulingPolicy": {"gang": {"minGroupCount": 1}},
        "podGroupTemplates": [leaf],
    }
    root = {
        "name": "unit",
        "schedulingPolicy": {"gang": {"minGroupCount": 1}},
        "compositePodGroupTemplates": [inner],
    }
    return _scheduling("Workload", name, {"compositePodGroupTemplates": [root]})


def preemption(name: str = "chat-0-1") -> Object:
    victim = {"uid": "1", "kind": "Replica", "namespace": "default", "workload": "batch", "pods": 2}
    beneficiary = {"kind": "CompositePodGroup", "name": "chat-0", "uid": "2"}
    spec = {
        "beneficiary": beneficiary,
        "reason": "Priority",
        "summary": "1 replica of default/batch",
        "victims": [victim],
    }
    return _scheduling("Preemption", name, spec)


def collection(manifest: Object) -> str:
    """The path of the list that an object belongs to."""
    plural = {"ClusterTopology": "clustertopologies"}.get(manifest["kind"], f"{manifest['kind'].lower()}s")
    namespace = manifest["metadata"].get("namespace")
    return f"/apis/{manifest['apiVersion']}/" + (f"namespaces/{namespace}/{plural}" if namespace else plural)


def refusals(error: ApiException) -> list[tuple[str, str]]:
    """Where the API server points, and what it says there."""
    return [(cause["field"], cause["message"]) for cause in status_of(error)["details"]["causes"]]
