"""What kustomize does to a Deployment it does to a DisaggregatedInference, with the two files of ``manifests/kustomize``."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from builders.manifests import inference
from install.chart import Object, parse
from kustomize_schema import FILE, make_schema
from localcluster import Cluster
from localcluster.binaries import ensure
from localcluster.programs import ROOT

NAMES: Final = ROOT / "manifests" / "kustomize" / "covey-names.yaml"


def container(name: str) -> Object:
    """A container with all that it can name."""
    return {
        "name": name,
        "image": f"registry.test/{name}:1",
        "env": [
            {"name": "SETTING", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "MODEL"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "TOKEN"}}},
        ],
        "envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "tokens"}}],
        "ports": [{"containerPort": 8000}],
    }


POD: Final[Object] = {
    "serviceAccountName": "engine",
    "imagePullSecrets": [{"name": "tokens"}],
    "containers": [container("engine"), container("proxy")],
    "initContainers": [container("fetch")],
    "volumes": [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "tokens", "secret": {"secretName": "tokens"}},
        {
            "name": "both",
            "projected": {"sources": [{"configMap": {"name": "settings"}}, {"secret": {"name": "tokens"}}]},
        },
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
    ],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
}
#: In an overlay: one field of one container, one more, one that goes, a volume by its name, and a list that has no key.
PATCH: Final[Object] = {
    "containers": [
        {"name": "engine", "env": [{"name": "TOKEN", "$patch": "delete"}, {"name": "MORE", "value": "yes"}]},
        {"name": "proxy", "$patch": "delete"},
        {"name": "exporter", "image": "registry.test/exporter:1"},
    ],
    "volumes": [{"name": "models", "persistentVolumeClaim": None, "emptyDir": {}}],
    "tolerations": [{"operator": "Exists"}],
}


def deployment(spec: Object) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm"},
        "spec": {"template": {"spec": spec}},
    }


def resource(prefill: Object, **more: Object) -> Object:
    """A resource with two roles, of which one has a template for leaders, too."""
    made = inference()
    del made["metadata"]["namespace"]
    roles = [{"name": "prefill", "template": {"spec": prefill}, **more}]
    return made | {"spec": {"roles": roles}}


def whole() -> Object:
    made = resource(copy.deepcopy(POD), leaderTemplate={"spec": copy.deepcopy(POD)})
    made["spec"]["roles"].append({"name": "decode", "replicas": 3, "template": {"spec": copy.deepcopy(POD)}})
    return made


def others() -> list[Object]:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "engine"}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"}, "spec": {}}
    return [account, claim, deployment(copy.deepcopy(POD))]


def write(folder: Path, kustomization: Object, **files: list[Object]) -> Path:
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    for name, objects in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(objects))
    return folder


def build(folder: Path) -> dict[str, Object]:
    """What kustomize makes, by kind."""
    command = [str(ensure()["kubectl"]), "kustomize", str(folder)]
    made = parse(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {item["kind"]: item for item in made}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A resource and a Deployment of the same pods, with what these name."""
    kustomization: Object = {
        "resources": ["all.yaml"],
        "configurations": [NAMES.name],
        "configMapGenerator": [{"name": "settings", "literals": ["MODEL=llama"]}],
        "secretGenerator": [{"name": "tokens", "literals": ["TOKEN=abc"]}],
        "images": [{"name": "registry.test/engine", "newTag": "2"}],
        "namePrefix": "team-",
    }
    folder = write(tmp_path / "base", kustomization, all=[whole(), *others()])
    shutil.copy(NAMES, folder)
    return folder


def test_names_and_images_in_templates_are_those_of_a_deployment(base: Path) -> None:
    made = build(base)
    wanted = made["Deployment"]["spec"]["template"]["spec"]
    assert wanted["volumes"][0]["configMap"]["name"] == made["ConfigMap"]["metadata"]["name"] != "team-settings"
    assert wanted["containers"][0]["image"] == "registry.test/engine:2"
    prefill, decode = made["DisaggregatedInference"]["spec"]["roles"]
    for template in (prefill["template"], prefill["leaderTemplate"], decode["template"]):
        assert template["spec"] == wanted


def test_names_outside_of_templates_follow_what_they_name(tmp_path: Path) -> None:
    made = resource({"containers": [], "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]})
    made["spec"] |= {"queue": "search", "priorityClassName": "online", "topology": {"name": "network"}}
    target = {"apiVersion": made["apiVersion"], "kind": made["kind"], "name": "llm"}
    named: list[Object] = [
        {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "search"}},
        {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "network"}},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "online"}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "gpus"}},
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "llm"},
            "spec": {"scaleTargetRef": target},
        },
    ]
    kustomization: Object = {"resources": ["all.yaml"], "configurations": [NAMES.name], "namePrefix": "team-"}
    folder = write(tmp_path / "base", kustomization, all=[made, *named])
    shutil.copy(NAMES, folder)
    built = build(folder)
    spec = built["DisaggregatedInference"]["spec"]
    assert (spec["queue"], spec["priorityClassName"], spec["topology"]["name"]) == (
        "team-search",
        "team-online",
        "team-network",
    )
    assert spec["roles"][0]["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == "team-gpus"
    assert built["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "team-llm"


def test_a_patch_of_one_role_is_that_of_a_deployment_and_leaves_the_other(base: Path, tmp_path: Path) -> None:
    patches: list[Object] = [
        {"patch": yaml.safe_dump(resource(PATCH, replicas=4, leaderTemplate={"spec": PATCH}))},  # type: ignore[arg-type] # any field of a role
        {"patch": yaml.safe_dump(deployment(PATCH))},
    ]
    kustomization: Object = {"resources": ["../base"], "openapi": {"path": FILE.name}, "patches": patches}
    overlay = write(tmp_path / "overlay", kustomization)
    shutil.copy(FILE, overlay)
    before, after = build(base), build(overlay)
    plain = write(tmp_path / "plain", {"resources": ["../base"], "patches": patches[1:]})
    # Kubernetes' kinds are patched as by the schema that kustomize brings.
    wanted = build(plain)["Deployment"]
    assert after["Deployment"] == wanted
    assert [item["name"] for item in wanted["spec"]["template"]["spec"]["containers"]] == ["engine", "exporter"]
    prefill, decode = after["DisaggregatedInference"]["spec"]["roles"]
    assert prefill["replicas"] == 4
    assert prefill["template"]["spec"] == prefill["leaderTemplate"]["spec"] == wanted["spec"]["template"]["spec"]
    assert decode == before["DisaggregatedInference"]["spec"]["roles"][1]


def test_the_schema_is_that_of_the_control_plane(cluster: Cluster) -> None:
    """After another release of Kubernetes or a change of the CRDs: ``make kustomize-schema``."""
    assert json.loads(FILE.read_text()) == make_schema(cluster.api("GET", "/openapi/v2"))
