"""Workloads of other projects, in the shape of what each of them publishes: the same fields and values, told anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from builders.files import GPU

Object = dict[str, Any]


def container(name: str, gpus: int = 8, **more: Any) -> Object:
    limits = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {"name": name, "image": "engine:1", "resources": limits, **more}


def template(name: str = "engine", gpus: int = 8, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    found: Object = {"spec": {"containers": [container(name, gpus)], **spec}}
    return {"metadata": {"labels": labels}, **found} if labels else found


def leader_worker_set(**spec: Any) -> Object:
    """vLLM over two nodes, as LeaderWorkerSet's own example runs it."""
    leader = template("leader", labels={"role": "leader"}, volumes=[{"name": "dshm", "emptyDir": {"medium": "Memory"}}])
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "vllm"},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {
                "size": 2,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": template("worker"),
            },
            **spec,
        },
    }


def disaggregated_set(**spec: Any) -> Object:
    """Two slices of prefill and decode."""
    roles = [
        {"name": name, "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": size, "workerTemplate": template()}}}
        for name, size in (("prefill", 1), ("decode", 2))
    ]
    return {
        "apiVersion": "disaggregatedset.x-k8s.io/v1",
        "kind": "DisaggregatedSet",
        "metadata": {"name": "pd", "namespace": "default"},
        "spec": {"slices": 2, "roles": roles, **spec},
    }


def role_based_group(**annotations: str) -> Object:
    """A router and two patterns of engines, one of them from a shared template."""
    prefix = "rbg.workloads.x-k8s.io/group-"
    return {
        "apiVersion": "workloads.x-k8s.io/v1alpha2",
        "kind": "RoleBasedGroup",
        "metadata": {
            "name": "sglang",
            "annotations": {f"{prefix}{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "spec": {
            "roleTemplates": [{"name": "base", "template": template("sglang", env=None)}],
            "roles": [
                {
                    "name": "router",
                    "replicas": 1,
                    "standalonePattern": {"template": template("router", gpus=0)},
                    "servicePorts": [{"name": "http", "port": 80, "targetPort": 8000}],
                },
                {
                    "name": "prefill",
                    "replicas": 2,
                    "dependencies": ["router"],
                    "rolloutStrategy": {
                        "type": "RollingUpdate",
                        "rollingUpdate": {"type": "InPlaceIfPossible", "maxUnavailable": 1, "partition": 2},
                    },
                    "leaderWorkerPattern": {
                        "size": 4,
                        "templateRef": {"name": "base"},
                        "leaderTemplatePatch": {
                            "metadata": {"labels": {"role": "leader"}},
                            "spec": {"containers": [{"name": "sglang", "env": [{"name": "ROLE", "value": "leader"}]}]},
                        },
                        "restartPolicyConfig": {"type": "RecreateRoleInstanceOnPodRestart"},
                    },
                },
                {"name": "decode", "replicas": 4, "standalonePattern": {"template": template("decode")}},
            ],
        },
    }


def clique(name: str, replicas: int = 1, gpus: int = 8, **more: Any) -> Object:
    spec = {"roleName": name, "replicas": replicas, "podSpec": {"containers": [container(name, gpus)]}, **more}
    return {"name": name, "spec": spec}


def pod_clique_set(**template_fields: Any) -> Object:
    """A whole pipeline: single pods before, leaders with workers behind."""
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": "pipeline", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "template": {
                "cliques": [
                    clique("frontend", 2, gpus=0),
                    clique("pleader"),
                    clique("pworker", 4),
                    clique("dleader"),
                    clique("dworker", 2),
                ],
                "podCliqueScalingGroups": [
                    {"name": "prefill", "cliqueNames": ["pleader", "pworker"], "replicas": 2},
                    {"name": "decode-cluster", "cliqueNames": ["dleader", "dworker"], "replicas": 1},
                ],
                **template_fields,
            },
        },
    }


def model_serving(**template_fields: Any) -> Object:
    """Prefill twice, of which two are needed, and decode twice, of which one is: an entry and a worker each."""
    roles = [
        {
            "name": name,
            "replicas": 2,
            "entryTemplate": template("leader"),
            "workerReplicas": 1,
            "workerTemplate": template("worker"),
        }
        for name in ("prefill", "decode")
    ]
    return {
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "kind": "ModelServing",
        "metadata": {"name": "sample", "namespace": "default"},
        "spec": {
            "schedulerName": "volcano",
            "replicas": 1,
            "template": {
                "restartGracePeriodSeconds": 60,
                "gangPolicy": {"minRoleReplicas": {"prefill": 2, "decode": 1}},
                "roles": roles,
                **template_fields,
            },
        },
    }


def dynamo_services() -> Object:
    """v1alpha1: services by name, with a pod told in fields of their own."""

    def worker(**more: Any) -> Object:
        command = {"image": "vllm-runtime:1", "command": ["python3", "-m", "dynamo.vllm"], "args": ["--model", "qwen"]}
        return {
            "componentType": "worker",
            "replicas": 1,
            "envFromSecret": "hf-token-secret",
            "multinode": {"nodeCount": 2},
            "resources": {"limits": {"gpu": "8"}},
            "extraPodSpec": {"mainContainer": command},
            **more,
        }

    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "vllm-disagg"},
        "spec": {
            "services": {
                "Frontend": {
                    "componentType": "frontend",
                    "replicas": 1,
                    "extraPodSpec": {"mainContainer": {"image": "vllm-runtime:1"}},
                },
                "VllmDecodeWorker": worker(subComponentType="decode"),
                "VllmPrefillWorker": worker(subComponentType="prefill"),
            }
        },
    }


def dynamo_components(**spec: Any) -> Object:
    """v1beta1: a list of components with pod templates."""
    return {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "vllm-router"},
        "spec": {
            "components": [
                {"name": "Frontend", "type": "frontend", "replicas": 1, "podTemplate": template("main", gpus=0)},
                {"name": "Decode", "type": "decode", "replicas": 2, "podTemplate": template("main")},
                {"name": "Prefill", "type": "prefill", "multinode": {"nodeCount": 2}, "podTemplate": template("main")},
            ],
            **spec,
        },
    }


#: What each of them is called here, and how to make one.
EVERY: dict[str, Callable[[], Object]] = {
    "leader_worker_set": leader_worker_set,
    "disaggregated_set": disaggregated_set,
    "role_based_group": role_based_group,
    "pod_clique_set": pod_clique_set,
    "model_serving": model_serving,
    "dynamo_services": dynamo_services,
    "dynamo_components": dynamo_components,
}
