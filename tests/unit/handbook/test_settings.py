"""Settings have one name, default and meaning: in the models, the chart, the manifests, the help and the reference."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from builders.processes import containers_of, started_with
from covey.cli.main import covey
from covey.kube.settings import settings_of
from handbook.generated import outdated_pages
from handbook.pages import DOCS, ROOT
from handbook.settings import CHART, MODELS, SCHEMA, VALUES, chart_files

#: Values that have another default on purpose: in a pod memory is limited, and the guide's certificates may call.
OTHERWISE = {"ui.memoryMiB", "scheduler.extender.tls.clientNames"}
CONTAINERS = {
    f"{path.relative_to(ROOT)}-{container['args'][0]}": container["args"]
    for path in sorted((ROOT / "manifests").rglob("*.yaml"))
    for container in containers_of([*yaml.safe_load_all(path.read_text())])
}


@pytest.mark.parametrize("value", [value for value in CHART if value not in OTHERWISE])
def test_a_value_of_the_chart_when_nobody_sets_it_is_the_default_of_its_setting(value: str) -> None:
    process, field = CHART[value]
    node: Any = yaml.safe_load(VALUES.read_text())
    for name in value.split("."):
        node = node[name]
    [setting] = [setting for setting in settings_of(MODELS[process]) if setting.field == field]
    assert MODELS[process].model_validate({setting.key: node}) == MODELS[process]()


@pytest.mark.parametrize("value", CHART)
def test_a_value_of_the_chart_when_it_is_set_reaches_its_flag(value: str) -> None:
    """In the templates, behind its flag, or around a switch."""
    process, field = CHART[value]
    [setting] = [setting for setting in settings_of(MODELS[process]) if setting.field == field]
    templates = "\n".join(
        path.read_text() for path in sorted((ROOT / "helm/covey/templates").rglob("*")) if path.is_file()
    )
    assert f"- {setting.flag}" in templates
    assert f".{value.rpartition('.')[2]}" in templates


@pytest.mark.parametrize("container", CONTAINERS)
def test_arguments_of_the_manifests_when_a_process_starts_are_settings(container: str) -> None:
    assert started_with(CONTAINERS[container])


def test_every_setting_when_somebody_looks_it_up_is_in_help_and_reference() -> None:
    reference = (DOCS / "reference/settings.md").read_text()
    options = (DOCS / "reference/cli.md").read_text()
    for process, model in MODELS.items():
        command = covey.get_command(click.Context(covey), process)
        assert command is not None
        help_of = {option.name: option.help for option in command.params if isinstance(option, click.Option)}
        for setting in settings_of(model):
            assert setting.text, f"{process}, {setting.field}: nobody knows what it is for"
            assert str(help_of[setting.field]).startswith(setting.text)
            assert f'id="{process}-{setting.key}"' in reference
            assert f"`{setting.variable}`<br>`{setting.flag}" in reference
            assert f'id="covey-{process}{setting.flag[1:]}"' in options


def test_a_comment_in_the_values_when_it_is_not_its_settings_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert dict(chart_files()) == {path: path.read_text() for path in (VALUES, SCHEMA)}
    values, schema = tmp_path / "values.yaml", tmp_path / "values.schema.json"
    values.write_text(
        VALUES.read_text().replace("  # Ask for replicas beyond the minimum", "  # Something else.\n  # Twice")
    )
    described = json.loads(SCHEMA.read_text())
    described["properties"]["capacity"]["properties"]["surplus"]["description"] = "Something else."
    schema.write_text(json.dumps(described))
    monkeypatch.setattr("handbook.settings.VALUES", values)
    monkeypatch.setattr("handbook.settings.SCHEMA", schema)
    assert outdated_pages() == {values: VALUES.read_text(), schema: SCHEMA.read_text()}
