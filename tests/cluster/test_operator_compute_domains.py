"""ComputeDomains on a real API server: there before their pods, gone after the last of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders.manifests import Object, role
from cluster.compute_domains import DEFINITION, GROUP, Controller
from cluster.workbench import OWNED, Workbench, name_of
from localcluster import Cluster, Process, eventually
from localcluster.programs import ROOT

RIGHTS = ROOT / "manifests" / "components" / "compute-domains" / "rights.yaml"


@pytest.fixture(scope="module")
def operator(cluster: Cluster) -> Iterator[Process]:
    """The operator, with the switch and the rights for it."""
    cluster.install_rbac(ROOT / "manifests" / "base" / "rbac", RIGHTS)
    cluster.apply([DEFINITION])
    try:
        yield cluster.start_covey("operator", "--compute-domains")
    finally:
        cluster.stop_all()
        cluster.kubectl("delete", "-f", str(RIGHTS), check=False)
        cluster.kubectl("delete", "crd", f"computedomains.{GROUP}", check=False)


@pytest.fixture
def bench(cluster: Cluster, operator: Process, namespace: str) -> Workbench:
    if not operator.alive:
        operator.start()
    return Workbench(cluster, namespace)


@pytest.fixture
def controller(bench: Workbench) -> Iterator[Controller]:
    made = Controller(bench.cluster, bench.namespace)
    with made.running():
        yield made


def roles(decode: int = 2) -> list[Object]:
    return [role("prefill", replicas=1), role("decode", replicas=decode, size=2, minReplicas=1, interconnect=True)]


def await_domains(controller: Controller, *names: str) -> None:
    eventually(lambda: sorted(map(name_of, controller.all())) == sorted(names), 60, f"domains {names}")


def claims(pod: Object) -> list[str]:
    return [each["resourceClaimTemplateName"] for each in pod["spec"].get("resourceClaims", ())]


def test_one_for_each_unit_before_its_pods_and_gone_after_them(bench: Workbench, controller: Controller) -> None:
    bench.create(*roles(), interconnect={"type": "ComputeDomain"}, replicas=2)
    pods = bench.await_pods(10)
    await_domains(controller, "llm-0", "llm-1")
    made = {name_of(each): each["metadata"]["creationTimestamp"] for each in controller.all()}
    for pod in pods:
        unit, joins = pod["metadata"]["labels"]["covey.dev/unit"], "decode" in pod["spec"]["hostname"]
        assert claims(pod) == ([f"llm-{unit}-interconnect"] if joins else [])
        used = pod["spec"]["containers"][0].get("resources", {}).get("claims", [])
        assert used == ([{"name": "covey-interconnect"}] if joins else [])
        assert made[f"llm-{unit}"] <= pod["metadata"]["creationTimestamp"]
    kept = next(pod for pod in pods if pod["spec"]["hostname"] == "1-decode-0-0")
    bench.cluster.api("PATCH", bench.path("Pod", name_of(kept)), {"metadata": {"finalizers": ["covey.test/keep"]}})
    bench.change({"replicas": 1})
    bench.await_pods(5)
    assert sorted(map(name_of, controller.all())) == ["llm-0", "llm-1"]
    bench.cluster.api("PATCH", bench.path("Pod", name_of(kept)), {"metadata": {"finalizers": None}})
    await_domains(controller, "llm-0")


def test_one_for_each_replica_through_a_scale_down(bench: Workbench, controller: Controller) -> None:
    bench.create(*roles(), interconnect={"scope": "Replica"})
    bench.await_pods(5)
    await_domains(controller, "llm-0-decode-0", "llm-0-decode-1")
    bench.change({"roles": roles(decode=1)})
    bench.await_pods(3)
    eventually(lambda: len(controller.all()) == 1, 60, "one domain")


def test_a_killed_operator_leaves_nothing_twice(bench: Workbench, controller: Controller, operator: Process) -> None:
    bench.create(*roles(), interconnect={"scope": "Replica"})
    eventually(controller.all, 60, "a domain")
    operator.kill()
    operator.start()
    bench.await_pods(5)
    await_domains(controller, "llm-0-decode-0", "llm-0-decode-1")


@pytest.mark.usefixtures("controller")
def test_denied_domains_keep_only_their_own_pods(bench: Workbench) -> None:
    hard = {"count/computedomains.resource.nvidia.com": "0"}
    bench.cluster.api("POST", bench.path("ResourceQuota"), {"metadata": {"name": "none"}, "spec": {"hard": hard}})
    quota = bench.path("ResourceQuota", "none")
    eventually(lambda: "hard" in bench.cluster.api("GET", quota).get("status", {}), 60, "the quota counts")
    bench.create(*roles(), interconnect={"scope": "Replica"})
    bench.create(role("decode"), name="other")
    bench.await_pods(1, inference="other")
    eventually(lambda: "computedomains" in str(bench.get("DisaggregatedInference", "llm")["status"]), 60, "the denial")
    assert not [pod for pod in bench.pods(inference="llm") if claims(pod)]
    bench.cluster.api("DELETE", quota)
    bench.await_pods(5, inference="llm")


def test_switched_off_it_is_refused_by_name(cluster: Cluster, bench: Workbench, operator: Process) -> None:
    operator.kill()
    other = cluster.start_covey("operator", name="plain")
    try:
        bench.create(*roles(), interconnect={})
        assert "computeDomains" in bench.await_condition("Admitted", "False", "Unsupported")
        assert not bench.pods()
    finally:
        other.kill()


def test_without_the_kind_it_is_refused_by_name_and_nothing_is_made(
    cluster: Cluster, bench: Workbench, operator: Process
) -> None:
    operator.kill()
    cluster.kubectl("delete", "crd", f"computedomains.{GROUP}")
    try:
        operator.start()
        bench.create(*roles(), interconnect={})
        assert "install NVIDIA's DRA driver" in bench.await_condition("Admitted", "False", "Unsupported")
        assert not [each for kind in OWNED for each in bench.owned(kind)]
    finally:
        cluster.apply([DEFINITION])
    with Controller(bench.cluster, bench.namespace).running():
        assert len(bench.await_pods(5)) == 5
