"""What nodes have of drivers' devices, to ``covey plan`` and ``covey top``, from what kubectl prints."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from builders.devices import (
    DRIVER,
    GPU,
    Json,
    claim_body,
    class_body,
    device,
    gpus,
    read,
    request_body,
    slice_body,
    wish_body,
)
from builders.files import cluster, covey, inference, plan, pod, role, workload, write
from covey.api import core
from covey.planning.facts import ClusterFacts, with_devices


def nodes_with(*things: Json, count: int = 2) -> list[Json]:
    """Nodes whose GPUs, eight each, come from a driver."""
    nodes = cluster(count)
    for each in nodes:
        each["status"]["allocatable"].pop(GPU)
    names = [each["metadata"]["name"] for each in nodes]
    return [*nodes, *(slice_body(f"slice-{name}", *gpus(8), node=name) for name in names), *things]


def arguments_of(path: Path, nodes: list[Json], *manifests: Json, pods: list[Json] | None = None) -> list[object]:
    found: list[object] = ["-f", write(path / "in.json", manifests), "--nodes", write(path / "nodes.json", nodes)]
    return [*found, "--pods", write(path / "pods.json", pods)] if pods is not None else found


def test_a_pod_is_looked_at_without_a_walk_over_all_claims_and_one_that_has_ended_asks_for_nothing() -> None:
    class Things(tuple[Any, ...]):
        __slots__ = ()
        walks = 0

        def __iter__(self) -> Iterator[Any]:
            Things.walks += 1
            return super().__iter__()

    claim = claim_body("c") | {"spec": wish_body(request_body(3))}
    pod = core.Pod(
        core.Meta(name="p", namespace="ns", uid="u"),
        core.PodSpec(resource_claims=({"name": "r", "resourceClaimName": "c"},)),
    )
    ended = replace(pod, status=core.PodStatus(phase="Failed"))
    facts = ClusterFacts((), (pod,), ())
    devices = with_devices(facts, [read(class_body()), read(claim)]).devices
    assert devices is not None
    seen = dataclasses.replace(devices, things=Things(devices.things))
    (ask,) = seen.asks(pod)
    assert (seen.asks(pod)[ask], Things.walks) == (3, 0)
    assert devices.classes is not None
    assert devices.classes.has_judged(ask)
    gone = with_devices(ClusterFacts((), (ended,), ()), devices.things).devices
    assert gone is not None
    assert gone.classes is not None
    assert not gone.classes.has_judged(ask)


def test_what_others_have_is_missing_and_counted_once(tmp_path: Path) -> None:
    """One device by a claim of its own; two of a pod, whose claim is there as well."""
    name = cluster(1)[0]["metadata"]["name"]
    mine = claim_body("c", *((DRIVER, name, f"gpu-{n}") for n in range(2)), pod="uid-p")
    taken = nodes_with(class_body(), claim_body("other", (DRIVER, name, "gpu-7")), mine, count=1)
    there = pod("p", name, gpus=2)
    there["metadata"]["uid"] = "uid-p"
    fits = plan(*arguments_of(tmp_path, taken, inference("llm", role("w", gpus=5)), pods=[there]))
    assert workload(fits, "llm")["verdict"] == "Admitted"
    refused = plan(*arguments_of(tmp_path, taken, inference("llm", role("w", gpus=6)), pods=[there]))
    assert workload(refused, "llm")["verdict"] == "Infeasible"


SMALL = "device.attributes['gpu.nvidia.com'].type == 'gpu' && device.driver == 'gpu.nvidia.com'"


def template_body(name: str, *requests: Json) -> Json:
    meta = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": meta,
        "spec": {"spec": wish_body(*requests)},
    }


def claiming(name: str, replicas: int = 1) -> Json:
    found = inference("llm", role("w", replicas, replicas, gpus=0))
    claims = [{"name": "r", "resourceClaimTemplateName": name}]
    found["spec"]["roles"][0]["template"]["spec"]["resourceClaims"] = claims
    return found


def test_claims_of_templates_are_planned_and_those_of_pods_that_run_are_counted_once(tmp_path: Path) -> None:
    name = cluster(1)[0]["metadata"]["name"]
    mine = claim_body("p-r", (DRIVER, name, "gpu-0")) | {"spec": wish_body(request_body(1))}
    mine["metadata"]["namespace"] = "default"
    there = pod("p", name, gpus=0)
    there["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": "one"}]
    there["status"] = there.get("status", {}) | {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "p-r"}]}
    nodes = nodes_with(class_body(), mine, template_body("few", request_body(7, SMALL)), count=1)
    fits = plan(*arguments_of(tmp_path, nodes, claiming("few"), pods=[there]))
    assert workload(fits, "llm")["verdict"] == "Admitted"
    assert fits["warnings"] == []
    nodes = nodes_with(class_body(), mine, template_body("few", request_body(4, SMALL)), count=1)
    refused = plan(*arguments_of(tmp_path, nodes, claiming("few", 2), pods=[there]))
    assert workload(refused, "llm")["verdict"] == "Infeasible"


def test_claims_that_cannot_be_counted_or_are_not_known_are_named(tmp_path: Path) -> None:
    nodes = nodes_with(class_body(), template_body("all", request_body(1, allocationMode="All")))
    for name, words in (("all", "allocationMode All"), ("lost", "ResourceClaimTemplate lost is not known")):
        result = covey("plan", *arguments_of(tmp_path, nodes, claiming(name)))
        assert words in result.output + result.stderr


def test_units_that_share_no_clique_are_planned_into_cliques_of_their_own(tmp_path: Path) -> None:
    """Of two such resources the second has no place, and the reason is named; it has where there is another clique."""
    driver, channel = "compute-domain.nvidia.com", "compute-domain-default-channel.nvidia.com"

    def asked(name: str) -> Json:
        return inference(name, role("w", gpus=1, interconnect=True), interconnect={"exclusive": True})

    def answer_for(*cliques: str) -> Any:
        nodes = cluster(len(cliques))
        for each, clique in zip(nodes, cliques, strict=True):
            each["metadata"]["labels"]["nvidia.com/gpu.clique"] = clique
        names = [each["metadata"]["name"] for each in nodes]
        slices = [slice_body(name, device("channel-0", "channel"), node=name, driver=driver) for name in names]
        claims = [template_body(f"{name}-0-interconnect", request_body(of=channel)) for name in ("one", "two")]
        things = [class_body(channel, f"device.driver == '{driver}'", resource=None), *slices, *claims]
        return plan(*arguments_of(tmp_path, [*nodes, *things], asked("one"), asked("two")))

    answer = answer_for("c0", "c0", "c0")
    assert workload(answer, "one")["verdict"] == "Admitted"
    assert workload(answer, "two")["verdict"] == "Infeasible"
    assert "3 exclusive interconnect" in json.dumps(workload(answer, "two"))
    assert workload(answer_for("c0", "c0", "c1"), "two")["verdict"] == "Admitted"


def test_a_class_that_cannot_be_judged_is_named(tmp_path: Path) -> None:
    nodes = nodes_with(class_body(DRIVER, "device.driver.startsWith('gpu')"))
    result = covey("plan", *arguments_of(tmp_path, nodes, inference("llm", role("w"))))
    assert result.exit_code == 2
    assert f"{GPU} is of DeviceClass {DRIVER}, whose selectors Covey cannot judge" in result.stderr
    assert covey("plan", *arguments_of(tmp_path, nodes, inference("llm", role("w", gpus=0)))).exit_code == 0
