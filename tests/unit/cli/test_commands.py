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

from builders.files import EXAMPLES, covey, plan
from covey import __version__
from covey.cli import main

#: CRDs are long: the loader in Python takes seconds for each.
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


EXAMPLE = ("-f", EXAMPLES / "disaggregated.yaml", "--topology", EXAMPLES / "topology.yaml")


OFFLINE = ("--nodes", EXAMPLES / "offline/nodes.json")


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
        "release-jobs",
        "version",
    ):
        assert f"\n  {name} " in result.stdout


def test_an_offline_plan_loads_no_server_and_no_client() -> None:
    code = "import sys, covey.cli.commands.plan\nprint([n for n in sys.modules if n in {'kopf', 'kubernetes', 'aiohttp', 'rich'}])"
    assert python(code).stdout.strip() == "[]"


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
        *(
            ["explain", "x"],
            ["status", "x"],
            ["top"],
            ["release-budgets", "-A"],
            ["release-jobs", "-A"],
            ["drain", "x"],
        ),
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


def test_the_examples_topology_gives_the_same_levels_as_detection() -> None:
    given = plan("-f", EXAMPLES / "disaggregated.yaml", "--topology", EXAMPLES / "topology.yaml", *OFFLINE)
    detected = plan("-f", EXAMPLES / "disaggregated.yaml", *OFFLINE)
    assert given["topology"]["levels"] == detected["topology"]["levels"]
    assert given["topology"]["name"] == "racks"


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


@pytest.mark.parametrize(
    ("arguments", "groups"),
    [
        (("--backend", "Extender"), "scheduling.covey.dev"),
        (("--backend", "Kubernetes"), "scheduling.k8s.io"),
        (("--backend", "Kubernetes", "--dialect", "1.36"), "scheduling.k8s.io"),
        (("--backend", "Kubernetes", "--dialect", "1.35"), "scheduling.k8s.io"),
        (("--backend", "Volcano"), "scheduling.volcano.sh"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
def test_every_backend_prints_its_own_groups_and_the_same_pods(arguments: tuple[str, ...], groups: str) -> None:
    result = covey("compile", *EXAMPLE, *arguments, "-o", "name")
    assert result.exit_code == 0, result.stderr
    printed = result.stdout.splitlines()
    assert printed[0].endswith(f".{groups}/llama") or printed[0].endswith(f".{groups}/llama-0")
    assert len([line for line in printed if line.startswith("pod/")]) == 16
    assert len([line for line in printed if line.startswith("service/")]) == 2


def test_a_dialect_that_there_is_not() -> None:
    result = covey("compile", *EXAMPLE, "--backend", "Kubernetes", "--dialect", "1.34")
    assert result.exit_code == 2
    assert "Kubernetes has no 1.34; use one of 1.38, 1.37, 1.37-flat, 1.36-preemption, 1.36, 1.35" in result.stderr
    result = covey("compile", *EXAMPLE, "--backend", "Volcano", "--dialect", "1.14")
    assert "Volcano has no 1.14; leave it out" in result.stderr


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
