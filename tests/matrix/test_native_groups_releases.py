"""Groups of ``scheduling.k8s.io`` in the forms of earlier releases: read in 1.36, refused by name in 1.35."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

from builders.manifests import Object
from cluster.native_groups import RIGHTS, Foreign, pod_spec, start_covey
from cluster.workbench import is_gated
from localcluster import Cluster, Nodes, eventually, native_groups
from scheduler_trees import node_of
from scrapes import Scrape


@contextmanager
def release(version: str) -> Iterator[Foreign]:
    """A control plane of a release whose kube-scheduler does not know the groups, and Covey, which is to plan them."""
    gates = native_groups(version)
    flags = {"kube-scheduler": [f"--feature-gates={','.join(f'{name}=false' for name in gates.features)}"]}
    with Cluster(kubernetes=version, gates=gates, flags=flags) as cluster:
        cluster.add_nodes(Nodes(nodes=2))
        cluster.install_rbac()
        cluster.install_rbac(RIGHTS)
        start_covey(cluster)
        eventually(lambda: cluster.api("GET", "/api/v1/namespaces/default/serviceaccounts/default"))
        workloads = "v1alpha1" if version == "1.35" else "v1alpha2"
        yield Foreign(cluster, "default", {"PodGroup": "v1alpha2", "Workload": workloads})


def flat(foreign: Foreign, name: str, minimum: int, **spec: Any) -> Object:
    """A PodGroup as 1.36 has it, and the Workload that its API server asks for."""
    policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    foreign.make("Workload", name, {"podGroupTemplates": [{"name": "any", **policy, **spec}]})
    reference = {"workload": {"workloadName": name, "podGroupTemplateName": "any"}}
    return foreign.make("PodGroup", name, {"podGroupTemplateRef": reference, **policy, **spec})


def test_groups_of_136_are_planned_and_say_why_they_wait() -> None:
    with release("1.36") as foreign:
        flat(foreign, "train", 2)
        foreign.pods("train", 1)
        foreign.await_condition("train", "False", "Waiting")
        foreign.make("Pod", "late", pod_spec(schedulingGroup={"podGroupName": "train"}))
        foreign.await_bound("train", 2)
        foreign.await_condition("train", "True", "Admitted")
        flat(foreign, "elsewhere", 1, schedulingConstraints={"topology": [{"key": "example.com/cage"}]})
        foreign.pods("elsewhere", 1)
        assert "example.com/cage" in foreign.await_condition("elsewhere", "False", "InvalidTopology")


def test_groups_of_135_are_refused_by_name_on_their_pods_and_hold_up_nobody() -> None:
    with release("1.35") as foreign:
        cluster = foreign.cluster
        group = {"name": "workers", "policy": {"gang": {"minCount": 2}}}
        foreign.make("Workload", "train", {"podGroups": [group]})
        reference = {"name": "train", "podGroup": "workers", "podGroupReplicaKey": "0"}
        for name in ("a", "b"):
            foreign.make("Pod", name, pod_spec(workloadRef=reference))
        own = {"metadata": {"name": "own"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
        kind = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "PodGroup"}
        cluster.api("POST", "/apis/scheduling.covey.dev/v1alpha1/namespaces/default/podgroups", kind | own)
        foreign.make("Pod", "own", pod_spec(), labels={"scheduling.covey.dev/pod-group": "own"})

        def told() -> bool:
            path = "/apis/events.k8s.io/v1/namespaces/default/events"
            found = {each["regarding"]["name"]: each for each in cluster.api("GET", path)["items"]}
            assert found.keys() >= {"a", "b"}, sorted(found)
            assert {found[name]["reason"] for name in ("a", "b")} == {"Unsupported"}
            return "names workers of Workload train" in found["a"]["note"]

        eventually(told, 60, "both are refused by name")
        with urlopen(cluster.processes["covey-scheduler"].metrics_url) as answer:
            assert Scrape.parse(answer.read().decode())("covey_pods_of_unread_groups") == 2
        eventually(lambda: node_of(cluster.api("GET", foreign.path("Pod", "own"))), 60, "Covey's own is bound")
        assert all(is_gated(cluster.api("GET", foreign.path("Pod", name))) for name in ("a", "b"))
