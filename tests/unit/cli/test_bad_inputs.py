"""Every bad input: exit status 2, one sentence with file, document, field, problem and remedy, no traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from builders import manifests
from builders.files import EXAMPLES, cluster, covey, inference, member, node, pod, role, write
from cluster.test_api_rules import BAD_INFERENCES

NODES = EXAMPLES / "offline/nodes.json"


def refused(*arguments: object, stdin: str | None = None) -> str:
    result = covey("plan", *arguments, stdin=stdin)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "unexpected" not in result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no document"),
        ("---\n---\n", "holds no document"),
        ("a: b: c\n", "document 1: is not valid YAML at line 1, column 5"),
        ("a: 1\n---\nb: [1\n", "document 1, apiVersion: is missing"),
        ("apiVersion: v1\nkind: Foo\n---\nb: [1\n", "document 2: is not valid YAML at line"),
        ('{"a": ', "is not valid YAML"),
        ("hello\n", "document 1: is a string, not an object"),
        ("- 5\n", "document 1, [0]: is a number, not an object"),
        ("kind: Foo\n", "document 1, apiVersion: is missing"),
        ("apiVersion: v1\nkind: [a]\n", "document 1, kind: is not a string"),
        ("apiVersion: v1\nkind: List\nitems: 3\n", "document 1, items: is not a list"),
        ("apiVersion: v1\nkind: List\nitems:\n- 3\n", "document 1, items[0]: is a number"),
        ("apiVersion: v1\nkind: Foo\nmetadata: 3\n", "document 1, metadata: is not an object"),
        ("apiVersion: v1\nkind: Foo\n", "holds nothing that can be planned, only Foo;"),
        (
            "apiVersion: batch/v1\nkind: Job\n---\napiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n",
            "holds nothing that can be planned, only Job, JobSet;",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "holds nothing that can be planned, only Pod;"),
        ("apiVersion: v1\nkind: Foo\nkind: Bar\n", 'key "kind" is set twice'),
        ("a: &a [*a]\n", "is not valid YAML"),
        ("!!python/object:os.system {}\n", "is not valid YAML"),
        ('{"apiVersion": "v1", "kind": "Foo", "kind": "Bar"}', 'document 1: key "kind" is set twice; remove one'),
        ('{"apiVersion": "v1", "kind": "Foo"} {"a": {"b": 1, "b": 1}}', 'document 2: key "b" is set twice'),
        ('{"apiVersion": "v1", "kind": "List", "items": []}', "holds nothing that can be planned"),
    ],
)
def test_text_that_is_no_manifest(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(text)
    said = refused("-f", file, "--nodes", NODES)
    assert said.startswith(f"error: {file}")
    assert words in said
    assert said.count("\n") == 1


def changed(**spec: Any) -> dict[str, Any]:
    return inference("llm", *spec.pop("roles", [role("w")]), **spec)


def role_with(**fields: Any) -> dict[str, Any]:
    return changed(roles=[{**role("w"), **fields}])


def template_with(**fields: Any) -> dict[str, Any]:
    body = role("w")
    body["template"]["spec"] |= fields
    return changed(roles=[body])


def test_a_resource_that_the_api_server_refuses_is_refused_at_the_same_field(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    file = tmp_path / "in.json"
    for edits, field, _ in BAD_INFERENCES:
        with subtests.test(edits=edits):
            file.write_text(json.dumps(manifests.changed(manifests.inference(), edits)))
            said = refused("-f", file, "--nodes", NODES)
            assert f"{file}, document 1, {field.partition('[0].name')[0]}" in said
            assert "; " in said, "it says what to do"


@pytest.mark.parametrize(
    ("manifest", "field", "words"),
    [
        (role_with(sise=3), "spec.roles[0].sise", "unknown field"),
        (role_with(replicas="four"), "spec.roles[0].replicas", "valid integer"),
        (role_with(replicas="4"), "spec.roles[0].replicas", "valid integer"),
        (role_with(topology={"required": "shelf"}), "spec.roles[0].topology.required", "no level shelf; use one of"),
        (changed(topology={"required": "shelf"}), "spec.topology.required", "no level shelf"),
        (changed(topology={"name": "nowhere"}), "", "no ClusterTopology 'nowhere'"),
        (changed(topology={"required": "rack", "preferred": "block"}), "spec.topology.preferred", "coarser than rack"),
        (changed(spread={"level": "shelf"}), "spec.spread.level", "no level shelf"),
        (template_with(containers=5), "spec.roles[0].template.spec.containers", "expected a list"),
        (
            template_with(containers=[{"name": "c", "resources": {"requests": {"cpu": "x"}}}]),
            "spec.roles[0].template.spec.containers[0].resources.requests[cpu]",
            "'x' is not a quantity",
        ),
        (inference("", role("w")), "metadata.name", "is missing"),
        (inference("a\n", role("w")), "metadata.name", "is no name"),
        ({"apiVersion": "inference.covey.dev/v1alpha1", "kind": "DisaggregatedInference"}, "spec", "is missing"),
        (changed() | {"spec": 5}, "spec", "object"),
        (changed() | {"metadata": {"name": "x", "labels": {"a": 5}}}, "metadata.labels.a", "string"),
    ],
)
def test_a_resource_that_means_nothing_here_is_refused_with_its_field(
    tmp_path: Path, manifest: dict[str, Any], field: str, words: str
) -> None:
    file = tmp_path / "in.json"
    file.write_text(json.dumps(manifest))
    said = refused("-f", file, "--nodes", NODES)
    assert f"{file}, document 1{', ' if field else ''}{field}: " in said
    assert words in said
    assert "; " in said, "it says what to do"


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([], "holds no Node"),
        ([pod("p")], "holds no Node"),
        ([{"apiVersion": "v1", "kind": "Node", "metadata": {}}], "items[0].metadata.name: is missing"),
        ([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": 5}}], "items[0].metadata.name: expected a string"),
        ([node("n", 0) | {"status": {"allocatable": {"cpu": "many"}}}], "items[0].status.allocatable[cpu]: 'many'"),
        ([node("n", 0) | {"status": {"allocatable": [1]}}], "items[0].status.allocatable: expected an object"),
        ([node("n", taints="x")], "items[0].spec.taints: expected a list"),
    ],
)
def test_nodes_that_are_none(tmp_path: Path, nodes: list[Any], words: str) -> None:
    said = refused("-f", EXAMPLES / "router.yaml", "--nodes", write(tmp_path / "nodes.json", nodes))
    assert words in said


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"levels": []}, "spec.levels"),
        ({"levels": [{"name": "rack", "keys": []}]}, "spec.levels[0].keys"),
        ({"levels": [{"name": "rack", "keys": ["a"]}, {"name": "rack", "keys": ["b"]}]}, "two levels rack"),
        ({"levels": [{"name": "rack", "key": "a", "keys": ["a"]}]}, "spec.levels[0].key: unknown field"),
    ],
)
def test_topologies_that_are_none(tmp_path: Path, spec: dict[str, Any], words: str) -> None:
    body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "t"}}
    file = write(tmp_path / "topology.json", [body | {"spec": spec}])
    assert words in refused("-f", EXAMPLES / "router.yaml", "--nodes", NODES, "--topology", file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    (tmp_path / "empty").mkdir()
    for file, words in (
        (tmp_path / "none", "no such file"),
        (tmp_path / "empty", "is a directory without a .json, .yaml, .yml file"),
        (binary, "not UTF-8"),
    ):
        assert words in refused("-f", file, "--nodes", NODES)
        assert words in refused("-f", EXAMPLES / "router.yaml", "--nodes", file)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "-f/--filename: is missing"),
        (["-f", EXAMPLES / "router.yaml"], "--nodes: is missing"),
        (["-f", EXAMPLES / "router.yaml", "--nodes", NODES, "--cluster"], "leave out"),
        (["-f", EXAMPLES / "router.yaml", "--nodes", NODES, "-o", "poem"], "-o/--output: 'poem' is not one of"),
        (["-f", EXAMPLES / "router.yaml", "-f", EXAMPLES / "router.yaml", "--nodes", NODES], "two DisaggregatedInf"),
        (["-f", EXAMPLES / "router.yaml", "--nodes", NODES, "--context", "c"], "--context: names a cluster"),
        (["-f", EXAMPLES / "router.yaml", "--nodes", NODES, "--kubeconfig", "c"], "--kubeconfig: names a cluster"),
        (["--nods", NODES], "--nods: is no option of this command; try --nodes"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[object], words: str) -> None:
    assert words in refused(*arguments)


def test_a_namespace_that_disagrees(tmp_path: Path) -> None:
    file = write(tmp_path / "in.json", [inference("llm", role("w"), namespace="here")])
    nodes = write(tmp_path / "nodes.json", cluster(1))
    assert "metadata.namespace: is here, but -n says there" in refused("-f", file, "--nodes", nodes, "-n", "there")


GPU = "nvidia.com/gpu"
#: Requests and limits, and what is said of them.
QUANTITIES = {
    "a negative request": ({"requests": {GPU: "-1"}}, f"requests[{GPU}]: -1 is negative; write 0 or more"),
    "half a device": ({"limits": {GPU: "500m"}}, f"limits[{GPU}]: 500m is not a whole number"),
    "more than its limit": (
        {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}},
        "requests[cpu]: 2 is above the limit 1500m",
    ),
    "fewer devices than their limit": (
        {"requests": {GPU: 1}, "limits": {GPU: 2}},
        f"requests[{GPU}]: 1 is not the limit 2",
    ),
    "a power beyond all": ({"requests": {"memory": "1e99999999"}}, "requests[memory]: '1e99999999' is out of range"),
    "a fraction beyond all": ({"requests": {"cpu": "1e-99999999"}}, "requests[cpu]: '1e-99999999' is out of range"),
    "more than the API takes": ({"requests": {"memory": "9E"}, "limits": {"memory": "10E"}}, "10E is more than 9223"),
    "not a number": ({"requests": {"cpu": float("nan")}}, "is not valid JSON: NaN is not a number"),
    "infinity": ({"limits": {"cpu": float("inf")}}, "is not valid JSON: Infinity is not a number"),
    "a number without end": ({"requests": {"cpu": "9" * 100_000}}, "is not a quantity"),
}


def asking(resources: dict[str, Any]) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "x", "resources": resources}]}


@pytest.mark.parametrize("case", QUANTITIES)
@pytest.mark.parametrize("where", ["manifest", "pods", "sidecar", "pod level"])
def test_quantities_that_the_api_server_denies(tmp_path: Path, case: str, where: str) -> None:
    resources, words = QUANTITIES[case]
    nodes = write(tmp_path / "nodes.json", cluster(1))
    spec = asking(resources)
    if where == "sidecar":
        spec = asking({}) | {"initContainers": spec["containers"]}
    if where == "pod level":
        spec = asking({}) | {"resources": resources}
    if where == "pods":
        file = write(tmp_path / "pods.json", [pod("p", "n0") | {"spec": {**spec, "nodeName": "n0"}}])
        said = refused("-f", EXAMPLES / "router.yaml", "--nodes", nodes, "--pods", file)
    else:
        wanted = role("w") | {"template": {"spec": spec}}
        said = refused("-f", write(tmp_path / "in.json", [inference("llm", wanted)]), "--nodes", nodes)
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf"])
def test_numbers_that_json_does_not_have(tmp_path: Path, number: str) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(f"apiVersion: v1\nkind: Node\nmetadata: {{name: a}}\nstatus:\n  allocatable: {{cpu: {number}}}\n")
    said = refused("-f", EXAMPLES / "router.yaml", "--nodes", file)
    assert f"is not valid YAML at line 5, column 22: {number} is not a number" in said


def test_a_required_spread_of_pods_then_is_refused_unless_pods_of_it_run(tmp_path: Path) -> None:
    """A former release accepted it; the operator refuses new ones."""
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    template = {"spec": {**role("w")["template"]["spec"], "topologySpreadConstraints": [spread]}}
    wanted = write(tmp_path / "llm.json", [inference("llm", role("w", template=template))])
    nodes = write(tmp_path / "nodes.json", cluster(2))
    what = "spec.roles[w].template: topologySpreadConstraints over kubernetes.io/hostname"
    assert what in refused("-f", wanted, "--nodes", nodes)
    pods = write(tmp_path / "pods.json", [member("llm", "w", 0, 0, "n0-0-0")])
    result = covey("plan", "-f", wanted, "--nodes", nodes, "--pods", pods)
    assert (result.exit_code, what in result.stderr) == (0, True)


def with_container(**fields: Any) -> dict[str, Any]:
    """A resource whose one container has these fields; None takes one away."""
    found = inference("llm", role("w"))
    (container,) = found["spec"]["roles"][0]["template"]["spec"]["containers"]
    container |= fields
    for name in [name for name, value in container.items() if value is None]:
        del container[name]
    return found


def with_pod_spec(**fields: Any) -> dict[str, Any]:
    found = inference("llm", role("w"))
    found["spec"]["roles"][0]["template"]["spec"] |= fields
    return found


@pytest.mark.parametrize(
    ("manifest", "field", "words"),
    [
        (with_pod_spec(nodeselector={"pool": "a"}), "nodeselector", "unknown field; did you mean nodeSelector?"),
        (with_container(Image="e"), "containers[0].Image", "unknown field; did you mean image?"),
        (with_container(image=None), "containers[0].image", "is missing; name the image that the container runs"),
        (
            with_container(resources={"limit": {"nvidia.com/gpu": "8"}}),
            "containers[0].resources.limit",
            "unknown field; did you mean limits?",
        ),
        (
            with_container(resources={"requests": {"nvidia.com/gpu": "8"}}),
            "containers[0].resources.requests[nvidia.com/gpu]",
            "has no limit; devices are given by limits: set limits[nvidia.com/gpu] as well",
        ),
        (
            with_container(resources={"limits": {"memory": "256gb"}}),
            "containers[0].resources.limits[memory]",
            "write a quantity such as 8, 500m or 1Gi",
        ),
    ],
    ids=["pod", "container", "image", "resources", "requests only", "quantity"],
)
def test_template_that_the_api_server_denies_is_refused_by_its_field(
    tmp_path: Path, manifest: dict[str, Any], field: str, words: str
) -> None:
    said = refused("-f", write(tmp_path / "in.json", [manifest]), "--nodes", NODES)
    assert f"spec.roles[0].template.spec.{field}: " in said
    assert words in said


UNQUOTED = """\
apiVersion: inference.covey.dev/v1alpha1
kind: DisaggregatedInference
metadata: {name: llm}
spec:
  roles:
  - name: w
    replicas: 1
    template:
      spec:
        nodeSelector: %(nodeSelector)s
        containers:
        - name: main
          image: x
          command: %(command)s
          args: %(args)s
          env: %(env)s
