"""What is said of the settings of the processes, from their models: the reference, and the comments in the chart's values."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from covey.kube.settings import ProcessSettings, Setting, settings_of
from covey.operator.process.settings import OperatorSettings
from covey.scheduler.settings import SchedulerSettings
from covey.ui.settings import PageSettings
from handbook.pages import ROOT

MODELS: Final[Mapping[str, type[ProcessSettings]]] = {
    "operator": OperatorSettings,
    "scheduler": SchedulerSettings,
    "ui": PageSettings,
}
#: Value of the chart → the process and the field that it sets. Of what two processes have the first stands here.
CHART: Final[Mapping[str, tuple[str, str]]] = {
    "watchNamespaces": ("operator", "namespaces"),
    "backends": ("operator", "backends"),
    "preemption.ordinaryPods": ("scheduler", "preempt_ordinary_pods"),
    "capacity.provider": ("operator", "capacity_provider"),
    "capacity.className": ("operator", "capacity_class"),
    "capacity.afterSeconds": ("operator", "capacity_after_seconds"),
    "capacity.waitSeconds": ("operator", "capacity_wait_seconds"),
    "capacity.surplus": ("operator", "capacity_surplus"),
    "gangs.jobs": ("operator", "job_gangs"),
    "gangs.native": ("operator", "native_groups"),
    "gangs.leaderWorkerSets": ("operator", "leader_worker_sets"),
    "computeDomains": ("operator", "compute_domains"),
    "evictionResponder.enabled": ("operator", "eviction_responder"),
    "routing.inferencePools": ("operator", "inference_pools"),
    "log.level": ("operator", "log_level"),
    "log.format": ("operator", "log_format"),
    "operator.evacuationTaints": ("operator", "evacuation_taints"),
    "ui.memoryMiB": ("ui", "memory"),
    "scheduler.name": ("scheduler", "scheduler_names"),
    "scheduler.reserveAfter": ("scheduler", "reserve_after"),
    "scheduler.maxReservations": ("scheduler", "max_reservations"),
    "scheduler.maxReservationsPerNamespace": ("scheduler", "max_reservations_per_namespace"),
    "scheduler.maxReservedPercent": ("scheduler", "max_reserved_percent"),
    "scheduler.maxPreemptionsPerMinute": ("scheduler", "max_preemptions_per_minute"),
    "scheduler.maxMinRun": ("scheduler", "max_min_run"),
    "scheduler.maxHold": ("scheduler", "max_hold"),
    "scheduler.extender.yieldToPriority": ("scheduler", "yield_to_priority"),
    "scheduler.extender.guardedResources": ("scheduler", "guarded_resources"),
    "scheduler.extender.tls.clientNames": ("scheduler", "client_names"),
}
#: Fields that both processes have, or all of them, and that one value sets.
_SHARED: Final = frozenset({"namespaces", "native_groups", "log_level", "log_format"})
VALUES: Final = ROOT / "helm/covey/values.yaml"
SCHEMA: Final = ROOT / "helm/covey/values.schema.json"
_WIDTH: Final = 130


def reference(process: str) -> str:
    """A row for each setting of a process: its names, its default, its meaning and the chart's value."""
    rows = ["| setting | default | meaning | value of the chart |", "|---|---|---|---|"]
    values = {field: value for value, (name, field) in CHART.items() if name == process or field in _SHARED}
    for setting in settings_of(MODELS[process]):
        names = f"`{setting.key}`<br>`{setting.variable}`<br>`{setting.flag} {setting.metavar.replace('|', '/')}`"
        default = "<br>".join(f"`{part}`" for part in setting.default.split(", ")) if setting.default else ""
        value = values.get(setting.field, "") if (process, setting.field) != ("ui", "namespaces") else ""
        text = setting.text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
        mark = f'<span id="{process}-{setting.key}"></span>'
        rows.append(f"| {mark}{names} | {default} | {text} | {f'`{value}`' if value else ''} |")
    return "\n".join(rows)


def chart_files() -> Iterator[tuple[Path, str]]:
    """The chart's values and their schema, with the words that the settings have now."""
    settings = {
        value: next(setting for setting in settings_of(MODELS[process]) if setting.field == field)
        for value, (process, field) in CHART.items()
    }
    yield VALUES, _comment(VALUES.read_text(encoding="utf-8"), settings)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for value, setting in settings.items():
        node = schema
        for name in value.split("."):
            node = node["properties"][name]
        node["description"] = setting.text
    yield SCHEMA, json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _comment(text: str, settings: Mapping[str, Setting]) -> str:
    """Write above each value what its setting is for, in place of the comment that stands there."""
    lines = text.splitlines()
    places = _places(yaml.compose(text), "")
    for value, line in sorted(places.items(), key=lambda place: -place[1]):
        if value not in settings:
            continue
        setting, begin = settings[value], line
        while lines[begin - 1].lstrip().startswith("#"):
            begin -= 1
        indent = " " * (len(lines[line]) - len(lines[line].lstrip()))
        words = setting.text
        if any(choice not in words for choice in setting.choices):
            words += f" One of: {', '.join(setting.choices)}."
        margin = f"{indent}# "
        lines[begin:line] = textwrap.wrap(
            words, _WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
        )
    return "\n".join(lines) + "\n"


def _places(node: Any, above: str) -> dict[str, int]:
    """Lines of all keys below a node, from 0, by path."""
    places: dict[str, int] = {}
    if isinstance(node, yaml.MappingNode):
        for key, inner in node.value:
            path = f"{above}.{key.value}".removeprefix(".")
            places |= {path: key.start_mark.line} | _places(inner, path)
    return places
