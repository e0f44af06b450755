"""Errors have one form in every command: `error: where: what; what to do`, nothing else, and the documented status."""

import json
from pathlib import Path

import pytest

from builders.files import EXAMPLES, covey
from covey.cli.errors import CommandError
from covey.cli.live import in_words
from covey.kube.errors import KubeError

ROUTER = EXAMPLES / "router.yaml"
NODES = EXAMPLES / "offline/nodes.json"
COMMANDS = ("plan", "compile", "explain", "status", "top", "crds", "operator", "scheduler", "version")


def said(*arguments: object, status: int) -> str:
    """What a command says that cannot go on; it has printed nothing else."""
    result = covey(*arguments)
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    # What else stands in a file is skipped, and named.
    lines = [line for line in result.stderr.splitlines() if ": skipped " not in line]
    assert lines
    for line in lines:
        assert line.startswith("error: "), line
        assert "; " in line or line.endswith("?"), f"it does not say what to do: {line}"
    for foreign in ("Traceback", "Usage:", "Error:", "unexpected"):
        assert foreign not in result.stderr
    return result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_does_not_exist(command: str) -> None:
    told = said(command, "--xylophone", status=2)
    assert told == f"error: --xylophone: is no option of this command; see `covey {command} --help`\n"


@pytest.mark.parametrize("command", [each for each in COMMANDS if each not in ("explain", "status")])
def test_an_argument_too_many(command: str) -> None:
    given = ("-f", ROUTER) if command in ("plan", "compile") else ()
    assert "unexpected extra argument (llama)" in said_of_arguments(command, *given, "llama")


def said_of_arguments(*arguments: object) -> str:
    """Click's own word for it begins with *unexpected*, as our word for a fault does."""
    result = covey(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("error: covey ")
    assert result.stderr.endswith(" --help`\n")
    return result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plam"], "no such command 'plam'"),
        (["plan"], "-f/--filename: is missing; see `covey plan --help`"),
        (["compile"], "-f/--filename: is missing"),
        (["explain"], "NAME: is missing"),
        (["plan", "-f"], "option '-f' requires an argument"),
        (["plan", "-f", ROUTER], "--nodes: is missing"),
        (["plan", "-f", ROUTER, "--nodes", NODES, "-o", "poem"], "-o/--output: 'poem' is not one of"),
        (["plan", "-f", "none.yaml", "--nodes", NODES], "none.yaml: cannot be read: no such file"),
        (["plan", "-f", ROUTER, "--nodes", "none.json"], "none.json: cannot be read: no such file"),
        (["plan", "--nods", NODES], "--nods: is no option of this command; try --nodes"),
        (["compile", "-f", NODES], "holds no DisaggregatedInference"),
        (["compile", "-f", ROUTER, "--backend", "Slurm"], "--backend: 'Slurm' is not one of"),
        (
            ["compile", "-f", ROUTER, "--backend", "Volcano"],
            "spec.topology.preferred: Volcano knows no preferred levels",
        ),
        (["explain", ""], "NAME: is empty"),
        (["explain", "x", "-o", "svg"], "-o/--output: 'svg' is not one of"),
        (["plan", "-f", "x", "-o", "svg"], "-o/--output: 'svg' is not one of"),
        (["status", "x", "-A"], "-A: means all there are"),
        (["top", "--nodes", ROUTER], "holds no Node"),
        (["top", "--nodes", NODES, "--level", "shelf"], "--level: topology kueue has no level shelf"),
        (["top", "--nodes", NODES, "--context", "c"], "--context: names a cluster"),
        (["crds", "-o", "crds"], "-o/--output: 'crds' is not one of"),
        (["crds", "-o", "json", "--output-dir", "crds"], "--output-dir: writes YAML"),
        (["version", "-o", "table"], "-o/--output: 'table' is not one of"),
        (["operator", "--config", "none.yaml"], "none.yaml: cannot be read: no such file"),
        (["operator", "--log-level", "loud"], "--log-level: should be"),
        (["operator", "-A", "-n", "ml"], "--all-namespaces: it contradicts --namespace"),
        (["operator", "-v", "--log-level", "info"], "--log-level: --log-level, --verbose and --quiet contradict"),
        (["operator", "--metrics-bind-address", "nowhere"], "--metrics-bind-address: "),
        (["scheduler", "--bind-address", "0.0.0.0:1"], "--bind-address: whoever can reach"),
        (["scheduler", "--endpoint-mode", "service"], "--endpoint-mode: behind a Service"),
        (["scheduler", "--tls-cert-file", "c"], "--tls-cert-file: TLS needs both"),
    ],
)
def test_bad_input_of_every_command(arguments: list[object], words: str) -> None:
    assert words in said(*arguments, status=2)


@pytest.mark.parametrize(
    "command", [["explain", "x"], ["status"], ["top"], ["plan", "-f", ROUTER, "--cluster"], ["operator"], ["scheduler"]]
)
def test_a_cluster_that_is_not_there(command: list[object], tmp_path: Path) -> None:
    result = covey(*command, "--kubeconfig", tmp_path / "none")
    assert result.exit_code == 1
    told = [line for line in result.stderr.splitlines() if not line.startswith("{")]  # a process logs its settings
    assert [line[:7] for line in told] == ["error: "]
    assert "check --kubeconfig and --context" in told[0]


@pytest.mark.parametrize(
    ("switch", "level", "namespaces"),
    [(["-v"], "debug", ["ml"]), (["-q"], "warning", ["ml"]), (["-A", "-v"], "debug", []), (["-n", "a"], "info", ["a"])],
)
def test_switches_of_kopf_run(
    switch: list[str], level: str, namespaces: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_NAMESPACE", "ml")
    result = covey("operator", *switch, "--kubeconfig", tmp_path / "none")
    logged = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    settings = [(each["log_level"], each["namespaces"]) for each in logged if each["event"] == "effective settings"]
    # What is quieter than that line is not heard of it.
    assert settings == ([(level, namespaces)] if level != "warning" else [])


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert f"{blocked}: cannot be written: file exists" in said("crds", "--output-dir", blocked, status=1)


def test_every_line_of_a_message_is_marked_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    CommandError("one\ntwo").show()
    assert capsys.readouterr().err == "error: one\nerror: two\n"


def test_an_answer_that_nobody_foresaw_says_what_to_do() -> None:
    assert in_words(KubeError("a poem")).endswith("does the context name an API server?")


def test_warnings_do_not_come_before_an_error(tmp_path: Path) -> None:
    other = tmp_path / "service.yaml"
    other.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: s}\n")
    assert "holds no DisaggregatedInference" in said("compile", "-f", other, status=2)


def test_no_command_at_all_prints_the_help() -> None:
    result = covey()
    assert result.exit_code == 2
    assert "Usage: covey" in result.output


@pytest.mark.parametrize(
    "arguments", [["rollout", "--help", "-n", "x"], ["rollout", "-n", "x", "-h"], ["-h", "-n", "x"]]
)
def test_help_is_printed_whatever_stands_beside_it(arguments: list[str]) -> None:
    result = covey(*arguments)
    assert result.exit_code == 0
    assert "Usage: covey" in result.output


def test_an_option_in_the_wrong_place_is_still_a_mistake() -> None:
    assert "is no option of this command" in said("rollout", "-n", "x", "status", "llama", status=2)