"""


@pytest.mark.parametrize(
    ("field", "text", "where", "words"),
    [
        ("env", "[{name: A, value: 1e3}]", "spec.containers[0].env[0].value", "is 1000, a number"),
        ("env", "[{name: A, value: y}]", "spec.containers[0].env[0].value", "is true, a boolean"),
        (
            "env",
            "[{name: A, value: x}, {name: B, value: 8080}]",
            "spec.containers[0].env[1].value",
            "is 8080, a number",
        ),
        ("command", "[sleep, 3]", "spec.containers[0].command[1]", "is 3, a number"),
        ("args", "[--ratio, 1:3, --port, 8080]", "spec.containers[0].args[3]", "is 8080, a number"),
        ("nodeSelector", "{pool: on}", "spec.nodeSelector[pool]", "is true, a boolean"),
    ],
)
def test_template_when_a_string_has_no_quotes_is_refused_as_by_the_api_server(
    tmp_path: Path, field: str, text: str, where: str, words: str
) -> None:
    given = {"nodeSelector": "{}", "command": "[]", "args": "[]", "env": "[]"}
    (tmp_path / "in.yaml").write_text(UNQUOTED % {**given, field: text})
    said = refused("-f", tmp_path / "in.yaml", "--nodes", NODES)
    assert f"spec.roles[0].template.{where}: {words} where a string has to be; put it in quotes" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_metadata_of_a_template_when_a_value_has_no_quotes_is_refused_with_what_to_do(
    tmp_path: Path, field: str
) -> None:
    manifest = inference("llm", role("w"))
    manifest["spec"]["roles"][0]["template"]["metadata"] = {field: {"tier": 1}}
    said = refused("-f", write(tmp_path / "in.json", [manifest]), "--nodes", NODES)
    assert f"spec.roles[0].template.metadata.{field}: is no map of strings; put its values in quotes" in said


def test_template_when_strings_have_quotes_or_are_left_out_is_taken(tmp_path: Path) -> None:
    env = '[{name: A, value: "1e3"}, {name: B, value: }, {name: C, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]'
    given = {"nodeSelector": "", "command": "", "args": "[1:3]"}
    (tmp_path / "in.yaml").write_text(UNQUOTED % {**given, "env": env})
    result = covey("plan", "-f", tmp_path / "in.yaml", "--nodes", NODES)
    assert result.exit_code == 0, result.output


def test_template_field_that_a_later_kubernetes_may_have_is_taken(tmp_path: Path) -> None:
    manifest = with_pod_spec(schedulingHorizon=3)
    result = covey("plan", "-f", write(tmp_path / "in.json", [manifest]), "--nodes", NODES)
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("written", "meant"),
    [("min_replicas", "minReplicas"), ("replica", "replicas"), ("leadertemplate", "leaderTemplate")],
)
def test_unknown_field_is_refused_with_the_one_that_is_meant(tmp_path: Path, written: str, meant: str) -> None:
    manifest = inference("llm", role("w") | {written: 1})
    said = refused("-f", write(tmp_path / "in.json", [manifest]), "--nodes", NODES)
    assert f"spec.roles[0].{written}: unknown field; did you mean {meant}?" in said


def test_plan_of_pods_without_a_device_warns(tmp_path: Path) -> None:
    manifest = with_container(resources={"requests": {"cpu": "1"}})
    result = covey("plan", "-f", write(tmp_path / "in.json", [manifest]), "--nodes", NODES)
    assert result.exit_code == 0
    assert "none of its pods asks for a device" in result.stderr


def test_refusal_that_asks_for_more_nodes_is_over_with_as_many(tmp_path: Path) -> None:
    """`--add-nodes` of what the sentence asks for."""
    gang = inference("llm", role("w", size=8, topology={"required": "rack"}))
    arguments = ["-f", write(tmp_path / "in.json", [gang]), "--nodes", write(tmp_path / "n.json", cluster(2, 6))]
    result = covey("plan", *arguments)
    assert result.exit_code == 3
    assert "2 more pods' worth" in result.output
    node_of_best = "n0-1-0"
    assert covey("plan", *arguments, "--add-nodes", f"{node_of_best}=2").exit_code == 0
