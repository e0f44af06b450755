"""Groups written by hand for kube-scheduler alone, in the form that each release has, without Covey's operator.

They show what Kubernetes' own gang scheduling does by itself, and so why Covey holds pods back where it uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from builders.manifests import Object
from cluster.serving import RACK
from cluster.workbench import uid_of
from matrix.bench import Bench
from matrix.history import Need

_API: Final = "/apis/scheduling.k8s.io/{}/namespaces/{}/{}"
_GANG: Final = "llm"
#: Most of a node's.
CORES: Final = "100"


class Groups:
    """The groups of one gang: pods, of which a minimum must start, by name; all in one rack each when asked for."""

    def __init__(self, bench: Bench, groups: Mapping[str, tuple[int, int]], *, in_racks: bool = False) -> None:
        self._bench = bench
        self._groups = groups
        self._topology = {"schedulingConstraints": {"topology": [{"key": RACK}]}} if in_racks else {}
        self._owner: Object = {}

    def create(self) -> None:
        """Create everything while no scheduler runs: what it does is then no race."""
        bench = self._bench
        bench.needs[_GANG] = {name: Need(1, minimum) for name, (_, minimum) in self._groups.items()}
        scheduler = bench.cluster.processes["kube-scheduler"]
        scheduler.stop()
        try:
            self._own()
            {"1.37": self._tree, "1.36": self._flat}[bench.column.version]()
            self._pods()
        finally:
            scheduler.start()
            bench.view.touch()

    def _own(self) -> None:
        made = self._bench.cluster.api(
            "POST", f"/api/v1/namespaces/{self._bench.namespace}/configmaps", {"metadata": {"name": "owner"}}
        )
        self._owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid_of(made)}

    def _tree(self) -> None:
        root: dict[str, Any] = {"schedulingPolicy": {"gang": {"minGroupCount": len(self._groups)}}}
        template = {"name": "unit", "podGroupTemplates": self._templates(), **root}
        self._post("v1beta1", "workloads", _GANG, {"compositePodGroupTemplates": [template]})
        reference = {"workloadRef": {"workloadName": _GANG, "templateName": "unit"}}
        self._post("v1alpha3", "compositepodgroups", _GANG, root | reference)
        for each in self._templates():
            name = each.pop("name")
            reference = {"workloadRef": {"workloadName": _GANG, "templateName": name}}
            self._post("v1beta1", "podgroups", name, each | reference | {"parentCompositePodGroupName": _GANG})

    def _flat(self) -> None:
        self._post("v1alpha2", "workloads", _GANG, {"podGroupTemplates": self._templates()})
        for each in self._templates():
            name = each.pop("name")
            reference = {"workload": {"workloadName": _GANG, "podGroupTemplateName": name}}
            self._post("v1alpha2", "podgroups", name, each | {"podGroupTemplateRef": reference})

    def _templates(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "schedulingPolicy": {"gang": {"minCount": minimum}}, **self._topology}
            for name, (_, minimum) in self._groups.items()
        ]

    def _pods(self) -> None:
        for name, (count, _) in self._groups.items():
            for number in range(count):
                self._pod(name, number)

    def _pod(self, group: str, number: int) -> None:
        limits = {"nvidia.com/gpu": "8", "cpu": CORES}
        container = {"name": "engine", "image": "registry.test/engine:1", "resources": {"limits": limits}}
        spec = {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            "schedulingGroup": {"podGroupName": group},
        }
        marks = {"inference": _GANG, "unit": "0", "role": group, "replica": str(number), "index": "0"}
        metadata = {
            "name": f"{group}-{number}",
            "labels": {f"covey.dev/{key}": value for key, value in marks.items()},
            "ownerReferences": [self._owner],
        }
        self._bench.cluster.api("POST", self._bench.path("Pod"), {"metadata": metadata, "spec": spec})

    def _post(self, version: str, plural: str, name: str, spec: Object) -> None:
        path = _API.format(version, self._bench.namespace, plural)
        metadata = {"name": name, "ownerReferences": [self._owner]}
        self._bench.cluster.api("POST", path, {"metadata": metadata, "spec": spec})
