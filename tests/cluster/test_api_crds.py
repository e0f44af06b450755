"""The CRDs on the real API server: served, explained, listed, scaled, and what is stored of an object."""

import copy
from typing import Any

import pytest

from builders.manifests import Object, changed, collection, composite, inference, pod_group, topology, workload
from covey.api.crds import KINDS, CustomResource, definition
from covey.api.model import Model
from covey.api.schema import structural
from localcluster import Cluster, eventually

KIND_NAMES = [kind.model.__name__ for kind in KINDS]


def stored(cluster: Cluster, manifest: Object) -> Any:
    """The object as the API server would store it."""
    return cluster.api("POST", f"{collection(manifest)}?dryRun=All&fieldValidation=Strict", manifest)


def test_crds_are_established_and_take_their_names(cluster: Cluster) -> None:
    found = cluster.api("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    for kind in KINDS:
        [crd] = (item for item in found if item["metadata"]["name"] == f"{kind.plural}.{kind.group}")
        conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_short_names_work_and_are_not_taken(cluster: Cluster) -> None:
    resources = [line.split() for line in cluster.kubectl("api-resources", "--no-headers").splitlines()]
    for kind in KINDS:
        owners = [(line[0], line[2]) for line in resources if kind.short_name in line[1].split(",")]
        assert owners == [(kind.plural, f"{kind.group}/v1alpha1")]


@pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES)
def test_every_field_is_explained(cluster: Cluster, kind: CustomResource) -> None:
    text = cluster.kubectl("explain", f"{kind.plural}.{kind.group}.spec", "--recursive")
    for name in structural(kind.model)["properties"]["spec"]["properties"]:
        assert f"  {name}\t" in text


def test_explain_reads_well(cluster: Cluster) -> None:
    text = cluster.kubectl("explain", "dinf.spec.roles.topology")
    assert "KIND:       DisaggregatedInference" in text
    words = " ".join(text.split())
    assert "all pods of a replica lie in one domain of it, or the replica does not start" in words
    assert "followUnit <boolean> False: this role (a CPU router, say) need not lie in the domain of its unit." in words
    assert "A change holds for new pods only." in words


def test_explain_says_what_is_immutable_rolled_and_live(cluster: Cluster) -> None:
    spec = " ".join(cluster.kubectl("explain", "dinf.spec").split())
    assert "Default: Auto. Immutable." in spec
    gang = " ".join(cluster.kubectl("explain", "dinf.spec.gang").split())
    assert "1 to 3600. Default: 300." in gang
    role = " ".join(cluster.kubectl("explain", "dinf.spec.roles").split())
    assert "1 to 999. Default: 1. A change replaces the pods." in role


def test_an_inference_is_stored_with_the_defaults_of_what_is_built_and_nothing_else(cluster: Cluster) -> None:
    manifest = inference()
    spec = stored(cluster, manifest)["spec"]
    # ``minReplicas`` has no stored default: it is 1, and 0 where ``replicas`` is.
    roles = [{"replicas": 1, "size": 1, "topology": {"followUnit": True}} | role for role in manifest["spec"]["roles"]]
    assert spec == {
        "suspend": False,
        "replicas": 1,
        "backend": "Auto",
        "gang": {"timeoutSeconds": 300},
        "compat": {"lws": True},
        "roles": roles,
    }


def test_defaults_below_optional_objects_are_stored_with_them(cluster: Cluster) -> None:
    edits: dict[str, Any] = {
        "spec.spread": {"level": "block"},
        "spec.proximity": [{"roles": ["prefill", "decode"], "level": "rack"}],
        "spec.topology": {},
        "spec.rollout": {},
        "spec.roles.0.restart": {},
        "spec.roles.0.update": {},
        "spec.roles.0.scaling": {},
        "spec.roles.0.network": {"ports": [{"name": "http", "port": 8000}]},
    }
    spec = stored(cluster, changed(inference(), edits))["spec"]
    assert spec["spread"] == {"level": "block", "mode": "Preferred", "maxPerDomain": 1}
    assert spec["proximity"] == [{"roles": ["prefill", "decode"], "level": "rack", "mode": "Preferred"}]
    assert spec["topology"] == {}
    assert spec["rollout"] == {}
    role = spec["roles"][0]
    assert [role[part] for part in ("restart", "update", "scaling")] == [{}, {}, {}]
    assert role["network"] == {"ports": [{"name": "http", "port": 8000, "protocol": "TCP"}]}


