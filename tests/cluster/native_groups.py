"""Groups of ``scheduling.k8s.io`` that others make, on a control plane of 1.37 whose kube-scheduler does not know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from builders.manifests import Object
from cluster.workbench import name_of
from localcluster import NATIVE_GROUPS, Cluster, Gates, eventually
from localcluster.programs import ROOT, scheduler_config
from scheduler_trees import node_of

GATE: Final = {"name": "scheduling.covey.dev/gang"}
#: The controllers make groups of Jobs, too; Covey's kube-scheduler has none of it, as by default.
_MORE: Final = {"WorkloadWithJob": True, "DRAWorkloadResourceClaims": True}
GATES: Final = Gates({**NATIVE_GROUPS.features, **_MORE}, NATIVE_GROUPS.runtime_config)
FLAGS: Final = {"kube-scheduler": [f"--feature-gates={','.join(f'{name}=false' for name in GATES.features)}"]}
RIGHTS: Final = ROOT / "manifests" / "components" / "native-groups" / "rights.yaml"
RACK: Final = "cloud.provider.com/topology-rack"
_VERSIONS: Final = {"Workload": "v1beta1", "PodGroup": "v1beta1", "CompositePodGroup": "v1alpha3"}


def start_covey(cluster: Cluster, *flags: str) -> None:
    """Both processes with native groups, and the kube-scheduler of the scheduler process."""
    cluster.start_covey("operator", "--native-groups", *flags)
    cluster.start_scheduler(scheduler_config(cluster.start_covey("scheduler", "--native-groups", *flags)))


def pod_spec(cpu: str = "1", **spec: Any) -> Object:
    """The spec of a pod, or of a template, for Covey: its scheduler, and its gate."""
    container = {"name": "a", "image": "a", "resources": {"requests": {"cpu": cpu}}}
    common = {"schedulerName": "covey-scheduler", "schedulingGates": [GATE], "containers": [container]}
    return {**common, "terminationGracePeriodSeconds": 0, **spec}


@dataclass(frozen=True)
class Foreign:
    """One namespace, where the tests are the controller of somebody else's kind. ``versions`` are those of the groups."""

    cluster: Cluster
    namespace: str
    versions: Mapping[str, str] = field(default_factory=lambda: _VERSIONS)

    def path(self, kind: str, name: str = "") -> str:
        version = self.versions.get(kind)
        group = f"/apis/scheduling.k8s.io/{version}" if version else "/apis/batch/v1" if kind == "Job" else "/api/v1"
        return f"{group}/namespaces/{self.namespace}/{kind.lower()}s" + (f"/{name}" if name else "")

    def make(self, kind: str, name: str, spec: Object, **metadata: Any) -> Object:
        return self.cluster.api("POST", self.path(kind), {"metadata": {"name": name, **metadata}, "spec": spec})

    def gang(self, name: str, minimum: int, parent: str = "", **spec: Any) -> Object:
        """A PodGroup whose minimum is so many pods."""
        above = {"parentCompositePodGroupName": parent} if parent else {}
        reference = {"workloadRef": {"workloadName": "any", "templateName": "any"}}
        policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
        return self.make("PodGroup", name, {**reference, **policy, **above, **spec})

    def composite(self, name: str, minimum: int, parent: str = "", **spec: Any) -> Object:
        """A CompositePodGroup whose minimum is so many groups."""
        above = {"parentCompositePodGroupName": parent} if parent else {}
        reference = {"workloadRef": {"workloadName": "any", "templateName": "any"}}
        policy = {"schedulingPolicy": {"gang": {"minGroupCount": minimum}}}
        return self.make("CompositePodGroup", name, {**reference, **policy, **above, **spec})

    def owner(self, name: str = "owner") -> Object:
        """A controller's reference, of an object that stands for one of another project's kind."""
        made = self.cluster.api("POST", f"/api/v1/namespaces/{self.namespace}/configmaps", {"metadata": {"name": name}})
        uid = made["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": True}

    def pods(self, group: str, count: int, *, cpu: str = "1", **spec: Any) -> list[Object]:
        """Make pods of a group."""
        owners = spec.pop("owners", [])
        body = pod_spec(cpu, schedulingGroup={"podGroupName": group}, **spec)
        return [self.make("Pod", f"{group}-{number}", body, ownerReferences=owners) for number in range(count)]

    def all_pods(self) -> list[Object]:
        return [
            pod
            for pod in self.cluster.api("GET", self.path("Pod"))["items"]
            if not pod["metadata"].get("deletionTimestamp")
        ]

    def of_group(self, group: str) -> list[Object]:
        named = {"podGroupName": group}
        return [pod for pod in self.all_pods() if pod["spec"].get("schedulingGroup") == named]

    def await_bound(self, group: str, count: int, timeout: float = 60) -> list[Object]:
        """Wait until so many pods of a group have nodes."""

        def reached() -> list[Object]:
            bound = [pod for pod in self.of_group(group) if node_of(pod)]
            assert len(bound) == count, f"{len(bound)} of {len(self.of_group(group))} pods of {group} are bound"
            return bound

        return eventually(reached, timeout, f"{count} pods of {group} are bound")

    def racks(self, pods: Sequence[Object]) -> int:
        """How many racks some bound pods lie in."""
        nodes = {name_of(node): node for node in self.cluster.api("GET", "/api/v1/nodes")["items"]}
        return len({nodes[str(node_of(pod))]["metadata"]["labels"][RACK] for pod in pods})

    def conditions(self, name: str, kind: str = "PodGroup") -> dict[str, Object]:
        found = self.cluster.api("GET", self.path(kind, name))
        return {each["type"]: each for each in found.get("status", {}).get("conditions", ())}

    def await_condition(self, name: str, status: str, reason: str, kind: str = "PodGroup") -> str:
        """Wait for the condition Admitted and return its message."""

        def reached() -> Object:
            found = self.conditions(name, kind).get("Admitted", {})
            assert (found.get("status"), found.get("reason")) == (status, reason), str(found)
            return found

        return str(eventually(reached, 60, f"{name}: Admitted={status}/{reason}")["message"])


__all__ = ["FLAGS", "GATES", "RACK", "RIGHTS", "Foreign", "name_of", "pod_spec", "start_covey"]
