"""RoleBasedGroup: patterns, shared templates and patches, gangs by annotation."""

from typing import Any

import pytest

from builders.conversions import roles, said
from covey.convert import ConversionError, Levels, convert
from foreign_workloads import Object, role_based_group, template

PREFIX = "rbg.workloads.x-k8s.io/"


def containers(role: Object, key: str = "template") -> Any:
    return role[key]["spec"]["containers"]


def test_patterns_become_replicas() -> None:
    found = roles(convert(role_based_group()))
    shape = [(name, each["replicas"], each["minReplicas"], each["size"]) for name, each in found.items()]
    assert shape == [("router", 1, 1, 1), ("prefill", 2, 1, 4), ("decode", 4, 1, 1)]


def test_a_patch_changes_the_leader_alone() -> None:
    prefill = roles(convert(role_based_group()))["prefill"]
    (leader,), (worker,) = containers(prefill, "leaderTemplate"), containers(prefill)
    assert (leader["image"], worker["image"]) == ("engine:1", "engine:1")
    assert {"name": "ROLE", "value": "leader"} in leader["env"]
    assert "ROLE" not in {each["name"] for each in worker["env"]}
    assert prefill["leaderTemplate"]["metadata"] == {"labels": {"role": "leader"}}
    assert "metadata" not in prefill["template"]


def test_a_gang_of_the_group_needs_every_replica() -> None:
    found = convert(
        role_based_group(gang_scheduling="true", gang_scheduling_timeout="120", gang_scheduling_volcano_priority="high")
    )
    assert {name: each["minReplicas"] for name, each in roles(found).items()} == {
        "router": 1,
        "prefill": 2,
        "decode": 4,
    }
    assert found.body["spec"]["gang"] == {"timeoutSeconds": 120}
    assert found.body["spec"]["priorityClassName"] == "high"
    assert "spec.roles" not in said(found)


def test_one_domain_for_the_group_but_not_for_every_role() -> None:
    document = role_based_group(exclusive_topology="example.com/rack")
    document["spec"]["roles"][0]["annotations"] = {f"{PREFIX}role-disable-exclusive": "true"}
    found = convert(document, Levels({"example.com/rack": "rack"}))
    assert found.body["spec"]["topology"] == {"required": "rack"}
    assert roles(found)["router"]["topology"] == {"followUnit": False}


def test_ports_of_a_headless_service_are_those_of_the_containers() -> None:
    found = convert(role_based_group())
    assert roles(found)["router"]["network"] == {"ports": [{"name": "http", "port": 8000}]}
    assert said(found)["spec.roles[0].servicePorts[0].port"].startswith("80 becomes 8000")
    document = role_based_group()
    document["spec"]["roles"][0]["servicePorts"] = [{"port": 80, "targetPort": "http", "protocol": "UDP"}]
    found = convert(document)
    assert roles(found)["router"]["network"] == {"ports": [{"name": "port-0", "port": 80, "protocol": "UDP"}]}
    assert "http is no number" in said(found)["spec.roles[0].servicePorts[0].targetPort"]


def test_what_has_no_counterpart_yet_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(spec: Any) -> list[str]:
        return ["no"] if spec.roles[0].depends_on or spec.roles[0].update else []

    monkeypatch.setattr("covey.convert.draft.unsupported_fields", refused)
    found = said(convert(role_based_group()))
    assert set(found) == {
        "spec.roles",
        "spec.roles[0].servicePorts[0].port",
        "spec.roles[1].dependencies",
        "spec.roles[1].rolloutStrategy.rollingUpdate.type",
        "spec.roles[1].rolloutStrategy.rollingUpdate.maxUnavailable",
        "spec.roles[1].rolloutStrategy.rollingUpdate.partition",
    }
    assert "dependsOn of role prefill" in found["spec.roles[1].dependencies"]


def components(*sizes: int) -> Object:
    document = role_based_group()
    parts = [{"name": f"part-{n}", "size": size, "template": template(f"c{n}")} for n, size in enumerate(sizes)]
    document["spec"]["roles"] = [{"name": "engine", "replicas": 3, "customComponentsPattern": {"components": parts}}]
    del document["spec"]["roleTemplates"]
    return document


@pytest.mark.parametrize("sizes", [(2, 2), (1, 1, 2)])
def test_a_replica_of_more_kinds_is_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ConversionError, match="a replica of Covey is one leader and equal workers"):
        convert(components(*sizes))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"standalonePattern": None}, "spec.roles[2]"),
        ({"leaderWorkerPattern": {"template": template()}}, "spec.roles[2]"),
        ({"dependencies": ["nobody"]}, "spec.roles[2].dependencies"),
        ({"standalonePattern": {"templateRef": {"name": "x"}}}, "spec.roles[2].standalonePattern.templateRef.name"),
        ({"standalonePattern": {"template": {}}}, "spec.roles[2].standalonePattern.template.spec"),
    ],
)
def test_a_role_that_is_not_whole_is_refused_by_its_path(change: Object, path: str) -> None:
    document = role_based_group()
    document["spec"]["roles"][2] |= change
    with pytest.raises(ConversionError) as refused:
        convert(document)
    assert refused.value.path == path


def test_a_timeout_out_of_bounds_is_named() -> None:
    found = convert(role_based_group(gang_scheduling="true", gang_scheduling_timeout="7200"))
    assert "gang" not in found.body["spec"]
    assert (
        "spec.gang.timeoutSeconds, which it cannot be"
        in said(found)[f"metadata.annotations[{PREFIX}group-gang-scheduling-timeout]"]
    )


def test_a_component_of_one_pod_leads() -> None:
    engine = roles(convert(components(2, 1)))["engine"]
    assert (engine["size"], containers(engine, "leaderTemplate")[0]["name"]) == (3, "c1")
    assert said(convert(components(2, 1)))["spec.roles[0].customComponentsPattern.components"].startswith(
        "part-1 is pod 0"
    )
