"""All manifests before the judges: kubeconform with the schemas of a real API server, and kube-score."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from install.chart import CHART, Helm, Object, kustomized, stream
from install.test_chart import MATRIX
from localcluster import Cluster, eventually
from localcluster.binaries import ensure_tool
from localcluster.programs import ROOT

OVERLAYS = ("default", "ha", "existing-scheduler")
#: What kube-score would have otherwise, and why it is so.
ACCEPTED = {
    "pod-networkpolicy": "an option: a cluster's network rules are its owner's",
    "container-image-pull-policy": "released images never change under their tag",
    "deployment-has-host-podantiaffinity": "topologySpreadConstraints spread the pods",
    "deployment-replicas": "one replica is the default; two are an option",
    "container-security-context-user-group-id": "65532, below 10,000, is the user that distroless images have",
    "pod-probes": "kube-scheduler 1.30 has one health endpoint, and nobody is sent to it",
    "pod-probes-identical": "the same",
    "service-targets-pod": "the leader puts the label that the Service selects on its own pod",
}


@pytest.fixture(scope="module")
def schemas(cluster: Cluster, helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JSON schemas of every kind that the API server has, Covey's own included, closed to unknown fields."""
    crds = [each for each in helm.render() if each["kind"] == "CustomResourceDefinition"]
    cluster.apply(crds)
    names = {"PodMonitor", "Certificate", *(each["spec"]["names"]["kind"] for each in crds)}

    def published() -> Object | None:
        definitions = cluster.api("GET", "/openapi/v2")["definitions"]
        kinds = {name.rpartition(".")[2] for name in definitions}
        return definitions if kinds >= names else None

    definitions = eventually(published, 60, "the API server publishes the kinds of all CRDs")
    folder = tmp_path_factory.mktemp("schemas")
    for definition in definitions.values():
        _close(definition)
    (folder / "definitions.json").write_text(json.dumps({"definitions": definitions}))
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            group = kind["group"] or kind["version"]  # as kubeconform sees the core group
            file = folder / f"{kind['kind']}-{group}-{kind['version']}.json".lower()
            file.write_text(json.dumps({"$ref": f"definitions.json#/definitions/{name}"}))
    for crd in crds:
        # Without storage a kind cannot be deleted; with it, its end is waited for: Helm makes it anew.
        path = f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}/{crd['spec']['names']['plural']}"
        eventually(lambda path=path: cluster.api("GET", path), 60, path)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?labelSelector=app.kubernetes.io/part-of=covey"
    cluster.api("DELETE", path)
    eventually(lambda: not cluster.api("GET", path)["items"], 120, "Covey's CRDs are gone")
    return folder


def _close(schema: Any) -> None:
    """No unknown field passes, references lie in the one file, and what may be a number or text may be both."""
    if not isinstance(schema, dict):  # additionalProperties may be a bool
        return
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    if "$ref" in schema:
        schema["$ref"] = f"definitions.json{schema['$ref']}"
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
    for each in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        _close(each)


def conform(objects: list[Object], schemas: Path) -> str:
    command = [
        str(ensure_tool("kubeconform")),
        "-strict",
        "-summary",
        f"-schema-location={schemas}/{{{{.ResourceKind}}}}-{{{{.Group}}}}-{{{{.ResourceAPIVersion}}}}.json",
        "-",
    ]
    # The schema of CRDs refers to itself, and the API server judges them itself.
    judged = [each for each in objects if each["kind"] != "CustomResourceDefinition"]
    done = subprocess.run(command, input=stream(judged), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_chart_and_overlays_conform(offline: Helm, schemas: Path) -> None:
    """All in one go: kubeconform reads the schemas anew each time."""
    rendered = [*map(offline.render, MATRIX.values()), *map(kustomized, OVERLAYS)]
    said = conform([each for objects in rendered for each in objects], schemas)
    assert "Invalid: 0, Errors: 0, Skipped: 0" in said, said


def test_an_unknown_field_does_not_conform(offline: Helm, schemas: Path) -> None:
    objects = [each for each in offline.render() if each["kind"] == "Deployment"]
    objects[0]["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    assert "additional properties 'livenesProbe' not allowed" in conform(objects, schemas)


@pytest.mark.parametrize("values", ["default", "ha", "existing", "watched"])
def test_kube_score(offline: Helm, values: str) -> None:
    ignored = [f"--ignore-test={name}" for name in ACCEPTED]
    command = [
        str(ensure_tool("kube-score")),
        "score",
        "--output-format=ci",
        "--ignore-container-cpu-limit",
        *ignored,
        "-",
    ]
    manifests = stream(offline.render(MATRIX[values]))
    done = subprocess.run(command, input=manifests, capture_output=True, text=True, check=False)
    complaints = [line for line in done.stdout.splitlines() if line.startswith(("[CRITICAL]", "[WARNING]"))]
    assert not complaints, "\n".join(complaints)
    assert "[OK]" in done.stdout


def test_kustomize_and_chart_share_their_crds() -> None:
    listed = yaml.safe_load((CHART / "files" / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(f"crds/{path.name}" for path in (ROOT / "crds").glob("*.yaml"))
