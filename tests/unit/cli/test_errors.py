"""Errors have one form in every command: `error: where: what; what to do`, nothing else, and the documented status."""

import json
from pathlib import Path

import pytest

from builders.files import EXAMPLES, covey
from covey.cli.client import in_words
from covey.cli.errors import CommandError
from covey.kube.errors import KubeError

ROUTER = EXAMPLES / "router.yaml"
NODES = EXAMPLES / "offline/nodes.json"


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
        (["operator", "-v", "--log-level", "info"], "--verbose: it contradicts --log-level"),
        (["operator", "-v", "-q"], "--quiet: it contradicts --verbose"),
        (["operator", "--metrics-bind-address", "nowhere"], "--metrics-bind-address: "),
        (["ui", "--memory", "much"], "--memory: should be a valid integer"),
        (["ui", "--bind-address", "0"], "--bind-address: '0' is no address"),
        (["ui", "-A", "-n", "ml"], "--all-namespaces: it contradicts --namespace"),
        (["scheduler", "--bind-address", "0.0.0.0:1"], "--bind-address: whoever can reach"),
        (["scheduler", "--endpoint-mode", "service"], "--endpoint-mode: behind a Service"),
        (["scheduler", "--tls-cert-file", "c"], "--tls-cert-file: TLS needs both"),
    ],
)
def test_bad_input_of_every_command(arguments: list[object], words: str) -> None:
    assert words in said(*arguments, status=2)


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


def test_every_line_of_a_message_is_marked_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    CommandError("one\ntwo").show()
    assert capsys.readouterr().err == "error: one\nerror: two\n"


def test_an_answer_that_nobody_foresaw_says_what_to_do() -> None:
    assert in_words(KubeError("a poem")).endswith("does the context name an API server?")


@pytest.mark.parametrize(
    "arguments", [["rollout", "--help", "-n", "x"], ["rollout", "-n", "x", "-h"], ["-h", "-n", "x"]]
)
def test_help_is_printed_whatever_stands_beside_it(arguments: list[str]) -> None:
    result = covey(*arguments)
    assert result.exit_code == 0
    assert "Usage: covey" in result.output


def test_an_option_in_the_wrong_place_is_still_a_mistake() -> None:
    assert "is no option of this command" in said("rollout", "-n", "x", "status", "llama", status=2)
