"""Settings of the processes: file, environment, flags; and what is said of bad ones."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.files import covey
from covey.cli.main import covey as command
from covey.cli.settings import load_settings
from covey.kube.settings import ProcessSettings, settings_of
from covey.manifests.errors import InputError
from covey.operator.process.settings import OperatorSettings
from covey.scheduler.settings import SchedulerSettings
from covey.ui.settings import PageSettings

MODELS: dict[str, type[ProcessSettings]] = {
    "operator": OperatorSettings,
    "scheduler": SchedulerSettings,
    "ui": PageSettings,
}
#: All names and defaults that people have; a change here is one for whoever upgrades.
NAMES = Path(__file__).with_name("settings.txt")
EVERY = [(name, field) for name, model in MODELS.items() for field in model.model_fields]


def names_of(process: str) -> list[str]:
    """The settings and the other flags of a process: flags, variable, key in the file, default in JSON."""
    click = command.get_command(None, process)  # type: ignore[arg-type] # it needs none
    assert click is not None
    flags = {option.name: ", ".join(sorted(option.opts)) for option in click.params}
    model = MODELS[process]
    defaults = model().model_dump(mode="json")
    lines = [
        f"{process}|{flags.pop(setting.field)}|{setting.variable}|{setting.key}|{json.dumps(defaults[setting.field])}"
        for setting in settings_of(model)
    ]
    return [*lines, *(f"{process}|{others}|||" for others in flags.values())]


def test_names_and_defaults_when_somebody_upgrades_are_what_they_were() -> None:
    assert "\n".join(sorted(line for process in MODELS for line in names_of(process))) == NAMES.read_text().strip()


@pytest.mark.parametrize(
    ("process", "field"),
    [(name, setting.field) for name, model in MODELS.items() for setting in settings_of(model) if setting.default],
)
def test_a_setting_when_its_default_is_written_anywhere_is_the_same(process: str, field: str, tmp_path: Path) -> None:
    """In the file, in a variable, as a flag: the default that the help shows can be given as it stands there."""
    model = MODELS[process]
    [setting] = [setting for setting in settings_of(model) if setting.field == field]
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({setting.key: setting.default}))
    for flags, environment in (
        ({"config": str(file)}, {}),
        ({}, {setting.variable: setting.default}),
        ({field: (setting.default,) if setting.is_list else setting.default}, {}),
    ):
        assert load_settings(model, flags, environment) == model()


@pytest.mark.parametrize(("process", "field"), EVERY)
def test_a_setting_when_it_is_wrong_is_refused_with_its_source(process: str, field: str, tmp_path: Path) -> None:
    model = MODELS[process]
    [setting] = [setting for setting in settings_of(model) if setting.field == field]
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({setting.key: {"no": "value"}}))
    with pytest.raises(InputError) as caught:
        load_settings(model, {"config": str(file)}, {})
    [problem] = caught.value.problems
    assert str(problem).startswith(f"{file}, {setting.key}: ")
    assert problem.remedy


def test_flags_override_the_environment_and_that_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("schedulerName: file\nbindAddress: 127.0.0.1:1\nreserveAfter: 5m\nnamespaces: [a, b]\n")
    environment = {"COVEY_SCHEDULER_NAME": "environment", "COVEY_BIND_ADDRESS": "127.0.0.1:2", "COVEY_ASSETS": "x"}
    flags = {"scheduler_names": ("flag",), "namespaces": (), "leader_elect": None, "config": str(file)}
    settings = load_settings(SchedulerSettings, flags, environment)
    assert (settings.scheduler_names, settings.bind_address) == (("flag",), "127.0.0.1:2")
    assert (settings.reserve_after, settings.namespaces, settings.leader_elect) == (300.0, ("a", "b"), True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("300s", 300), ("5m", 300), ("1h30m", 5400), ("0.5m", 30), ("90", 90), ("0s", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert load_settings(SchedulerSettings, {"reserve_after": text}, {}).reserve_after == seconds


def test_a_variable_of_the_processes_when_the_page_starts_is_not_its() -> None:
    """The chart gives all pods the same variables."""
    shared = {"COVEY_NAMESPACE": "ml", "COVEY_LOG_LEVEL": "debug", "COVEY_UI_MEMORY": "256"}
    settings = load_settings(PageSettings, {}, shared)
    assert (settings.namespaces, settings.log_level, settings.memory) == ((), "warning", 256)


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
        ("a.b: 1\n", {}, {}, "config.yaml, a.b: there is no such setting"),
        ("tlsCertFile: a\n", {}, {}, "config.yaml, tlsCertFile: TLS needs both a certificate and its key"),
        ("", {"COVEY_CLIENT_CA_FILE": "a"}, {}, "COVEY_CLIENT_CA_FILE: TLS needs both a certificate and its key"),
        ("", {"COVEY_POD_NAMESPACE": "a"}, {}, "COVEY_POD_NAMESPACE: a pod is found by its name and its namespace"),
    ],
)
def test_bad_settings_are_named_as_they_were_given(
    tmp_path: Path, file: str, environment: dict[str, str], flags: dict[str, Any], words: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(file)
    with pytest.raises(InputError) as caught:
        load_settings(SchedulerSettings, {**flags, "config": str(config)}, environment)
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
    settings = load_settings(SchedulerSettings, {}, {"COVEY_POD_NAME": "p", "COVEY_POD_NAMESPACE": "n"})
    assert (settings.pod_name, settings.pod_namespace) == ("p", "n")


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


@pytest.mark.parametrize("process", list(MODELS))
def test_a_bad_setting_ends_a_process_before_it_starts(process: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("colour: red\n")
    result = covey(process, "--config", config)
    assert result.exit_code == 2
    assert "colour: there is no such setting" in result.stderr
