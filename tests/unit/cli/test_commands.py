"""The entry point, `covey compile`, `covey crds`, `covey version`, and the examples."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.files import EXAMPLES, admitted, covey, plan, workload
from covey import __version__
from covey.cli import main
from covey.manifests.sources import InputError

OFFLINE = ("--nodes", EXAMPLES / "offline/nodes.json")
#: CRDs are long: the loader in Python takes seconds for each.
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **env}, timeout=60
    )


def test_help_lists_every_command_and_loads_none() -> None:
    code = "import sys\nfrom covey.cli.main import main\nsys.argv = ['covey', '--help']\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
    code += "print([name for name in sys.modules if name in {'pydantic', 'msgspec', 'yaml', 'numpy', 'kopf', 'kubernetes', 'aiohttp', 'rich'}])"
    result = python(code)
    assert result.stdout.rstrip().endswith("[]")
    for name in (
        "plan",
        "compile",
        "convert",
        "explain",
        "status",
        "top",
        "logs",
        "scale",
        "rollout",
        "drain",
        "crds",
        "operator",
        "scheduler",
        "release-budgets",
        "version",
    ):
        assert f"\n  {name} " in result.stdout


def test_an_offline_plan_loads_no_server_and_no_client() -> None:
    code = "import sys, covey.cli.commands.plan\nprint([n for n in sys.modules if n in {'kopf', 'kubernetes', 'aiohttp', 'rich', 'asyncio'}])"
    assert python(code).stdout.strip() == "[]"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "plan",
            "compile",
            "convert",
            "explain",
            "status",
            "top",
            "logs",
            "scale",
            "rollout",
            "crds",
            "operator",
            "scheduler",
        ),
        *("drain", "release-budgets", "version"),
    ],
)
def test_every_command_has_help(command: str) -> None:
    result = covey(command, "--help")
    assert result.exit_code == 0
    assert "Usage: covey" in result.stdout


def test_without_rich_a_sentence_says_how_to_get_it() -> None:
    code = f"import sys\nsys.modules['rich'] = None\nsys.modules['rich.console'] = None\nfrom covey.cli.main import main\nsys.argv = {['covey', 'plan', '-f', str(EXAMPLES / 'router.yaml'), '--nodes', str(OFFLINE[1])]!r}\nmain()"
    result = python(code)
    assert result.returncode == 1
    assert "covey[cli]" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_closed_pipe_is_no_error() -> None:
    arguments = [sys.executable, "-m", "covey", "crds"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_what_nobody_foresaw_is_said_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("the floor gave way")

    monkeypatch.setattr(main.covey, "main", fail)
    monkeypatch.delenv("COVEY_TRACEBACK", raising=False)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    assert "unexpected RuntimeError: the floor gave way" in capsys.readouterr().err
    monkeypatch.setenv("COVEY_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        main.main()


def test_version_without_a_server(tmp_path: Path) -> None:
    assert covey("version", "--client").stdout == f"Client Version: {__version__}\n"
    assert json.loads(covey("version", "--client", "-o", "json").stdout) == {"clientVersion": __version__}
    result = covey("version", "--kubeconfig", tmp_path / "none")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert covey("--version").stdout == f"covey {__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        *(["explain", "x"], ["status", "x"], ["top"], ["release-budgets", "-A"], ["drain", "x"]),
        ["plan", "-f", EXAMPLES / "router.yaml", "--cluster"],
    ],
)
def test_a_cluster_that_is_not_there_is_said_in_a_sentence(command: list[object], tmp_path: Path) -> None:
    result = covey(*command, "--kubeconfig", tmp_path / "none")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "unexpected" not in result.stderr


def test_budgets_of_one_namespace_or_of_all() -> None:
    result = covey("release-budgets", "-A", "-n", "team-a")
    assert result.exit_code == 2
    assert "-A: contradicts --namespace" in " ".join(result.stderr.split())


def test_crds_are_printed_or_written(tmp_path: Path) -> None:
    printed = list(yaml.load_all(covey("crds").stdout, _LOADER))
    assert all(each["kind"] == "CustomResourceDefinition" for each in printed)
    names = covey("crds", "-o", "name").stdout.splitlines()
    assert names == [f"customresourcedefinition.apiextensions.k8s.io/{each['metadata']['name']}" for each in printed]
    assert covey("crds", "--output-dir", tmp_path / "out").exit_code == 0
    assert len(list((tmp_path / "out").iterdir())) == len(printed)
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "cannot be written" in covey("crds", "--output-dir", blocked).stderr


def test_compile_prints_objects_in_creation_order() -> None:
    result = covey("compile", "-f", EXAMPLES / "disaggregated.yaml")
    assert result.exit_code == 0
    objects = list(yaml.safe_load_all(result.stdout))
    kinds = [each["kind"] for each in objects]
    assert kinds[0] == "Workload"
    assert kinds.index("CompositePodGroup") < kinds.index("PodGroup") < kinds.index("Pod")
    assert kinds.count("Pod") == 4 * 2 + 2 * 4
    seen = set()
    for each in objects:
        parent = (each.get("spec") or {}).get("parentCompositePodGroupName")
        assert parent is None or parent in seen
        seen.add(each["metadata"]["name"])
    listed = json.loads(covey("compile", "-f", EXAMPLES / "disaggregated.yaml", "-o", "json").stdout)
    assert listed["items"] == objects


def test_compile_as_a_tree_and_for_a_backend() -> None:
    text = covey("compile", "-f", EXAMPLES / "disaggregated.yaml", "-o", "tree").stdout
    assert "PodGroup llama-0-prefill-3  gang 2 of 2, one rack" in text


def test_compile_for_volcano() -> None:
    """Nobody knows the cluster's tiers here, so that levels are written by name."""
    objects = list(
        yaml.safe_load_all(covey("compile", "-f", EXAMPLES / "disaggregated.yaml", "--backend", "Volcano").stdout)
    )
    assert [(each["apiVersion"], each["kind"]) for each in objects][:4] == [
        ("scheduling.volcano.sh/v1beta1", "PodGroup"),
        ("policy/v1", "PodDisruptionBudget"),
        ("v1", "Service"),
        ("v1", "Service"),
    ]
    assert objects[0]["spec"]["networkTopology"] == {"mode": "hard", "highestTierName": "block"}
    pods = [each for each in objects if each["kind"] == "Pod"]
    assert {each["spec"]["schedulerName"] for each in pods} == {"volcano"}
    refused = covey("compile", "-f", EXAMPLES / "router.yaml", "--backend", "Volcano")
    assert (refused.exit_code, "spec.topology.preferred: Volcano knows no" in refused.stderr) == (2, True)