@pytest.mark.parametrize(
    "manifest", [inference(), topology(), composite(), pod_group(), workload()], ids=lambda manifest: manifest["kind"]
)
def test_what_is_stored_is_what_the_model_reads_and_writes(cluster: Cluster, manifest: Object) -> None:
    found = stored(cluster, manifest)
    model: type[Model] = next(kind.model for kind in KINDS if kind.model.__name__ == manifest["kind"])
    read = model.model_validate(found)
    again = stored(cluster, manifest | {"spec": read.as_object()["spec"]})
    assert model.model_validate(again).as_object()["spec"] == read.as_object()["spec"]


def test_the_scale_subresource_drives_units(cluster: Cluster, namespace: str) -> None:
    manifest = changed(inference(), {"metadata.namespace": namespace, "spec.suspend": True})
    cluster.apply(manifest)
    path = f"{collection(manifest)}/llm"
    status = {"units": 1, "selector": "covey.dev/inference=llm"}
    cluster.api("PATCH", f"{path}/status", {"status": status}, patch="merge")
    cluster.kubectl("scale", "dinf/llm", "--namespace", namespace, "--replicas=3")
    assert cluster.api("GET", path)["spec"]["replicas"] == 3
    scale = cluster.api("GET", f"{path}/scale")
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 1, "selector": "covey.dev/inference=llm"}
    assert "1000" in cluster.kubectl("scale", "dinf/llm", "--namespace", namespace, "--replicas=1000", check=False)


def test_the_status_is_stored_as_written_and_apart_from_the_spec(cluster: Cluster, namespace: str) -> None:
    manifest = changed(inference(), {"metadata.namespace": namespace, "spec.suspend": True})
    cluster.apply(manifest)
    path = f"{collection(manifest)}/llm"
    status = {
        "roles": [{"name": "prefill", "ready": 1}],
        "unitStatuses": [{"unit": 0, "path": ["zone-1", None, "rack-1"]}],
        "summary": {"ready": "prefill 1/4"},
    }
    cluster.api("PATCH", f"{path}/status", {"status": status, "spec": {"replicas": 7}}, patch="merge")
    found = cluster.api("GET", path)
    assert found["status"] == {"observedGeneration": -1, **status}, "nobody has said which spec it is about"
    assert found["spec"]["replicas"] == 1


def owned_parts(stored: Object) -> Any:
    """What the one who applied the status owns of it."""
    [entry] = [entry for entry in stored["metadata"]["managedFields"] if entry.get("subresource") == "status"]
    return entry["fieldsV1"]["f:status"]


def test_status_when_its_parts_have_become_values_is_replaced_whole_and_owned_by_the_part(cluster: Cluster) -> None:
    """Of a former release, the API server has an owner for every field of every condition."""
    [kind] = [kind for kind in KINDS if kind.plural == "rolescalers"]
    former = definition(kind)
    former["spec"]["group"] = "former.example.com"
    former["spec"]["names"] |= {"shortNames": [], "categories": []}
    former["metadata"]["name"] = "rolescalers.former.example.com"
    marked = copy.deepcopy(former)
    schema = former["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"]["conditions"]["items"]["x-kubernetes-map-type"]
    path = "/apis/former.example.com/v1alpha1/namespaces/default/rolescalers"
    scaler = {"apiVersion": "former.example.com/v1alpha1", "kind": "RoleScaler", "metadata": {"name": "llm"}}
    condition: Object = {
        "type": "Committed",
        "status": "True",
        "reason": "Committed",
        "message": "Committed.",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }

    def tell(*conditions: Object, query: str = "") -> Any:
        body = scaler | {"status": {"conditions": list(conditions)}}
        return cluster.api("PATCH", f"{path}/llm/status?fieldManager=m&force=true{query}", body, patch="apply")

    cluster.apply(former)
    eventually(lambda: cluster.api("POST", path, scaler | {"spec": {"replicas": 1}}))
    before = tell(condition, condition | {"type": "Other"})
    assert "f:message" in owned_parts(before)["f:conditions"]['k:{"type":"Committed"}']
    cluster.apply(marked)
    whole = {"f:conditions": {'k:{"type":"Committed"}': {}}}
    eventually(lambda: owned_parts(tell(condition, query="&dryRun=All")) == whole)
    del condition["observedGeneration"]
    after = tell(condition)
    assert after["status"]["conditions"] == [condition]
    assert owned_parts(after) == whole
    cluster.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{former['metadata']['name']}")


