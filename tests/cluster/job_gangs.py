"""Jobs as gangs on a real control plane: the policies of the component ``jobs``, and requests about Jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from kubernetes.client import ApiException

from builders.manifests import Object
from cluster.workbench import Workbench, name_of
from localcluster import Cluster, eventually
from localcluster.programs import ROOT
from scheduler_trees import node_of

#: What ``-gang-job-labels covey.dev/gang=true`` puts on a Job, and on the Job only.
LABELS = {"covey.dev/gang": "true"}
FILES = (
    *(ROOT / "manifests" / "components" / "jobs" / name for name in ("policies.yaml", "rights.yaml")),
    ROOT / "manifests" / "base" / "admission-policy.yaml",
)


def policies() -> list[Object]:
    """The objects of the component, and the policy for pods that every installation has."""
    return [each for file in FILES for each in yaml.safe_load_all(file.read_text())]


def job(name: str, pods: int, labels: Object | None = None, *, cpu: str = "100m", **spec: Any) -> Object:
    """A Job as ``TestGangScheduling`` makes it: parallelism = completions, ``sleep 5``, labels on the Job only."""
    container = {
        "name": "worker",
        "image": "busybox",
        "command": ["sleep", "5"],
        "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}},
    }
    template = {
        "metadata": {"labels": {"job-name": name}},
        "spec": {"restartPolicy": spec.pop("restartPolicy", "Never"), "containers": [container], **spec.pop("pod", {})},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": LABELS if labels is None else labels},
        "spec": {"parallelism": pods, "completions": pods, "template": template, **spec},
    }


@dataclass(frozen=True)
class Jobs(Workbench):
    """One namespace; operator, scheduler process and kube-scheduler run."""

    def post(self, body: Object, query: str = "") -> Object:
        return self.cluster.api("POST", f"/apis/batch/v1/namespaces/{self.namespace}/jobs{query}", body)

    def read(self, name: str) -> Object:
        return self.cluster.api("GET", f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}")

    def patch(self, name: str, spec: Object) -> None:
        self.cluster.api("PATCH", f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}", {"spec": spec})

    def end(self, name: str) -> None:
        path = f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}?propagationPolicy=Background"
        self.cluster.api("DELETE", path)

    def pods_of(self, name: str) -> list[Object]:
        """Live pods of a Job."""
        return [pod for pod in self.pods() if pod["metadata"]["labels"].get("job-name") == name]

    def await_job_pods(self, name: str, count: int) -> list[Object]:
        def there() -> tuple[list[Object]]:
            pods = self.pods_of(name)
            assert len(pods) == count, f"{len(pods)} pods"
            return (pods,)

        (pods,) = eventually(there, 90, f"{count} pods of {name}")
        return pods

    def await_complete(self, name: str, timeout: float = 120) -> Object:
        """Wait until a Job is Complete, as long as the conformance test does."""

        def complete() -> Object:
            found = self.read(name)
            conditions = {each["type"]: each["status"] for each in found["status"].get("conditions", ())}
            waiting = [name_of(pod) for pod in self.pods_of(name) if not node_of(pod)]
            assert conditions.get("Complete") == "True", f"{found['status']}, without nodes: {waiting}"
            return found

        return eventually(complete, timeout, f"{name} is complete")

    def await_refusal(self, name: str) -> str:
        """Wait until the scheduler process says that a Job's gang has no place; returns its words."""

        def refused() -> str:
            conditions = {each["type"]: each for each in self.get("PodGroup", name)["status"]["conditions"]}
            assert conditions["Admitted"]["reason"] == "Infeasible", conditions["Admitted"]
            return str(conditions["Admitted"]["message"])

        return eventually(refused, 90, f"{name} is refused")


def without_identity(stored: Object) -> Object:
    """An object without the fields that differ between two creations of the same manifest."""
    text = yaml.safe_dump(stored).replace(stored["metadata"]["uid"], "UID")
    found: Object = yaml.safe_load(text)
    for field in ("creationTimestamp", "managedFields", "resourceVersion"):
        found["metadata"].pop(field, None)
    return found


def is_in_force(cluster: Cluster) -> bool:
    """The API server takes a policy over a moment after it was made, the one that refuses perhaps before the one that sets."""
    path = "/apis/batch/v1/namespaces/default/jobs?dryRun=All"
    try:
        made = cluster.api("POST", path, job("probe", 1))
    except ApiException:
        return False
    return "schedulingGates" in made["spec"]["template"]["spec"]