def test_compile_skips_what_is_not_its_own(tmp_path: Path) -> None:
    other = tmp_path / "service.yaml"
    other.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: s}\n")
    result = covey("compile", "-f", other, "-f", EXAMPLES / "router.yaml")
    assert "skipped Service s" in result.stderr
    assert covey("compile", "-f", other).exit_code == 2


@pytest.mark.parametrize(
    ("example", "expected"),
    [("disaggregated.yaml", {"prefill": 4, "decode": 2}), ("router.yaml", {"prefill": 2, "decode": 2, "router": 2})],
)
def test_examples_fit_the_demo_cluster(example: str, expected: dict[str, int]) -> None:
    answer = plan("-f", EXAMPLES / example, *OFFLINE)
    (found,) = answer["workloads"]
    assert (found["verdict"], admitted(found)) == ("Admitted", expected)
    assert not [each for each in answer["warnings"] if "skipped" not in each]


def test_the_examples_topology_gives_the_same_levels_as_detection() -> None:
    given = plan("-f", EXAMPLES / "disaggregated.yaml", "--topology", EXAMPLES / "topology.yaml", *OFFLINE)
    detected = plan("-f", EXAMPLES / "disaggregated.yaml", *OFFLINE)
    assert given["topology"]["levels"] == detected["topology"]["levels"]
    assert given["topology"]["name"] == "racks"


def test_all_examples_together() -> None:
    files = [each for path in sorted(EXAMPLES.glob("*.yaml")) for each in ("-f", path)]
    result = covey("plan", *files, *OFFLINE, "-o", "json")
    assert result.exit_code == 3
    verdicts = {each["name"]: each["verdict"] for each in json.loads(result.stdout)["workloads"]}
    assert verdicts.pop("too-big") == "Infeasible"
    assert verdicts == dict.fromkeys(["hello", "llama", "llama-70b", "qwen"], "Admitted")
    assert workload(json.loads(result.stdout), "too-big")["reasons"][0]["role"] == "decode"


def test_several_problems_are_several_lines() -> None:
    assert str(InputError("here", "is wrong", "mend it")) == "here: is wrong; mend it"


@pytest.mark.parametrize(
    ("process", "host", "words"), [("operator", "127.0.0.1", "address already in use"), ("scheduler", "no.invalid", "")]
)
def test_a_process_whose_address_is_taken_or_none_says_so(process: str, host: str, words: str, tmp_path: Path) -> None:
    cluster = {"name": "none", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "none", "context": {"cluster": "none", "user": "none"}}
    config = {
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "none", "user": {}}],
        "current-context": "none",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"{host}:{taken.getsockname()[1]}"
        flags = [f"--metrics-bind-address={address}", "--health-probe-bind-address=127.0.0.1:0"]
        arguments = [sys.executable, "-m", "covey", process, f"--kubeconfig={path}", *flags]
        result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "error: cannot listen: " in result.stderr
    assert f"{words}; check the --…bind-address flags" in result.stderr
    assert "Traceback" not in result.stderr