def test_columns_show_the_summary(cluster: Cluster, namespace: str) -> None:
    manifest = changed(inference(), {"metadata.namespace": namespace, "spec.suspend": True})
    cluster.apply(manifest)
    condition = {
        "type": "Admitted",
        "status": "False",
        "reason": "Infeasible",
        "message": "no room",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    summary = {
        "status": "Infeasible",
        "message": "no room for decode",
        "ready": "prefill 3/4 decode 2/2",
        "units": "2/3",
        "updated": "5/6",
        "reason": "no room for decode; and more",
        "domain": "b1",
    }
    status = {"conditions": [condition], "summary": summary}
    cluster.api("PATCH", f"{collection(manifest)}/llm/status", {"status": status}, patch="merge")
    header, row = cluster.kubectl("get", "dinf", "--namespace", namespace).splitlines()
    assert header.split() == ["NAME", "STATUS", "READY", "UNITS", "ADMITTED", "UPDATED", "AGE"]
    assert row.split()[:9] == ["llm", "Infeasible", "prefill", "3/4", "decode", "2/2", "2/3", "False", "5/6"]
    header, row = cluster.kubectl("get", "dinf", "--namespace", namespace, "--output=wide").splitlines()
    assert header.split() == ["NAME", "STATUS", "READY", "UNITS", "ADMITTED", "UPDATED", "DOMAIN", "MESSAGE", "AGE"]
    assert "b1       no room for decode" in row


def test_group_columns_and_the_category(cluster: Cluster, namespace: str) -> None:
    composites = changed(composite("llm-0"), {"metadata.namespace": namespace, "spec.desiredGroupCount": 4})
    leaf = changed(pod_group(), {"metadata.namespace": namespace})
    cluster.apply([composites, leaf, changed(workload(), {"metadata.namespace": namespace})])
    status = {"admitted": 3, "scheduled": 2}
    path = f"{collection(composites)}/llm-0/status"
    cluster.api("PATCH", path, {"status": status}, patch="merge")
    header, row = cluster.kubectl("get", "cvpg", "--namespace", namespace, "--output=wide").splitlines()
    counts = ["MINIMUM", "DESIRED", "PLACED", "BOUND"]
    assert header.split() == ["NAME", *counts, "ADMITTED", "SCHEDULED", "PARENT", "REASON", "MESSAGE", "AGE"]
    assert row.split()[:3] == ["llm-0-prefill-0", "2", "llm-0-prefill"]
    header, row = cluster.kubectl("get", "cvcpg", "--namespace", namespace).splitlines()
    assert row.split()[:5] == ["llm-0", "2", "4", "3", "2"]
    names = cluster.kubectl("get", "covey", "--namespace", namespace, "--output=name").split()
    assert names == [
        "compositepodgroup.scheduling.covey.dev/llm-0",
        "podgroup.scheduling.covey.dev/llm-0-prefill-0",
        "workload.scheduling.covey.dev/llm",
    ]


def test_group_status_is_stored_as_the_scheduler_writes_it(cluster: Cluster, namespace: str) -> None:
    manifest = changed(composite(), {"metadata.namespace": namespace})
    cluster.apply(manifest)
    path = [None, "block-1", "rack-1"]
    status = {
        "admitted": 2,
        "scheduled": 1,
        "placement": [{"level": "rack", "path": path}],
        "claim": {"path": path, "level": "rack", "since": "2026-01-01T00:00:00Z"},
        "excludedNodes": [{"node": "node-1", "reason": "volume", "until": "2026-01-01T00:05:00Z"}],
    }
    cluster.api("PATCH", f"{collection(manifest)}/llm-0/status", {"status": status}, patch="merge")
    assert cluster.api("GET", f"{collection(manifest)}/llm-0")["status"] == status


def test_topology_columns(cluster: Cluster) -> None:
    manifest = changed(topology("api-columns"), {"metadata.annotations": {"scheduling.covey.dev/default": "false"}})
    cluster.apply(manifest)
    try:
        header, row = cluster.kubectl("get", "ctopo", "api-columns").splitlines()
    finally:
        cluster.kubectl("delete", "ctopo", "api-columns")
    assert header.split() == ["NAME", "BROADEST", "FINEST", "DEFAULT", "AGE"]
    assert row.split()[:4] == ["api-columns", "zone", "rack", "false"]
