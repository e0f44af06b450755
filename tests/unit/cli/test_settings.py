"""Settings of the processes: file, environment, flags; and what is said of bad ones."""

from pathlib import Path

import pytest
import yaml

from builders.files import covey
from covey.cli.settings import OperatorConfig, SchedulerConfig, effective
from covey.manifests.sources import InputError
from covey.operator.process.settings import Settings as OperatorSettings
from covey.scheduler.settings import Settings as SchedulerSettings


def test_without_anything_the_settings_are_the_processes_own_defaults() -> None:
    assert effective(OperatorConfig, None, {}, {}).settings() == OperatorSettings()
    assert effective(SchedulerConfig, None, {}, {}).settings() == SchedulerSettings()


def test_flags_override_the_environment_and_that_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("schedulerName: file\nbindAddress: 127.0.0.1:1\nreserveAfter: 5m\nnamespaces: [a, b]\n")
    environment = {"COVEY_SCHEDULER_NAME": "environment", "COVEY_BIND_ADDRESS": "127.0.0.1:2", "COVEY_ASSETS": "x"}
    flags = {"scheduler_name": "flag", "namespaces": (), "leader_elect": None}
    found = effective(SchedulerConfig, str(file), environment, flags).settings()
    assert (found.scheduler_names, found.bind_address) == (("flag",), "127.0.0.1:2")
    assert (found.reserve_after, found.namespaces, found.leader_elect) == (300.0, ("a", "b"), True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("300s", 300), ("5m", 300), ("1h30m", 5400), ("0.5m", 30), ("90", 90), ("0s", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert effective(SchedulerConfig, None, {}, {"reserve_after": text}).reserve_after == seconds


@pytest.mark.parametrize(
    ("file", "environment", "flags", "words"),
    [
        ("nope: 1\n", {}, {}, "config.yaml, nope: there is no such setting; use one of bindAddress"),
        ("logLevel: loud\n", {}, {}, "config.yaml, logLevel: "),
        ("namespaces: [5]\n", {}, {}, "config.yaml, namespaces: "),
        ("- 1\n", {}, {}, "is not one mapping of settings"),
        ("a: [\n", {}, {}, "is not valid YAML"),
        ("", {"COVEY_BIND_ADDRESS": "nowhere"}, {}, "COVEY_BIND_ADDRESS: "),
        ("", {"COVEY_ENDPOINT_MODE": "cloud"}, {}, "COVEY_ENDPOINT_MODE: "),
        ("", {}, {"reserve_after": "soon"}, "--reserve-after: is no duration"),
        ("", {}, {"leader_elect": "perhaps"}, "--leader-elect: "),
        ("", {}, {"metrics_bind_address": "8080"}, "--metrics-bind-address: "),
        ("tlsCertFile: a\n", {}, {}, "TLS needs both a certificate and its key"),
    ],
)
def test_bad_settings_are_named_as_they_were_given(
    tmp_path: Path, file: str, environment: dict[str, str], flags: dict[str, str], words: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(file)
    with pytest.raises(InputError) as caught:
        effective(SchedulerConfig, str(config), environment, flags).settings()
    assert words in str(caught.value)


def test_tls_files_are_looked_at_before_a_process_starts(tmp_path: Path) -> None:
    missing, empty = tmp_path / "none.pem", tmp_path / "empty.pem"
    empty.touch()
    for cert, key, words in (
        (missing, empty, f"--tls-cert-file: {missing} cannot be read: no such file"),
        (empty, missing, f"--tls-private-key-file: {missing} cannot be read: no such file"),
        (empty, empty, "are no certificate and its key in PEM"),
    ):
        result = covey("scheduler", f"--tls-cert-file={cert}", f"--tls-private-key-file={key}")
        assert result.exit_code == 2, result.output
        assert words in result.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--endpoint-mode=service",), "--endpoint-mode: behind a Service both sides must show a certificate"),
        (("--endpoint-mode=service", "--tls-cert-file=c", "--tls-private-key-file=k"), "--client-ca-file"),
        (("--bind-address=:8890",), "--bind-address: whoever can reach the extender could have pods bound"),
        (("--bind-address=10.0.0.1:8890", "--tls-cert-file=c", "--tls-private-key-file=k"), "--bind-address: "),
        (("--pod-name=p",), "--pod-name: a pod is found by its name and its namespace"),
    ],
)
def test_an_extender_that_others_could_use_does_not_start(flags: tuple[str, ...], words: str) -> None:
    result = covey("scheduler", *flags)
    assert result.exit_code == 2, result.output
    assert words in result.stderr


def test_a_pod_is_told_its_name_by_the_environment() -> None:
    found = effective(SchedulerConfig, None, {"COVEY_POD_NAME": "p", "COVEY_POD_NAMESPACE": "n"}, {}).settings()
    assert (found.pod_name, found.pod_namespace) == ("p", "n")


def test_the_scheduler_configuration_follows_the_flags() -> None:
    result = covey("scheduler", "--print-scheduler-config", "--bind-address", "127.0.0.1:9", "--scheduler-name", "x")
    assert result.exit_code == 0
    printed = yaml.safe_load(result.stdout)
    assert printed["kind"] == "KubeSchedulerConfiguration"
    assert printed["profiles"][0]["schedulerName"] == "x"
    assert [each["urlPrefix"] for each in printed["extenders"]] == [
        "http://127.0.0.1:9/guard",
        "http://127.0.0.1:9/barrier",
    ]


@pytest.mark.parametrize("command", ["operator", "scheduler"])
def test_a_bad_setting_ends_a_process_before_it_starts(command: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("colour: red\n")
    result = covey(command, "--config", config)
    assert result.exit_code == 2
    assert "colour: there is no such setting" in result.stderr
