"""DynamoGraphDeployment of both versions."""

from typing import Any

import pytest

from builders.conversions import roles, said
from covey.convert import convert
from foreign_workloads import Object, container, dynamo_components, dynamo_services


def main(role: Object) -> Any:
    (found,) = (each for each in role["template"]["spec"]["containers"] if each["name"] == "main")
    return found


def service(document: Object, **more: Any) -> Object:
    document["spec"]["services"]["VllmDecodeWorker"] |= more
    return document


def component(document: Object, **more: Any) -> Object:
    document["spec"]["components"][1] |= more
    return document


def test_services_are_roles_of_one_unit() -> None:
    found = convert(dynamo_services())
    shapes = {name: (each["replicas"], each["minReplicas"], each["size"]) for name, each in roles(found).items()}
    assert shapes == {"frontend": (1, 1, 1), "vllm-decode-worker": (1, 1, 2), "vllm-prefill-worker": (1, 1, 2)}
    assert found.body["spec"]["replicas"] == 1
    assert "it is called vllm-decode-worker" in {remark.instead for remark in found.remarks}


def test_a_pod_of_fields_becomes_a_template() -> None:
    document = service(
        dynamo_services(),
        envs=[{"name": "A", "value": "1"}],
        resources={
            "limits": {"gpu": "4", "gpuType": "gpu.intel.com/xe", "cpu": "8", "custom": {"rdma/ib": "1"}},
            "requests": {"memory": "1Gi"},
        },
        livenessProbe={"httpGet": {"path": "/live", "port": 9090}},
        extraPodMetadata={"labels": {"team": "x"}},
        annotations={"note": "y"},
        volumeMounts=[{"name": "models", "mountPoint": "/models"}],
        sharedMemory={"size": "16Gi"},
    )
    document["spec"] |= {
        "pvcs": [{"name": "models", "create": False}],
        "envs": [{"name": "A", "value": "0"}, {"name": "B", "value": "2"}],
    }
    extra = document["spec"]["services"]["VllmDecodeWorker"]["extraPodSpec"]
    extra |= {"nodeSelector": {"gpu": "h100"}, "containers": [{"name": "side", "image": "s"}], "schedulerName": "kai"}
    found = convert(document)
    template = roles(found)["vllm-decode-worker"]["template"]
    assert template["metadata"]["labels"] == {
        "team": "x",
        "nvidia.com/dynamo-component-type": "worker",
        "nvidia.com/dynamo-sub-component-type": "decode",
    }
    assert template["metadata"]["annotations"] == {"note": "y"}
    assert template["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert [each["name"] for each in template["spec"]["containers"]] == ["main", "side"]
    engine = main(roles(found)["vllm-decode-worker"])
    assert engine["image"] == "vllm-runtime:1"
    assert engine["env"] == [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]
    assert engine["envFrom"] == [{"secretRef": {"name": "hf-token-secret"}}]
    assert engine["livenessProbe"] == {"httpGet": {"path": "/live", "port": 9090}}
    assert engine["resources"] == {
        "limits": {"gpu.intel.com/xe": "4", "cpu": "8", "rdma/ib": "1"},
        "requests": {"memory": "1Gi"},
    }
    assert engine["volumeMounts"] == [
        {"name": "models", "mountPath": "/models"},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
    ]
    assert template["spec"]["volumes"] == [
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
    ]
    assert "spec.services.VllmDecodeWorker.extraPodSpec.schedulerName" in said(found)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"autoscaling": {"enabled": True}}, "autoscaling"),
        ({"ingress": {"enabled": True}}, "ingress"),
        ({"modelRef": {"name": "m"}}, "modelRef"),
        ({"dynamoNamespace": "x"}, "dynamoNamespace"),
        ({"volumeMounts": [{"name": "cache", "useAsCompilationCache": True}]}, "volumeMounts[0].useAsCompilationCache"),
    ],
)
def test_what_only_dynamo_does_is_named(change: Object, path: str) -> None:
    assert f"spec.services.VllmDecodeWorker.{path}" in said(convert(service(dynamo_services(), **change)))


def test_components_are_roles_with_the_template_s_own_words() -> None:
    found = convert(
        dynamo_components(env=[{"name": "A", "value": "1"}], labels={"team": "x"}, priorityClassName="high")
    )
    shapes = {name: (each["replicas"], each["minReplicas"], each["size"]) for name, each in roles(found).items()}
    assert shapes == {"frontend": (1, 1, 1), "decode": (2, 1, 1), "prefill": (1, 1, 2)}
    assert found.body["spec"]["priorityClassName"] == "high"
    decode = roles(found)["decode"]
    assert decode["template"]["metadata"]["labels"] == {"team": "x", "nvidia.com/dynamo-component-type": "decode"}
    assert main(decode) == container("main", env=[{"name": "A", "value": "1"}])


def test_domains_of_the_graph_and_of_components() -> None:
    document = dynamo_components(topologyConstraint={"clusterTopologyName": "racks", "packDomain": "block"})
    for each in document["spec"]["components"][1:]:
        each["topologyConstraint"] = {"packDomain": "rack"}
    found = convert(document)
    assert found.body["spec"]["topology"] == {"required": "block"}
    assert found.body["spec"]["proximity"] == [{"roles": ["decode"], "level": "rack", "mode": "Required"}]
    assert roles(found)["prefill"]["topology"] == {"required": "rack"}
    assert "no ClusterTopology racks" in said(found)["spec.topologyConstraint.clusterTopologyName"]


@pytest.mark.parametrize(
    ("cache", "remarked"), [({"pvcName": "c", "mountPath": "/c"}, False), ({"pvcName": "c"}, True)]
)
def test_a_cache_is_mounted_where_its_path_is_told(cache: Object, remarked: bool) -> None:  # noqa: FBT001 - a parameter of the test
    found = convert(component(dynamo_components(), compilationCache=cache))
    assert ("volumeMounts" in main(roles(found)["decode"])) is not remarked
    assert ("spec.components[1].compilationCache" in said(found)) is remarked


def test_claims_are_made_by_hand() -> None:
    document = dynamo_services()
    document["spec"]["pvcs"] = [
        {"name": "m", "create": True, "size": "1Ti", "storageClass": "s", "volumeAccessMode": "RWX"}
    ]
    assert "create the PersistentVolumeClaim yourself" in said(convert(document))["spec.pvcs[0]"]


@pytest.mark.parametrize(
    ("adapter", "scaled"), [({}, True), ({"enabled": True}, True), ({"enabled": False}, False), (None, False)]
)
def test_an_adapter_scales_from_outside(
    adapter: Object | None,
    scaled: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("covey.convert.draft.unsupported_fields", lambda _: [])
    found = roles(convert(component(dynamo_components(), scalingAdapter=adapter)))
    assert (found["decode"].get("scaling") == {"mode": "External"}) is scaled
