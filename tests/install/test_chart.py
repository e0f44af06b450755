"""The chart as text: what it makes for which values, that it agrees with Covey's own code, and what it refuses."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.processes import containers_of, started_with
from covey.api import core
from covey.api.structs import model_of_struct
from covey.placement.cluster.presets import PRESETS
from install.chart import CHART, SERVED, Helm, HelmError, Object, find, kustomized, parse
from localcluster.binaries import ensure
from localcluster.programs import ROOT

#: Values as people combine them; every option is in one of them.
MATRIX: dict[str, dict[str, Any]] = {
    "default": {},
    "ha": {"replicas": 2},
    "namespaced": {"watchNamespaces": ["team-a", "team-b"]},
    "existing": {"replicas": 2, "scheduler": {"mode": "Existing"}},
    "existing-single": {"scheduler": {"mode": "Existing", "extender": {"allowSingleReplica": True}}},
    "existing-cert-manager": {
        "replicas": 2,
        "scheduler": {"mode": "Existing", "extender": {"tls": {"source": "CertManager"}}},
    },
    "existing-issuer": {
        "replicas": 2,
        "scheduler": {
            "mode": "Existing",
            "extender": {
                "port": 9443,
                "tls": {"source": "CertManager", "issuerRef": {"kind": "ClusterIssuer", "name": "company"}},
            },
        },
    },
    "watched": {
        "metrics": {
            "monitor": "PodMonitor",
            "labels": {"release": "prometheus"},
            "rules": {"enabled": True},
            "dashboard": {"enabled": True},
        },
        "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
        "topology": {"preset": "gke"},
    },
    "service-monitor": {
        "metrics": {
            "monitor": "ServiceMonitor",
            "rules": {
                "labels": {"role": "alerts"},
                "enabled": True,
                "runbookUrl": "https://docs.example.com/covey/operations/alerts/",
            },
        }
    },
    "ui": {
        "ui": {"enabled": True, "port": 9443, "memoryMiB": 1024},
        "networkPolicy": {"enabled": True, "uiFrom": [{"podSelector": {"matchLabels": {"app": "oauth2-proxy"}}}]},
    },
    "existing-closed": {
        "replicas": 2,
        "scheduler": {"mode": "Existing"},
        "networkPolicy": {"enabled": True, "apiServerCIDRs": ["10.96.0.1/32", "fd00::1/128"]},
    },
    "placed": {
        "imagePullSecrets": [{"name": "registry"}],
        "image": {"repository": "registry.test/covey", "digest": f"sha256:{'0' * 64}"},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "env": [{"name": "COVEY_LOG_FORMAT", "value": "console"}],
        "podLabels": {"team": "platform"},
        "podAnnotations": {"example.com/scrape": "no"},
        "commonLabels": {"cost-center": "7"},
        "priorityClassName": "",
        "admissionPolicy": {"exemptGroups": []},
        "log": {"level": "debug", "format": "console"},
        "scheduler": {
            "name": "gangs",
            "reserveAfter": "10m",
            "maxHold": "1m",
            "kubeScheduler": {"args": ["--v=4"], "image": {"digest": f"sha256:{'1' * 64}"}},
        },
    },
    "bare": {
        "crds": {"install": False},
        "admissionPolicy": {"enabled": False},
        "rbac": {"aggregate": False},
        "backends": ["Extender"],
    },
    "volcano": {"backends": ["Extender", "Volcano"]},
    "native": {"backends": ["Extender", "Kubernetes"], "watchNamespaces": ["team-a"]},
}


@pytest.fixture(scope="module", params=MATRIX)
def rendered(request: pytest.FixtureRequest, offline: Helm) -> list[Object]:
    """The objects for these values, to be looked at alone."""
    return offline.render(MATRIX[request.param])


def test_rights_on_kubernetes_own_groups_only_where_that_backend_is_enabled(offline: Helm) -> None:
    def groups(values: Object) -> set[str]:
        found = [each for each in offline.render(values) if each["kind"] in {"Role", "ClusterRole"}]
        mine = [each for each in found if each["metadata"]["name"] == "covey-operator"]
        return {group for each in mine for rule in each["rules"] for group in rule["apiGroups"]}

    assert "scheduling.k8s.io" not in groups({})
    assert "scheduling.k8s.io" in groups(MATRIX["native"])


def pod_specs(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    for each in objects:
        if each["kind"] == "Deployment":
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def test_arguments_of_the_chart_when_a_process_starts_are_settings(offline: Helm) -> None:
    everything_on = {
        "gangs": {"jobs": True, "native": True, "leaderWorkerSets": True},
        "computeDomains": True,
        "routing": {"inferencePools": True},
        "evictionResponder": {"enabled": False},
        "capacity": {"provider": "ProvisioningRequest"},
        "preemption": {"ordinaryPods": "Evict"},
        "operator": {"evacuationTaints": ["team"]},
    }
    for values in (*MATRIX.values(), everything_on):
        containers = containers_of(offline.render(values))
        assert len(containers) == 2 + ("ui" in values)
        for container in containers:
            assert started_with(container["args"]), container["args"]


def test_lint(offline: Helm) -> None:
    assert "0 chart(s) failed" in offline.run("lint", str(CHART), "--strict", "--kube-version=1.37.1")


def test_every_value_has_a_description_in_the_schema_or_a_type_and_a_default() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def compare(schema: Object, value: Any, path: str) -> None:
        if "properties" not in schema:
            return
        assert schema["additionalProperties"] is False, path
        # What was taken out is refused by a sentence, which needs the schema to let it pass.
        known = {
            name for name, inner in schema["properties"].items() if "Taken out" not in inner.get("description", "")
        }
        assert known - {"global"} == set(value) or not value, path
        for name, inner in schema["properties"].items():
            if name in value:
                compare(inner, value[name], f"{path}.{name}")

    compare(schema, values, "")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"replica": 2}, "additional properties 'replica' not allowed"),
        ({"replicas": 0}, "at '/replicas'"),
        (
            {"scheduler": {"kubeScheduler": {"image": {"digest": "latest"}}}},
            "at '/scheduler/kubeScheduler/image/digest'",
        ),
        ({"backends": ["Kueue"]}, "value must be one of 'Extender', 'Kubernetes', 'Volcano'"),
        ({"scheduler": {"mode": "existing"}}, "at '/scheduler/mode'"),
        ({"scheduler": {"mode": "Existing"}}, "scheduler.mode Existing needs 2 or more"),
        ({"scheduler": {"reserveAfter": "soon"}}, "at '/scheduler/reserveAfter'"),
        ({"scheduler": {"consolidation": {"level": "rack"}}}, "the metric of moves was taken out"),
        ({"scheduler": {"directSchedulerName": "direct"}}, "binding without kube-scheduler was taken out"),
        ({"watchNamespaces": ["Team A"]}, "at '/watchNamespaces/0'"),
        ({"admissionPolicy": {"exemptGroups": ["system:authenticated"]}}, "at '/admissionPolicy/exemptGroups/0'"),
        ({"admissionPolicy": {"exemptGroups": ["it's"]}}, "at '/admissionPolicy/exemptGroups/0'"),
        ({"ui": {"port": 8080}}, "at '/ui/port'"),
        ({"scheduler": {"extender": {"port": 8081}}}, "at '/scheduler/extender/port'"),
        ({"networkPolicy": {"apiServerCIDRs": ["10.0.0.1"]}}, "at '/networkPolicy/apiServerCIDRs/0'"),
        (
            {"networkPolicy": {"enabled": True}, "metrics": {"monitor": "PodMonitor"}},
            "networkPolicy.metricsFrom: metrics.monitor has Prometheus scrape both processes, and nobody may reach them",
        ),
        ({"topology": {"preset": "gcp"}}, 'there is no preset "gcp"; use one of aws, coreweave, gke'),
    ],
)
def test_a_wrong_value_is_refused_by_name(offline: Helm, values: Object, sentence: str) -> None:
    with pytest.raises(HelmError, match=re.escape(sentence)):
        offline.render(values)


def test_a_cluster_that_is_too_old_is_refused(offline: Helm) -> None:
    with pytest.raises(HelmError, match=r"requires kubeVersion: >=1.30"):
        offline.render(version="1.29.14")


@pytest.mark.parametrize(
    ("version", "image"),
    [("1.30.14", "v1.30.14"), ("v1.33.4-gke.1245", "v1.33.4"), ("v1.35.0+k3s1", "v1.35.0"), ("v1.37.1", "v1.37.1")],
)
def test_kube_scheduler_is_of_the_clusters_version(offline: Helm, version: str, image: str) -> None:
    [_, spec] = [spec for name, spec in pod_specs(offline.render(version=version))]
    [kube_scheduler] = [each for each in spec["containers"] if each["name"] == "kube-scheduler"]
    assert kube_scheduler["image"] == f"registry.k8s.io/kube-scheduler:{image}"


def test_every_image_can_be_named_by_its_digest(offline: Helm) -> None:
    specs = [spec for _, spec in pod_specs(offline.render(MATRIX["placed"]))]
    assert {container["image"] for spec in specs for container in spec["containers"]} == {
        f"registry.test/covey@sha256:{'0' * 64}",
        f"registry.k8s.io/kube-scheduler@sha256:{'1' * 64}",
    }


def test_presets_are_those_that_covey_detects() -> None:
    presets = yaml.safe_load((CHART / "files" / "topologies.yaml").read_text())
    expected = {
        preset.name: [
            {"name": level.name, "keys": list(level.keys)} | ({"optional": True} if level.optional else {})
            for level in preset.levels
        ]
        for preset in PRESETS
    }
    assert presets == expected


@pytest.mark.parametrize("preset", [preset.name for preset in PRESETS])
def test_a_preset_becomes_the_default_topology(offline: Helm, preset: str) -> None:
    first = find(offline.render({"topology": {"preset": preset}}), "ClusterTopology", "default")
    assert model_of_struct(core.ClusterTopology).model_validate(first)
    assert first["metadata"]["annotations"]["helm.sh/hook"] == "post-install"
    flag = f"--api-versions={SERVED}"
    later = find(offline.render({"topology": {"preset": preset}}, flag), "ClusterTopology", "default")
    assert "helm.sh/hook" not in later["metadata"]["annotations"]
    assert later["spec"] == first["spec"]


@pytest.mark.parametrize("values", [{}, MATRIX["existing"], {"scheduler": {"name": "gangs"}}])
def test_kube_schedulers_configuration_is_what_covey_prints(offline: Helm, values: Object) -> None:
    objects = offline.render(values)
    spec = dict(pod_specs(objects))["covey-scheduler"]
    [covey] = [each for each in spec["containers"] if each["name"] == "covey"]
    command = [sys.executable, "-m", "covey", *covey["args"], "--print-scheduler-config"]
    said = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT / "operator")}, capture_output=True, text=True, check=True
    )
    printed = yaml.safe_load(said.stdout)
    data = find(objects, "ConfigMap", "covey-scheduler")["data"]
    if "scheduler.yaml" in data:
        assert yaml.safe_load(data["scheduler.yaml"]) == printed
    else:
        assert yaml.safe_load(data["extenders.yaml"])["extenders"] == printed["extenders"]


def test_replicas_that_a_whole_cluster_asks_share_no_host(offline: Helm) -> None:
    def apart(values: Object, component: str) -> list[str]:
        spread = dict(pod_specs(offline.render(values)))[component]["topologySpreadConstraints"]
        return [each["topologyKey"] for each in spread if each["whenUnsatisfiable"] == "DoNotSchedule"]

    assert apart(MATRIX["existing"], "covey-scheduler") == ["kubernetes.io/hostname"]
    assert apart(MATRIX["existing"], "covey-operator") == []
    assert apart(MATRIX["ha"], "covey-scheduler") == []


def test_every_replica_guards_and_one_binds_gangs(offline: Helm) -> None:
    objects = offline.render(MATRIX["existing"])
    active = "scheduling.covey.dev/extender"
    assert active not in find(objects, "Service", "covey-scheduler-guard")["spec"]["selector"]
    assert find(objects, "Service", "covey-scheduler-extender")["spec"]["selector"][active] == "active"


def test_a_quota_never_holds_for_the_systems_own_pods(offline: Helm) -> None:
    def quotas(*flags: str) -> int:
        return sum(each["kind"] == "ResourceQuota" for each in offline.render({}, *flags))

    assert quotas() == 1
    assert quotas("--namespace=kube-system") == 0


def test_a_network_policy_lets_nobody_in_who_is_not_named(offline: Helm) -> None:
    def doors(values: Object, component: str) -> dict[str, Any]:
        spec = find(offline.render(values), "NetworkPolicy", f"covey-{component}")["spec"]
        [out] = spec["egress"]
        opened = {each["port"]: rule.get("from") for rule in spec["ingress"] for each in rule["ports"]}
        return opened | {"to": [each["ipBlock"]["cidr"] for each in out.get("to", ())]}

    everyone = None
    closed = {"networkPolicy": {"enabled": True}, "ui": {"enabled": True}}
    assert doors(closed, "ui") == {"to": []}
    assert doors(closed, "operator") == {"health": everyone, "to": []}
    assert doors(closed, "scheduler") == {"health": everyone, "scheduler": everyone, "to": []}
    assert doors(MATRIX["existing-closed"], "scheduler") == {
        "health": everyone,
        "extender": everyone,
        "to": ["10.96.0.1/32", "fd00::1/128"],
    }
    assert doors(MATRIX["watched"], "operator")["metrics"] == [{"namespaceSelector": {}}]
    assert doors(MATRIX["ui"], "ui")["ui"] == MATRIX["ui"]["networkPolicy"]["uiFrom"]


def test_the_notes_say_that_any_address_can_be_reached(offline: Helm) -> None:
    def notes(policy: Object) -> str:
        given = {"networkPolicy": policy}
        return offline.run("install", "covey", str(CHART), "--dry-run=client", values=given).partition("NOTES:")[2]

    assert "reach any address on the ports 443, 6443" in notes({"enabled": True})
    assert "any address" not in notes({"enabled": True, "apiServerCIDRs": ["10.96.0.1/32"]})
    assert "any address" not in notes({})


def test_the_notes_say_what_resources_must_say(offline: Helm) -> None:
    values = {"watchNamespaces": ["team-a", "team-b"], "scheduler": {"name": "gangs"}}
    command = ("install", "covey", str(CHART), "--dry-run=client")
    plain, special = (offline.run(*command, values=each).partition("NOTES:")[2] for each in ({}, values))
    assert "schedulerName" not in plain
    assert "apply -f examples" in plain
    assert "kubectl covey release-budgets -A" in plain
    assert "spec.schedulerName: gangs" in special
    assert "apply -n team-a -f examples" in special
    assert "team-a, team-b" in special


def test_rights_are_few(rendered: list[Object]) -> None:
    rules = [rule for each in rendered if each["kind"] in {"Role", "ClusterRole"} for rule in each["rules"]]
    assert rules
    for rule in rules:
        assert "*" not in json.dumps(rule)
        assert not {"secrets", "roles", "clusterroles", "serviceaccounts/token"} & set(rule["resources"])
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_pods_are_restricted_and_read_only(rendered: list[Object]) -> None:
    specs = dict(pod_specs(rendered))
    assert specs.keys() - {"covey-ui"} == {"covey-operator", "covey-scheduler"}
    for spec in specs.values():
        assert spec["securityContext"]["runAsNonRoot"]
        assert not spec.get("hostNetwork")
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"]
            assert not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {"requests", "limits"} <= container["resources"].keys()
            assert "livenessProbe" in container


def test_everything_carries_the_common_labels(offline: Helm) -> None:
    for each in offline.render(MATRIX["placed"]):
        if each["kind"] != "CustomResourceDefinition":
            assert each["metadata"]["labels"]["cost-center"] == "7", each["metadata"]["name"]


def test_a_packaged_chart_is_the_chart(offline: Helm, tmp_path: Path) -> None:
    offline.run("package", str(CHART), f"--destination={tmp_path}")
    [archive] = tmp_path.glob("covey-*.tgz")
    assert offline.render(chart=archive) == offline.render()


def test_crds_are_kept(offline: Helm) -> None:
    crds = [each for each in offline.render() if each["kind"] == "CustomResourceDefinition"]
    assert len(crds) == 8
    own = {
        each["metadata"]["name"]: each
        for each in map(yaml.safe_load, (path.read_text() for path in (ROOT / "crds").glob("*.yaml")))
    }
    for crd in crds:
        annotations = crd["metadata"].pop("annotations")
        assert annotations == {"helm.sh/resource-policy": "keep"}
        assert crd == own[crd["metadata"]["name"]]


@pytest.mark.parametrize(
    ("overlay", "values"),
    [("default", {}), ("ha", {"replicas": 2}), ("existing-scheduler", MATRIX["existing"])],
)
def test_the_overlays_make_what_the_chart_makes(offline: Helm, overlay: str, values: Object) -> None:
    chart = comparable(offline.render(values))
    manifests = comparable([each for each in kustomized(overlay) if each["kind"] != "Namespace"])
    assert manifests.keys() == chart.keys()
    for key, expected in chart.items():
        assert manifests[key] == expected, key


def comparable(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """Objects by kind and name, without what only Helm or only kustomize adds."""
    ours = ("app.kubernetes.io/managed-by", "helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version")
    for each in objects:
        metadata = each["metadata"]
        if each["kind"] != "Deployment" or "instance" not in str(each["spec"]["selector"]):
            metadata["labels"] = {key: value for key, value in metadata["labels"].items() if key not in ours}
        else:
            for key in ours:
                metadata["labels"].pop(key, None)
            # kustomize's users restart kube-scheduler themselves.
            each["spec"]["template"]["metadata"]["annotations"].pop("covey.dev/scheduler-config", None)
            for container in each["spec"]["template"]["spec"]["containers"]:
                container["ports"].sort(key=lambda port: port["name"])
        annotations = {key: value for key, value in metadata.pop("annotations", {}).items() if "helm.sh" not in key}
        metadata |= {"annotations": annotations} if annotations else {}
        if each["kind"] == "ConfigMap":
            each["data"] = {name: yaml.safe_load(text) for name, text in each["data"].items()}
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@pytest.mark.parametrize("backend", ["Kubernetes", "Volcano"])
def test_the_component_for_a_backend_has_what_the_chart_adds(offline: Helm, tmp_path: Path, backend: str) -> None:
    def rights(values: Object) -> list[Object]:
        roles = [each for each in offline.render(values) if each["kind"] == "ClusterRole"]
        return [rule for each in roles if "operator" in each["metadata"]["name"] for rule in each["rules"]]

    without = rights({})
    added = [rule for rule in rights({"backends": ["Extender", backend]}) if rule not in without]
    manifests = [
        each for each in composed(tmp_path, backend.lower()) if each["metadata"]["name"].startswith("covey-operator")
    ]
    assert find(manifests, "ClusterRole", f"covey-operator-{backend.lower()}")["rules"] == added
    assert added
    spec = find(manifests, "Deployment", "covey-operator")["spec"]["template"]["spec"]
    assert spec["containers"][0]["args"][-1] == f"--backends=Extender,{backend}"


def test_only_where_ordinary_pods_give_way_the_operator_may_evict(offline: Helm, tmp_path: Path) -> None:
    def rights(values: Object) -> list[Object]:
        roles = [each for each in offline.render(values) if each["kind"] == "ClusterRole"]
        return [rule for each in roles if "operator" in each["metadata"]["name"] for rule in each["rules"]]

    without = rights({})
    assert not [rule for rule in without if "pods/eviction" in rule["resources"]]
    values = {"preemption": {"ordinaryPods": "Evict"}}
    added = [rule for rule in rights(values) if rule not in without]
    manifests = composed(tmp_path, "ordinary-pods")
    assert find(manifests, "ClusterRole", "covey-operator-ordinary-pods")["rules"] == added
    assert {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]} in added
    for objects in (offline.render(values), manifests):
        spec = find(objects, "Deployment", "covey-scheduler")["spec"]["template"]["spec"]
        (covey,) = (each for each in spec["containers"] if each["name"] == "covey")
        flags = [each for each in covey["args"] if each.startswith("--preempt-ordinary-pods=")]
        assert flags[-1] == "--preempt-ordinary-pods=Evict"


@pytest.mark.parametrize("provider", ["ProvisioningRequest", "CapacityBuffer"])
def test_only_where_nodes_are_asked_for_the_operator_may_ask(offline: Helm, tmp_path: Path, provider: str) -> None:
    def rights(values: Object) -> list[Object]:
        roles = [each for each in offline.render(values) if each["kind"] == "ClusterRole"]
        return [rule for each in roles if "operator" in each["metadata"]["name"] for rule in each["rules"]]

    plural, component = {
        "ProvisioningRequest": ("provisioningrequests", "provisioning-requests"),
        "CapacityBuffer": ("capacitybuffers", "capacity-buffers"),
    }[provider]
    without = rights({})
    assert not [rule for rule in without if {"podtemplates", plural} & set(rule["resources"])]
    values = {"capacity": {"provider": provider}}
    added = [rule for rule in rights(values) if rule not in without]
    manifests = composed(tmp_path, component)
    assert find(manifests, "ClusterRole", f"covey-operator-{component}")["rules"] == added
    assert sorted(each for rule in added for each in rule["resources"]) == sorted(["podtemplates", plural])
    flags = {}
    for objects in (offline.render({}), offline.render(values), manifests):
        spec = find(objects, "Deployment", "covey-operator")["spec"]["template"]["spec"]
        args = spec["containers"][0]["args"]
        flags[len(flags)] = [each for each in args if each.startswith("--capacity-provider=")]
    assert flags == {0: [], 1: [f"--capacity-provider={provider}"], 2: [f"--capacity-provider={provider}"]}


def test_only_where_it_is_switched_on_the_operator_may_write_inference_pools(offline: Helm, tmp_path: Path) -> None:
    values: Object = {"routing": {"inferencePools": True}}
    manifests = composed(tmp_path, "inference-pools")
    before, after = ([each for each in offline.render(each) if each["kind"] == "ClusterRole"] for each in ({}, values))
    known = [rule for each in before for rule in each["rules"]]
    added = [rule for each in after for rule in each["rules"] if rule not in known]
    assert [rule["resources"] for rule in added] == [["inferencepools"]]
    assert find(manifests, "ClusterRole", "covey-operator-inference-pools")["rules"] == added
    flags = []
    for objects in (offline.render({}), offline.render(values), manifests):
        spec = find(objects, "Deployment", "covey-operator")["spec"]["template"]["spec"]
        flags.append("--inference-pools" in spec["containers"][0]["args"])
    assert flags == [False, True, True]


def test_operator_when_it_answers_no_evictions_has_no_rights_to_them(offline: Helm) -> None:
    on, off = offline.render({}), offline.render({"evictionResponder": {"enabled": False}})
    rights, flags = [], []
    for objects in (on, off):
        rules = [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]]
        rights.append([(rule["resources"], rule["verbs"]) for rule in rules if "lifecycle.k8s.io" in rule["apiGroups"]])
        spec = find(objects, "Deployment", "covey-operator")["spec"]["template"]["spec"]
        flags.append("--eviction-responder=false" in spec["containers"][0]["args"])
    assert rights == [[(["evictions"], ["get", "list", "watch"]), (["evictions/status"], ["patch"])], []]
    assert flags == [False, True]


def test_gangs_of_jobs_are_an_option_of_chart_and_manifests(offline: Helm, tmp_path: Path) -> None:
    """Policies, rights and a flag: nothing of it is there by default, and both ways make the same."""
    without, served = offline.render(), offline.render({"gangs": {"jobs": True}})
    names = {(each["kind"], each["metadata"]["name"]) for each in without}
    added = [each for each in served if (each["kind"], each["metadata"]["name"]) not in names]
    wanted = {"covey-jobs", "covey-queued-jobs", "covey-account-jobs", "covey-job-gangs"}
    assert {each["metadata"]["name"] for each in added} == wanted
    manifests = composed(tmp_path, "jobs")
    for each in added:
        other = find(manifests, each["kind"], each["metadata"]["name"])
        assert [without_folds(each.get(key)) for key in ("spec", "rules", "roleRef", "subjects")] == [
            without_folds(other.get(key)) for key in ("spec", "rules", "roleRef", "subjects")
        ]
    before, after = (find(objects, "ClusterRole", "covey-operator")["rules"] for objects in (without, served))
    own = find(manifests, "ClusterRole", "covey-operator-jobs")["rules"]
    assert own == [rule for rule in after if rule not in before]
    assert own == [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch", "patch"]}]
    for objects, is_on in ((without, False), (served, True), (manifests, True)):
        spec = find(objects, "Deployment", "covey-operator")["spec"]["template"]["spec"]
        assert ("--job-gangs" in spec["containers"][0]["args"]) is is_on


def test_native_groups_are_an_option_of_chart_and_manifests(offline: Helm, tmp_path: Path) -> None:
    """Rights of the scheduler process and a flag of both: nothing of it is there by default."""
    without, served = offline.render(), offline.render({"gangs": {"native": True}})
    names = [sorted((each["kind"], each["metadata"]["name"]) for each in objects) for objects in (without, served)]
    assert names[0] == names[1]
    manifests = composed(tmp_path, "native-groups")
    before, after = (find(objects, "ClusterRole", "covey-scheduler")["rules"] for objects in (without, served))
    own = find(manifests, "ClusterRole", "covey-scheduler-native-groups")["rules"]
    kinds = ["compositepodgroups", "podgroups"]
    assert own == [rule for rule in after if rule not in before]
    assert own == [
        {"apiGroups": ["scheduling.k8s.io"], "resources": kinds, "verbs": ["list", "watch"]},
        {"apiGroups": ["scheduling.k8s.io"], "resources": [f"{kind}/status" for kind in kinds], "verbs": ["patch"]},
    ]
    for objects, is_on in ((without, False), (served, True), (manifests, True)):
        for process in ("operator", "scheduler"):
            spec = find(objects, "Deployment", f"covey-{process}")["spec"]["template"]["spec"]
            args = next(each["args"] for each in spec["containers"] if each["name"] == "covey")
            assert ("--native-groups" in args) is is_on


@pytest.mark.parametrize(
    "gates", ["GenericWorkload=true", "X=false,GenericWorkload=True", "AllAlpha=true", "AllBeta=1"]
)
def test_a_kube_scheduler_that_would_plan_native_groups_too_is_refused(offline: Helm, gates: str) -> None:
    scheduler = {"kubeScheduler": {"args": [f"--feature-gates={gates}"]}}
    with pytest.raises(HelmError, match=r"with gangs\.native the groups are Covey's"):
        offline.render({"gangs": {"native": True}, "scheduler": scheduler})
    assert offline.render({"scheduler": scheduler})
    without = {"kubeScheduler": {"args": ["--feature-gates=AllBeta=true,GenericWorkload=false"]}}
    assert offline.render({"gangs": {"native": True}, "scheduler": without})


def test_gangs_of_leader_worker_sets_are_an_option_of_chart_and_manifests(offline: Helm, tmp_path: Path) -> None:
    without, served = offline.render(), offline.render({"gangs": {"leaderWorkerSets": True}})
    names = {(each["kind"], each["metadata"]["name"]) for each in without}
    added = [each for each in served if (each["kind"], each["metadata"]["name"]) not in names]
    assert {each["metadata"]["name"] for each in added} == {"covey-leader-worker-sets"}
    manifests = composed(tmp_path, "leader-worker-sets")
    for each in added:
        other = find(manifests, each["kind"], each["metadata"]["name"])
        assert [without_folds(each.get(key)) for key in ("spec", "rules", "roleRef", "subjects")] == [
            without_folds(other.get(key)) for key in ("spec", "rules", "roleRef", "subjects")
        ]
    rules = [find(objects, "ClusterRole", "covey-operator")["rules"] for objects in (without, served, manifests)]
    assert rules[0] == rules[1] == rules[2]
    for objects, is_on in ((without, False), (served, True), (manifests, True)):
        spec = find(objects, "Deployment", "covey-operator")["spec"]["template"]["spec"]
        assert ("--leader-worker-sets" in spec["containers"][0]["args"]) is is_on
    with pytest.raises(HelmError, match=r"gangs\.leaderWorkerSets needs Kubernetes 1\.36"):
        offline.render({"gangs": {"leaderWorkerSets": True}}, version="1.35.4")


def test_compute_domains_are_an_option_of_chart_and_manifests(offline: Helm, tmp_path: Path) -> None:
    """Rights and a flag: nothing of it is there by default, and both ways make the same."""
    without, served = offline.render(), offline.render({"computeDomains": True})
    manifests = composed(tmp_path, "compute-domains")
    before, after = (find(objects, "ClusterRole", "covey-operator")["rules"] for objects in (without, served))
    own = find(manifests, "ClusterRole", "covey-operator-compute-domains")["rules"]
    assert own == [rule for rule in after if rule not in before]
    assert [rule["resources"] for rule in own] == [["computedomains"]]
    for objects, is_on in ((without, False), (served, True), (manifests, True)):
        spec = find(objects, "Deployment", "covey-operator")["spec"]["template"]["spec"]
        assert ("--compute-domains" in spec["containers"][0]["args"]) is is_on


def test_before_kubernetes_136_nothing_is_set_on_jobs_and_what_they_lack_is_refused(offline: Helm) -> None:
    objects = offline.render({"gangs": {"jobs": True}}, version="1.35.4")
    assert not [each for each in objects if each["kind"].startswith("MutatingAdmissionPolicy")]
    assert find(objects, "ValidatingAdmissionPolicy", "covey-jobs")


def without_folds(value: Any) -> Any:
    """Texts without differences of white space."""
    if isinstance(value, dict):
        return {key: without_folds(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_folds(inner) for inner in value]
    return " ".join(value.split()) if isinstance(value, str) else value


def test_the_ui_is_a_deployment_of_its_own_without_any_identity(offline: Helm, tmp_path: Path) -> None:
    without, served = offline.render(), offline.render({"ui": {"enabled": True}})
    roles = [[each for each in objects if "Role" in each["kind"]] for objects in (without, served)]
    assert roles[0] == roles[1]
    assert not [each for each in without if each["metadata"]["name"] == "covey-ui"]
    for objects in (served, composed(tmp_path, "ui")):
        new = sorted(each["kind"] for each in objects if each["metadata"]["name"] == "covey-ui")
        assert new == ["Deployment", "Service", "ServiceAccount"]
        template = find(objects, "Deployment", "covey-ui")["spec"]["template"]
        spec, (container,) = template["spec"], template["spec"]["containers"]
        assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("covey-ui", False)
        assert find(objects, "ServiceAccount", "covey-ui")["automountServiceAccountToken"] is False
        assert [volume["configMap"]["name"] for volume in spec["volumes"]] == ["kube-root-ca.crt"]
        assert "priorityClassName" not in spec
        assert container["args"][:4] == ["ui", "--sign-in", "--bind-address=:8082", "--memory=384"]
        assert container["resources"]["limits"]["memory"] == "512Mi"
        service = find(objects, "Service", "covey-ui")["spec"]
        assert service["ports"] == [{"name": "ui", "port": 8082, "targetPort": "ui"}]
        assert service["selector"].items() <= template["metadata"]["labels"].items()
        assert (
            not service["selector"].items()
            <= find(objects, "Deployment", "covey-operator")["spec"]["template"]["metadata"]["labels"].items()
        )


def test_who_may_reach_the_ui_is_said_in_a_network_policy_of_its_own(offline: Helm) -> None:
    proxy = [{"podSelector": {"matchLabels": {"app": "proxy"}}}]
    policy = {"enabled": True, "uiFrom": proxy}
    objects = {on: offline.render({"networkPolicy": policy, "ui": {"enabled": on}}) for on in (True, False)}
    found = find(objects[True], "NetworkPolicy", "covey-ui")["spec"]
    assert found["ingress"] == [{"ports": [{"port": "ui"}], "from": proxy}]
    assert [port["port"] for rule in found["egress"] for port in rule["ports"]] == [443, 6443]
    assert not [each for each in objects[False] if each["metadata"]["name"] == "covey-ui"]
    for component in ("operator", "scheduler"):
        rules = find(objects[True], "NetworkPolicy", f"covey-{component}")["spec"]["ingress"]
        assert not [rule for rule in rules if {"port": "ui"} in rule["ports"]]


def composed(folder: Path, component: str) -> list[Object]:
    """The default overlay with a component."""
    resource, part = (
        os.path.relpath(ROOT / "manifests" / each, folder) for each in ("overlays/default", f"components/{component}")
    )
    text = yaml.safe_dump({"kind": "Kustomization", "resources": [resource], "components": [part]})
    (folder / "kustomization.yaml").write_text(text)
    command = [str(ensure()["kubectl"]), "kustomize", "--load-restrictor=LoadRestrictionsNone", str(folder)]
    return parse(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_the_table_of_rights_in_the_docs_is_the_charts(offline: Helm) -> None:
    rows = set()
    objects = offline.render()
    roles = {(each["kind"], each["metadata"]["name"]): each for each in objects if each["kind"].endswith("Role")}
    for binding in objects:
        role = roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"])) if "roleRef" in binding else None
        if role is None:
            continue
        where = "cluster" if role["metadata"]["name"].endswith("-cluster") else "watched namespaces"
        where = role["metadata"].get("namespace", where)
        for rule in role["rules"]:
            prefixes = [f"{group}/" if group else "" for group in rule["apiGroups"]]
            resources = [f"{prefix}{resource}" for prefix in prefixes for resource in rule["resources"]]
            named = f" {', '.join(rule['resourceNames'])}" if "resourceNames" in rule else ""
            verbs = ", ".join(rule["verbs"])
            rows.add(f"| {binding['subjects'][0]['name']} | {where} | {', '.join(resources)}{named} | {verbs} |")
    text = (ROOT / "docs" / "operations" / "installation.md").read_text().splitlines()
    assert {line for line in text if line.startswith(("| covey-operator |", "| covey-scheduler |"))} == rows
